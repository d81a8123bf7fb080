"""How long a subscription was idle, over restarts of the broker (BR-38)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from geminga_broker.config import PolicyConfig
from geminga_broker.log._tests.world import NAME, World
from geminga_broker.log.api import Ack
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.options import LogOptions
from geminga_broker.policies.apply import apply_policies
from geminga_broker.policies.maintenance import TopicMaintenance
from geminga_broker.policies.model import TopicPolicies
from geminga_broker.subscription._tests.test_delaying import received, settle
from geminga_broker.subscription._tests.test_dispatch_shared import join, publish
from geminga_broker.topic.api import SubType, TopicEnvironment
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST
from geminga_protocol.managed_ledger import decode_cursor_info
from geminga_protocol.topic_name import TopicName

LIMIT_S = 6000
CHECK_S = 300
NODE = f"/managed-ledgers/{NAME}/sub"


def now_ms() -> int:
    return 1_000_000_000 + int(trio.current_time() * 1000)


@asynccontextmanager
async def life(world: World, *, crash: bool, expire: bool = True) -> AsyncIterator[PersistentTopic]:
    """One life of a broker with the topic."""
    options = LogOptions(now_ms=now_ms)
    async with world.broker(options, crash=crash) as factory, trio.open_nursery() as nursery:
        log = await factory.open(NAME)
        name = TopicName.parse("persistent://public/default/t")
        topic = PersistentTopic(name, log, TopicEnvironment(nursery, now_ms))
        if expire:
            await apply_policies(topic, TopicPolicies(subscription_expiration_s=LIMIT_S))
            config = PolicyConfig(subscription_check_minutes=CHECK_S // 60)
            nursery.start_soon(TopicMaintenance({topic.name: topic}, config).run)
        yield topic
        if not crash:
            await topic.close()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("consumed", [False, True])
@pytest.mark.slow
async def test_a_restart_does_not_count_as_use(
    autojump_clock: MockClock, crash: bool, consumed: bool
) -> None:
    world = World()
    async with life(world, crash=crash) as topic:
        await topic.create_subscription("sub", EARLIEST)
        if consumed:
            await trio.sleep(2 * LIMIT_S)
            consumer, connection = await join(topic, 1, SubType.Shared)
            consumer.flow(10)
            await publish(topic, 2)
            await settle()
            consumer.ack([Ack(received(connection)[0])])
            await trio.sleep(2)
            consumer.close()
        await trio.sleep(LIMIT_S / 2)
    for _ in range(2):
        async with life(world, crash=crash) as topic:
            await trio.sleep(LIMIT_S / 8)
            assert "sub" in topic.subscriptions
    async with life(world, crash=crash) as topic:
        await trio.sleep(LIMIT_S / 4 + CHECK_S + 1)
        assert "sub" not in topic.subscriptions


@pytest.mark.parametrize("expire", [False, True])
@pytest.mark.slow
async def test_a_used_subscription_is_not_idle_after_a_crash(
    autojump_clock: MockClock, expire: bool
) -> None:
    """A consumer that waits leaves no other trace than that its use is written down."""
    world = World()
    async with life(world, crash=True, expire=expire) as topic:
        await topic.create_subscription("sub", EARLIEST)
        consumer, connection = await join(topic, 1, SubType.Shared)
        consumer.flow(10)
        await trio.sleep(3 * LIMIT_S)
        if not expire:
            # Acknowledging is enough while nothing expires.
            await publish(topic, 2)
            await settle()
            consumer.ack([Ack(received(connection)[0])])
            await trio.sleep(2)
    async with life(world, crash=True) as topic:
        await trio.sleep(LIMIT_S * 0.8)
        assert "sub" in topic.subscriptions
        await trio.sleep(LIMIT_S * 0.3 + CHECK_S)
        assert "sub" not in topic.subscriptions


async def test_state_of_an_earlier_version_counts_as_used_now(autojump_clock: MockClock) -> None:
    world = World()
    async with life(world, crash=True, expire=False) as topic:
        consumer, connection = await join(topic, 1, SubType.Shared)
        consumer.flow(10)
        await publish(topic, 2)
        await settle()
        cursor = topic.log.cursors["sub"]
        assert isinstance(cursor, LogCursor)
        infos = cursor.writer._infos

        def without() -> object:
            found = infos()
            found[-1].ClearField("lastActive")
            return found

        cursor.writer._infos = without
        consumer.ack([Ack(received(connection)[0])])
        await cursor.persist()
    await trio.sleep(2 * LIMIT_S)
    async with life(world, crash=False) as topic:
        await trio.sleep(LIMIT_S - CHECK_S)
        assert "sub" in topic.subscriptions
        await trio.sleep(2 * CHECK_S)
        assert "sub" not in topic.subscriptions


async def test_the_last_use_is_in_apaches_field(autojump_clock: MockClock) -> None:
    world = World()
    async with life(world, crash=False) as topic:
        consumer, _ = await join(topic, 1, SubType.Shared)
        await trio.sleep(1000)
        consumer.close()
        left_ms = now_ms()
        await trio.sleep(1000)
    node = await world.store.get(NODE)
    assert node is not None
    assert decode_cursor_info(node.value).lastActive == left_ms
