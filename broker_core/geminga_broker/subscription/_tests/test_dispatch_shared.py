"""Shared, Failover and delayed delivery over a log in memory (BR-30, BR-32 to BR-36)."""

from __future__ import annotations

import pytest
import trio

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    position,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.log.api import Ack
from geminga_broker.subscription._tests.audit import check_subscription
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_broker.topic.api import InitialPosition, SubType
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol import ack_set
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand


async def join(
    topic: PersistentTopic, number: int, kind: int = SubType.Shared, **more: object
) -> tuple[Consumer, FakeConnection]:
    connection = FakeConnection(f"c{number}")
    more.setdefault("initial_position", InitialPosition.Earliest)
    request = subscribe_request(connection, number, sub_type=kind, **more)
    return await topic.subscribe(request), connection


async def publish(topic: PersistentTopic, count: int, **more: object) -> None:
    producer = await topic.add_producer(producer_request(FakeConnection(), "p"))
    producer.publish([item(n, **more) for n in range(count)])
    producer.close()


async def test_round_robin_by_runs_of_twenty(world: World) -> None:
    topic = world.topic()
    members = [await join(topic, number) for number in (1, 2)]
    for consumer, _ in members:
        consumer.flow(1000)
    await publish(topic, 80)
    await world.settle()
    first = list(range(20)) + list(range(40, 60))
    assert sorted(connection.entries()[0] for _, connection in members) == [0, 20]
    assert first in [connection.entries() for _, connection in members]


async def test_higher_priority_first(world: World) -> None:
    topic = world.topic()
    low, low_connection = await join(topic, 1, priority_level=1)
    high, high_connection = await join(topic, 2)
    low.flow(100)
    high.flow(30)
    await publish(topic, 50)
    await world.settle()
    assert high_connection.entries() == list(range(30))
    assert low_connection.entries() == list(range(30, 50))


async def test_nack_is_redelivered_with_its_count_in_order(world: World) -> None:
    topic = world.topic()
    consumer, connection = await join(topic, 1)
    consumer.flow(5)
    await publish(topic, 5)
    await world.settle()
    consumer.redeliver([position(3), position(1), position(77)])
    consumer.flow(5)
    await world.settle()
    assert connection.entries() == [0, 1, 2, 3, 4, 1, 3]
    assert [c.message.redelivery_count for c in connection.messages()[-2:]] == [1, 1]
    consumer.redeliver([position(1)])
    consumer.flow(1)
    await world.settle()
    assert connection.messages()[-1].message.redelivery_count == 2


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
async def test_acknowledged_while_it_was_read_is_not_counted(world: World, kind: int) -> None:
    topic = world.topic()
    consumer, connection = await join(topic, 1, kind)
    consumer.flow(10)
    await publish(topic, 2)
    await world.settle()
    subscription = topic.subscriptions["sub"]
    subscription.cursor.ack([Ack(position(1))])  # as from a consumer before this one
    consumer.redeliver([position(0), position(1)])
    await world.settle()
    assert connection.entries() == [0, 1, 0]
    assert isinstance(subscription.machine, TrackedMachine)
    assert subscription.machine.holdings.counts == {position(0): 1}
    check_subscription(subscription)


async def test_acknowledged_while_waiting_is_not_sent_again(world: World) -> None:
    topic = world.topic()
    consumer, connection = await join(topic, 1)
    consumer.flow(3)
    await publish(topic, 3)
    await world.settle()
    consumer.redeliver()
    consumer.ack([Ack(position(1))])
    consumer.flow(10)
    await world.settle()
    assert connection.entries() == [0, 1, 2, 0, 2]
    assert consumer.unacked == 2


async def test_a_closed_consumers_entries_go_to_others(world: World) -> None:
    topic = world.topic()
    one, _ = await join(topic, 1)
    one.flow(4)
    await publish(topic, 4)
    await world.settle()
    two, connection = await join(topic, 2)
    two.flow(10)
    one.ack([Ack(position(0))])
    one.close()
    await world.settle()
    assert connection.entries() == [1, 2, 3]
    assert [c.message.redelivery_count for c in connection.messages()] == [0, 0, 0]


async def test_ack_through_another_consumer_frees_the_holder(world: World) -> None:
    topic = world.topic()
    one, _ = await join(topic, 1)
    two, _ = await join(topic, 2)
    one.flow(2)
    await publish(topic, 2)
    await world.settle()
    two.ack([Ack(position(0)), Ack(position(55))])
    assert (one.unacked, two.unacked) == (1, 0)


async def test_cumulative_is_ignored_on_shared(world: World) -> None:
    topic = world.topic()
    consumer, _ = await join(topic, 1)
    consumer.flow(2)
    await publish(topic, 2)
    await world.settle()
    consumer.ack([Ack(position(1))], cumulative=True)
    assert topic.subscriptions["sub"].backlog_entries() == 2


async def test_unacked_limit_of_a_consumer_pauses_and_resumes_at_half(world: World) -> None:
    topic = world.topic(unacked_per_consumer_max=4)
    consumer, connection = await join(topic, 1)
    consumer.flow(4)
    await publish(topic, 10)
    await world.settle()
    assert consumer.blocked
    consumer.flow(6)
    await world.settle()
    assert (consumer.permits, consumer.held) == (0, 6)
    assert len(connection.entries()) == 4
    consumer.ack([Ack(position(0))])
    await world.settle()
    assert len(connection.entries()) == 4
    consumer.ack([Ack(position(1))])
    await world.settle()
    assert not consumer.held
    assert len(connection.entries()) == 6  # no further than the limit, whatever was given


