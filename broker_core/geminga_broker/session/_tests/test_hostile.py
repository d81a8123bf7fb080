"""Clients that come and go at bad moments, lie, or don't read (PR-16, BR-24, BR-36)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio
import trio.testing

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    position,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.fake_log import FakeEntry
from geminga_broker._tests.topic_world import World
from geminga_broker._tests.wire import WRITE_HIGH_BYTES, Type, message, open_broker, open_client
from geminga_broker.config import BrokerConfig
from geminga_broker.log.api import Ack
from geminga_broker.session.backpressure import PENDING_ENTRY_BYTES, PENDING_PUBLISH_BYTES_MAX
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.replay import REPLAY_READ_ENTRIES
from geminga_broker.topic.api import SubType
from geminga_broker.topic.nonpersistent import NonPersistentTopic
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.commands import connection, consuming, lookup, producing
from geminga_protocol.encode import frame, send
from geminga_protocol.ids import EARLIEST, Position
from geminga_protocol.message_id import MessageId
from geminga_protocol.payload import build, parse_metadata
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, MessageMetadata
from geminga_protocol.topic_name import TopicName

LISTS = 400
TOPIC = "persistent://public/default/hostile"
NAME = TopicName.parse(TOPIC)


def raw_send(sequence_id: int, payload: bytes, messages: int = 1) -> bytes:
    prefix = send(1, sequence_id, 1, len(payload)) + payload
    if messages == 1:
        return prefix
    command = BaseCommand(type=Type.SEND)
    command.send.producer_id, command.send.sequence_id = 1, sequence_id
    command.send.num_messages = messages
    encoded = frame(command)
    size = int.from_bytes(encoded[:4], "big") + len(payload)
    return size.to_bytes(4, "big") + encoded[4:] + payload


# ---- at bad moments ----


async def test_sends_before_a_close_are_answered_before_it() -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC)
        await client.send(message(0), message(1), producing.close_producer(1, 9), message(2))
        assert (await client.expect(Type.SEND_RECEIPT)).command.send_receipt.sequence_id == 0
        assert (await client.expect(Type.SEND_RECEIPT)).command.send_receipt.sequence_id == 1
        assert (await client.expect(Type.SUCCESS)).command.success.request_id == 9
        await client.ask(connection.PING, Type.PONG)


async def test_a_producer_that_closes_while_its_topic_is_unloaded_is_answered(
    world: World,
) -> None:
    topic = world.topic()
    client = FakeConnection()
    producer = await topic.add_producer(producer_request(client))
    world.log.hold = True
    producer.publish([item(0)])
    closed: list[int] = []
    producer.finish(lambda: closed.append(1))
    producer.finish(lambda: closed.append(2))
    assert closed == []
    producer.disconnect()
    assert closed == [1, 2]
    assert topic.idle


@pytest.mark.parametrize("persistent", [True, False])
async def test_a_cancelled_producer_is_not_left_in_the_topic(
    world: World, persistent: bool
) -> None:
    topic: PersistentTopic | NonPersistentTopic = world.topic()
    if not persistent:
        topic = NonPersistentTopic(TopicName.parse("non-persistent://a/b/c"), world.environment)
    with trio.CancelScope() as scope:
        scope.cancel()
        await topic.add_producer(producer_request(FakeConnection()))
    assert scope.cancelled_caught
    assert topic.idle


async def test_unloading_a_topic_that_only_readers_use(world: World) -> None:
    topic = NonPersistentTopic(TopicName.parse("non-persistent://a/b/c"), world.environment)
    for number in range(3):
        request = subscribe_request(FakeConnection(), number, f"reader-{number}", durable=False)
        await topic.subscribe(request)
    await topic.close()
    assert topic.idle


async def test_a_subscription_that_is_deleted_and_made_anew_at_once() -> None:
    async with open_broker() as broker:
        one, other = broker.client(), broker.client()
        await one.connect()
        await other.connect()
        await one.subscribe(TOPIC)
        topic = broker.service.topics.loaded[TOPIC]
        await one.send(consuming.unsubscribe(1, 5))
        await one.expect(Type.SUCCESS)
        await one.subscribe(TOPIC, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.send, consuming.unsubscribe(2, 6))
            nursery.start_soon(
                other.send, consuming.subscribe(TOPIC, "sub", SubType.Exclusive, 1, 7)
            )
        answer = await other.next()
        assert answer is not None
        if answer.type == Type.ERROR:  # it was asked while the old one was being deleted
            await other.subscribe(TOPIC)
        assert isinstance(topic, PersistentTopic)
        assert topic.log.cursors["sub"] is topic.subscriptions["sub"].cursor


async def test_subscribing_while_the_subscription_is_deleted(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    topic = world.topic()
    await topic.create_subscription("sub", EARLIEST)
    delete = world.log.delete_cursor

    async def slowly(name: str) -> None:
        await trio.sleep(1)
        await delete(name)

    world.log.delete_cursor = slowly
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(topic.delete_subscription, "sub")
        nursery.start_soon(topic.delete_subscription, "sub")
        await trio.sleep(0.5)
        consumer = await topic.subscribe(subscribe_request(FakeConnection(), 1))
        assert trio.current_time() - began >= 1
    assert world.log.cursors["sub"] is topic.subscriptions["sub"].cursor
    consumer.close()
    with trio.move_on_after(0.5):
        await topic.delete_subscription("sub")
    assert "sub" not in world.log.cursors


async def test_a_reader_that_reconnects_at_once_starts_at_its_position(world: World) -> None:
    topic = world.topic()
    client = FakeConnection()
    producer = await topic.add_producer(producer_request(client))
    producer.publish([item(number) for number in range(5)])
    for start in (0, 3):
        client.forget()
        request = subscribe_request(
            client, 1, "reader", durable=False, start=position(start), initial_position=0
        )
        reader = await topic.subscribe(request)
        reader.flow(10)
        await world.settle()
        assert client.entries() == list(range(start, 5))
        reader.close()


async def test_output_for_a_client_that_does_not_read_is_bounded(world: World) -> None:
    topic = world.topic()
    slow, other = FakeConnection(), FakeConnection()
    await topic.subscribe(subscribe_request(slow, 1, sub_type=SubType.Failover, priority_level=1))
    slow.set_writable(False)
    slow.forget()
    for number in range(2, 12):
        better = await topic.subscribe(subscribe_request(other, number, sub_type=SubType.Failover))
        better.close()
    assert slow.commands(Type.ACTIVE_CONSUMER_CHANGE) == []
    slow.set_writable(True)
    [told] = slow.commands(Type.ACTIVE_CONSUMER_CHANGE)
    assert told.active_consumer_change.is_active


async def test_replays_of_large_entries_are_read_few_at_a_time(world: World) -> None:
    topic = world.topic(dispatch_bytes_max=1, dispatch_entries_max=100)
    client = FakeConnection()
    consumer = await topic.subscribe(subscribe_request(client, 1, sub_type=SubType.Shared))
    producer = await topic.add_producer(producer_request(client))
    producer.publish([item(number) for number in range(70)])
    consumer.flow(1000)
    await world.settle()
    asked: list[int] = []
    cursor = world.log.cursors["sub"]
    read_at = cursor.read_at

    async def counted(positions: Sequence[Position]) -> list[FakeEntry]:
        asked.append(len(positions))
        return await read_at(positions)

    cursor.read_at = counted
    client.forget()
    consumer.redeliver()
    await world.settle()
    assert client.entries() == list(range(70))
    assert max(asked) <= REPLAY_READ_ENTRIES


async def test_unloading_continues_after_its_caller_is_cancelled() -> None:
    async with open_broker() as broker:
        service = broker.service
        topic = await service.topics.get(NAME, create=True)
        with trio.CancelScope() as scope:
            scope.cancel()
            await service.topics.unload(NAME)
        assert not service.topics.loaded
        assert isinstance(topic, PersistentTopic)
        assert topic.log.statistics().state == "closed"
        assert await service.topics.get(NAME, create=False) is not topic


async def test_a_reader_survives_its_own_seek(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer(TOPIC)
        for number in range(5):
            metadata = MessageMetadata(producer_name="p", sequence_id=number)
            metadata.publish_time = 1000 + number
            await client.ask(raw_send(number, build(metadata, b"x")), Type.SEND_RECEIPT)
        options = consuming.SubscribeOptions(durable=False, start_message_id=MessageId(-1, -1))

        def subscribe(number: int) -> bytes:
            return consuming.subscribe(TOPIC, "r", SubType.Exclusive, number, number, options)

        await client.ask(subscribe(1), Type.SUCCESS)
        await client.ask(consuming.seek(1, 7, publish_time_ms=1003), Type.CLOSE_CONSUMER)
        await client.expect(Type.SUCCESS)
        await client.ask(subscribe(2), Type.SUCCESS)
        first = await client.ask(consuming.flow(2, 10), Type.MESSAGE)
        assert first.message.message_id.entryId == 3
        await client.expect(Type.MESSAGE)
        await client.ask(consuming.seek(2, 8, publish_time_ms=1003), Type.CLOSE_CONSUMER)
        await client.expect(Type.SUCCESS)
        await trio.sleep(61)  # it doesn't come back
        assert not broker.service.topics.loaded[TOPIC].subscriptions


# ---- lies ----


async def test_odd_entries_do_not_stop_those_after_them() -> None:
    plain = build(MessageMetadata(producer_name="p", sequence_id=9, publish_time=1), b"x")
    odd = [b"\x0e", b"\x0e\x02", b"\x0e\x02\xff\xff\xff\xff", b"\x0e\x01\x00", b"garbage " * 5]
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        for turn in range(2):
            await client.open_producer(TOPIC, 1)
            await client.subscribe(TOPIC, 1, kind=SubType.Shared)
            if not turn:
                for number, payload in enumerate(odd):
                    await client.send(raw_send(number, payload))
                await client.send(raw_send(9, plain))
                answers = [await client.next() for _ in range(len(odd) + 1)]
                kinds = [each.type for each in answers if each is not None]
                assert set(kinds) <= {Type.SEND_RECEIPT, Type.SEND_ERROR}, answers
                stored = kinds.count(Type.SEND_RECEIPT)
                assert stored >= 3
            await client.send(consuming.flow(1, 100))
            payloads = [(await client.expect(Type.MESSAGE)).payload for _ in range(stored)]
            last = payloads[-1]
            assert last is not None
            assert parse_metadata(last).sequence_id == 9
            start = consuming.seek(1, 50, message_id=MessageId(-1, -1))
            await client.ask(start, Type.CLOSE_CONSUMER)
            await client.expect(Type.SUCCESS)
            # From storage the second time, where only the metadata tell how many messages it is.
            await broker.service.topics.unload(NAME)
            await client.expect(Type.CLOSE_PRODUCER)


@pytest.mark.parametrize("lie", [-1000, 0, 2**31 - 1])
async def test_wrong_message_counts_keep_permits_right(lie: int) -> None:
    plain = build(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"x")
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer(TOPIC)
        await client.subscribe(TOPIC, kind=SubType.Shared)
        await client.send(consuming.flow(1, 3))
        for number in range(5):
            await client.send(raw_send(number, plain, lie))
        frames = [await client.next() for _ in range(8)]
        kinds = [each.type for each in frames if each is not None]
        assert kinds.count(Type.MESSAGE) == 3
        [subscription] = broker.service.topics.loaded[TOPIC].subscriptions.values()
        [consumer] = subscription.consumers
        assert isinstance(consumer, Consumer)
        assert (consumer.permits, consumer.unacked) == (0, 3)


async def test_parts_of_one_batch_in_one_ack_count_together(world: World) -> None:
    topic = world.topic(batch_index_ack=True)
    client = FakeConnection()
    consumer = await topic.subscribe(subscribe_request(client, 1, "sub", sub_type=SubType.Shared))
    consumer.flow(100)
    producer = await topic.add_producer(producer_request(client))
    producer.publish([item(0, batch=4), item(1, batch=4)])
    await world.settle()
    assert consumer.unacked == 8
    consumer.redeliver([position(1)])
    await world.settle()
    consumer.ack([Ack(position(0), (0b1110,)), Ack(position(0), (0b1101,))])
    assert consumer.pending[position(0)] == 2
    consumer.ack([Ack(position(1), (0b0011,), 4), Ack(position(1), (0b1100,), 4)])
    assert position(1) not in consumer.pending
    assert consumer.unacked == 2
    assert topic.subscriptions["sub"].backlog_entries() == 1


# ---- clients that don't read, or say nothing ----


async def test_a_client_without_connect_is_dropped_despite_pings(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.send(connection.PING)
        await client.expect(Type.PONG)
        began = trio.current_time()
        assert await client.next() is None
        assert trio.current_time() - began < 31


async def test_the_publish_buffer_wakes_all_waiting_connections() -> None:
    async with open_broker() as broker:
        service = broker.service
        service.connections.publish_bytes_max = 100
        service.connections.publish_pending(150)
        woken: list[int] = []
        service.connections.on_publish_buffer_drained(lambda: woken.append(1))
        service.connections.publish_pending(-70)
        service.connections.publish_pending(5)
        assert service.connections.publish_buffer_full
        service.connections.publish_pending(-85)
        assert woken == [1]
        assert not service.connections.publish_buffer_full


async def test_many_small_pending_entries_count_beside_their_bytes() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        [session] = broker.service.connections.sessions
        entries = PENDING_PUBLISH_BYTES_MAX // PENDING_ENTRY_BYTES
        session.backpressure.publish_pending(entries, entries)
        assert session.backpressure.overloaded
        session.backpressure.publish_pending(-entries, -entries)
        assert not session.backpressure.overloaded


async def test_lists_and_watchers_pause_while_the_client_does_not_read() -> None:
    topics = replace(BrokerConfig().topics, pattern_length_max=100)
    async with open_broker(replace(BrokerConfig(), topics=topics)) as broker:
        for number in range(40):
            name = f"persistent://public/default/{'long' * 20}-{number}"
            await broker.service.topics.get(TopicName.parse(name), create=True)
        client = broker.client(sockets=True)
        await client.connect()
        [session] = broker.service.connections.sessions
        await client.send(
            *(lookup.get_topics_of_namespace(n, "public/default") for n in range(LISTS))
        )
        highest = 0
        for _ in range(100):
            await trio.testing.wait_all_tasks_blocked()
            highest = max(highest, session.stream.pending_bytes)
            await trio.lowlevel.checkpoint()
        assert 0 < highest < WRITE_HIGH_BYTES + 20_000
        answers = [await client.expect(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE) for _ in range(LISTS)]
        ids = {each.command.getTopicsOfNamespaceResponse.request_id for each in answers}
        assert len(ids) == LISTS
        await client.stream.aclose()
