"""Acknowledgements against a set of positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from geminga_broker.log import ack_state
from geminga_broker.log._tests.test_chain import all_positions, chain_of, pos
from geminga_broker.log.ack_state import PARTIAL_OVERHEAD_BYTES, AckState, run_end
from geminga_broker.log.api import Ack, AckRun
from geminga_protocol import ack_set as words
from geminga_protocol.ids import Position

SIZES = [5, 3, 0, 40, 4]
EVERY = all_positions(SIZES)
BATCH = 3


class Oracle:
    """Per entry the set of unacknowledged messages."""

    def __init__(self) -> None:
        self.left = {p: set(range(BATCH)) for p in EVERY}

    def deleted(self, position: Position) -> bool:
        return not self.left.get(position, set())

    def mark(self) -> Position:
        mark = pos(3, -1)
        for p in EVERY:
            if self.left[p]:
                break
            mark = p
        return mark


positions = st.one_of(
    st.sampled_from(EVERY), st.builds(pos, st.integers(0, 13), st.integers(-1, 45))
)
parts = st.sets(st.integers(0, BATCH - 1), min_size=1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), st.lists(positions, max_size=30)),
        st.tuples(st.just("part"), positions, parts),
        st.tuples(st.just("cumulative"), positions),
        st.tuples(st.just("cumulative part"), st.sampled_from(EVERY), st.integers(0, BATCH - 2)),
        st.tuples(st.just("reset"), st.sampled_from(EVERY)),
        st.tuples(st.just("restore")),
    ),
    max_size=25,
)


def apply(state: AckState, oracle: Oracle, step: tuple[object, ...]) -> AckState:
    match step:
        case ("ack", list(targets)):
            fresh = list(dict.fromkeys(p for p in targets if oracle.left.get(p)))
            assert state.ack(Ack(p) for p in targets) == fresh
            for p in fresh:
                oracle.left[p] = set()
        case ("part", tuple(target), set(left)):
            target = Position(*target)
            before = oracle.left.get(target, set())
            got = state.ack([Ack(target, words.from_bits(sum(1 << n for n in left)), BATCH)])
            if before:
                oracle.left[target] = before & left
            assert got == ([target] if before and not before & left else [])
        case ("cumulative", tuple(target)):
            assert not state.ack_cumulative(Position(*target)) or target <= EVERY[-1]
            for p in EVERY:
                if p <= target <= EVERY[-1]:
                    oracle.left[p] = set()
        case ("cumulative part", tuple(target), int(index)):
            target = Position(*target)
            state.ack_cumulative(target, words.cumulative(BATCH, index))
            if oracle.left[target]:
                for p in EVERY:
                    if p < target:
                        oracle.left[p] = set()
                oracle.left[target] -= set(range(index + 1))
                if not oracle.left[target]:
                    return apply(state, oracle, ("ack", [target]))
        case ("reset", tuple(target)):
            state.reset(Position(*target))
            oracle.left = {p: set() if p <= target else set(range(BATCH)) for p in EVERY}
        case ("restore",):
            return restored(state, by_ranges=True)
    return state


def restored(state: AckState, *, by_ranges: bool) -> AckState:
    fresh = AckState(state._chain, state.mark_delete)
    ranges = state.ranges(1000)
    assert ranges is not None
    fresh.restore(
        ranges if by_ranges else [], [] if by_ranges else state.bitmaps(), list(state.partial())
    )
    return fresh


@given(steps)
def test_any_acks_are_those_of_a_plain_set(script: list[tuple[object, ...]]) -> None:
    chain = chain_of(SIZES)
    state = AckState(chain, pos(3, -1))
    oracle = Oracle()
    for step in script:
        state = apply(state, oracle, step)
        # a part acknowledged cumulatively down to nothing counts once the entry is acknowledged
        if all(oracle.left[p] for p in EVERY if not state.is_deleted(p)):
            assert state.mark_delete == oracle.mark() or step[0] == "reset"
        for p in EVERY:
            assert state.is_deleted(p) == oracle.deleted(p), p
            partial = 0 < len(oracle.left[p]) < BATCH
            expected = words.from_bits(sum(1 << n for n in oracle.left[p])) if partial else ()
            assert state.ack_set(p) in (expected, words.full(BATCH) if not partial else expected)
        unacked = [p for p in EVERY if oracle.left[p]]
        assert state.backlog() == len(unacked)
        for p in EVERY:
            following = min((q for q in unacked if q >= p), default=pos(11, 4))
            assert state.first_unacked(p) == following
        for count in (1, 2, 7):
            target = state.skip_target(count)
            assert sum(q <= target for q in unacked) == min(count, len(unacked))
        assert list(restored(state, by_ranges=False).bitmaps()) == list(state.bitmaps())


def test_a_range_that_spans_ledgers_is_split() -> None:
    state = AckState(chain_of(SIZES), pos(3, -1))
    state.restore([(pos(3, 2), pos(9, 10))], [], [])
    deleted = [p for p in EVERY if state.is_deleted(p)]
    assert deleted == [p for p in EVERY if pos(3, 2) < p <= pos(9, 10)]
    assert state.holes == len(deleted)


@given(st.sampled_from([pos(11, 4), pos(11, 1000), pos(12, 0), pos(1 << 62, 0)]), st.booleans())
def test_a_cumulative_ack_beyond_the_end_changes_nothing(target: Position, part: bool) -> None:
    state = AckState(chain_of(SIZES), pos(3, -1))
    state.ack([Ack(EVERY[2])])
    assert not state.ack_cumulative(target, words.cumulative(BATCH, 0) if part else ())
    assert state.mark_delete == pos(3, -1)
    assert state.backlog() == len(EVERY) - 1
    assert list(state.partial()) == []


def test_parts_of_batches_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts without room count as unacknowledged: the whole batch is redelivered."""
    bytes_max = 1 << 20
    monkeypatch.setattr(ack_state, "PARTIAL_BYTES_MAX", bytes_max)
    chain = chain_of([100_000])
    state = AckState(chain, pos(3, -1))
    size = 64 * 1000
    each = size // 8 + PARTIAL_OVERHEAD_BYTES
    fit = bytes_max // each
    left = words.from_bits((1 << size) - 2)
    for entry in range(1, 2 * fit):
        assert state.ack([Ack(pos(3, entry), left, size)]) == []
    assert len(list(state.partial())) == fit
    assert state.ack_set(pos(3, fit))
    assert not state.ack_set(pos(3, fit + 1))
    # The whole batch counts as unacknowledged, but not earlier entries.
    assert state.ack_cumulative(pos(3, 2 * fit), left)
    assert state.mark_delete == pos(3, 2 * fit - 1)
    state.reset(pos(3, -1))
    for entry in range(1, 2 * fit):
        state.ack([Ack(pos(3, entry), left, size)])
    assert len(list(state.partial())) == fit
    # A batch that is known takes less with each further part.
    assert state.ack([Ack(pos(3, 1), words.from_bits(0b100), size)]) == []
    assert state.ack_set(pos(3, 1)) == (0b100,)
    # Room is freed by acknowledged batches, singly or cumulatively, or by a seek.
    state.ack([Ack(pos(3, 1)), Ack(pos(3, 2))])
    state.ack([Ack(pos(3, 2 * fit - 1), left, size)])
    assert state.ack_set(pos(3, 2 * fit - 1))
    state.ack_cumulative(pos(3, fit))
    for entry in range(fit + 1, 2 * fit):
        state.ack([Ack(pos(3, entry), left, size)])
    assert len(list(state.partial())) == fit - 1
    assert len(list(restored(state, by_ranges=False).partial())) == fit - 1


