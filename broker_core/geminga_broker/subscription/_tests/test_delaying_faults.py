"""Delayed delivery where something is in the way: damage, a disk that fails, a clock that is set,
and mark-delete that passes what waits (BR-34).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from geminga_bookie.errors import StorageFailed
from geminga_broker.log._tests.world import World as Storage
from geminga_broker.log.api import Ack, LogWriteFailed
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.snapshot_log import SnapshotLog
from geminga_broker.subscription._tests.test_delaying import (
    DELAYED,
    PLAIN,
    START_MS,
    life,
    received,
    settle,
    small_runs,
)
from geminga_broker.subscription._tests.test_dispatch_shared import publish
from geminga_broker.topic.api import SubType
from geminga_protocol.ids import Position

__all__ = ["small_runs"]


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
@pytest.mark.parametrize("record", [1, -1, None])
async def test_damaged_snapshots_stall_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, kind: int, record: int | None
) -> None:
    storage = Storage()
    async with life(storage) as broker:
        await broker.consume(kind)
        await broker.fill()
        [ledger_id] = broker.cursor.writer.side_ledgers
    count = len(storage.bookie._ledgers[ledger_id].entries)
    assert count > 3
    storage.damage(ledger_id, *([] if record is None else [record % count]))
    async with life(storage) as broker:
        _, connection = await broker.consume(kind)
        assert len(received(connection)) == PLAIN
        assert broker.topic.stats().subscriptions["sub"].msg_delayed == DELAYED
        broker.now_ms += 20_000
        await trio.sleep(2)
        assert len(set(received(connection))) == len(received(connection)) == DELAYED + PLAIN
        expected = "its confirmed part is read" if record == -1 else "is left out"
        assert expected in caplog.text


async def test_permanently_unreadable_snapshots_are_abandoned(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that may pass is waited for; after a while the log is read instead."""
    storage = Storage()
    async with life(storage) as broker:
        await broker.consume(SubType.Shared)
        await broker.fill()
        [ledger_id] = broker.cursor.writer.side_ledgers
    read = storage.bookie.read

    async def failing(wanted: int, first: int, *, entries_max: int, bytes_max: int) -> list[bytes]:
        if wanted == ledger_id:
            raise StorageFailed("disk")
        return await read(wanted, first, entries_max=entries_max, bytes_max=bytes_max)

    monkeypatch.setattr(storage.bookie, "read", failing)
    async with life(storage) as broker:
        _, connection = await broker.consume(SubType.Shared)
        await trio.sleep(2)
        assert not received(connection)
        await trio.sleep(60)
        assert len(received(connection)) == PLAIN
        assert broker.topic.stats().subscriptions["sub"].msg_delayed == DELAYED


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
@pytest.mark.parametrize("how", ["clear", "expire", "seek"])
async def test_nothing_is_tracked_that_mark_delete_has_passed(
    autojump_clock: MockClock, kind: int, how: str
) -> None:
    storage = Storage()
    async with life(storage) as broker:
        await broker.consume(kind)
        await broker.fill()
        last = broker.log.last_position
        half = Position(last[0], DELAYED // 2 - 1)
        if how == "clear":
            await broker.topic.skip("sub", DELAYED // 2)
        elif how == "expire":
            broker.topic.subscriptions["sub"].expire(half)
        else:
            await broker.topic.reset("sub", broker.log.next_position(half))
            await broker.consume(kind)
        await settle()
        stats = broker.topic.stats().subscriptions["sub"]
        assert stats.msg_delayed == DELAYED // 2
        assert stats.msg_backlog_no_delayed == PLAIN
        before = stats.delayed_message_index_size_in_bytes
        if how == "clear":
            await broker.topic.skip("sub", None)
        elif how == "expire":
            broker.topic.subscriptions["sub"].expire(last)
        else:
            await broker.topic.reset("sub", broker.log.next_position(last))
        await settle()
        stats = broker.topic.stats().subscriptions["sub"]
        assert stats.msg_delayed == stats.msg_backlog == 0
        assert before > 0 == stats.delayed_message_index_size_in_bytes
        # The snapshots went too.
        assert not broker.cursor.writer.side_ledgers
        if how == "seek":
            await broker.consume(kind)
        await publish(broker.topic, 3, deliver_at=START_MS + 30_000)
        await settle()
        assert broker.topic.stats().subscriptions["sub"].msg_delayed == 3


@pytest.mark.parametrize("fails", [False, True])
async def test_a_full_tracker_continues_after_a_save(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    gate = trio.Event()
    attempts = 0
    append = SnapshotLog.append

    async def held(self: SnapshotLog, data: bytes) -> tuple[int, int]:
        nonlocal attempts
        attempts += 1
        await gate.wait()
        if fails and attempts < 4:
            raise LogWriteFailed("disk")
        return await append(self, data)

    monkeypatch.setattr(SnapshotLog, "append", held)
    async with life(Storage()) as broker:
        broker.topic.options = replace(broker.topic.options, delayed_entries_max=64)
        consumer, connection = await broker.consume(SubType.Shared)
        await broker.fill()
        consumer.flow(1)
        await settle()
        assert not received(connection)
        assert broker.topic.stats().subscriptions["sub"].msg_delayed < DELAYED
        gate.set()
        await trio.sleep(30)
        assert len(received(connection)) == PLAIN
        assert broker.topic.stats().subscriptions["sub"].msg_delayed == DELAYED


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
async def test_a_restart_passes_tracked_and_acknowledged_entries_in_turn(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    storage = Storage()
    async with life(storage) as broker:
        consumer, connection = await broker.consume(kind)
        for _ in range(256):
            await publish(broker.topic, 1, deliver_at=START_MS + 60_000)
            await publish(broker.topic, 1)
        await settle()
        consumer.ack([Ack(position) for position in received(connection)])
        await broker.cursor.persist()
    entries = 0
    read = LogCursor.read

    async def counted(self: LogCursor, **bounds: object) -> object:
        nonlocal entries
        found = await read(self, **bounds)
        entries += len(found)
        return found

    monkeypatch.setattr(LogCursor, "read", counted)
    async with life(storage) as broker:
        _, connection = await broker.consume(kind)
        assert not received(connection)
        assert broker.topic.stats().subscriptions["sub"].msg_delayed == 256
        assert entries == 0


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
@pytest.mark.slow
async def test_the_wall_clock_may_be_adjusted(autojump_clock: MockClock, kind: int) -> None:
    """Forward: entries that are due then come within about a second. Backward: none comes early."""
    async with life(Storage()) as broker:
        _, connection = await broker.consume(kind)
        await publish(broker.topic, 3, deliver_at=START_MS + 3_600_000)
        await publish(broker.topic, 3, deliver_at=START_MS + 7_200_000)
        await trio.sleep(5)
        assert not received(connection)
        broker.now_ms += 3_600_000
        await trio.sleep(1.5)
        assert len(received(connection)) == 3
        broker.now_ms -= 3_600_000
        await trio.sleep(7_200)  # as long as it was to wait by the clock before
        assert len(received(connection)) == 3
        broker.now_ms += 7_200_000
        await trio.sleep(1.5)
        assert len(received(connection)) == 6
