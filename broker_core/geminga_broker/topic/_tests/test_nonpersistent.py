"""Non-persistent topics: straight through, dropped without permits (BR-08)."""

from __future__ import annotations

import pytest

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    key_of,
    position,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack
from geminga_broker.topic.api import KeySharedPolicy, SubType
from geminga_broker.topic.nonpersistent import NonPersistentTopic
from geminga_protocol.ids import EARLIEST
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, KeySharedMode, ServerError
from geminga_protocol.topic_name import TopicName


def topic_of(world: World) -> NonPersistentTopic:
    return NonPersistentTopic(TopicName.parse("non-persistent://a/b/t"), world.environment)


async def test_messages_are_dispatched_at_once_or_dropped(world: World) -> None:
    topic = topic_of(world)
    connection = FakeConnection()
    producer = await topic.add_producer(producer_request(connection))
    consumer = await topic.subscribe(subscribe_request(connection, 1))
    consumer.flow(2)
    producer.publish([item(n) for n in range(5)])
    assert connection.entries() == [0, 0]
    assert connection.receipts == [(n, 0) for n in range(5)]
    assert topic.subscriptions["sub"].dropped.messages == 3
    consumer.ack([Ack(position(0))])
    consumer.redeliver()
    await consumer.subscription.seek(EARLIEST)
    await consumer.subscription.seek_time(1)
    producer.publish([item(9)])
    assert len(connection.entries()) == 2


async def test_shared_and_failover(world: World) -> None:
    topic = topic_of(world)
    one, two = FakeConnection(), FakeConnection()
    producer = await topic.add_producer(producer_request(FakeConnection()))
    for number, connection in ((1, one), (2, two)):
        for kind, name in ((SubType.Shared, "s"), (SubType.Failover, "f")):
            consumer = await topic.subscribe(
                subscribe_request(connection, number, name, sub_type=kind)
            )
            consumer.flow(100)
    producer.publish([item(n) for n in range(40)])
    shared = len(one.entries()) % 40 or 40
    assert len(one.entries()) + len(two.entries()) == 80
    assert shared in (20, 40)
    (change,) = two.commands(BaseCommand.Type.ACTIVE_CONSUMER_CHANGE)
    assert change.active_consumer_change.is_active == (len(two.entries()) == 60)


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
async def test_no_limit_of_unacknowledged_messages(world: World, kind: SubType) -> None:
    topic = world.passing(unacked_per_consumer_max=5)
    connection = FakeConnection()
    producer = await topic.add_producer(producer_request(connection))
    (await topic.subscribe(subscribe_request(connection, 1, sub_type=kind))).flow(100)
    producer.publish([item(n, key=f"k{n}") for n in range(50)])
    assert len(connection.entries()) == 50
    assert topic.subscriptions["sub"].dropped.messages == 0


async def test_key_shared_keeps_keys_together(world: World) -> None:
    topic = topic_of(world)
    connections = [FakeConnection(), FakeConnection()]
    producer = await topic.add_producer(producer_request(FakeConnection()))
    halves = ((0, 32767), (32768, 65535))
    for number, connection in enumerate(connections):
        policy = KeySharedPolicy(KeySharedMode.STICKY, (halves[number],))
        request = subscribe_request(
            connection, number, sub_type=SubType.Key_Shared, key_shared=policy
        )
        (await topic.subscribe(request)).flow(1000)
    producer.publish([item(n, key=f"k{n % 20}") for n in range(200)])
    seen = [{key_of(data) for data in connection.payloads()} for connection in connections]
    assert seen[0]
    assert seen[1]
    assert not seen[0] & seen[1]
    with pytest.raises(BrokerError) as refused:
        await topic.subscribe(
            subscribe_request(
                connections[0],
                5,
                sub_type=SubType.Key_Shared,
                key_shared=KeySharedPolicy(KeySharedMode.STICKY, (halves[0],)),
            )
        )
    assert refused.value.code == ServerError.ConsumerAssignError


async def test_full_connection_drops(world: World) -> None:
    topic = topic_of(world)
    connection = FakeConnection()
    producer = await topic.add_producer(producer_request(FakeConnection()))
    consumer = await topic.subscribe(subscribe_request(connection, 1))
    consumer.flow(10)
    connection.set_writable(False)
    producer.publish([item(1)])
    connection.set_writable(True)
    producer.publish([item(2)])
    assert len(connection.entries()) == 1


async def test_unsubscribe_close_delete(world: World) -> None:
    topic = topic_of(world)
    connection = FakeConnection()
    consumer = await topic.subscribe(subscribe_request(connection, 1))
    with pytest.raises(BrokerError):
        await topic.subscribe(subscribe_request(connection, 2))
    with pytest.raises(BrokerError):
        await topic.delete()
    with pytest.raises(BrokerError):
        await topic.delete_subscription("sub")
    await consumer.subscription.unsubscribe(consumer)
    assert topic.subscriptions == {}
    reader = await topic.subscribe(subscribe_request(connection, 2, durable=False))
    reader.close()
    assert topic.subscriptions == {}
    await topic.create_subscription("made", EARLIEST, {"a": "b"})
    assert topic.stats().subscriptions["made"].subscription_properties == {"a": "b"}
    await topic.subscribe(subscribe_request(connection, 3, "made"))
    await topic.delete(force=True)
    assert connection.dropped_consumers == [3]
    for refused in (
        topic.terminate(),
        topic.truncate(),
        topic.last_message(),
        topic.skip("made", 1),
    ):
        with pytest.raises(BrokerError) as error:
            await refused
        assert error.value.code == ServerError.NotAllowedError
