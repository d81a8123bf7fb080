"""Persisted cursors come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from geminga_broker.log._tests.test_ack_state import EVERY, SIZES, with_a_million_holes
from geminga_broker.log._tests.test_chain import chain_of, pos
from geminga_broker.log.ack_state import AckState
from geminga_broker.log.api import Ack
from geminga_broker.log.position_info import (
    NO_LEDGER,
    PART_BYTES_MAX,
    RANGES_MAX,
    CursorSnapshot,
    closed_cursor_info,
    entries_of_state,
    from_words,
    position_infos,
    read_cursor_info,
    read_position_infos,
    to_words,
)
from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position

members_of_all_kinds = st.one_of(
    st.sets(st.integers(0, 700), min_size=1),
    st.sets(st.integers(0, 200_000), min_size=1),
    st.builds(
        lambda first, count, step, more: set(range(first, first + count * step, step)) | more,
        st.integers(0, 140_000),
        st.integers(1, 20_000),
        st.integers(1, 5),
        st.sets(st.integers(0, 200_000)),
    ),
)


@settings(deadline=None, max_examples=60)
@given(members_of_all_kinds)
def test_words_are_those_of_a_bit_set(members: set[int]) -> None:
    words = to_words(BitMap(members))
    assert words[-1] != 0
    assert {64 * n + b for n, word in enumerate(words) for b in range(64) if word >> b & 1} == (
        members
    )
    assert set(from_words(words)) == members


def restored(state: AckState, found: CursorSnapshot) -> AckState:
    fresh = AckState(state._chain, found.mark_delete)
    fresh.restore(found.ranges, found.bitmaps, found.partial)
    return fresh


def same(first: AckState, second: AckState) -> bool:
    return (
        first.mark_delete == second.mark_delete
        and list(first.bitmaps()) == list(second.bitmaps())
        and sorted(first.partial()) == sorted(second.partial())
        and first.holes == second.holes
    )


@given(st.sets(st.sampled_from(EVERY)), st.sets(st.sampled_from(EVERY)))
@pytest.mark.slow
def test_states_survive(acked: set[Position], partly: set[Position]) -> None:
    state = AckState(chain_of(SIZES), pos(3, -1))
    state.ack(Ack(position) for position in sorted(acked))
    state.ack(Ack(position, (1,), 3) for position in sorted(partly))
    found = read_position_infos(position_infos(state, {"n": 5}, 1000))
    assert found.properties == {"n": 5}
    assert same(restored(state, found), state)
    info = closed_cursor_info(state, {"n": 5}, 1000, 1000)
    assert info is not None
    assert info.cursorsLedgerId == NO_LEDGER
    assert same(restored(state, read_cursor_info(info)), state)


def test_many_holes_are_stored_as_bit_sets_outside_of_the_node() -> None:
    state = AckState(chain_of([3 * RANGES_MAX]), pos(3, -1))
    state.ack(Ack(pos(3, n)) for n in range(1, 2 * RANGES_MAX + 2, 2))
    [info] = position_infos(state, {}, 10)
    assert len(info.individualDeletedMessages) == 0
    assert [entry.key for entry in info.individualDeletedMessageRanges] == [3]
    assert closed_cursor_info(state, {}, 10, 10**6) is None
    assert same(restored(state, read_position_infos([info])), state)


def test_partial_batches_are_bounded() -> None:
    state = AckState(chain_of(SIZES), pos(3, -1))
    state.ack(Ack(position, (1,), 3) for position in EVERY)
    assert len(position_infos(state, {}, 7)[0].batchedEntryDeletionIndexInfo) == 7


def crowded(ledgers: int, entries: int, step: int) -> AckState:
    """Every `step`th entry acknowledged, from the second on."""
    state = AckState(chain_of([entries] * ledgers), pos(3, -1))
    holes = BitMap(range(1, entries, step))
    state.restore([], [(3 + 2 * n, holes) for n in range(ledgers)], [])
    return state


@pytest.mark.parametrize(("ledgers", "entries", "step"), [(40, 400_000, 2), (1, 30_000_000, 30)])
def test_a_state_larger_than_an_entry_is_written_in_parts(
    ledgers: int, entries: int, step: int
) -> None:
    state = crowded(ledgers, entries, step)
    state.ack(Ack(position, (1,), 3) for position in (pos(3, 0), pos(3, 2)))
    infos = position_infos(state, {"n": 5}, 1000)
    assert len(infos) > 1
    assert all(info.ByteSize() <= PART_BYTES_MAX + (1 << 16) for info in infos)
    assert [entries_of_state(info) for info in infos] == [0] * (len(infos) - 1) + [len(infos)]
    assert {(info.ledgerId, info.entryId) for info in infos} == {state.mark_delete}
    found = read_position_infos(infos)
    assert found.properties == {"n": 5}
    assert same(restored(state, found), state)
    with pytest.raises(RemoteProtocolError, match="don't belong together"):
        read_position_infos(infos[1:] + infos[:1])


def test_large_batches_are_written_in_parts_too() -> None:
    state = AckState(chain_of([700]), pos(3, -1))
    words = (-1,) * 200
    state.ack(Ack(pos(3, n), words, 12_800) for n in range(700))
    infos = position_infos(state, {}, 10_000)
    assert len(infos) > 1
    assert same(restored(state, read_position_infos(infos)), state)


def test_a_damaged_bitmap_is_an_error() -> None:
    infos = position_infos(crowded(1, 30_000_000, 30), {}, 10)
    infos[0].ledgerBitmaps[0].roaring = b"no bitmap"
    with pytest.raises(RemoteProtocolError, match="damaged"):
        read_position_infos(infos)


@pytest.mark.alone
def test_a_million_holes_are_written_without_blocking_the_loop() -> None:
    state = with_a_million_holes()
    [info] = position_infos(state, {}, 10)
    data = info.SerializeToString()
    assert cpu_s(lambda: position_infos(state, {}, 10)[0].SerializeToString(), 0.02) < 0.02
    assert len(data) < 400_000
    assert restored(state, read_position_infos([type(info).FromString(data)])).holes == 1_000_000
