"""Letting a loaded topic follow its policies (spec BR-04, BR-21)."""

from __future__ import annotations

import logging
from typing import NamedTuple

import trio

from geminga_broker import deduplication
from geminga_broker.config import PolicyConfig
from geminga_broker.deduplication import DeduplicationOptions
from geminga_broker.policies import TopicPolicies
from geminga_broker.throttle import Rate, RateLimit, limit_of
from geminga_broker.topic import PersistentTopic

_log = logging.getLogger(__name__)


class BrokerLimits(NamedTuple):
    """Rate limits that all topics of a broker share."""

    publish: tuple[RateLimit, ...] = ()
    dispatch: tuple[RateLimit, ...] = ()


def broker_limits(config: PolicyConfig) -> BrokerLimits:
    """Fresh ones by the configuration."""
    now_s = trio.current_time()
    publish = Rate(config.broker_publish_rate_messages, config.broker_publish_rate_bytes)
    dispatch = Rate(config.dispatch_rate_messages, config.dispatch_rate_bytes)
    return BrokerLimits(limit_of((), publish, now_s), limit_of((), dispatch, now_s))


async def obey(
    topic: PersistentTopic, policies: TopicPolicies, limits: BrokerLimits = BrokerLimits()
) -> None:
    """Let the topic follow these, and the broker's limits, from now on. Raises LogError."""
    topic.policies = policies
    now_s = trio.current_time()
    topic.publish_limits = limits.publish + limit_of(
        topic.publish_limits, policies.publish_rate, now_s
    )
    topic.dispatch_limits = limits.dispatch + limit_of(
        topic.dispatch_limits, policies.dispatch_rate, now_s
    )
    for subscription in topic.subscriptions.values():
        subscription.pump.limit(policies.subscription_dispatch_rate, topic.dispatch_limits)
    async with topic.policies_lock:
        await _deduplicate(topic, topic.policies.deduplication)


async def _deduplicate(topic: PersistentTopic, options: DeduplicationOptions | None) -> None:
    """Store nothing twice from now on, or (None) let producers repeat themselves."""
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
    """Acknowledge for every subscription what is older than the topic's time to live. Raises
    LogError.
    """
    ttl_s = topic.policies.message_ttl_s
    if ttl_s <= 0 or not any(each.backlog_entries() for each in topic.subscriptions.values()):
        await trio.lowlevel.checkpoint()
        return
    log = topic.log
    before_ms = topic.environment.now_ms() - ttl_s * 1000
    last = log.previous_position(await log.find_by_time(before_ms))
    for subscription in list(topic.subscriptions.values()):
        subscription.expire(last)


async def expire_subscriptions(topic: PersistentTopic) -> None:
    """Delete durable subscriptions that nobody has used for too long (BR-38). Raises BrokerError.

    A restart counts as use: how long a subscription was idle is not stored.
    """
    await trio.lowlevel.checkpoint()
    limit_s = topic.policies.subscription_expiration_s
    if limit_s <= 0:
        return
    since_s = trio.current_time() - limit_s
    for name, subscription in list(topic.subscriptions.items()):
        if (
            subscription.cursor.durable
            and not subscription.consumers
            and not subscription.replicated
            and subscription.idle_since_s <= since_s
        ):
            _log.info("topic=%s subscription=%s was inactive, deleted", topic.name, name)
            await topic.delete_subscription(name)
