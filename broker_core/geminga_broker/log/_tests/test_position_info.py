"""Persisted cursors come back as they were."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from geminga_broker.log._tests.test_ack_state import EVERY, SIZES, with_a_million_holes
from geminga_broker.log._tests.test_chain import chain_of, pos
from geminga_broker.log.ack_state import AckState
from geminga_broker.log.api import Ack
from geminga_broker.log.position_info import (
    NO_LEDGER,
    RANGES_MAX,
    CursorSnapshot,
    closed_cursor_info,
    from_words,
    position_info,
    read_cursor_info,
    read_position_info,
    to_words,
)
from geminga_protocol.ids import Position


@given(st.sets(st.integers(0, 700), min_size=1))
def test_words_are_those_of_a_bit_set(members: set[int]) -> None:
    words = to_words(BitMap(members))
    value = sum((word % (1 << 64)) << 64 * n for n, word in enumerate(words))
    assert value == sum(1 << member for member in members)
    assert words[-1] != 0
    assert set(from_words(words)) == members


def restored(state: AckState, found: CursorSnapshot) -> AckState:
    fresh = AckState(state._chain, found.mark_delete)
    fresh.restore(found.ranges, found.bitmaps, found.partial)
    return fresh


def same(first: AckState, second: AckState) -> bool:
    return (
        first.mark_delete == second.mark_delete
        and list(first.bitmaps()) == list(second.bitmaps())
        and list(first.partial()) == list(second.partial())
        and first.holes == second.holes
    )


@given(st.sets(st.sampled_from(EVERY)), st.sets(st.sampled_from(EVERY)))
def test_states_survive(acked: set[Position], partly: set[Position]) -> None:
    state = AckState(chain_of(SIZES), pos(3, -1))
    state.ack(Ack(position) for position in sorted(acked))
    state.ack(Ack(position, (1,), 3) for position in sorted(partly))
    found = read_position_info(position_info(state, {"n": 5}, 1000))
    assert found.properties == {"n": 5}
    assert same(restored(state, found), state)
    info = closed_cursor_info(state, {"n": 5}, 1000, 1000)
    assert info is not None
    assert info.cursorsLedgerId == NO_LEDGER
    assert same(restored(state, read_cursor_info(info)), state)


def test_many_holes_go_as_bit_sets_and_not_to_the_node() -> None:
    state = AckState(chain_of([3 * RANGES_MAX]), pos(3, -1))
    state.ack(Ack(pos(3, n)) for n in range(1, 2 * RANGES_MAX + 2, 2))
    info = position_info(state, {}, 10)
    assert len(info.individualDeletedMessages) == 0
    assert [entry.key for entry in info.individualDeletedMessageRanges] == [3]
    assert closed_cursor_info(state, {}, 10, 10**6) is None
    assert same(restored(state, read_position_info(info)), state)


def test_partial_batches_are_bounded() -> None:
    state = AckState(chain_of(SIZES), pos(3, -1))
    state.ack(Ack(position, (1,), 3) for position in EVERY)
    assert len(position_info(state, {}, 7).batchedEntryDeletionIndexInfo) == 7


@pytest.mark.slow
def test_a_million_holes_are_written_and_read_in_a_second() -> None:
    state = with_a_million_holes()
    started_s = time.process_time()
    data = position_info(state, {}, 10).SerializeToString()
    assert len(data) < 400_000
    found = read_position_info(type(position_info(state, {}, 10)).FromString(data))
    assert restored(state, found).holes == 1_000_000
    assert time.process_time() - started_s < 2
