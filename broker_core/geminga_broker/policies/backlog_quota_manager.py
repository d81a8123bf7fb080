"""Keep topics within their backlog quotas (spec BR-23; Apache's `BacklogQuotaManager`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

import trio

from geminga_broker.compaction.topic_compaction import TopicCompaction
from geminga_broker.log.api import Cursor, ManagedLedger
from geminga_broker.log.reserved_cursors import COMPACTION, DEDUPLICATION
from geminga_broker.policies.model import TopicPolicies
from geminga_broker.policies.quota import (
    EVICTION_FACTOR,
    BacklogQuota,
    QuotaPolicy,
    QuotaType,
    backlog_bytes,
    closed_ms_of_oldest,
    entries_to_evict,
    refusal,
)
from geminga_broker.subscription.subscription import Subscription
from geminga_broker.topic.api import TopicEnvironment
from geminga_broker.topic.deduplication import Deduplication
from geminga_protocol.ids import EARLIEST, Position

_log = logging.getLogger(__name__)


class QuotaTopic(Protocol):
    """A persistent topic, as its quotas see it."""

    name: str
    log: ManagedLedger
    policies: TopicPolicies
    environment: TopicEnvironment
    deduplication: Deduplication | None
    compaction: TopicCompaction
    oldest_backlog_s: int
    evictions: dict[QuotaType, int]

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """Subscriptions by name."""

    def disconnect_producers(self) -> None:
        """Close all producers; their clients reconnect, and are checked then."""


def slowest_cursor(topic: QuotaTopic) -> Cursor | None:
    """The durable cursor with the largest backlog, or None."""
    durable = [cursor for cursor in topic.log.cursors.values() if cursor.durable]
    return min(durable, key=lambda cursor: cursor.mark_delete, default=None)


def size_exceeded(topic: QuotaTopic) -> bool:
    """Whether the backlog has reached the quota by size."""
    limit = topic.policies.quotas.size.size_bytes
    if limit < 0:
        return False
    slowest = slowest_cursor(topic)
    if slowest is None:
        return limit == 0
    return backlog_bytes(topic.log.statistics().ledgers, slowest.mark_delete) >= limit


async def published_behind(log: ManagedLedger, mark_delete: Position) -> int | None:
    """When the first entry behind a place was published, ms; None without one. Raises LogError."""
    first = log.next_position(mark_delete)
    if first > log.last_position:
        return None
    found = await log.read_range(first, entries_max=1, bytes_max=1)
    return found[0].time_ms if found else None


async def age_exceeded(topic: QuotaTopic) -> bool:
    """Whether the oldest entry of the backlog is older than the quota allows. Raises LogError.

    Stores the result for stats.
    """
    quotas = topic.policies.quotas
    limit_s = quotas.age.age_s
    slowest = slowest_cursor(topic)
    topic.oldest_backlog_s = -1
    if limit_s <= 0 or slowest is None or not topic.log.statistics().entries:
        return False
    published_ms = 0
    if quotas.precise_age:
        published_ms = await published_behind(topic.log, slowest.mark_delete) or 0
    else:
        published_ms = closed_ms_of_oldest(topic.log.statistics().ledgers, slowest.mark_delete)
    if not published_ms:
        return False
    age_ms = topic.environment.now_ms() - published_ms
    topic.oldest_backlog_s = max(0, age_ms // 1000)
    return age_ms > limit_s * 1000


async def check_producer(topic: QuotaTopic) -> None:
    """Raises BrokerError if a quota that refuses producers is exceeded, and LogError."""
    await trio.lowlevel.checkpoint_if_cancelled()
    quotas = topic.policies.quotas
    if _holds(quotas.size) and size_exceeded(topic):
        raise refusal(quotas.size.policy)
    if _holds(quotas.age) and quotas.age.age_s > 0 and await age_exceeded(topic):
        raise refusal(quotas.age.policy)


def _holds(quota: BacklogQuota) -> bool:
    return quota.policy is not QuotaPolicy.EVICTION


async def keep_quotas(topic: QuotaTopic) -> None:
    """Enforce the policy of an exceeded quota. Raises LogError."""
    if size_exceeded(topic):
        await _enforce(topic, QuotaType.SIZE)
    elif await age_exceeded(topic):
        await _enforce(topic, QuotaType.AGE)


async def _enforce(topic: QuotaTopic, kind: QuotaType) -> None:
    quotas = topic.policies.quotas
    quota = quotas.size if kind is QuotaType.SIZE else quotas.age
    _log.info("topic=%s backlog quota %s exceeded: %s", topic.name, kind.value, quota.policy.value)
    slowest = slowest_cursor(topic)
    if slowest is not None and slowest.name == DEDUPLICATION and topic.deduplication is not None:
        # The slowest cursor is deduplication's own.
        topic.deduplication.snapshot()
    elif slowest is not None and slowest.name == COMPACTION:
        # Only a compaction may acknowledge entries for this cursor.
        if not topic.compaction.running:
            topic.compaction.trigger()
    elif quota.policy is not QuotaPolicy.EVICTION:
        topic.disconnect_producers()
    elif kind is QuotaType.SIZE:
        await _evict_by_size(topic, quota.size_bytes)
        topic.evictions[kind] += 1
    else:
        await _evict_by_age(topic, quota.age_s, precise=quotas.precise_age)
        topic.evictions[kind] += 1


async def _evict_by_size(topic: QuotaTopic, limit: int) -> None:
    """Skip on the slowest subscription until the backlog is small, or another cursor is slower."""
    before = None
    while (slowest := slowest_cursor(topic)) is not None:
        subscription = topic.subscriptions.get(slowest.name)
        standing = (slowest.name, slowest.mark_delete)
        if subscription is None or standing == before:
            return
        before = standing
        size = backlog_bytes(topic.log.statistics().ledgers, slowest.mark_delete)
        entries = entries_to_evict(size, limit, slowest.backlog_entries())
        if not entries:
            return
        await subscription.skip(entries)


async def _evict_by_age(topic: QuotaTopic, limit_s: int, *, precise: bool) -> None:
    """Acknowledge too old messages (`precise`) or ledgers, for every subscription."""
    log = topic.log
    now_ms = topic.environment.now_ms()
    last = EARLIEST
    if precise:
        before_ms = now_ms - int(EVICTION_FACTOR * limit_s * 1000)
        last = log.previous_position(await log.find_by_time(before_ms))
    else:
        for ledger in log.statistics().ledgers:
            if not ledger.closed_ms or now_ms - ledger.closed_ms <= limit_s * 1000:
                break
            last = Position(ledger.ledger_id, ledger.entries - 1)
    for subscription in list(topic.subscriptions.values()):
        subscription.expire(last)
