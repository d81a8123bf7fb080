"""The whole metadata store is away: open ledgers take entries, roll-overs and deletions wait, and
nothing is lost (CL-01).
"""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from geminga_broker.log._tests.world import NAME, World, drain, numbered, publish
from geminga_broker.log.api import LogError
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import LogOptions, Rollover
from geminga_protocol.ids import EARLIEST, Position

SMALL = LogOptions(rollover=Rollover(entries_max=3, min_s=0))


async def ledgers_of(broker: ManagedLedgerFactory) -> list[int]:
    return [ledger_id async for ledger_id in broker.client.ledgers()]


@pytest.mark.parametrize("session", ["kept", "lost"])
async def test_a_full_ledger_stays_open(autojump_clock: MockClock, session: str) -> None:
    world = World()
    async with world.broker(SMALL) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(1))
        world.store.set_available(False)
        if session == "lost":
            world.store.expire_session()
        for start in range(1, 31):
            positions += await publish(log, numbered(1, start))
            await trio.sleep(60)
        assert len({position.ledger_id for position in positions}) == 1
        assert await drain(cursor) == numbered(31)
        world.store.set_available(True)
        positions += await publish(log, numbered(1, 31))
        await trio.sleep(0.1)
        positions += await publish(log, numbered(1, 32))
        assert [position.ledger_id for position in positions] == [0] * 32 + [1]
    async with world.broker(SMALL) as broker:
        log = await broker.open(NAME)
        assert await drain(log.cursors["s"]) == numbered(33)


async def test_trimming_waits(autojump_clock: MockClock) -> None:
    world = World()
    async with world.broker(SMALL) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions: list[Position] = []
        for start in range(0, 9, 3):
            positions += await publish(log, numbered(3, start))
            await trio.sleep(0.1)
        passed = {position.ledger_id for position in positions}
        assert passed < {*await ledgers_of(broker)}
        world.store.set_available(False)
        cursor.ack_cumulative(positions[-1])
        await trio.sleep(600)
        world.store.set_available(True)
        assert passed < {*await ledgers_of(broker)}
        await publish(log, numbered(3, 9))
        await trio.sleep(600)
        assert not passed & {*await ledgers_of(broker)}
        assert await drain(cursor) == numbered(3, 9)


async def test_a_deletion_waits(autojump_clock: MockClock) -> None:
    world = World()
    async with world.broker(SMALL) as broker:
        log = await broker.open(NAME)
        positions = await publish(log, numbered(2))
        world.store.set_available(False)
        with pytest.raises(LogError):
            await broker.delete(NAME)
        world.store.set_available(True)
    async with world.broker(SMALL) as broker:
        names = [ledger.ledger_id for ledger in (await broker.open(NAME)).statistics().ledgers]
        assert positions[0].ledger_id in names
        await broker.delete(NAME)
        assert await ledgers_of(broker) == []
