"""Queues that fit the messages' sizes, and are rarely changed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pulsar._scan._pace import STEP, Prefetch


def test_the_queue_begins_with_one_and_is_then_sized() -> None:
    queue = Prefetch(1000, 10_000)
    assert queue.queue_size == 1
    assert queue.took(1, 100, more=True)
    assert queue.queue_size == 100


def test_few_entries_are_read_with_one() -> None:
    queue = Prefetch(1000, 10_000)
    assert not queue.took(1, 100, more=False)
    assert queue.queue_size == 1


def test_large_messages_keep_the_queue_small() -> None:
    queue = Prefetch(1000, 10_000)
    assert not queue.took(1, 50_000, more=True)
    assert queue.queue_size == 1


def test_it_is_bounded_by_messages_too() -> None:
    queue = Prefetch(1000, 1 << 30)
    assert queue.took(1, 0, more=True)
    assert queue.queue_size == 1000


def test_it_shrinks_when_messages_grow_and_never_grows_again() -> None:
    queue = Prefetch(1000, 100_000)
    assert queue.took(1, 100, more=True)
    while not queue.took(1, 50_000, more=True):
        pass
    assert queue.queue_size < 1000 // STEP + 1
    small = queue.queue_size
    for _ in range(100):
        assert not queue.took(1, 100, more=True)
    assert queue.queue_size == small


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 1 << 24)), max_size=200))
def test_readers_are_changed_seldom_and_queues_are_in_bounds(taken: list[tuple[int, int]]) -> None:
    queue = Prefetch(1000, 1 << 20)
    changes = sum(queue.took(messages, size, more=True) for messages, size in taken)
    assert changes <= 6
    assert 1 <= queue.queue_size <= 1000