async def test_unacked_limit_of_a_subscription(world: World) -> None:
    topic = world.topic(unacked_per_subscription_max=4)
    one, one_connection = await join(topic, 1)
    two, two_connection = await join(topic, 2)
    one.flow(2)
    two.flow(2)
    await publish(topic, 10)
    await world.settle()
    one.flow(10)
    await world.settle()
    assert len(one_connection.entries()) + len(two_connection.entries()) == 4
    assert topic.stats().subscriptions["sub"].blocked_subscription_on_unacked_msgs
    one.ack([Ack(position(n)) for n in range(3)])
    two.ack([Ack(position(n)) for n in range(3)])
    await world.settle()
    assert len(one_connection.entries()) + len(two_connection.entries()) > 4


async def test_batch_parts_are_acknowledged_and_redelivered_with_ack_sets(world: World) -> None:
    topic = world.topic(batch_index_ack=True)
    consumer, connection = await join(topic, 1)
    consumer.flow(20)
    await publish(topic, 1, batch=10)
    await world.settle()
    assert (consumer.permits, consumer.unacked) == (10, 10)
    left = ack_set.without(ack_set.without(ack_set.full(10), 0), 9)
    consumer.ack([Ack(position(0), left, 10)])
    assert consumer.unacked == 8
    consumer.ack([Ack(position(0), left, 10)])
    assert consumer.unacked == 8
    consumer.redeliver()
    await world.settle()
    again = connection.messages()[-1].message
    assert tuple(again.ack_set) == left
    assert (consumer.permits, consumer.unacked) == (2, 8)
    consumer.ack([Ack(position(0), ack_set.from_bits(0b10), 10)])
    consumer.ack([Ack(position(0))])
    assert consumer.unacked == 0
    assert consumer.pending == {}
    assert topic.subscriptions["sub"].backlog_entries() == 0


async def test_parts_of_batches_are_ignored_unless_enabled(world: World) -> None:
    topic = world.topic()
    consumer, connection = await join(topic, 1)
    consumer.flow(20)
    await publish(topic, 1, batch=3)
    await world.settle()
    consumer.ack([Ack(position(0), ack_set.from_bits(0b100), 3)])
    assert consumer.unacked == 3
    consumer.redeliver()
    await world.settle()
    assert tuple(connection.messages()[-1].message.ack_set) == ()


async def test_leftovers_wait_for_permits_without_reading_again(world: World) -> None:
    topic = world.topic()
    consumer, connection = await join(topic, 1)
    await publish(topic, 3, batch=10)
    consumer.flow(1)
    await world.settle()
    assert connection.entries() == [0]
    assert consumer.permits == -9
    consumer.flow(9)
    await world.settle()
    assert connection.entries() == [0]
    consumer.flow(1)
    await world.settle()
    assert connection.entries() == [0, 1]


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
async def test_delayed_messages_come_when_due(world: World, kind: int, autojump_clock) -> None:
    topic = world.topic()
    start = trio.current_time()
    real = world.now_ms
    world.environment = type(world.environment)(
        world.environment.nursery, lambda: real + int((trio.current_time() - start) * 1000)
    )
    topic = world.topic()
    consumer, connection = await join(topic, 1, kind)
    consumer.flow(10)
    await publish(topic, 1, deliver_at=real + 5_000)
    await publish(topic, 1)
    await publish(topic, 1, deliver_at=real - 5_000)
    await trio.sleep(1)
    assert connection.entries() == [1, 2]
    stats = topic.stats()
    assert stats.subscriptions["sub"].msg_delayed == 1
    assert stats.subscriptions["sub"].msg_backlog_no_delayed == 2
    size = stats.subscriptions["sub"].delayed_message_index_size_in_bytes
    assert stats.delayed_message_index_size_in_bytes == size > 0
    await trio.sleep(3.9)
    assert connection.entries() == [1, 2]
    await trio.sleep(0.2)
    assert connection.entries() == [1, 2, 0]
    stats = topic.stats()
    assert stats.subscriptions["sub"].msg_delayed == 0
    assert stats.delayed_message_index_size_in_bytes == 0


async def test_failover_follows_name_and_priority_and_notifies(
    world: World, autojump_clock
) -> None:
    topic = world.topic("persistent://a/b/t-partition-1")
    change = BaseCommand.Type.ACTIVE_CONSUMER_CHANGE

    def told(connection: FakeConnection) -> list[bool]:
        return [c.active_consumer_change.is_active for c in connection.commands(change)]

    a, a_connection = await join(topic, 1, SubType.Failover, consumer_name="a")
    a.flow(10)
    await publish(topic, 2)
    await trio.sleep(0.1)
    assert a_connection.entries() == [0, 1]
    b, b_connection = await join(topic, 2, SubType.Failover, consumer_name="b")
    b.flow(10)
    a.ack([Ack(position(0))])
    assert told(a_connection) == [True, False]
    assert told(b_connection) == [True]
    await trio.sleep(0.5)
    assert b_connection.entries() == []
    await trio.sleep(1)
    assert b_connection.entries() == [1]
    low, low_connection = await join(
        topic, 3, SubType.Failover, consumer_name="A", priority_level=3
    )
    assert told(low_connection) == [False]
    b.close()
    assert told(a_connection)[-1] is True
    low.close()
    a.close()


async def test_failover_of_a_plain_topic_does_not_depend_on_arrival(world: World) -> None:
    chosen = set()
    for order in ("abc", "cba", "bca"):
        topic = world.topic()
        for number, name in enumerate(order):
            await join(topic, number, SubType.Failover, consumer_name=name)
        active = topic.subscriptions["sub"].active
        assert active is not None
        chosen.add(active.name)
        topic.subscriptions["sub"].disconnect_all()
    assert len(chosen) == 1
