"""The broker's limit of unacknowledged messages, by itself and under subscriptions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    position,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.config import ClientLimits
from geminga_broker.log.api import Ack
from geminga_broker.policies.apply import broker_unacked_limit
from geminga_broker.subscription.broker_limit import BrokerUnackedLimit
from geminga_broker.topic.api import SubType
from geminga_protocol.ids import EARLIEST


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), max_size=60))
def test_pauses_follow_the_rule(steps: list[tuple[int, int]]) -> None:
    """Against a plain form of the rule; a subscription is woken at the end of its pause."""
    limit = BrokerUnackedLimit(50, 0.2)
    counts: dict[int, int] = {}
    full, paused = False, set()
    woken: list[int] = []
    for who, unacked in steps:
        woken.clear()
        limit.count(who, unacked, lambda who=who: woken.append(who))
        counts[who] = unacked
        total = sum(counts.values())
        before = set(paused)
        if not full and total > 50:
            full = True
            paused |= {each for each, count in counts.items() if count > 10}
        elif full and total < 25:
            full, paused = False, set()
        if full and unacked > 10:
            paused.add(who)
        elif unacked < 5:
            paused.discard(who)
        assert limit.total == total
        assert limit.full == full
        assert {each for each in range(5) if limit.pauses(each)} == paused
        assert set(woken) == before - paused


def test_it_is_off_by_default() -> None:
    assert broker_unacked_limit(ClientLimits()) is None
    assert broker_unacked_limit(ClientLimits(unacked_per_broker_max=5)) is not None


async def test_a_greedy_subscription_is_paused_and_others_continue(world: World):
    limit = BrokerUnackedLimit(20, 0.5)
    world.environment = replace(world.environment, unacked_limit=limit)
    topic = world.topic()
    for name in ("greedy", "modest"):
        await topic.create_subscription(name, EARLIEST)
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n) for n in range(100)])
    taken = {}
    for name, sub_type, permits in (
        ("greedy", SubType.Shared, 18),
        ("modest", SubType.Key_Shared, 5),
    ):
        request = subscribe_request(FakeConnection(), 1, subscription=name, sub_type=sub_type)
        taken[name] = await topic.subscribe(request)
        taken[name].flow(permits)
        await world.settle()
    greedy, modest = taken["greedy"], taken["modest"]
    assert (greedy.unacked, modest.unacked, limit.total) == (18, 5, 23)
    assert limit.full
    greedy.flow(50)
    modest.flow(1)
    await world.settle()
    assert (greedy.unacked, modest.unacked) == (18, 6)
    assert topic.stats().subscriptions["greedy"].blocked_subscription_on_unacked_msgs
    assert not topic.stats().subscriptions["modest"].blocked_subscription_on_unacked_msgs
    greedy.ack([Ack(position(n)) for n in range(14)])
    await world.settle()
    assert greedy.sent == 68
    for consumer in (greedy, modest):
        consumer.close()
    assert limit.total == 0
    assert not limit.full
