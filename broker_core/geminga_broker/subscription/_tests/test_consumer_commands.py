"""What one consumer may do to itself and to others: permits, epochs, limits, acknowledgements."""

from __future__ import annotations

import pytest

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.log.api import Ack
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.topic.api import InitialPosition, SubType
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand


async def joined(
    topic: PersistentTopic, number: int = 1, **more: object
) -> tuple[Consumer, FakeConnection]:
    connection = FakeConnection(str(number))
    more.setdefault("initial_position", InitialPosition.Earliest)
    return await topic.subscribe(subscribe_request(connection, number, **more)), connection


async def publish(topic: PersistentTopic, count: int) -> None:
    producer = await topic.add_producer(producer_request(FakeConnection(), f"p{count}"))
    producer.publish([item(n) for n in range(count)])
    producer.close()


@pytest.mark.parametrize("permits", [0, -1, -1000])
async def test_permits_that_are_none_change_nothing(world: World, permits: int) -> None:
    """A client can write any number of 32 bits."""
    topic = world.topic()
    consumer, _ = await joined(topic)
    consumer.flow(2)
    consumer.flow(permits)
    assert (consumer.permits, consumer.given) == (2, 2)
    await publish(topic, 3)
    await world.settle()
    assert consumer.sent == 2


async def test_messages_carry_the_epoch_of_the_last_redelivery(world: World) -> None:
    """Those of an earlier one the client throws away."""
    topic = world.topic()
    consumer, connection = await joined(topic, consumer_epoch=3)
    consumer.flow(10)
    await publish(topic, 1)
    await world.settle()
    consumer.redeliver(None, 4)
    await world.settle()
    consumer.redeliver(None)
    await world.settle()
    assert [each.message.consumer_epoch for each in connection.messages()] == [3, 4, 4]


@pytest.mark.parametrize(
    ("kind", "limited"),
    [
        (SubType.Exclusive, False),
        (SubType.Failover, False),
        (SubType.Shared, True),
        (SubType.Key_Shared, True),
    ],
)
async def test_only_who_acknowledges_one_by_one_is_limited(
    world: World, kind: int, limited: bool
) -> None:
    topic = world.topic(unacked_per_consumer_max=2)
    consumer, _ = await joined(topic, sub_type=kind)
    consumer.flow(10)
    await publish(topic, 5)
    await world.settle()
    assert (consumer.limit, consumer.sent >= 5) == ((2, False) if limited else (0, True))


async def test_a_client_that_does_not_read_hears_the_last_change_only(world: World) -> None:
    """However often others come and go."""
    topic = world.topic()
    consumer, connection = await joined(topic, sub_type=SubType.Failover, consumer_name="m")
    kind = BaseCommand.Type.ACTIVE_CONSUMER_CHANGE
    heard = len(connection.commands(kind))
    connection.set_writable(False)
    for active in (False, True) * 50:
        consumer.notify_active(active)
    assert len(connection._waiting) == 1
    connection.set_writable(True)
    [change] = connection.commands(kind)[heard:]
    assert change.active_consumer_change.is_active


async def test_nothing_beyond_the_end_is_acknowledged(world: World) -> None:
    """What is published there later must come."""
    topic = world.topic()
    consumer, _ = await joined(topic)
    consumer.flow(100)
    await publish(topic, 2)
    await world.settle()
    last = world.log.entries[-1].position
    beyond = Position(last.ledger_id, type(last.entry_id)(last.entry_id + 5))
    for position in (beyond, Position(last.ledger_id + 1, last.entry_id)):
        consumer.ack([Ack(position)], cumulative=True)
        assert world.log.cursors["sub"].backlog_entries() == 2
    consumer.ack([Ack(last)], cumulative=True)
    assert world.log.cursors["sub"].backlog_entries() == 0
