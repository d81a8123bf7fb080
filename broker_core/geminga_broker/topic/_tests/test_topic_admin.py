"""Topics from the administrator's side: subscriptions, deletion, limits, statistics."""

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
from geminga_broker.log.api import LogWriteFailed
from geminga_broker.policies.apply import apply_policies
from geminga_broker.policies.model import TopicPolicies
from geminga_broker.topic.api import InitialPosition, SubType
from geminga_protocol.ids import EARLIEST
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

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


async def test_admin_operations(world: World):
    topic = world.topic()
    await publish(topic, 10, publish_time=world.now_ms - 5_000)
    await topic.create_subscription("a", position(4), {"k": "v"})
    assert topic.subscriptions["a"].backlog_entries() == 6
    with pytest.raises(BrokerError):
        await topic.create_subscription("a", EARLIEST)
    await topic.skip("a", 2)
    assert topic.subscriptions["a"].backlog_entries() == 4
    await topic.reset("a", position(0))
    await topic.expire("a", 60)
    assert topic.subscriptions["a"].backlog_entries() == 10
    await topic.expire("a", 1)
    assert topic.subscriptions["a"].backlog_entries() == 0
    await topic.reset_to_time("a", 0)
    await topic.skip("a", None)
    assert topic.subscriptions["a"].backlog_entries() == 0
    assert topic.stats().subscriptions["a"].subscription_properties == {"k": "v"}
    await topic.delete_subscription("a")
    with pytest.raises(BrokerError) as refused:
        await topic.delete_subscription("a")
    assert refused.value.code == ServerError.SubscriptionNotFound


async def test_delete_refuses_while_clients_are_there(world: World):
    topic = world.topic()
    connection = FakeConnection()
    await publish(topic, 1, connection)
    assert not topic.idle
    with pytest.raises(BrokerError):
        await topic.delete()
    await topic.delete(force=True)
    assert world.log.deleted
    assert connection.dropped_producers == [1]


async def test_a_forced_delete_leaves_readers_cursors_to_the_log(world: World):
    topic = world.topic()
    await consumer_of(topic, FakeConnection(), name="reader", durable=False)
    await topic.delete(force=True)
    await world.settle()
    assert "reader" in world.log.cursors
    assert world.log.deleted


async def test_close_is_idempotent_and_closes_clients(world: World):
    topic = world.topic()
    connection = FakeConnection()
    await publish(topic, 1, connection)
    await consumer_of(topic, connection, 9)
    await topic.close()
    await topic.close()
    assert world.log.closed
    assert (connection.dropped_producers, connection.dropped_consumers) == ([1], [9])
    with pytest.raises(BrokerError):
        await consumer_of(topic, connection)


async def test_stored_subscriptions_are_back_after_loading(world: World):
    topic = world.topic()
    await consumer_of(topic, FakeConnection())
    await topic.close()
    assert list(world.topic().subscriptions) == ["sub"]


async def test_limits(world: World):
    topic = world.topic(
        producers_max=1, consumers_max=2, consumers_per_subscription_max=1, subscriptions_max=1
    )
    await publish(topic, 1, producer="a")
    with pytest.raises(BrokerError):
        await publish(topic, 1, producer="b")
    await consumer_of(topic, FakeConnection(), 1, sub_type=SubType.Shared)
    with pytest.raises(BrokerError) as refused:
        await consumer_of(topic, FakeConnection(), 2, sub_type=SubType.Shared)
    assert refused.value.code == ServerError.ConsumerBusy
    with pytest.raises(BrokerError) as refused:
        await consumer_of(topic, FakeConnection(), 2, name="other")
    assert refused.value.code == ServerError.NotAllowedError


async def test_refusals_of_subscribe(world: World):
    topic = world.topic(subscription_types=frozenset({SubType.Exclusive, SubType.Shared}))
    with pytest.raises(BrokerError) as refused:
        await consumer_of(topic, FakeConnection(), name="")
    assert refused.value.code == ServerError.ProducerBusy
    for more in (
        {"sub_type": SubType.Failover},
        {"sub_type": SubType.Shared, "read_compacted": True},
    ):
        with pytest.raises(BrokerError) as refused:
            await consumer_of(topic, FakeConnection(), **more)
        assert refused.value.code == ServerError.NotAllowedError
    with pytest.raises(BrokerError) as refused:
        await apply_policies(topic, TopicPolicies(auto_subscription=False))
        await consumer_of(topic, FakeConnection())
    assert refused.value.code == ServerError.SubscriptionNotFound


async def test_encryption_required(world: World):
    topic = world.topic(encryption_required=True)
    connection = FakeConnection()
    with pytest.raises(BrokerError):
        await topic.add_producer(producer_request(connection))
    producer = await topic.add_producer(producer_request(connection, encrypted=True))
    producer.publish([item(3)])
    assert connection.errors == [(3, ServerError.MetadataError)]


async def test_a_failing_read_is_tried_again(world: World, autojump_clock):
    topic = world.topic()
    connection = FakeConnection()
    consumer = await consumer_of(topic, connection)
    topic.subscriptions["sub"].cursor.fail_reads = [LogWriteFailed("x"), LogWriteFailed("y")]
    await publish(topic, 1)
    consumer.flow(1)
    await world.settle()
    import trio

    await trio.sleep(3)
    assert connection.entries() == [0]


async def test_stats_name_what_apache_names(world: World):
    import msgspec

    topic = world.topic()
    consumer = await consumer_of(topic, FakeConnection())
    await publish(topic, 3)
    consumer.flow(2)
    await world.settle()
    found = msgspec.to_builtins(topic.stats())
    assert found["msgInCounter"] == 3
    assert found["msgOutCounter"] == 2
    assert found["publishers"][0]["producerName"] == "p0"
    subscription = found["subscriptions"]["sub"]
    assert subscription["msgBacklog"] == 3
    assert subscription["consumers"][0]["availablePermits"] == 0
    internal = msgspec.to_builtins(topic.internal_stats())
    assert internal["cursors"]["sub"]["markDeletePosition"] == "7:-1"
    flowed_ms = subscription["lastConsumedFlowTimestamp"]
    assert flowed_ms == subscription["consumers"][0]["lastConsumedFlowTimestamp"] > 0
    consumer.close()
    await world.settle()
    left = msgspec.to_builtins(topic.stats())["subscriptions"]["sub"]
    assert (left["consumers"], left["lastConsumedFlowTimestamp"]) == ([], flowed_ms)
