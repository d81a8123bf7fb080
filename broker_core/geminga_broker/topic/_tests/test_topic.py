"""Publish, receipts, subscribe, flow, ack, over a log in memory."""

from __future__ import annotations

import pytest

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    position,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, LogFenced, LogWriteFailed
from geminga_broker.topic.api import InitialPosition, SubType
from geminga_protocol.ids import EARLIEST, LATEST
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, ServerError

pytestmark = pytest.mark.trio


async def consumer_of(topic, connection, number=1, name="sub", **more):
    more.setdefault("initial_position", InitialPosition.Earliest)
    return await topic.subscribe(subscribe_request(connection, number, name, **more))


async def publish(topic, count, connection=None, **more):
    connection = connection or FakeConnection("publisher")
    name = more.pop("producer", f"p{len(topic.producers)}")
    producer = await topic.add_producer(producer_request(connection, name))
    producer.publish([item(n, **more) for n in range(count)])
    return producer


async def test_receipts_come_in_order_in_one_write_per_run(world: World):
    topic = world.topic()
    world.log.hold = True
    connection = FakeConnection()
    pending = []
    producer = await topic.add_producer(
        producer_request(connection, publish_pending=lambda *delta: pending.append(delta))
    )
    producer.publish([item(10), item(11)])
    producer.publish([item(12)])
    assert connection.writes == 0
    assert sum(len(run.sent) for run in producer._pending) == 3
    world.log.complete(2)
    assert connection.receipts == [(10, 0), (11, 1), (12, 2)]
    assert connection.writes == 2
    assert [count for count, _ in pending] == [2, 1, -2, -1]
    assert sum(size for _, size in pending) == 0


async def test_a_failed_write_closes_its_producer_to_keep_the_order(world: World):
    topic = world.topic()
    connection = FakeConnection()
    producer = await topic.add_producer(producer_request(connection))
    world.log.fail = LogWriteFailed("disk")
    producer.publish([item(1), item(2)])
    assert connection.dropped_producers == [producer.producer_id]
    world.log.fail = None
    producer.publish([item(3)])
    assert connection.errors == connection.receipts == []
    assert not producer._pending
    again = await topic.add_producer(producer_request(connection))
    again.publish([item(1), item(2), item(3)])
    assert connection.receipts == [(1, 0), (2, 1), (3, 2)]


async def test_lost_log_closes_everybody_without_errors(world: World):
    topic = world.topic()
    told = []
    topic.on_fenced = lambda: told.append(1)
    connection = FakeConnection()
    producer = await topic.add_producer(producer_request(connection))
    await consumer_of(topic, connection, 4)
    world.log.fail = LogFenced("other broker")
    producer.publish([item(1)])
    assert connection.errors == []
    assert connection.dropped_producers == [1]
    assert connection.dropped_consumers == [4]
    assert told == [1]
    with pytest.raises(BrokerError) as refused:
        await topic.add_producer(producer_request(connection, "q"))
    assert refused.value.code == ServerError.ServiceNotReady


async def test_receipt_of_a_closed_producer_is_not_sent(world: World):
    topic = world.topic()
    world.log.hold = True
    connection = FakeConnection()
    producer = await topic.add_producer(producer_request(connection))
    producer.publish([item(1)])
    producer.close()
    world.log.complete()
    assert connection.receipts == []


async def test_exclusive_gets_no_more_than_its_permits(world: World):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    await publish(topic, 5)
    await world.settle()
    assert connection.entries() == []
    consumer.flow(3)
    await world.settle()
    assert connection.entries() == [0, 1, 2]
    consumer.flow(10)
    await world.settle()
    assert connection.entries() == [0, 1, 2, 3, 4]
    assert consumer.permits == 8


async def test_latest_starts_at_the_end(world: World):
    topic = world.topic()
    connection = FakeConnection()
    await publish(topic, 3)
    consumer = await consumer_of(topic, connection, initial_position=InitialPosition.Latest)
    consumer.flow(10)
    await publish(topic, 1)
    await world.settle()
    assert connection.entries() == [3]


async def test_unacked_messages_go_to_the_next_exclusive_consumer(world: World):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    await publish(topic, 4)
    consumer.flow(10)
    await world.settle()
    consumer.ack([Ack(position(0)), Ack(position(2))])
    consumer.close()
    again = FakeConnection()
    (await consumer_of(topic, again)).flow(10)
    await world.settle()
    assert again.entries() == [1, 3]


async def test_cumulative_ack(world: World):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    await publish(topic, 4)
    consumer.flow(10)
    await world.settle()
    consumer.ack([Ack(position(2))], cumulative=True)
    assert topic.subscriptions["sub"].backlog_entries() == 1


async def test_exclusive_refuses_a_second(world: World):
    topic = world.topic()
    await consumer_of(topic, FakeConnection())
    with pytest.raises(BrokerError) as refused:
        await consumer_of(topic, FakeConnection(), 2)
    assert refused.value.code == ServerError.ConsumerBusy
    with pytest.raises(BrokerError) as refused:
        await consumer_of(topic, FakeConnection(), 2, sub_type=SubType.Shared)
    assert refused.value.code == ServerError.ConsumerBusy
    assert len(topic.subscriptions["sub"].consumers) == 1


