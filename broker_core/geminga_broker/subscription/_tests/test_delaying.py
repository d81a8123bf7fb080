"""Delayed delivery over a real log: snapshots, restarts, leftovers (BR-34)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_broker._tests.fake_client import FakeConnection
from geminga_broker.log._tests.world import NAME
from geminga_broker.log._tests.world import World as Storage
from geminga_broker.log.api import Ack
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.subscription import delayed_tracker as delayed
from geminga_broker.subscription._tests.audit import check_subscription
from geminga_broker.subscription._tests.test_dispatch_shared import join, publish
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.strategies.key_shared import KeyShared
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_broker.topic.api import SubType, TopicEnvironment
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import Position
from geminga_protocol.topic_name import TopicName

START_MS = 1_000_000
DELAYED = 300
PLAIN = 10


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "RUN_ENTRIES", 32)
    monkeypatch.setattr(delayed, "WINDOW_ENTRIES", 4)


class Broker:
    """One run of a broker with the topic; its clock doesn't move."""

    def __init__(self, log: TopicLog, nursery: trio.Nursery) -> None:
        self.log = log
        self.now_ms = START_MS
        environment = TopicEnvironment(nursery, lambda: self.now_ms)
        self.topic = PersistentTopic(
            TopicName.parse("persistent://public/default/t"), log, environment
        )

    @property
    def cursor(self) -> LogCursor:
        return self.log.cursors["sub"]

    async def consume(self, kind: int) -> tuple[Consumer, FakeConnection]:
        consumer, connection = await join(self.topic, 1, kind)
        consumer.flow(5000)
        await settle()
        return consumer, connection

    async def fill(self) -> None:
        for n in range(DELAYED):
            await publish(
                self.topic, 1, deliver_at=START_MS + 10_000 + n * 37 % 100, key=str(n % 7)
            )
        await publish(self.topic, PLAIN, key="k")
        await settle()


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked(0.01)


@asynccontextmanager
async def life(storage: Storage, *, crash: bool = True) -> AsyncIterator[Broker]:
    async with storage.broker(crash=crash) as factory, trio.open_nursery() as nursery:
        log = await factory.open(NAME)
        yield Broker(log, nursery)
        nursery.cancel_scope.cancel()


def received(connection: FakeConnection) -> list[Position]:
    ids = [command.message.message_id for command in connection.messages()]
    return [Position(m.ledgerId, m.entryId) for m in ids]


