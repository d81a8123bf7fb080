from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga import _acks
from geminga._acks import AckGroup, AckTracker
from geminga_protocol.ack_set import from_bits, full, to_bits

SIZE = 4
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["one", "run"]), st.integers(0, 4), st.integers(0, SIZE - 1)),
        st.tuples(st.just("whole"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("up to"), st.integers(0, 4), st.integers(-1, SIZE - 1)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


class Broker:
    """What a broker makes of the groups: messages acknowledged, as (entry, index)."""

    def __init__(self) -> None:
        self.acked: set[tuple[int, int]] = set()

    def take(self, groups: list[AckGroup]) -> None:
        for group in groups:
            for _, entry, left in group.ids:
                if group.cumulative:
                    self.acked |= {(e, n) for e in range(entry) for n in range(SIZE)}
                bits = to_bits(left)
                self.acked |= {(entry, n) for n in range(SIZE) if not bits >> n & 1}


@given(STEPS, st.booleans())
def test_the_broker_learns_what_it_may_and_no_more(
    steps: list[tuple[str, int, int]], batch_index_ack: bool
) -> None:
    tracker = AckTracker(batch_index_ack=batch_index_ack)
    broker = Broker()
    acked: set[tuple[int, int]] = set()
    for kind, entry, index in [*steps, ("take", 0, 0)]:
        if kind == "one":
            tracker.add_in_batch(7, entry, index, SIZE)
            acked.add((entry, index))
        elif kind == "run":
            tracker.add_run_in_batch((7, entry), range(index, SIZE), SIZE)
            acked |= {(entry, n) for n in range(index, SIZE)}
        elif kind == "whole":
            tracker.add(7, entry)
            acked |= {(entry, n) for n in range(SIZE)}
        elif kind == "up to":
            tracker.add_cumulative(7, entry, index, SIZE if index >= 0 else 0)
            last = index if index >= 0 else SIZE - 1
            acked |= {(e, n) for e in range(entry) for n in range(SIZE)}
            acked |= {(entry, n) for n in range(last + 1)}
        else:
            broker.take(tracker.take())
            assert len(tracker) == 0
        assert {e for e in range(5) if tracker.is_acked(7, e)} <= {
            e for e in range(5) if all((e, n) in acked for n in range(SIZE))
        }
    assert broker.acked <= acked | {(-1, n) for n in range(SIZE)}
    if not any(kind == "up to" for kind, _, _ in steps):
        whole = {e for e in range(5) if all((e, n) in acked for n in range(SIZE))}
        if batch_index_ack:
            assert broker.acked == acked
        else:
            assert broker.acked == {(e, n) for e in whole for n in range(SIZE)}


def test_what_the_broker_knows_already_counts() -> None:
    tracker = AckTracker(batch_index_ack=False)
    left = from_bits(0b1010)
    assert not tracker.add_in_batch(1, 1, 1, SIZE, left)
    assert tracker.left_of(1, 1, SIZE) == bytearray([0, 0, 0, 1])
    assert tracker.add_in_batch(1, 1, 3, SIZE, left)
    assert tracker.take() == [AckGroup(False, [(1, 1, ())])]
    assert tracker.left_of(1, 1, SIZE) is None


def test_cumulative_within_a_batch() -> None:
    plain = AckTracker(batch_index_ack=False)
    plain.add_cumulative(1, 5, 1, SIZE)
    assert plain.take() == [AckGroup(True, [(1, 4, ())])]
    plain.add_cumulative(1, 5, 3, SIZE)
    plain.add_cumulative(1, 5, 2, SIZE)
    assert plain.take() == [AckGroup(True, [(1, 5, ())])]
    by_index = AckTracker(batch_index_ack=True)
    by_index.add_cumulative(1, 5, 1, SIZE)
    assert by_index.take() == [AckGroup(True, [(1, 5, from_bits(0b1100))])]
    assert not by_index.is_acked(1, 5)


def test_a_cumulative_acknowledgement_that_was_lost_can_be_made_again() -> None:
    tracker = AckTracker(batch_index_ack=False)
    tracker.add_cumulative(1, 5)
    sent = tracker.take()
    assert not tracker.is_acked(1, 5)
    tracker.add_cumulative(1, 5)
    assert tracker.take() == sent == [AckGroup(True, [(1, 5, ())])]
    assert tracker.take() == []


def test_groups_are_bounded_and_reset_forgets() -> None:
    tracker = AckTracker(batch_index_ack=True)
    for entry in range(25):
        tracker.add(1, entry)
    tracker.add_in_batch(2, 0, 0, SIZE)
    assert [len(group.ids) for group in tracker.take(10)] == [10, 10, 6]
    tracker.add_cumulative(3, 3)
    tracker.reset()
    assert len(tracker) == 0
    assert tracker.left_of(2, 0, SIZE) is None
    assert full(SIZE) == (15,)


@pytest.mark.parametrize("way", ["evicted", "whole", "cumulative", "reset"])
def test_a_batch_that_is_not_asked_any_more_says_so(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_acks, "UNACKED_BATCHES_MAX", 1)
    tracker = AckTracker(batch_index_ack=False)
    tracker.add_in_batch(1, 1, 0, 3)
    state = tracker.state_of(1, 1)
    assert state is not None
    assert state.left == 2
    if way == "evicted":
        tracker.add_in_batch(1, 2, 0, 3)
    elif way == "whole":
        tracker.add(1, 1)
    elif way == "cumulative":
        tracker.add_cumulative(1, 1)
    else:
        tracker.reset()
    assert state.left == 0
    assert tracker.state_of(1, 1) is None


def test_with_batch_indexes_every_message_is_news() -> None:
    tracker = AckTracker(batch_index_ack=True)
    assert tracker.add_in_batch(1, 1, 0, 3)
    assert tracker.state_of(1, 1) is None