def test_ranges_give_up_at_the_limit() -> None:
    state = AckState(chain_of([100]), pos(3, -1))
    state.ack(Ack(pos(3, n)) for n in range(1, 100, 2))
    assert state.ranges(49) is None
    assert state.ranges(50) is not None


def test_holes_of_trimmed_ledgers_are_forgotten() -> None:
    chain = chain_of([2, 3])
    state = AckState(chain, pos(3, -1))
    state.ack([Ack(pos(3, 1)), Ack(pos(5, 1)), Ack(pos(3, 0), (1,), 2)])
    chain.remove(3)
    state.forget_trimmed()
    assert state.holes == 1
    assert state.backlog() == 2


@given(st.sets(st.integers(0, 300)), st.integers(1, 5000), st.integers(0, 100))
def test_the_end_of_a_run_is_found(others: set[int], length: int, first: int) -> None:
    members = {n for n in others if n > first + length} | set(range(first, first + length))
    bitmap = BitMap(members)
    last = first
    while last + 1 in members:
        last += 1
    assert run_end(bitmap, first) == last


def with_a_million_holes() -> AckState:
    state = AckState(chain_of([2_000_001]), pos(3, -1))
    state.restore([], [(3, BitMap(range(1, 2_000_000, 2)))], [])
    return state