async def all_ledgers(storage: Storage) -> set[int]:
    client = BookkeeperClient(KnownBookies([storage.bookie]), storage.store)
    return {ledger_id async for ledger_id in client.ledgers()}


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
async def test_a_restart_continues_from_snapshots(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    storage = Storage()
    async with life(storage) as broker:
        consumer, connection = await broker.consume(kind)
        await broker.fill()
        plain = received(connection)
        assert len(plain) == PLAIN
        consumer.ack([Ack(position) for position in plain[:4]])
        await broker.cursor.persist()
        assert len(broker.cursor.writer.side_ledgers) == 1
    reads: Counter[str] = Counter()
    read = LogCursor.read

    async def counted(self: LogCursor, **bounds: object) -> object:
        found = await read(self, **bounds)
        reads["entries"] += len(found)
        return found

    monkeypatch.setattr(LogCursor, "read", counted)
    async with life(storage) as broker:
        consumer, connection = await broker.consume(kind)
        assert received(connection) == plain[4:]
        # Those in a run were not read again; the rest was too few for one.
        assert reads["entries"] < PLAIN + 32
        assert broker.topic.stats().subscriptions["sub"].msg_delayed == DELAYED
        broker.now_ms += 10_050
        connection.forget()
        consumer.flow(1)
        await settle()
        early = received(connection)
        assert 0 < len(early) < DELAYED
        broker.now_ms += 50
        consumer.flow(1)
        await settle()
        got = received(connection)
        assert len(set(got)) == len(got) == DELAYED
        consumer.ack([Ack(position) for position in plain[4:] + got[:200]])
        await broker.cursor.persist()
        await settle()
        assert broker.cursor.writer.side_ledgers == ()
    async with life(storage, crash=False) as broker:
        broker.now_ms += 60_000
        consumer, connection = await broker.consume(kind)
        assert sorted(received(connection)) == sorted(got[200:])
        consumer.ack([Ack(position) for position in got])
        await settle()
        assert broker.cursor.backlog_entries() == 0
    async with life(storage, crash=False) as broker:
        await broker.log.delete_cursor("sub")
        await settle()  # ledgers of the log that are read are trimmed by a task
        chain = {ledger.ledger_id for ledger in broker.log.statistics().ledgers}
        assert await all_ledgers(storage) <= chain


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
async def test_returning_consumers_get_each_entry_once(
    autojump_clock: MockClock, kind: int
) -> None:
    async with life(Storage()) as broker:
        consumer, connection = await broker.consume(kind)
        await broker.fill()
        consumer.ack([Ack(position) for position in received(connection)])
        broker.now_ms += 10_050
        consumer.flow(1)
        await settle()
        consumer.close()
        broker.now_ms += 50
        consumer, connection = await broker.consume(kind)
        got = received(connection)
        assert len(set(got)) == len(got) == DELAYED


async def test_snapshot_ledgers_are_deleted_with_the_cursor_or_another_type(
    autojump_clock: MockClock,
) -> None:
    storage = Storage()
    async with life(storage) as broker:
        await broker.consume(SubType.Shared)
        await broker.fill()
        assert broker.cursor.writer.side_ledgers
        assert not broker.cursor.cursor_properties
    async with life(storage) as broker:
        before = set(broker.cursor.writer.side_ledgers)
        await broker.consume(SubType.Key_Shared)
        after = set(broker.cursor.writer.side_ledgers)
        assert after
        assert not after & before & await all_ledgers(storage)
        assert broker.topic.stats().subscriptions["sub"].msg_delayed == DELAYED
        await broker.log.delete_cursor("sub")
        chain = {ledger.ledger_id for ledger in broker.log.statistics().ledgers}
        assert await all_ledgers(storage) <= chain


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
async def test_lost_snapshots_send_nothing_twice(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, kind: int
) -> None:
    storage = Storage()
    async with life(storage) as broker:
        await broker.consume(kind)
        await broker.fill()
    async with life(storage) as broker:
        consumer, connection = await broker.consume(kind)
        held = received(connection)
        assert len(held) == PLAIN
        consumer.ack([Ack(held[0])])
        client = BookkeeperClient(KnownBookies([storage.bookie]), storage.store)
        [lost] = broker.cursor.writer.side_ledgers
        await client.delete(lost)
        broker.now_ms += 20_000
        consumer.flow(1)
        await settle()
        assert "delayed entries are read again" in caplog.text
        assert len(set(received(connection))) == len(received(connection)) == DELAYED + PLAIN
        # Returned entries are sent once more, and no entry without holder is counted.
        consumer.redeliver(held[1:3])
        consumer.flow(5000)
        await settle()
        assert received(connection)[DELAYED + PLAIN :] == held[1:3]
        consumer.ack([Ack(position) for position in set(received(connection))])
        check_subscription(broker.topic.subscriptions["sub"])
        assert consumer.unacked == 0
        machine = broker.topic.subscriptions["sub"].machine
        assert isinstance(machine, TrackedMachine)
        assert not machine.strategy.waiting
        if isinstance(machine.strategy, KeyShared):
            assert not len(machine.strategy.draining)
            assert not machine.strategy.draining._holders


async def test_lost_snapshots_are_read_again_from_the_log(autojump_clock: MockClock) -> None:
    storage = Storage()
    async with life(storage) as broker:
        await broker.consume(SubType.Shared)
        await broker.fill()
        [lost] = broker.cursor.writer.side_ledgers
    client = BookkeeperClient(KnownBookies([storage.bookie]), storage.store)
    await client.delete(lost)
    async with life(storage) as broker:
        consumer, connection = await broker.consume(SubType.Shared)
        broker.now_ms += 20_000
        consumer.flow(1)
        await settle()
        assert len(set(received(connection))) == len(received(connection)) == DELAYED + PLAIN
