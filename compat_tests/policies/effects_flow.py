"""Probes of policies that hold messages up, or let them pass (spec BR-22, BR-37)."""

from __future__ import annotations

import trio

from compat_tests.policies.effects import Between, Effect
from compat_tests.policies.model import JSON
from compat_tests.policies.world import PATH, SETTLED_S, Link, World

SENT = 20
NO_TIME = Between(0, 0.5)


async def _filled(link: Link) -> None:
    """Publish some messages, each in an entry of its own."""
    producer = await link.produce()
    assert isinstance(producer, int)
    for number in range(SENT):
        await link.publish(producer, number)
    await link.answered(SENT)


async def publishing(world: World) -> JSON:
    """How many seconds it takes to publish."""
    async with world.link() as link:
        await _filled(link)  # what was saved up meanwhile
        began_s = trio.current_time()
        link.receipts.clear()
        await _filled(link)
        return trio.current_time() - began_s


async def dispatching(world: World) -> JSON:
    """How many seconds it takes to deliver, by the subscription `s1`."""
    await trio.sleep(60)
    async with world.link() as link:
        consumer = await link.subscribe("s1")
        assert isinstance(consumer, int)
        began_s = trio.current_time()
        await link.flow(consumer, 1000)
        await _filled(link)
        await link.delivered(SENT)
        took_s = trio.current_time() - began_s
        await link.unsubscribe(consumer)
    return took_s


async def unacknowledged(world: World) -> JSON:
    """How many messages come without being acknowledged, one after the other."""
    async with world.link() as link:
        consumer = await link.subscribe()
        assert isinstance(consumer, int)
        await _filled(link)
        for _ in range(SENT):
            await link.flow(consumer, 1)
            await trio.sleep(SETTLED_S)
        found = len(link.messages)
        await link.unsubscribe(consumer)
    return found


async def delaying(world: World) -> JSON:
    """What becomes of messages for in 50 seconds, and in 90."""
    found = []
    for delay_ms in (50_000, 90_000):
        async with world.link() as link:
            consumer = await link.subscribe()
            producer = await link.produce()
            assert isinstance(consumer, int)
            assert isinstance(producer, int)
            await link.flow(consumer, 10)
            await link.publish(producer, delay_ms=delay_ms)
            await link.answered(1)
            await trio.sleep(SETTLED_S)
            found.append("refused" if link.refused else "at once" if link.messages else "later")
            await link.unsubscribe(consumer)
    return found


async def filtering(world: World) -> JSON:
    """Whether messages come through; see `test_effects`."""
    async with world.link() as link:
        consumer = await link.subscribe()
        assert isinstance(consumer, int)
        await link.flow(consumer, 1000)
        await _filled(link)
        await trio.sleep(1)
        found = len(link.messages)
        await link.unsubscribe(consumer)
    await world.done("DELETE", f"{PATH}/truncate")
    return found


EFFECTS = {
    "publishRate": Effect(
        publishing, NO_TIME, Between(2.5, 6), Between(0.6, 2.4),
        {"maxPublishRatePerTopicInMessages": "2"}, Between(7, 12),
    ),
    "dispatchRate": Effect(
        dispatching, NO_TIME, Between(5, 8), Between(0.9, 2),
        {"dispatchThrottlingRatePerTopicInMsg": "1"}, Between(17, 21),
    ),
    "subscriptionDispatchRate": Effect(
        dispatching, NO_TIME, Between(2.5, 4.5), Between(0.9, 2),
        {"dispatchThrottlingRatePerSubscriptionInMsg": "1"}, Between(17, 21),
    ),
    "dispatchRate of one subscription": Effect(dispatching, NO_TIME, topic=Between(4, 8)),
    "maxUnackedMessagesPerConsumer": Effect(
        unacknowledged, SENT, 3, 5, {"maxUnackedMessagesPerConsumer": "4"}, 4
    ),
    "maxUnackedMessagesPerSubscription": Effect(
        unacknowledged, SENT, 3, 5, {"maxUnackedMessagesPerSubscription": "4"}, 4
    ),
    "delayedDelivery": Effect(
        delaying, ["later", "later"], ["at once", "at once"], ["later", "refused"],
        {"delayedDeliveryEnabled": "false"}, ["at once", "at once"],
    ),
    "entryFilters": Effect(
        filtering, SENT, 0, SENT // 2, {"entryFilterNames": "g"}, SENT // 2,
        {"allowOverrideEntryFilters": "true"},
    ),
}  # fmt: skip
