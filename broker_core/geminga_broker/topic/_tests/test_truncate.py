"""Truncating a topic, and trimming beside deduplication (BR-09, BR-21)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import trio
import trio.testing
from trio.testing import MockClock

from geminga_broker.log._tests.world import NAME, World
from geminga_broker.log.options import CursorOptions, LogOptions, Retention
from geminga_broker.log.reserved_cursors import DEDUPLICATION
from geminga_broker.policies.apply import apply_policies
from geminga_broker.policies.model import DeduplicationOptions, TopicPolicies
from geminga_broker.subscription._tests.test_dispatch_shared import join, publish
from geminga_broker.topic.api import SubType, TopicEnvironment
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST
from geminga_protocol.topic_name import TopicName

DEDUPLICATE = TopicPolicies(deduplication=DeduplicationOptions())
FOREVER = LogOptions(retention=Retention(-1, -1), cursors=CursorOptions(flush_interval_s=60))


@asynccontextmanager
async def topic_of(
    world: World, options: LogOptions = FOREVER, *, crash: bool = False
) -> AsyncIterator[PersistentTopic]:
    async with world.broker(options, crash=crash) as factory, trio.open_nursery() as nursery:
        log = await factory.open(NAME)
        name = TopicName.parse("persistent://public/default/t")
        topic = PersistentTopic(name, log, TopicEnvironment(nursery))
        await apply_policies(topic, DEDUPLICATE)
        yield topic
        nursery.cancel_scope.cancel()


async def test_truncating_passes_retention_and_deduplication(autojump_clock: MockClock) -> None:
    """As Apache's broker, which moves the cursor of deduplication too; its open ledger stays."""
    world = World()
    async with topic_of(world, crash=True) as topic:
        consumer, _ = await join(topic, 1, SubType.Shared)
        consumer.close()
        await publish(topic, 5)
        await topic.log.roll()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert topic.log.statistics().entries == 5
        await topic.truncate()
        assert topic.log.statistics().entries == 0
        assert topic.subscriptions["sub"].backlog_entries() == 0
        assert topic.log.cursors[DEDUPLICATION].mark_delete >= topic.log.last_position
    async with topic_of(world) as topic:
        # The sequence ids outlive the entries.
        assert topic.deduplication is not None
        assert topic.deduplication.stored("p") == 4
        found = await topic.log.read_range(EARLIEST, entries_max=100, bytes_max=1 << 20)
        assert not found


async def test_sequence_ids_are_durable_before_their_entries_are_trimmed(
    autojump_clock: MockClock,
) -> None:
    world = World()
    options = replace(FOREVER, retention=Retention())
    async with topic_of(world, options, crash=True) as topic:
        await publish(topic, 5)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert topic.deduplication is not None
        topic.deduplication.snapshot()
        await topic.log.roll()
        await topic.log.trim()
        assert topic.log.statistics().entries == 0
    async with topic_of(world, options) as topic:
        assert topic.deduplication is not None
        assert topic.deduplication.stored("p") == 4
