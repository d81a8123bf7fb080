"""Deduplication: sequence ids, snapshots, replay, the producers' answers."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.fake_log import FakeCursor, FakeLog
from geminga_broker._tests.topic_world import World
from geminga_broker.errors import BrokerError
from geminga_broker.log._tests import world as storage
from geminga_broker.log.api import LogReadFailed
from geminga_broker.log.entry import LogEntry
from geminga_broker.log.reserved_cursors import DEDUPLICATION
from geminga_broker.policies.apply import apply_policies
from geminga_broker.policies.model import DeduplicationOptions, TopicPolicies
from geminga_broker.topic import deduplication
from geminga_broker.topic.api import PublishItem, TopicEnvironment
from geminga_broker.topic.deduplication import Deduplication
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST, LATEST, Position
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, MessageMetadata, ServerError
from geminga_protocol.topic_name import TopicName

ON = TopicPolicies(deduplication=DeduplicationOptions(entries_interval=3, producers_max=4))
DUPLICATE = (1 << 64) - 1


async def topic_with(world: World, policies: TopicPolicies = ON) -> PersistentTopic:
    topic = world.topic()
    await apply_policies(topic, policies)
    return topic


async def producer_of(topic, connection, name="p", **more):
    return await topic.add_producer(producer_request(connection, name, **more))


def chunk(sequence_id: int, number: int, of: int) -> PublishItem:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=sequence_id,
        publish_time=1,
        chunk_id=number,
        num_chunks_from_msg=of,
    )
    return PublishItem(sequence_id, memoryview(build(metadata, b"x")), is_chunk=True)


def places(connection: FakeConnection) -> list[tuple[int, int]]:
    """(sequence id, entry id) of receipts, duplicates' as -1."""
    return [(n, -1 if entry == DUPLICATE else entry) for n, entry in connection.receipts]


async def test_without_it_everything_is_stored(world: World):
    topic = await topic_with(world, TopicPolicies())
    connection = FakeConnection()
    producer = await producer_of(topic, connection)
    producer.publish([item(1), item(1)])
    assert places(connection) == [(1, 0), (1, 1)]
    assert producer.last_sequence_id == -1
    assert DEDUPLICATION not in world.log.cursors
    assert topic.stats().deduplication_status == "Disabled"


async def test_duplicates_are_answered_and_not_stored(world: World):
    topic = await topic_with(world)
    connection = FakeConnection()
    pending = []
    producer = await producer_of(
        topic, connection, publish_pending=lambda *delta: pending.append(delta)
    )
    producer.publish([item(1), item(2), item(2), item(1), item(3)])
    assert places(connection) == [(1, 0), (2, 1), (2, -1), (1, -1), (3, 2)]
    [command] = [
        c for c in connection.commands(BaseCommand.Type.SEND_RECEIPT)
        if c.send_receipt.sequence_id == 2 and c.send_receipt.message_id.entryId == DUPLICATE
    ]  # fmt: skip
    assert command.send_receipt.message_id.ledgerId == DUPLICATE
    assert len(world.log.entries) == 3
    assert producer.last_sequence_id == 3
    assert not producer._pending
    assert [sum(delta) for delta in zip(*pending, strict=True)] == [0, 0]
    assert topic.stats().deduplication_status == "Enabled"
    assert topic.stats().msg_in_counter == 3


async def test_duplicates_of_pending_messages_wait_for_them(world: World):
    topic = await topic_with(world)
    world.log.hold = True
    first, second = FakeConnection("a"), FakeConnection("b")
    old = await producer_of(topic, first)
    old.publish([item(1), item(2)])
    old.close()
    assert topic.producers == {}
    new = await producer_of(topic, second)
    assert new.last_sequence_id == -1
    new.publish([item(1), item(2), item(3)])
    assert second.receipts == []
    world.log.complete()
    assert places(second) == [(1, -1), (2, -1)]
    world.log.complete()
    assert places(second) == [(1, -1), (2, -1), (3, 2)]
    assert first.receipts == []
    assert [e.metadata.sequence_id for e in world.log.entries] == [1, 2, 3]