async def test_the_type_may_change_without_consumers(world: World):
    topic = world.topic()
    (await consumer_of(topic, FakeConnection())).close()
    await consumer_of(topic, FakeConnection(), 2, sub_type=SubType.Shared)
    assert topic.stats().subscriptions["sub"].type == "Shared"


async def test_success_is_written_before_anything_else(world: World):
    topic = world.topic()
    connection = FakeConnection()
    order = []
    await consumer_of(
        topic,
        connection,
        sub_type=SubType.Failover,
        on_subscribed=lambda consumer: order.append(connection.writes),
    )
    assert order == [0]
    (change,) = connection.commands(BaseCommand.Type.ACTIVE_CONSUMER_CHANGE)
    assert change.active_consumer_change.is_active


async def test_redelivery_of_exclusive_starts_over(world: World):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    await publish(topic, 3)
    consumer.flow(10)
    await world.settle()
    consumer.ack([Ack(position(0))])
    consumer.redeliver([position(2)], epoch=5)
    await world.settle()
    assert connection.entries() == [0, 1, 2, 1, 2]
    assert connection.messages()[-1].message.consumer_epoch == 5


async def test_seek_closes_consumers_and_reads_from_there(world: World):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    await publish(topic, 5)
    consumer.flow(10)
    await world.settle()
    await consumer.subscription.seek(position(3))
    assert connection.dropped_consumers == [1]
    connection.forget()
    (await consumer_of(topic, connection)).flow(10)
    await world.settle()
    assert connection.entries() == [3, 4]


@pytest.mark.parametrize(("place", "expected"), [(EARLIEST, [0, 1, 2]), (LATEST, [])])
async def test_seek_to_the_ends(world: World, place, expected):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    await publish(topic, 3)
    await consumer.subscription.seek(place)
    (await consumer_of(topic, connection)).flow(10)
    await world.settle()
    assert connection.entries() == expected


async def test_seek_by_time(world: World):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    await publish(topic, 2, publish_time=100)
    await publish(topic, 2, publish_time=200)
    await consumer.subscription.seek_time(150)
    (await consumer_of(topic, connection)).flow(10)
    await world.settle()
    assert connection.entries() == [2, 3]


async def test_reader_starts_inclusive_and_leaves_nothing(world: World):
    topic = world.topic()
    connection = FakeConnection()
    await publish(topic, 5)
    reader = await consumer_of(topic, connection, name="reader", durable=False, start=position(3))
    reader.flow(10)
    await world.settle()
    assert connection.entries() == [3, 4]
    reader.close()
    await world.settle()
    assert "reader" not in topic.subscriptions
    assert "reader" not in world.log.cursors


async def test_markers_are_skipped_and_acknowledged(world: World):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    producer = await publish(topic, 1)
    producer.publish([item(1, marker=20), item(2)])
    consumer.flow(10)
    await world.settle()
    assert connection.entries() == [0, 2]
    consumer.ack([Ack(position(0)), Ack(position(2))])
    assert topic.subscriptions["sub"].backlog_entries() == 0


async def test_full_connection_pauses_dispatch(world: World):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    connection.set_writable(False)
    consumer.flow(10)
    await publish(topic, 3)
    await world.settle()
    assert connection.entries() == []
    connection.set_writable(True)
    await world.settle()
    assert connection.entries() == [0, 1, 2]


async def test_terminate_ends_producers_and_tells_consumers_at_the_end(world: World):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    await publish(topic, 2, connection)
    consumer.flow(10)
    await world.settle()
    assert await topic.terminate() == position(1)
    assert connection.dropped_producers == [1]
    end = BaseCommand.Type.REACHED_END_OF_TOPIC
    assert connection.commands(end) == []
    consumer.ack([Ack(position(1))], cumulative=True)
    assert len(connection.commands(end)) == 1
    with pytest.raises(BrokerError) as refused:
        await topic.add_producer(producer_request(connection))
    assert refused.value.code == ServerError.TopicTerminatedError


async def test_unsubscribe_only_by_the_sole_consumer(world: World):
    topic = world.topic()
    one = await consumer_of(topic, FakeConnection(), 1, sub_type=SubType.Shared)
    two = await consumer_of(topic, FakeConnection(), 2, sub_type=SubType.Shared)
    with pytest.raises(BrokerError):
        await one.subscription.unsubscribe(one)
    two.close()
    await one.subscription.unsubscribe(one)
    assert topic.subscriptions == {}
    assert world.log.cursors == {}


async def test_last_message(world: World):
    topic = world.topic()
    consumer = await consumer_of(topic, FakeConnection())
    assert (await consumer.subscription.last_message()).position.entry_id == -1
    producer = await publish(topic, 2)
    assert (await consumer.subscription.last_message())[:2] == (position(1), -1)
    producer.publish([item(5, batch=3)])
    last = await consumer.subscription.last_message()
    assert last[:2] == (position(2), 2)
    assert last.mark_delete == position(-1)
