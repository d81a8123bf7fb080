"""Damaged entries in cursors' ledgers: the state before is used (BR-05)."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from trio.testing import MockClock

from geminga_broker.log import salvage
from geminga_broker.log._tests.world import NAME, World, drain, numbered, publish
from geminga_broker.log.api import Ack, EntryDamaged
from geminga_broker.log.options import CursorOptions, LogOptions
from geminga_broker.log.position_info import PositionInfo
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import EARLIEST, Position

IN_LEDGER = LogOptions(cursors=CursorOptions(ranges_to_store_max=0))
"""A cursor with holes leaves its state in its ledger when it is closed."""

STATES = 6


async def write(world: World, *, crash: bool) -> int:
    """A cursor whose ledger has several states, each with one more acknowledgement; returns the
    ledger's id.
    """
    async with world.broker(IN_LEDGER, crash=crash) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(20))
        for n in range(STATES):
            cursor.ack([Ack(positions[2 * n + 1])])
            await cursor.persist()
        store = cursor.writer._store
        assert store is not None
        ledger_id = store._ledger_id
    assert len(world.bookie._ledgers[ledger_id].entries) >= STATES
    return ledger_id


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("damaged", [1, 2, STATES])
async def test_the_state_before_a_damaged_one_is_used(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, crash: bool, damaged: int
) -> None:
    world = World()
    ledger_id = await write(world, crash=crash)
    entries = sorted(world.bookie._ledgers[ledger_id].entries)
    world.damage(ledger_id, *entries[-damaged:])
    with caplog.at_level(logging.WARNING):
        async with world.broker(IN_LEDGER, crash=True) as broker:
            log = await broker.open(NAME)
            cursor = log.cursors["s"]
            left = max(0, STATES - damaged)
            acked = {f"m{2 * n + 1}" for n in range(left)}
            found = await drain(cursor)
            assert found == [text for text in numbered(20) if text not in acked]
            assert "acknowledged messages may come again" in caplog.text
            cursor.ack_cumulative(log.last_position)
            await cursor.persist()
    caplog.clear()
    async with world.broker(IN_LEDGER) as broker:
        log = await broker.open(NAME)
        assert log.cursors["s"].backlog_entries() == 0
        assert not caplog.records


async def test_invalid_bytes_count_as_damage(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete, with a correct checksum, but not decodable."""
    world = World()
    ledger_id = await write(world, crash=False)
    last = max(world.bookie._ledgers[ledger_id].entries)
    decode = PositionInfo.FromString
    views = 0

    def once(view: memoryview) -> PositionInfo:
        nonlocal views
        views += 1
        if views == 1:
            raise RemoteProtocolError("no state")
        return decode(bytes(view))

    monkeypatch.setattr(salvage, "decode_position_info", once)
    assert last >= STATES - 1
    async with world.broker(IN_LEDGER) as broker:
        log = await broker.open(NAME)
        assert log.cursors["s"].state.holes == STATES - 1


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("lost", [[-1], [-2], [-3, -2], [-2, -1]])
async def test_a_lost_state(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, crash: bool, lost: list[int]
) -> None:
    """The state before it is used, or the one after it if that can be found."""
    world = World()
    ledger_id = await write(world, crash=crash)
    entries = world.bookie._ledgers[ledger_id].entries
    for entry_id in [sorted(entries)[n] for n in lost]:
        del entries[entry_id]
    async with world.broker(IN_LEDGER) as broker:
        log = await broker.open(NAME)
        holes = log.cursors["s"].state.holes
        assert STATES - 3 <= holes <= STATES
        assert -1 in lost or crash or holes == STATES


@pytest.mark.parametrize("lost", [1, 57, 99])
async def test_states_before_a_lost_entry_are_read(lost: int) -> None:
    """A read of many entries fails with one of them; those before it are intact."""
    world = World()
    async with world.broker() as broker:
        log = await broker.open(NAME)
        positions = await publish(log, numbered(100))
    del world.bookie._ledgers[positions[0].ledger_id].entries[lost]
    async with world.broker() as broker:
        log = await broker.open(NAME)
        found: list[Position] = []
        while len(found) < lost:
            left = await log.read_range(positions[len(found)], entries_max=100, bytes_max=1 << 20)
            found += [entry.position for entry in left]
        assert found == positions[:lost]
        with pytest.raises(EntryDamaged):
            await log.read_range(positions[lost], entries_max=100, bytes_max=1 << 20)


async def test_a_lost_entry_is_passed_over_if_that_is_wanted(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts as acknowledged then; by default it is told again and again, as by Apache's."""
    world = World()
    async with world.broker(IN_LEDGER) as broker:
        log = await broker.open(NAME)
        await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(8))
    world.damage(positions[3].ledger_id, positions[3].entry_id, positions[4].entry_id)
    async with world.broker(IN_LEDGER, crash=True) as broker:
        cursor = (await broker.open(NAME)).cursors["s"]
        found = await cursor.read(entries_max=8, bytes_max=1 << 20)
        assert len(found) < 4
        with pytest.raises(EntryDamaged):
            while True:
                await cursor.read(entries_max=8, bytes_max=1 << 20)
    async with world.broker(replace(IN_LEDGER, skips_damaged=lambda: True)) as broker:
        log = await broker.open(NAME)
        cursor = log.cursors["s"]
        assert await drain(cursor) == [each for each in numbered(8) if each not in ("m3", "m4")]
        assert caplog.text.count("an entry is passed over") == 2
        cursor.ack([Ack(each) for each in positions if each not in positions[3:5]])
        assert cursor.mark_delete == positions[-1]