async def test_a_chunked_message_counts_with_its_last_chunk(world: World):
    topic = await topic_with(world)
    connection = FakeConnection()
    producer = await producer_of(topic, connection)
    producer.publish([chunk(5, 0, 3), chunk(5, 1, 3)])
    assert producer.last_sequence_id == -1
    producer.publish([chunk(5, 2, 3)])
    assert producer.last_sequence_id == 5
    producer.publish([chunk(5, 0, 3), chunk(5, 1, 3), chunk(5, 2, 3)])
    assert [entry for _, entry in places(connection)] == [0, 1, 2, -1, -1, -1]


async def test_batches_count_with_their_highest_sequence_id(world: World):
    topic = await topic_with(world)
    connection = FakeConnection()
    producer = await producer_of(topic, connection)
    producer.publish([item(1)._replace(highest_sequence_id=4), item(4), item(5)])
    assert places(connection) == [(1, 0), (4, -1), (5, 1)]


async def test_closing_waits_for_duplicates_too(world: World):
    topic = await topic_with(world)
    world.log.hold = True
    connection = FakeConnection()
    producer = await producer_of(topic, connection)
    producer.publish([item(1), item(1)])
    closed = []
    producer.finish(lambda: closed.append(True))
    assert closed == []
    world.log.complete()
    assert places(connection) == [(1, 0), (1, -1)]
    assert closed == [True]


async def test_snapshots_hold_for_their_position(world: World):
    topic = await topic_with(world)
    producer = await producer_of(topic, FakeConnection())
    cursor = world.log.cursors[DEDUPLICATION]
    producer.publish([item(1), item(2)])
    assert cursor.properties == {}
    producer.publish([item(3)])
    assert cursor.properties == {"p": 3}
    assert cursor.marked == 2
    producer.publish([item(4)])
    assert cursor.properties == {"p": 3}


async def test_turning_it_off_deletes_the_snapshots(world: World):
    topic = await topic_with(world)
    connection = FakeConnection()
    producer = await producer_of(topic, connection)
    producer.publish([item(1)])
    await apply_policies(topic, TopicPolicies())
    assert DEDUPLICATION not in world.log.cursors
    producer.publish([item(1)])
    assert places(connection) == [(1, 0), (1, 1)]
    assert producer.last_sequence_id == -1


async def test_the_cursor_is_no_subscription(world: World):
    await topic_with(world)
    again = world.topic()
    assert again.subscriptions == {}
    with pytest.raises(BrokerError) as caught:
        await again.subscribe(subscribe_request(FakeConnection(), 1, DEDUPLICATION))
    assert caught.value.code == ServerError.NotAllowedError
    with pytest.raises(BrokerError):
        await again.create_subscription(DEDUPLICATION, LATEST)


def made(log: FakeLog | None = None, **options: int) -> Deduplication:
    cursor = FakeCursor(log or FakeLog(), DEDUPLICATION, -1, True)
    return Deduplication(cursor, DeduplicationOptions(**options), 0.0)


def stored(known: Deduplication, name: str, sequence_id: int, entry: int) -> None:
    sent = known.take(name, item(sequence_id))
    known.record(name, [sent], Position(7, entry), 1)


async def test_producers_that_left_are_forgotten_in_time() -> None:
    known = made(inactivity_s=60)
    for name in ("stays", "leaves"):
        known.added(name)
        stored(known, name, 5, 0)
    known.removed("leaves", 100.0)
    known.purge(159.0)
    assert known.stored("leaves") == 5
    known.purge(160.0)
    assert known.stored("leaves") == -1
    assert known.stored("stays") == 5


async def test_no_more_names_are_kept_than_allowed() -> None:
    known = made(producers_max=3, entries_interval=1)
    for number in range(10):
        name = f"p{number}"
        known.added(name)
        stored(known, name, 1, number)
        known.removed(name, float(number))
    assert sum(known.stored(f"p{number}") == 1 for number in range(10)) <= 4
    assert known.stored("p9") == 1


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6), st.integers(0, 2))))
def test_against_a_set(sends: list[tuple[str, int, int]]) -> None:
    """Accepted messages have a higher sequence id than all earlier ones of the producer."""
    known = made()
    seen: dict[str, int] = {}
    for entry, (name, sequence_id, more) in enumerate(sends):
        highest = sequence_id + more if more else 0
        sent = known.take(name, item(sequence_id)._replace(highest_sequence_id=highest))
        new = name not in seen or sequence_id > seen[name]
        assert (type(sent) is tuple) == new
        if new:
            seen[name] = max(sequence_id, highest)
            known.record(name, [sent], Position(7, entry), 1)
            assert known.stored(name) == seen[name]


