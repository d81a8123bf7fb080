"""Messages that join the open batch are as others."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geminga._entries.encode import Extras
from geminga._producing._tests.desk import Desk
from geminga._producing._tests.test_producer import producing, stored
from geminga._producing.window import ReceiptVerdict
from geminga.errors import GemingaError


def test_what_the_broker_may_have_does_not_join_a_batch() -> None:
    """A batch opened before the broker sent the last sequence id of the producer's name."""
    desk = Desk(held=True)
    desk.box.add(b"x", None, 5)
    desk.add(1)
    assert desk.box.open_batch is not None
    desk.box.let_join(9, 99)
    assert desk.box.joining.join(b"x") is not None
    desk.box.begin(10)
    assert desk.box.joining.join(b"x") is None
    desk.box.let_join(9, 99)
    assert desk.box.joining.join(b"x") is None
    assert desk.box.add_run([b"x"]) == []


@given(
    st.lists(st.tuples(st.sampled_from("ppppkns"), st.integers(0, 60)), max_size=20),
    st.integers(1, 6),
    st.booleans(),
)
def test_joining_the_open_batch_is_as_adding(
    steps: list[tuple[str, int]], messages_max: int, by_runs: bool
) -> None:
    """Between messages with a key, and with gaps in the sequence ids."""
    options = {"batching_max_messages": messages_max, "batching_max_bytes": 100}
    joining, adding = Desk(**options), Desk(**options)
    told: list[list[object]] = []
    for desk in (joining, adding):
        states: list[object] = []
        told.append(states)
        for kind, size in steps:
            data = bytes([size]) * size
            number = desk.box.next_sequence_id + 3 if kind == "n" else None
            if kind == "s":
                desk.box.seal()
            elif kind == "p" and desk is joining and by_runs:
                assert desk.box.add_run([data])
            elif kind != "p" or desk is adding or desk.box.joining.join(data) is None:
                desk.box.add(data, Extras(partition_key="k") if kind == "k" else None, number)
                if kind == "p" and desk is joining:
                    desk.box.let_join(99, 999)
            states.append((desk.box.pending_messages, desk.box.pending_bytes, desk.box.in_flight))
        desk.box.seal()
    assert [each.frame for each in joining.box.unsent] == [each.frame for each in adding.box.unsent]
    assert told[0] == told[1]
    assert joining.box.next_sequence_id == adding.box.next_sequence_id


@pytest.mark.parametrize(
    ("messages", "size_bytes", "expected"), [(3, 99, 3), (99, 5, 4), (0, 99, 0), (99, 0, 0)]
)
def test_so_many_join_and_no_more(messages: int, size_bytes: int, expected: int) -> None:
    """Of one byte each."""
    desk = Desk()
    desk.add(1)
    desk.box.let_join(messages, size_bytes)
    joined = [desk.box.joining.join(b"x") for _ in range(9)]
    assert [each is not None for each in joined] == [True] * expected + [False] * (9 - expected)
    assert (desk.box.pending_messages, desk.memory.used_bytes) == (1 + expected, expected)


@pytest.mark.parametrize("close", ["seal", "fail_all", "abandon"])
def test_none_joins_a_batch_that_was_taken(close: str) -> None:
    desk = Desk()
    (first,) = desk.add(1)
    desk.box.let_join(9, 99)
    joined = desk.box.joining.join(b"x")
    assert joined is not None
    if close == "seal":
        desk.box.seal()
        assert desk.sent() == [(0, 1, 2)]
        assert desk.box.on_receipt(0, 7, 5) is ReceiptVerdict.DONE
    else:
        getattr(desk.box, close)(GemingaError("why"))
    assert first.is_done
    assert joined.is_done
    assert desk.box.joining.join(b"x") is None
    assert desk.box.joining.cost_bytes == 0
    if close != "abandon":
        assert (desk.box.pending_messages, desk.box.pending_bytes) == (0, 0)


def test_none_joins_while_the_memory_is_used_up() -> None:
    desk = Desk()
    desk.add(1)
    desk.box.let_join(9, 99)
    desk.memory.used_bytes = desk.memory.limit_bytes - 1
    assert desk.box.joining.join(b"xx") is not None  # as one message may
    assert desk.box.joining.join(b"") is None
    desk.memory.used_bytes = 0
    assert desk.box.joining.join(b"x") is not None


async def test_a_full_queue_blocks_messages_of_a_batch(autojump_clock: MockClock) -> None:
    """`submit` looks at the bound of pending messages though a batch is open."""
    async with producing(max_pending_messages=5) as (broker, producer):
        broker.hold_receipts = True
        await producer.submit(b"x")
        await trio.sleep(1)
        with trio.move_on_after(1) as scope:
            for _ in range(9):
                await producer.submit(b"x")
        assert scope.cancelled_caught
        assert producer.pending_messages == 5
        broker.hold_receipts = False
        broker.release_receipts()
        await producer.flush()
        assert stored(broker) == [b"x"] * 5


@pytest.mark.parametrize(("size_bytes", "between"), [(10, 128), (1024, 128), (4096, 32)])
async def test_submit_yields_after_so_many_bytes(
    size_bytes: int, between: int, autojump_clock: MockClock
) -> None:
    """After 128 KiB or so, each message counted as 1 KiB at least, whatever a batch takes."""
    async with producing(batching_max_bytes=4 << 20, batching_max_messages=9999) as (_, producer):
        yielded = []
        for number in range(512):
            submitting = producer.submit(bytes(size_bytes))
            try:
                submitting.send(None)
            except StopIteration:
                continue
            yielded.append(number)
            submitting.close()
        assert yielded
        steps = [after - before for before, after in zip([0, *yielded], yielded, strict=False)]
        assert all(abs(step - between) <= 2 for step in steps)
        assert yielded[-1] > 512 - between - 8
