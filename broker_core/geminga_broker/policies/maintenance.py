"""Periodic work on all loaded topics (spec BR-04, BR-21, BR-50)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

import trio

from geminga_broker.config import PolicyConfig
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogError
from geminga_broker.log.reserved_cursors import COMPACTION
from geminga_broker.metrics.counts import CHECK_BOUNDS_S
from geminga_broker.policies.apply import expire_messages, expire_subscriptions
from geminga_broker.policies.backlog_quota_manager import keep_quotas
from geminga_broker.policies.quota import backlog_bytes
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_runtime.background import Turns
from geminga_runtime.metrics.buckets import Buckets

_log = logging.getLogger(__name__)

Step = Callable[[PersistentTopic], Awaitable[None]]


class TopicMaintenance:
    """Timers over all loaded topics; one task each, whatever the number of topics.

    What a step has nothing to do for gives no turn away: `Turns` does, for many topics at a time.
    """

    def __init__(self, topics: Mapping[str, Topic], config: PolicyConfig) -> None:
        self._topics = topics
        self._config = config
        self.quota_checks = Buckets(CHECK_BOUNDS_S)
        """How long checks took, s."""

    async def run(self) -> None:
        """Run until cancelled."""
        config = self._config
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._every, config.deduplication_snapshot_s, take_snapshot)
            nursery.start_soon(self._every, config.expiry_check_minutes * 60, expire_messages)
            period_s = config.subscription_check_minutes * 60
            nursery.start_soon(self._every, period_s, expire_subscriptions)
            nursery.start_soon(self._every, config.compaction_monitor_s, compact_if_due)
            if config.quota_check:
                nursery.start_soon(self._every, config.quota_check_s, keep_quotas)

    async def check_quotas(self) -> None:
        """Apply the backlog quotas now."""
        await self._once(keep_quotas)

    async def _every(self, period_s: float, step: Step) -> None:
        """Never, if the period is 0."""
        while period_s > 0:
            await trio.sleep(period_s)
            await self._once(step)

    async def _once(self, step: Step) -> None:
        turns, began_s = Turns(), perf_counter()
        for topic in list(self._topics.values()):
            if isinstance(topic, PersistentTopic) and not topic.fenced:
                await self._take(step, topic)
                await turns.spend(1 + len(topic.subscriptions))
        if step is keep_quotas:
            self.quota_checks.add(perf_counter() - began_s)

    async def _take(self, step: Step, topic: PersistentTopic) -> None:
        try:
            await step(topic)
        except (LogError, BrokerError) as error:
            _log.warning("topic=%s %s failed: %s", topic.name, step.__name__, error)
        except Exception:
            # A defect here must not crash the broker.
            _log.exception("topic=%s %s failed", topic.name, step.__name__)


async def take_snapshot(topic: PersistentTopic) -> None:
    """Forget producers that left long ago; write a snapshot of the others if it is due."""
    await trio.lowlevel.checkpoint_if_cancelled()
    interval_s = topic.policies.deduplication_snapshot_s
    if topic.deduplication is not None and interval_s > 0:
        topic.deduplication.purge(trio.current_time(), interval_s)


async def compact_if_due(topic: PersistentTopic) -> None:
    """Start a compaction if more than the threshold is not compacted."""
    await trio.lowlevel.checkpoint_if_cancelled()
    threshold = topic.policies.compaction.threshold_bytes
    if threshold > 0 and not topic.compaction.running and not_compacted_bytes(topic) > threshold:
        topic.compaction.trigger()


def not_compacted_bytes(topic: PersistentTopic) -> int:
    """The approximate number of bytes published since the last compaction."""
    found = topic.log.statistics()
    known = topic.log.cursors.get(COMPACTION)
    if known is not None:
        return backlog_bytes(found.ledgers, known.mark_delete)
    marks = [cursor.mark_delete for cursor in topic.log.cursors.values() if cursor.durable]
    return backlog_bytes(found.ledgers, min(marks)) if marks else found.size_bytes
