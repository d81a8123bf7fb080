"""Subscriptions that are held to a dispatch rate."""

from __future__ import annotations

import pytest
import trio

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.policies.apply import BrokerLimits, apply_policies
from geminga_broker.policies.model import TopicPolicies
from geminga_broker.policies.rate_limit import Rate, RateLimit
from geminga_broker.topic.api import InitialPosition, SubType

TEN = TopicPolicies(dispatch_rate=Rate(messages=10))
TEN_EACH = TopicPolicies(subscription_dispatch_rate=Rate(messages=10))


async def consume(topic, connection, number, subscription="sub", sub_type=SubType.Shared):
    consumer = await topic.subscribe(
        subscribe_request(
            connection, number, subscription, sub_type=sub_type,
            initial_position=InitialPosition.Earliest,
        )
    )  # fmt: skip
    consumer.flow(1000)
    return consumer


async def fill(topic, count: int) -> None:
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n) for n in range(count)])


@pytest.mark.parametrize("policies", [TEN, TEN_EACH])
@pytest.mark.parametrize("sub_type", [SubType.Exclusive, SubType.Shared, SubType.Key_Shared])
async def test_a_subscription_gets_no_more_than_the_rate(
    world: World, policies: TopicPolicies, sub_type: int, autojump_clock
):
    topic = world.topic(dispatch_entries_max=10)
    await apply_policies(topic, policies)
    connection = FakeConnection()
    await fill(topic, 200)
    await consume(topic, connection, 1, sub_type=sub_type)
    for second in range(1, 6):
        await trio.sleep(1)
        assert second * 10 <= len(connection.messages()) <= (second + 1) * 10 + 1
    assert connection.entries() == list(range(len(connection.messages())))
    await apply_policies(topic, TopicPolicies())
    await trio.sleep(1.1)
    assert len(connection.messages()) == 200


async def test_subscriptions_share_the_topics_rate_and_have_their_own(world: World, autojump_clock):
    topic = world.topic()
    await apply_policies(topic, TEN)
    connection = FakeConnection()
    await fill(topic, 200)
    for number in (1, 2):
        await consume(topic, connection, number, f"s{number}")
    await trio.sleep(5.05)
    assert 50 <= len(connection.messages()) <= 80
    await apply_policies(topic, TEN_EACH)
    before = len(connection.messages())
    await trio.sleep(5.05)
    assert 100 <= len(connection.messages()) - before <= 130


async def test_bytes_are_limited_too_and_batches_count_their_messages(world: World, autojump_clock):
    topic = world.topic()
    size = len(item().payload)
    await apply_policies(topic, TopicPolicies(dispatch_rate=Rate(bytes=size * 10)))
    connection = FakeConnection()
    await fill(topic, 1000)
    await consume(topic, connection, 1)
    await trio.sleep(30)
    assert 300 <= len(connection.messages()) <= 420  # one round of a hundred beyond the rate


async def test_the_brokers_limit_holds_for_all_topics(world: World, autojump_clock):
    limits = BrokerLimits(dispatch=(RateLimit(Rate(messages=10), trio.current_time()),))
    connection = FakeConnection()
    for number in (1, 2):
        topic = world.topic(f"persistent://public/default/t{number}")
        await apply_policies(topic, TopicPolicies(), limits)
        await fill(topic, 100)
        await consume(topic, connection, number, f"s{number}")
    await trio.sleep(5.05)
    assert 50 <= len(connection.messages()) <= 80


async def test_a_topic_with_the_brokers_rate_has_a_limit_of_its_own(world: World) -> None:
    """Else each message would count twice for the broker, or once for several topics."""
    ten, now_s = Rate(messages=10), trio.current_time()
    policies = TopicPolicies(publish_rate=ten, dispatch_rate=ten)
    first = BrokerLimits((RateLimit(ten, now_s),), (RateLimit(ten, now_s),))
    later = BrokerLimits((RateLimit(ten, now_s),), (RateLimit(ten, now_s),))
    topics = [world.topic(f"persistent://public/default/t{number}") for number in (1, 2)]
    for limits in (first, first, later):
        for topic in topics:
            await apply_policies(topic, policies, limits)
        for a, b in (
            [each.publish_limits for each in topics],
            [each.dispatch_limits for each in topics],
        ):
            assert len(a) == len(b) == 2
            assert len({*a, *b}) == 3
