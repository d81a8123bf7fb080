"""Apply policies to loaded topics (spec BR-04, BR-21)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import trio

from geminga_broker.config import ClientLimits, PolicyConfig
from geminga_broker.policies.model import DeduplicationOptions, TopicPolicies
from geminga_broker.policies.rate_limit import Rate, RateLimit, SubscribeLimit, limit_of
from geminga_broker.subscription.broker_limit import BrokerUnackedLimit
from geminga_broker.topic import deduplication
from geminga_broker.topic.admission import Admission
from geminga_broker.topic.api import PublishItem
from geminga_broker.topic.base import S, TopicBase
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.payload import parse_head

_log = logging.getLogger(__name__)

USE_SLACK = 0.1
"""Bound of the lag of a subscription's stored last use, as a share of its expiration time."""


class BrokerLimits(NamedTuple):
    """Rate limits that all topics of a broker share."""

    publish: tuple[RateLimit, ...] = ()
    dispatch: tuple[RateLimit, ...] = ()


def broker_limits(config: PolicyConfig) -> BrokerLimits:
    """New limits by the configuration."""
    now_s = trio.current_time()
    publish = Rate(config.broker_publish_rate_messages, config.broker_publish_rate_bytes)
    dispatch = Rate(config.dispatch_rate_messages, config.dispatch_rate_bytes)
    return BrokerLimits(limit_of((), publish, now_s), limit_of((), dispatch, now_s))


def apply_common_policies(
    topic: TopicBase[S], policies: TopicPolicies, limits: BrokerLimits = BrokerLimits()
) -> None:
    """Apply the policies that persistent and non-persistent topics have in common."""
    topic.policies = policies
    now_s = trio.current_time()
    topic.own_publish_limit = limit_of(topic.own_publish_limit, policies.publish_rate, now_s)
    topic.publish_limits = limits.publish + topic.own_publish_limit
    rate, known = policies.subscribe_rate, topic.subscribe_limit
    if rate.messages <= 0:
        topic.subscribe_limit = None
    elif known is None or known.rate != rate:
        topic.subscribe_limit = SubscribeLimit(rate, now_s)
    topic.admission = admission(policies, topic.environment.now_ms)
    if topic.options.encryption_required:
        # As Apache's Producer.checkEncryption: the client comes back, and is refused.
        for producer in list(topic.producers.values()):
            if not producer.request.encrypted:
                producer.disconnect()


def broker_unacked_limit(clients: ClientLimits) -> BrokerUnackedLimit | None:
    """The limit of unacknowledged messages that all topics of a broker share."""
    if clients.unacked_per_broker_max <= 0 or clients.unacked_share_when_full <= 0:
        return None
    return BrokerUnackedLimit(clients.unacked_per_broker_max, clients.unacked_share_when_full)


async def apply_policies(
    topic: PersistentTopic, policies: TopicPolicies, limits: BrokerLimits = BrokerLimits()
) -> None:
    """Apply the policies and the broker's limits to a loaded topic. Once clients may use it, its
    `policies_lock` must be held since before they were read. Raises LogError.
    """
    apply_common_policies(topic, policies, limits)
    topic.own_dispatch_limit = limit_of(
        topic.own_dispatch_limit,
        policies.dispatch_rate,
        trio.current_time(),
        topic.rates.per_second,
    )
    topic.dispatch_limits = limits.dispatch + topic.own_dispatch_limit
    for subscription in topic.subscriptions.values():
        subscription.apply_policies()
    await _deduplicate(topic, topic.policies.deduplication)
    if topic.policies.compaction.threshold_bytes > 0:
        # From now on the log retains entries until they are compacted.
        await topic.compaction.ensure_cursor()


def admission(policies: TopicPolicies, now_ms: Callable[[], int]) -> Admission | None:
    """The check of each published message: its size and its delivery delay; None without limits."""
    size_max, delay_max = policies.message_bytes_max, policies.delivery_delay_ms_max
    if size_max <= 0 and delay_max <= 0:
        return None

    def admit(item: PublishItem) -> str | None:
        if 0 < size_max < len(item.payload) and not item.is_chunk:
            return "Exceed maximum message size"
        if delay_max > 0:
            try:
                deliver_at_ms = parse_head(item.payload).deliver_at_time
            except RemoteProtocolError:
                return None
            if deliver_at_ms - now_ms() > delay_max:
                return f"Exceeds max allowed delivery delay of {delay_max} milliseconds"
        return None

    return admit


async def _deduplicate(topic: PersistentTopic, options: DeduplicationOptions | None) -> None:
    """Turn deduplication on, or (None) off."""
    known = topic.deduplication
    if options is None:
        topic.deduplication = None
        if known is not None:
            known.answer_waiting()
        await deduplication.drop_deduplication(topic.log)
    elif known is None:
        known = await deduplication.open_deduplication(topic.log, options, trio.current_time())
        for name in topic.producers:
            known.added(name)
        topic.deduplication = known


async def expire_messages(topic: PersistentTopic) -> None:
    """Acknowledge messages older than the time to live, for all subscriptions. Raises LogError."""
    ttl_s = topic.policies.message_ttl_s
    if ttl_s <= 0 or not any(each.backlog_entries() for each in topic.subscriptions.values()):
        await trio.lowlevel.checkpoint_if_cancelled()
        return
    log = topic.log
    before_ms = topic.environment.now_ms() - ttl_s * 1000
    last = log.previous_position(await log.find_by_time(before_ms))
    for subscription in list(topic.subscriptions.values()):
        subscription.expire(last)


async def expire_subscriptions(topic: PersistentTopic) -> None:
    """Delete durable subscriptions that were unused for too long, over restarts of the broker
    (BR-38). Raises BrokerError.

    The time of the last use is stored at least every `USE_SLACK` of the limit, so that a used
    subscription doesn't look idle after a crash.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    limit_s = topic.policies.subscription_expiration_s
    if limit_s <= 0:
        return
    since_s = trio.current_time() - limit_s
    for name, subscription in list(topic.subscriptions.items()):
        if not subscription.cursor.durable:
            continue
        if (
            not subscription.consumers
            and not subscription.replicated
            and subscription.idle_since_s <= since_s
        ):
            _log.info("topic=%s subscription=%s was inactive, deleted", topic.name, name)
            await topic.delete_subscription(name)
        elif subscription.remembers is not None:
            subscription.remembers.write_use(limit_s * USE_SLACK)