def test_failed_messages_are_accepted_again() -> None:
    """Also for a producer with stored messages."""
    known = made()
    stored(known, "p", 1, 0)
    assert type(known.take("p", item(2))) is tuple
    assert type(known.take("p", item(2))) is deduplication.Duplicate
    known.failed("p")
    assert type(known.take("p", item(1))) is deduplication.Duplicate
    assert type(known.take("p", item(2))) is tuple


def test_names_that_no_producer_has_are_not_remembered() -> None:
    """Metadata may hold 5 MiB for one, which would be stored with the snapshot."""
    known = made()
    for name in ("a" * 1024, "b" * 1025):
        metadata = MessageMetadata(producer_name=name, sequence_id=5, publish_time=1)
        data = build(metadata, b"text")
        known.replay(LogEntry(Position(7, 0), memoryview(data)), 0.0)
    assert known.stored("a" * 1024) == 5
    assert known.stored("b" * 1025) == -1


def test_chunks_of_an_unfinished_message_are_replayed_as_such() -> None:
    """After a restart its producer sends the rest, with the same sequence id."""
    known = made()
    for number in range(2):
        data = bytes(chunk(5, number, 3).payload)
        known.replay(LogEntry(Position(7, number), memoryview(data)), 0.0)
    assert known.stored("p") == -1
    last = known.take("p", chunk(5, 2, 3))
    assert type(last) is tuple
    known.record("p", [last], Position(7, 2), 1)
    assert known.stored("p") == 5
    assert type(known.take("p", chunk(5, 2, 3))) is deduplication.Duplicate


async def test_a_replay_that_failed_begins_anew(nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed replay has moved the cursor."""
    monkeypatch.setattr(deduplication, "_REPLAY_ENTRIES_MAX", 1)
    stores = storage.World()
    options = DeduplicationOptions(entries_interval=100)
    async with stores.broker() as factory:
        log = await factory.open(storage.NAME)
        await deduplication.open_deduplication(log, options, 0.0)
        await storage.publish(log, ["a", "b", "c"])
        cursor = log.cursors[DEDUPLICATION]
        cursor.rewind()
        reads = 0
        with monkeypatch.context() as patched:

            async def read_once(**wanted: int) -> object:
                nonlocal reads
                reads += 1
                if reads > 2:
                    raise LogReadFailed("away")
                return await type(cursor).read(cursor, **wanted)

            patched.setattr(cursor, "read", read_once)
            with pytest.raises(LogReadFailed):
                await deduplication.open_deduplication(log, options, 0.0)
        replayed: list[object] = []
        monkeypatch.setattr(
            Deduplication, "replay", lambda _self, entry, _now_s: replayed.append(entry.position)
        )
        await deduplication.open_deduplication(log, options, 0.0)
        assert len(replayed) == 3


def test_sequence_ids_are_signed() -> None:
    known = made()
    stored(known, "p", 3, 0)
    assert type(known.take("p", item((1 << 64) - 5))) is deduplication.Duplicate


@pytest.mark.parametrize("crash", [True, False])
async def test_restarts_find_what_was_stored(nursery, crash: bool):
    """Some are in a snapshot, some after it; all are sent twice and stored once."""
    stores = storage.World()
    environment = TopicEnvironment(nursery)
    sent = 0
    for life in range(4):
        async with stores.broker(crash=crash) as factory:
            log = await factory.open(storage.NAME)
            topic = PersistentTopic(TopicName.parse("t"), log, environment)
            await apply_policies(topic, ON)
            if not topic.subscriptions:  # one that keeps everything from being trimmed
                await topic.create_subscription("holder", EARLIEST)
            connection = FakeConnection()
            producer = await producer_of(topic, connection)
            assert producer.last_sequence_id == sent - 1
            producer.publish([item(n) for n in range(sent + life + 1)])
            await trio.testing.wait_all_tasks_blocked()
            assert [entry == -1 for _, entry in places(connection)] == (
                [True] * sent + [False] * (life + 1)
            )
            sent += life + 1
            if not crash:
                await topic.close()
    async with stores.broker() as factory:
        log = await factory.open(storage.NAME)
        found = await log.read_range(
            log.next_position(EARLIEST), entries_max=1000, bytes_max=1 << 30
        )
        assert [entry.metadata.sequence_id for entry in found] == list(range(sent))
