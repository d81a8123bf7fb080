"""A topic's count of consumers: always right, and never a sum over its subscriptions (PR-16)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest
import trio
import trio.lowlevel

from geminga_broker._tests.fake_client import FakeConnection, subscribe_request
from geminga_broker._tests.topic_world import World
from geminga_broker._tests.wire import Type, open_broker
from geminga_broker.errors import BrokerError
from geminga_broker.session.session import CLOSES_A_TURN
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.topic.api import SubType
from geminga_broker.topic.topic import Topic
from geminga_protocol.commands import consuming
from geminga_protocol.ids import EARLIEST

TOPICS = [
    "persistent://public/default/headcount",
    "non-persistent://public/default/headcount",
]


class Unwalked(dict[str, object]):
    """Subscriptions that may be looked up, but not gone over."""

    def _refuse(self) -> NoReturn:
        raise AssertionError("all subscriptions were gone over")

    def values(self) -> NoReturn:
        self._refuse()

    def items(self) -> NoReturn:
        self._refuse()

    def __iter__(self) -> Iterator[str]:
        self._refuse()


def made(world: World, name: str, **options: object) -> Topic:
    return (world.topic if name.startswith("persistent") else world.passing)(name, **options)


def assert_right(topic: Topic, expected: int) -> None:
    assert topic.consumer_count == expected
    assert sum(len(each.consumers) for each in topic.subscriptions.values()) == expected


@pytest.mark.parametrize("name", TOPICS)
async def test_consumers_are_counted_as_they_come_and_go(world: World, name: str) -> None:
    topic = made(world, name, consumers_per_subscription_max=3)
    connection = FakeConnection()
    shared = {"sub_type": SubType.Shared}
    consumers = [
        await topic.subscribe(subscribe_request(connection, number, f"s{number % 2}", **shared))
        for number in range(6)
    ]
    assert_right(topic, 6)
    for refused in ({"sub_type": SubType.Exclusive}, shared):
        with pytest.raises(BrokerError):
            await topic.subscribe(subscribe_request(connection, 9, "s0", **refused))
        assert_right(topic, 6)
    consumers[0].close()
    consumers[0].close()
    consumers[2].disconnect()
    assert_right(topic, 4)
    await topic.delete_subscription("s1", force=True)
    assert_right(topic, 1)
    await consumers[4].subscription.unsubscribe(consumers[4])
    assert_right(topic, 0)
    assert topic.idle
    reader = await topic.subscribe(subscribe_request(connection, 10, "r", durable=False))
    await topic.subscribe(subscribe_request(connection, 11, "s1", **shared))
    assert_right(topic, 2)
    reader.close()
    await world.settle()
    assert_right(topic, 1)
    await topic.close()
    assert_right(topic, 0)


@pytest.mark.parametrize("name", TOPICS)
async def test_to_subscribe_goes_over_no_other_subscriptions(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = made(world, name, subscriptions_max=3, consumers_max=3)
    monkeypatch.setattr(topic, "subscriptions", Unwalked())
    connection = FakeConnection()
    for number in range(3):
        consumer = await topic.subscribe(subscribe_request(connection, number, f"s{number}"))
        consumer.flow(1)
    with pytest.raises(BrokerError, match="max consumers"):
        await topic.subscribe(subscribe_request(connection, 3, "s3"))
    consumer.close()
    with pytest.raises(BrokerError, match="maximum number of subscriptions"):
        await topic.subscribe(subscribe_request(connection, 3, "s3"))


async def test_deleted_subscriptions_make_room_for_others(world: World) -> None:
    topic = made(world, TOPICS[0], subscriptions_max=2)
    for number in range(6):
        await topic.create_subscription(f"s{number}", EARLIEST)
        with pytest.raises(BrokerError, match="already exists"):
            await topic.create_subscription(f"s{number}", EARLIEST)
        if number:
            with pytest.raises(BrokerError, match="maximum number"):
                await topic.create_subscription("more", EARLIEST)
            await topic.delete_subscription(f"s{number - 1}")


async def test_the_consumers_of_an_ended_connection_are_closed_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = 4 * CLOSES_A_TURN
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        for number in range(many):
            request = consuming.subscribe(TOPICS[1], f"s{number}", SubType.Shared, number, number)
            await client.ask(request, Type.SUCCESS)
        topic = broker.service.topics.loaded[TOPICS[1]]
        assert_right(topic, many)
        left: list[int] = []
        close = Consumer.close

        def closing(consumer: Consumer) -> None:
            close(consumer)
            left.append(topic.consumer_count)

        monkeypatch.setattr(Consumer, "close", closing)
        seen: set[int] = set()
        await client.stream.aclose()
        while topic.consumer_count:
            await trio.lowlevel.checkpoint()
            seen.add(len(left))
        assert left == list(range(many - 1, -1, -1))
        assert len(seen) > 2
        assert_right(topic, 0)
