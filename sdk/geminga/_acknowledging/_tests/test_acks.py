from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga._acknowledging import acks as _acks
from geminga._acknowledging.acks import AckGroup, AckStates, AckTracker, BatchAcks
from geminga_protocol.ack_set import AckSet, from_bits, full, to_bits

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


class Delivered:
    """A delivered batch."""

    def __init__(self, ledger_id: int = 1, entry_id: int = 1, ack_set: AckSet = ()) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.message_count = SIZE
        self.ack_set = ack_set
        self.ack_state: BatchAcks | None = None
        self.ack_states: AckStates | None = None


class Broker:
    """What a broker makes of the groups: messages acknowledged, as (entry, index)."""

    def __init__(self) -> None:
        self.acked: set[tuple[int, int]] = set()

    def take(self, groups: list[AckGroup]) -> None:
        for group in groups:
            for _, entry, left in group.all_ids():
                if group.cumulative:
                    self.acked |= {(e, n) for e in range(entry) for n in range(SIZE)}
                bits = to_bits(left)
                self.acked |= {(entry, n) for n in range(SIZE) if not bits >> n & 1}


@pytest.mark.parametrize("run_ids_min", [1, 2, 1000])
@given(steps=STEPS, batch_index_ack=st.booleans())
@pytest.mark.slow
def test_the_broker_learns_what_it_may_and_no_more(
    run_ids_min: int, steps: list[tuple[str, int, int]], batch_index_ack: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_acks, "RUN_IDS_MIN", run_ids_min)
        the_broker_learns(steps, batch_index_ack)


def the_broker_learns(steps: list[tuple[str, int, int]], batch_index_ack: bool) -> None:
    tracker = AckTracker(batch_index_ack=batch_index_ack)
    broker = Broker()
    acked: set[tuple[int, int]] = set()
    for kind, entry, index in [*steps, ("take", 0, 0)]:
        if kind == "one":
            tracker.add_in_batch((7, entry), index, SIZE)
            acked.add((entry, index))
        elif kind == "run":
            tracker.add_delivered(Delivered(7, entry), range(index, SIZE))
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
    entry = Delivered(ack_set=from_bits(0b1010))
    assert not tracker.add_delivered(entry, (1,))
    assert tracker.deliver(Delivered()) == bytearray([0, 0, 0, 1])
    assert tracker.add_delivered(entry, (3,))
    assert tracker.take() == [AckGroup(False, [(1, 1, ())])]
    assert tracker.deliver(Delivered()) is None
    assert entry.ack_set == from_bits(0b1010)


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
    tracker.add_in_batch((2, 0), 0, SIZE)
    groups = tracker.take(10)
    assert [len(group.all_ids()) for group in groups] == [10, 10, 5, 1]
    assert [group.run for group in groups] == [(1, 0, 10), (1, 10, 10), (1, 20, 5), None]
    tracker.add_cumulative(3, 3)
    tracker.reset()
    assert len(tracker) == 0
    assert tracker.deliver(Delivered(2, 0)) is None
    assert full(SIZE) == (15,)


def test_deliveries_over_one_attachment_share_their_state() -> None:
    tracker = AckTracker(batch_index_ack=False)
    first, second = Delivered(), Delivered()
    tracker.deliver(first)
    assert not tracker.add_delivered(first, (0, 1))
    assert tracker.deliver(second) == bytearray([0, 0, 1, 1])
    assert not tracker.is_left(second, 0)
    assert tracker.is_left(second, 2)
    assert not tracker.add_delivered(second, (2,))
    assert tracker.add_delivered(first, (3,))
    assert tracker.take() == [AckGroup(False, [(1, 1, ())])]


@pytest.mark.parametrize("seeks", [False, True])
def test_another_attachment_begins_anew(seeks: bool) -> None:
    tracker = AckTracker(batch_index_ack=False)
    before, after = Delivered(), Delivered()
    untouched = Delivered()
    tracker.deliver(before)
    tracker.deliver(untouched)
    tracker.add_delivered(before, (0, 1, 2))
    if seeks:
        tracker.reset()
    else:
        tracker.detached()
    assert tracker.deliver(after) is None
    assert not tracker.add_delivered(after, (3,))
    assert not tracker.add_delivered(untouched, (3,))
    assert tracker.deliver(Delivered()) == bytearray([1, 1, 1, 0])
    assert tracker.add_delivered(before, (3,))
    assert tracker.take() == [AckGroup(False, [(1, 1, ())])]
    # What the broker may not have heard of can be said again.
    assert tracker.add_delivered(before, (3,))
    assert not tracker.add_delivered(after, (0,))


def test_indexes_of_two_deliveries_are_told_together() -> None:
    tracker = AckTracker(batch_index_ack=True)
    before, after = Delivered(), Delivered()
    tracker.deliver(before)
    tracker.add_delivered(before, (0,))
    tracker.detached()
    tracker.deliver(after)
    tracker.add_delivered(after, (3,))
    assert tracker.take() == [AckGroup(False, [(1, 1, from_bits(0b0110))])]


@pytest.mark.parametrize("way", ["whole", "cumulative"])
def test_a_batch_that_is_acknowledged_whole_has_nothing_left(way: str) -> None:
    tracker = AckTracker(batch_index_ack=False)
    entry = Delivered()
    tracker.deliver(entry)
    tracker.add_delivered(entry, (0,))
    if way == "whole":
        tracker.add(1, 1)
    else:
        tracker.add_cumulative(1, 1)
    assert entry.ack_state is not None
    assert entry.ack_state.left == 0
    assert not tracker.is_left(entry, 3)


def test_the_oldest_state_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_acks, "UNACKED_BATCHES_MAX", 1)
    tracker = AckTracker(batch_index_ack=False)
    entry = Delivered()
    tracker.deliver(entry)
    tracker.add_delivered(entry, (0, 1, 2))
    tracker.add_in_batch((1, 2), 0, 3)
    assert tracker.deliver(Delivered()) is None
    assert tracker.add_delivered(entry, (3,))


def test_with_batch_indexes_every_message_is_news() -> None:
    tracker = AckTracker(batch_index_ack=True)
    assert tracker.add_in_batch((1, 1), 0, 3)
    assert tracker.add_in_batch((1, 1), 1, 3)


def test_a_whole_entry_is_told_once() -> None:
    for begins in (0, 1):
        tracker = AckTracker(batch_index_ack=True)
        for entry in range(begins):
            tracker.add(1, entry)
        assert tracker.add_in_batch((1, begins), 0, SIZE)
        tracker.add(1, begins)
        tracker.add(1, begins)
        assert len(tracker) == begins + 1
        assert not tracker.add_in_batch((1, begins), 1, SIZE)
        assert tracker.take() == [AckGroup(False, [(1, n, ()) for n in range(begins + 1)])]
        assert not tracker.is_acked(1, begins)


def test_ids_of_nothing_are_in_no_run() -> None:
    tracker = AckTracker(batch_index_ack=False)
    ids = [(-1, -1), (-2, -2), (3, -1), (3, 0), (3, 1)]
    tracker.add_all(ids)
    assert len(tracker) == len(ids)
    assert [each[:2] for group in tracker.take() for each in group.all_ids()] == ids
