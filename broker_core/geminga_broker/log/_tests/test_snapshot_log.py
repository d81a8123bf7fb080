"""Records beside a cursor: written, read, deleted, and never a ledger without a name."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_broker.log import snapshot_log
from geminga_broker.log._tests.world import NAME, World
from geminga_broker.log.api import LogReadFailed, LogWriteFailed
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.snapshot_log import SnapshotLog
from geminga_protocol.ids import EARLIEST
from geminga_runtime.metadata.api import StoreUnavailable


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(autouse=True)
def small_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_log, "LEDGER_RECORDS_MAX", 3)


async def cursor_of(broker: ManagedLedgerFactory) -> tuple[LogCursor, SnapshotLog]:
    cursor = await (await broker.open(NAME)).open_cursor("s", initial=EARLIEST)
    assert cursor.snapshot_log is not None
    return cursor, cursor.snapshot_log


async def records(side: SnapshotLog) -> list[bytes]:
    return [bytes(view) async for _, view in side.load()]


async def test_records_survive_a_crash_and_go_by_ledger(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(crash=True) as broker:
        cursor, side = await cursor_of(broker)
        places = [await side.append(b"%d" % n) for n in range(7)]
        assert len(cursor.writer.side_ledgers) == 3
        assert bytes(await side.read(places[1])) == b"1"
        assert bytes(await side.read(places[6])) == b"6"
        await cursor.set_cursor_properties({"mine": "kept"})
    async with world.broker() as broker:
        cursor, side = await cursor_of(broker)
        assert cursor.cursor_properties == {"mine": "kept"}
        assert await records(side) == [b"%d" % n for n in range(7)]
        await side.keep(places[4:6])
        assert cursor.writer.side_ledgers == (places[4][0],)
        assert await records(side) == [b"3", b"4", b"5"]
        with pytest.raises(LogReadFailed):
            await side.read(places[0])
        await side.keep(())
        assert await records(side) == []


async def test_failures_leave_no_ledger_behind(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = BookkeeperClient(KnownBookies([world.bookie]), world.store)
    async with world.broker() as broker:
        _, side = await cursor_of(broker)
        before = {ledger_id async for ledger_id in client.ledgers()}
        put = world.store.put

        async def refuse(path: str, *args: object, **more: object) -> object:
            if path.endswith("/s"):
                raise StoreUnavailable("not now")
            return await put(path, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(world.store, "put", refuse)
            with pytest.raises(LogWriteFailed):
                await side.append(b"a")
        assert {ledger_id async for ledger_id in client.ledgers()} == before
        await side.append(b"b")
        assert await records(side) == [b"b"]
        await broker.logs[NAME].delete_cursor("s")
        await broker.logs[NAME].trim()
        assert {ledger_id async for ledger_id in client.ledgers()} <= before
        with pytest.raises(LogWriteFailed, match="deleted"):
            await side.append(b"c")
        assert {ledger_id async for ledger_id in client.ledgers()} <= before
