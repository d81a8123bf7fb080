"""State of a subscription after its consumers left (BR-03, BR-33)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker._tests.wire import Type, WireClient, message, open_broker
from geminga_broker.config import BrokerConfig
from geminga_broker.log.cursor_use import CACHE_GRACE_S
from geminga_broker.subscription.strategies.key_shared import KeyShared
from geminga_broker.subscription.strategies.shared import Shared
from geminga_broker.topic.api import SubType
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.commands import consuming
from geminga_protocol.ids import EARLIEST
from geminga_protocol.topic_name import TopicName

TOPIC = "persistent://public/default/leaving"
LARGE = bytes(64 << 10)


async def publish(client: WireClient, count: int) -> None:
    for number in range(count):
        await client.ask(message(number, LARGE), Type.SEND_RECEIPT)


async def test_a_subscription_without_consumers_pins_no_cache(
    autojump_clock: trio.testing.MockClock,
) -> None:
    config = BrokerConfig()
    config = replace(config, topics=replace(config.topics, delete_inactive=False))
    async with open_broker(config) as broker:
        topic = await broker.service.topics.get(TopicName.parse(TOPIC), create=True)
        assert isinstance(topic, PersistentTopic)
        await topic.create_subscription("idle", EARLIEST)
        cursor = topic.log.cursors["idle"]
        assert not cursor.statistics().active
        producer = broker.client()
        await producer.connect()
        await producer.open_producer(TOPIC)
        await publish(producer, 20)
        assert topic.log.statistics().cached_bytes == 0
        consumer = broker.client()
        await consumer.connect()
        await consumer.ask(
            consuming.subscribe(TOPIC, "idle", SubType.Exclusive, 1, 7), Type.SUCCESS
        )
        assert cursor.statistics().active
        await publish(producer, 20)
        held = topic.log.statistics().cached_bytes
        assert held >= 20 * len(LARGE)
        await consumer.ask(consuming.close_consumer(1, 8), Type.SUCCESS)
        # One that restarts at once still finds the tail in the cache.
        await publish(producer, 5)
        assert topic.log.statistics().cached_bytes > held
        await trio.sleep(CACHE_GRACE_S)
        assert not cursor.statistics().active
        await publish(producer, 1)
        assert topic.log.statistics().cached_bytes == 0


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
async def test_closing_all_consumers_queues_nothing_for_those_that_close_next(
    world: World, kind: SubType.ValueType, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = world.topic()
    clients = [FakeConnection(str(number)) for number in range(3)]
    for client in clients:
        request = subscribe_request(client, 1, "sub", sub_type=kind)
        (await topic.subscribe(request)).flow(1000)
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n, key=f"k{n}") for n in range(90)])
    await world.settle()
    assert sum(len(client.entries()) for client in clients) == 90
    queued: list[object] = []
    for one in (Shared, KeyShared):
        monkeypatch.setattr(one, "put_back", lambda *args: queued.append(args))
    subscription = topic.subscriptions["sub"]
    subscription.disconnect_all()
    assert queued == []
    assert not subscription.consumers
    again = FakeConnection()
    (await topic.subscribe(subscribe_request(again, 1, "sub", sub_type=kind))).flow(1000)
    await world.settle()
    assert sorted(again.entries()) == list(range(90))
