"""Namespace policies that topics obey (spec BR-60; Apache's `Policies`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from geminga_broker.config import PolicyConfig
from geminga_broker.deduplication import DeduplicationOptions
from geminga_broker.log.options import MIB, Retention
from geminga_broker.resources import JsonObject
from geminga_broker.throttle import Rate

T = TypeVar("T", bool, int)


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """What a persistent topic obeys beside its limits and its retention."""

    deduplication: DeduplicationOptions | None = None
    message_ttl_s: int = 0
    """What nobody acknowledged for so long counts as acknowledged; 0: never."""
    subscription_expiration_s: int = 0
    """A durable subscription without consumers for so long is deleted; 0: never."""
    publish_rate: Rate = Rate()
    dispatch_rate: Rate = Rate()
    """Of all subscriptions together."""
    subscription_dispatch_rate: Rate = Rate()
    """Of each subscription."""


def topic_policies(
    policies: JsonObject | None, config: PolicyConfig, cluster: str
) -> TopicPolicies:
    """A namespace's policies, and the broker's where it has none."""
    record = policies or {}
    deduplication = None
    if _of_type(record.get("deduplicationEnabled"), config.deduplication):
        deduplication = DeduplicationOptions(
            config.deduplication_entries,
            config.deduplication_producers_max,
            config.deduplication_inactivity_minutes * 60,
        )
    return TopicPolicies(
        deduplication=deduplication,
        message_ttl_s=_of_type(record.get("message_ttl_in_seconds"), config.message_ttl_s),
        subscription_expiration_s=60
        * _of_type(
            record.get("subscription_expiration_time_minutes"),
            config.subscription_expiration_minutes,
        ),
        publish_rate=_publish_rate(
            _of_cluster(record, "publishMaxMessageRate", cluster),
            Rate(config.publish_rate_messages, config.publish_rate_bytes),
        ),
        dispatch_rate=_dispatch_rate(
            _of_cluster(record, "topicDispatchRate", cluster),
            Rate(config.topic_dispatch_rate_messages, config.topic_dispatch_rate_bytes),
        ),
        subscription_dispatch_rate=_dispatch_rate(
            _of_cluster(record, "subscriptionDispatchRate", cluster),
            Rate(
                config.subscription_dispatch_rate_messages,
                config.subscription_dispatch_rate_bytes,
            ),
        ),
    )


def _of_cluster(record: JsonObject, field: str, cluster: str) -> JsonObject | None:
    """What a policy says for this cluster."""
    clusters = record.get(field)
    found = clusters.get(cluster) if isinstance(clusters, dict) else None
    return found if isinstance(found, dict) else None


def _publish_rate(record: JsonObject | None, default: Rate) -> Rate:
    if record is None:
        return default
    return Rate(
        _of_type(record.get("publishThrottlingRateInMsg"), 0),
        _of_type(record.get("publishThrottlingRateInByte"), 0),
    )


def _dispatch_rate(record: JsonObject | None, default: Rate) -> Rate:
    if record is None:
        return default
    return Rate(
        _of_type(record.get("dispatchThrottlingRateInMsg"), 0),
        _of_type(record.get("dispatchThrottlingRateInByte"), 0),
        max(1, _of_type(record.get("ratePeriodInSecond"), 1)),
    )


def _of_type(value: object, default: T) -> T:
    """The value, if it is of the default's type."""
    return value if type(value) is type(default) else default


def retention_of(policies: JsonObject | None, default: Retention) -> Retention:
    """`retention_policies`, where a namespace has them; negative values keep without limit."""
    record = (policies or {}).get("retention_policies")
    if not isinstance(record, dict):
        return default
    minutes, size_mb = record.get("retentionTimeInMinutes"), record.get("retentionSizeInMB")
    if not isinstance(minutes, int) or not isinstance(size_mb, int):
        return default
    return Retention(minutes * 60, size_mb * MIB)
