"""A topic is compacted and read: by readers, subscriptions, across restarts and trimming."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from geminga_broker._tests.fake_client import FakeConnection
from geminga_broker.compaction import ledger as compacted_ledger
from geminga_broker.compaction._tests.world import (
    SETTLE_S,
    append,
    batch,
    compact,
    ids,
    open_topic,
    read_all,
    reader,
    received,
    single,
)
from geminga_broker.compaction.ledgers import INTERNAL
from geminga_broker.compaction.outcome import Status
from geminga_broker.compaction.topic_compaction import CompactionRunning
from geminga_broker.errors import BrokerError
from geminga_broker.log._tests.world import World
from geminga_broker.log.api import Ack, LogReadFailed
from geminga_broker.log.reserved_cursors import COMPACTION
from geminga_broker.policies.apply import apply_policies
from geminga_broker.policies.backlog_quota_manager import keep_quotas
from geminga_broker.policies.maintenance import compact_if_due
from geminga_broker.policies.model import CompactionPolicy, TopicPolicies
from geminga_broker.policies.quota import BacklogQuota, QuotaPolicy, Quotas
from geminga_broker.topic.api import InitialPosition, SubType
from geminga_protocol.ids import EARLIEST, LATEST, Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

LATER = InitialPosition.Latest


async def test_a_reader_gets_the_last_message_of_each_key(autojump_clock: MockClock) -> None:
    async with open_topic(World()) as topic:
        await append(topic, [single("a", b"1"), single("b", b"2"), single("a", b"3")])
        await append(topic, [single("c", b"4"), single("c", b""), single(None, b"5")])
        assert topic.compaction.outcome.status is Status.NOT_RUN
        await compact(topic)
        assert topic.compaction.outcome.status is Status.SUCCESS
        await append(topic, [single("b", b"6")])
        assert await read_all(topic) == [("b", b"2"), ("a", b"3"), ("b", b"6")]


async def test_an_empty_topic_is_compacted_at_once(autojump_clock: MockClock) -> None:
    async with open_topic(World()) as topic:
        await compact(topic)
        assert topic.compaction.outcome.status is Status.SUCCESS
        assert topic.compaction.horizon is None
        assert list(topic.subscriptions) == [COMPACTION]
        info = await topic.compaction.ledger_info()
        assert (info.ledger_id, info.entries, info.size) == (-1, -1, -1)


async def test_the_compacted_part_of_a_trimmed_log_is_read(autojump_clock: MockClock) -> None:
    world = World()
    async with open_topic(world) as topic:
        await append(topic, [single("a", b"1"), batch([("b", b"2"), ("b", b"3"), ("c", b"")])])
        await compact(topic)
        await topic.log.roll()
        await topic.log.trim()
        assert topic.log.statistics().entries == 0
        assert await read_all(topic) == [("a", b"1"), ("b", b"3")]
        last = await topic.last_message(read_compacted=True)
        assert (last.position.entry_id, last.batch_index) == (1, 1)
        assert (await topic.last_message()).position.entry_id == -1
    async with open_topic(world) as topic:
        assert await read_all(topic) == [("a", b"1"), ("b", b"3")]
        await compact(topic)
        assert await read_all(topic) == [("a", b"1"), ("b", b"3")]
        await append(topic, [single("a", b""), single("b", b"")])
        await compact(topic)
        assert await read_all(topic) == []
        last = await topic.last_message(read_compacted=True)
        assert last.position.entry_id == -1


async def test_the_compaction_cursor_retains_uncompacted_entries(autojump_clock: MockClock) -> None:
    async with open_topic(World()) as topic:
        await topic.compaction.ensure_cursor()
        await append(topic, [single("a", b"1")])
        await topic.log.roll()
        await topic.log.trim()
        assert topic.log.statistics().entries == 1
        await compact(topic)
        await topic.log.trim()
        assert topic.log.statistics().entries == 0


async def test_a_reader_in_the_middle_loses_no_key(autojump_clock: MockClock) -> None:
    async with open_topic(World()) as topic:
        await append(topic, [single(f"k{n}", b"old") for n in range(50)])
        await compact(topic)
        first = await topic.compaction.ledger_info()
        connection = FakeConnection()
        consumer = await topic.subscribe(reader(connection))
        consumer.flow(20)
        await trio.sleep(SETTLE_S)
        assert len(received(connection)) == 20
        await append(topic, [single(f"k{n}", b"new") for n in range(10, 30)])
        await compact(topic)
        assert (await topic.compaction.ledger_info()).ledger_id != first.ledger_id
        consumer.flow(1000)
        await trio.sleep(SETTLE_S)
        last = dict(received(connection))
        assert last == {f"k{n}": b"new" if 10 <= n < 30 else b"old" for n in range(50)}
        assert ids(connection) == sorted(set(ids(connection)))


async def test_a_durable_subscription_continues_at_its_position(autojump_clock: MockClock) -> None:
    world = World()
    async with open_topic(world) as topic:
        positions = await append(topic, [single("a", b"1"), single("b", b"2"), single("a", b"3")])
        await compact(topic)
        connection = FakeConnection()
        consumer = await topic.subscribe(reader(connection, name="s", durable=True))
        consumer.flow(10)
        await trio.sleep(SETTLE_S)
        assert received(connection) == [("b", b"2"), ("a", b"3")]
        consumer.ack([Ack(positions[1])], cumulative=True)
        await trio.sleep(SETTLE_S)
    async with open_topic(world) as topic:
        assert await read_all(topic, name="s", durable=True) == [("a", b"3")]


async def test_a_durable_subscription_of_a_trimmed_topic(autojump_clock: MockClock) -> None:
    world = World()
    async with open_topic(world) as topic:
        positions = await append(topic, [single("a", b"1"), single("b", b"2"), single("c", b"3")])
        await compact(topic)
        await topic.log.roll()
        await topic.log.trim()
        later = await append(topic, [single("d", b"4")])
        connection = FakeConnection()
        consumer = await topic.subscribe(reader(connection, name="s", durable=True))
        consumer.flow(10)
        await trio.sleep(SETTLE_S)
        everything = [("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"4")]
        assert received(connection) == everything
        consumer.ack([Ack(positions[1])], cumulative=True)
        consumer.close()
        assert await read_all(topic, name="s", durable=True) == everything[2:]
        # One that begins at the end gets nothing old.
        assert await read_all(topic, name="new", durable=True, initial_position=LATER) == []
    async with open_topic(world) as topic:
        # Places in trimmed ledgers can't be kept: they come again, nothing is lost.
        assert await read_all(topic, name="s", durable=True) == everything
        connection = FakeConnection()
        consumer = await topic.subscribe(reader(connection, name="s", durable=True))
        consumer.ack([Ack(later[0])], cumulative=True)
        await trio.sleep(SETTLE_S)
    async with open_topic(world) as topic:
        assert await read_all(topic, name="s", durable=True) == []


async def test_redelivery_begins_after_acknowledged_entries(autojump_clock: MockClock) -> None:
    async with open_topic(World()) as topic:
        positions = await append(topic, [single(f"k{n}", b"v") for n in range(6)])
        await compact(topic)
        await topic.log.roll()
        await topic.log.trim()
        connection = FakeConnection()
        consumer = await topic.subscribe(reader(connection))
        consumer.flow(100)
        await trio.sleep(SETTLE_S)
        consumer.ack([Ack(positions[3])], cumulative=True)
        connection.forget()
        consumer.redeliver()
        await trio.sleep(SETTLE_S)
        assert received(connection) == [("k4", b"v"), ("k5", b"v")]


@pytest.mark.parametrize("trimmed", [False, True])
async def test_seeking(autojump_clock: MockClock, trimmed: bool) -> None:
    async with open_topic(World()) as topic:
        entries = [single(f"k{n % 4}", b"%d" % n, time_ms=100 + n) for n in range(8)]
        positions = await append(topic, entries)
        await compact(topic)
        if trimmed:
            await topic.log.roll()
            await topic.log.trim()
        connection = FakeConnection()

        async def after_seek(position: Position | None = None, time_ms: int = 0) -> list[bytes]:
            consumer = await topic.subscribe(reader(connection))
            if position is None:
                await consumer.subscription.seek_time(time_ms)
            else:
                await consumer.subscription.seek(position)
            connection.forget()
            consumer = await topic.subscribe(reader(connection))
            consumer.flow(100)
            await trio.sleep(SETTLE_S)
            consumer.close()
            return [value for _, value in received(connection)]

        assert await after_seek(EARLIEST) == [b"4", b"5", b"6", b"7"]
        assert await after_seek(positions[6]) == [b"6", b"7"]
        assert await after_seek(positions[1]) == [b"4", b"5", b"6", b"7"]
        assert await after_seek(LATEST) == []
        assert await after_seek(time_ms=105) == [b"5", b"6", b"7"]
        assert await after_seek(time_ms=1) == [b"4", b"5", b"6", b"7"]
        assert await after_seek(time_ms=999) == []


async def test_it_runs_for_whoever_asks_behind_the_trigger(autojump_clock: MockClock) -> None:
    """Before any other task has its turn: who waits for its end would find that it never ran."""
    async with open_topic(World()) as topic:
        await append(topic, [single("a", b"1")])
        topic.compaction.trigger()
        assert topic.compaction.outcome.status is Status.RUNNING
        await topic.compaction.wait()
        assert topic.compaction.outcome.status is Status.SUCCESS


async def test_the_broker_keeps_its_properties_to_itself(autojump_clock: MockClock) -> None:
    async with open_topic(World()) as topic:
        await append(topic, [single("a", b"1")])
        topic.compaction.trigger()
        await topic.compaction.wait()
        cursor, subscription = topic.log.cursors[COMPACTION], topic.subscriptions[COMPACTION]
        await cursor.set_cursor_properties({INTERNAL + "own": "1", "k": "v"})
        assert subscription.properties == {"k": "v"}
        await subscription.set_properties({"k": "w"})
        assert cursor.cursor_properties == {INTERNAL + "own": "1", "k": "w"}
        shown = topic.stats().subscriptions[COMPACTION].subscription_properties
        assert shown == subscription.properties == {"k": "w"}


async def test_what_is_refused(autojump_clock: MockClock) -> None:
    async with open_topic(World()) as topic:
        await append(topic, [single("a", b"1")])
        connection = FakeConnection()
        for kind in (SubType.Shared, SubType.Key_Shared):
            with pytest.raises(BrokerError, match="failover or exclusive") as refused:
                await topic.subscribe(reader(connection, sub_type=kind))
            assert refused.value.code == ServerError.NotAllowedError
        with pytest.raises(BrokerError, match="reserved"):
            await topic.subscribe(reader(connection, name=COMPACTION))
        topic.compaction.trigger()
        with pytest.raises(CompactionRunning):
            topic.compaction.trigger()
        await topic.compaction.wait()
        with pytest.raises(BrokerError, match="only a compaction"):
            await topic.skip(COMPACTION, 1)
        with pytest.raises(BrokerError, match="only a compaction"):
            await topic.reset(COMPACTION, EARLIEST)
        before = topic.compaction.horizon
        await append(topic, [single("a", b"2")])
        await topic.skip(COMPACTION, None)
        topic.subscriptions[COMPACTION].expire(topic.log.last_position)
        assert topic.log.cursors[COMPACTION].mark_delete == before
        await topic.close()
        with pytest.raises(BrokerError) as fenced:
            topic.compaction.trigger()
        assert fenced.value.code == ServerError.ServiceNotReady


async def test_a_threshold_keeps_the_log_and_starts_runs(autojump_clock: MockClock) -> None:
    async with open_topic(World()) as topic:
        await apply_policies(topic, TopicPolicies(compaction=CompactionPolicy(threshold_bytes=500)))
        assert COMPACTION in topic.subscriptions
        await append(topic, [single("a", b"1" * 100)])
        await compact_if_due(topic)
        assert topic.compaction.outcome.status is Status.NOT_RUN
        await append(topic, [single("a", b"%d" % n * 100) for n in range(5)])
        await compact_if_due(topic)
        await compact_if_due(topic)
        await topic.compaction.wait()
        assert topic.compaction.outcome.successes == 1
        assert topic.compaction.outcome.stats.last_compaction_removed_event_count == 5
        await compact_if_due(topic)
        assert not topic.compaction.running


@pytest.mark.parametrize("policy", list(QuotaPolicy))
async def test_a_quota_that_the_compaction_exceeds_starts_a_run(
    autojump_clock: MockClock, policy: QuotaPolicy
) -> None:
    async with open_topic(World()) as topic:
        quota = BacklogQuota(size_bytes=1000, age_s=-1, policy=policy)
        await apply_policies(topic, replace(topic.policies, quotas=Quotas(quota, BacklogQuota())))
        await topic.create_subscription("s", EARLIEST)
        await topic.compaction.ensure_cursor()
        await append(topic, [single("a", b"x" * 100) for _ in range(20)])
        await topic.skip("s", None)
        await keep_quotas(topic)
        await topic.compaction.wait()
        assert topic.compaction.outcome.successes == 1
        assert await read_all(topic) == [("a", b"x" * 100)]
        await keep_quotas(topic)
        assert not topic.compaction.running


async def test_a_read_that_takes_too_long_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with open_topic(World(), CompactionPolicy(read_s=5)) as topic:
        await append(topic, [single("a", b"1")])

        async def never(*_: object, **__: object) -> list[object]:
            await trio.sleep_forever()
            return []

        with monkeypatch.context() as patched:
            patched.setattr(topic.log, "read_range", never)
            began_s = trio.current_time()
            await compact(topic)
        assert trio.current_time() - began_s == 5
        assert topic.compaction.outcome.status is Status.ERROR
        assert "longer than 5 seconds" in topic.compaction.outcome.last_error
        assert topic.compaction.outcome.stats.last_compaction_failed_timestamp > 0
        await compact(topic)
        assert topic.compaction.outcome.status is Status.SUCCESS


async def test_a_lost_compacted_ledger_is_reported(autojump_clock: MockClock) -> None:
    world = World()
    async with open_topic(world) as topic:
        await topic.create_subscription("holds", EARLIEST)
        await append(topic, [single("a", b"1"), single("a", b"2")])
        await compact(topic)
        lost = (await topic.compaction.ledger_info()).ledger_id
        await topic.log.context.client.delete(lost)
    async with open_topic(world) as topic:
        with pytest.raises(LogReadFailed, match=f"compacted ledger {lost}"):
            await topic.compaction.last_entry()
        info = await topic.compaction.ledger_info()
        assert (info.ledger_id, info.entries, info.size) == (lost, -1, -1)
        await compact(topic)
        assert topic.compaction.outcome.status is Status.ERROR
        # As with Apache's broker: drop the result, and compact the rest of the log.
        await topic.delete_subscription(COMPACTION)
        await compact(topic)
        assert await read_all(topic) == [("a", b"2")]


async def test_searches_in_a_compacted_ledger_take_little_memory(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(compacted_ledger, "PLACES_MAX", 4)
    async with open_topic(World()) as topic:
        await topic.create_subscription("holds", EARLIEST)
        entries = [single(f"k{n % 100}", b"%d" % n) for n in range(150)]
        positions = await append(topic, entries)
        await compact(topic)
        assert (await topic.compaction.ledger_info()).entries == 100
        for at in (0, 1, 49, 50, 51, 99, 120, 149):
            left = [b"%d" % n for n in range(max(at, 50), 150)]
            got = await read_all(topic, start=positions[at])
            assert [value for _, value in got] == left
        beyond = Position(positions[-1].ledger_id, 150)
        assert await read_all(topic, start=beyond) == []