def test_a_million_holes_fit_and_close() -> None:
    state = with_a_million_holes()
    assert state.holes == 1_000_000
    assert sum(len(bitmap.serialize()) for _, bitmap in state.bitmaps()) < 300_000
    state.ack(Ack(pos(3, n)) for n in range(0, 2000, 2))
    assert state.mark_delete == pos(3, 1999)
    assert state.first_unacked(pos(3, 1_000_001)) == pos(3, 1_000_002)
    assert state.skip_target(500_000 - 1000) == pos(3, 999_998)
    state.ack_cumulative(pos(3, 1_999_998))
    assert state.mark_delete == pos(3, 1_999_999)
    assert state.holes == 0


@given(
    before=steps,
    first=st.one_of(st.sampled_from(EVERY), st.builds(pos, st.integers(0, 13), st.just(0))),
    count=st.integers(1, 50),
    after=st.lists(positions, max_size=5),
)
def test_a_run_is_acknowledged_as_its_entries_one_by_one(
    before: list[tuple[object, ...]], first: Position, count: int, after: list[Position]
) -> None:
    run = AckRun(first.ledger_id, first.entry_id, count)
    assert len(run) == count
    each = [Ack(pos(first.ledger_id, first.entry_id + n)) for n in range(count)]
    assert (list(run), run[0], run[-1], run[:2]) == (each, each[0], each[-1], each[:2])
    found = []
    for in_one in (False, True):
        state, oracle = AckState(chain_of(SIZES), pos(3, -1)), Oracle()
        for step in before:
            state = apply(state, oracle, step)
        if in_one:
            state.ack_run(run)
        else:
            state.ack(run)
        known = state.mark_delete, state.holes, state.backlog()
        left = [(state.is_deleted(p), state.ack_set(p), state._bits(p)) for p in EVERY]
        room = state._partial_bytes, {key for key, value in state._partial.items() if value}
        state.ack(Ack(p) for p in after)
        found.append((known, left, room, state.mark_delete, state.holes))
    assert found[0] == found[1]


def test_a_run_beyond_a_gap_drops_parts_and_joins_the_ledger_before() -> None:
    state = AckState(chain_of(SIZES), pos(3, -1))
    for entry in (4, 9):
        state.ack([Ack(pos(9, entry), words.from_bits(0b100), BATCH)])
    state.ack_run(AckRun(9, 2, 4))
    assert state.holes == 4
    assert (state.ack_set(pos(9, 4)), state.ack_set(pos(9, 9))) == ((), (0b100,))
    state.ack_run(AckRun(3, 0, 100))
    assert state.mark_delete == pos(3, 4)
    state.ack_run(AckRun(5, 0, 3))
    assert (state.mark_delete, state.holes) == (pos(5, 2), 4)
    state.ack_run(AckRun(9, 1, 1))
    assert (state.mark_delete, state.holes) == (pos(5, 2), 5)
    state.ack_run(AckRun(9, 0, 1))
    assert (state.mark_delete, state.holes) == (pos(9, 5), 0)
