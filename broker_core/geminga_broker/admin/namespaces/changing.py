"""The common part of calls that change a namespace's policies (spec OP-03)."""

from __future__ import annotations

from collections.abc import Callable

from geminga_broker.admin import rest
from geminga_broker.cluster.records import JsonObject, ResourceMissing
from geminga_broker.service import BrokerService

NO_NAMESPACE = "Namespace does not exist"
NO_POLICIES = "Namespace policies does not exist"

FIELDS = (
    "auth_policies",
    "replication_clusters",
    "allowed_clusters",
    "bundles",
    "backlog_quota_map",
    "clusterDispatchRate",
    "topicDispatchRate",
    "subscriptionDispatchRate",
    "replicatorDispatchRate",
    "clusterSubscribeRate",
    "persistence",
    "deduplicationEnabled",
    "autoTopicCreationOverride",
    "autoSubscriptionCreationOverride",
    "publishMaxMessageRate",
    "latency_stats_sample_rate",
    "message_ttl_in_seconds",
    "subscription_expiration_time_minutes",
    "retention_policies",
    "deleted",
    "encryption_required",
    "delayed_delivery_policies",
    "inactive_topic_policies",
    "subscription_auth_mode",
    "max_producers_per_topic",
    "max_consumers_per_topic",
    "max_consumers_per_subscription",
    "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription",
    "max_subscriptions_per_topic",
    "compaction_threshold",
    "offload_threshold",
    "offload_threshold_in_seconds",
    "offload_deletion_lag_ms",
    "max_topics_per_namespace",
    "schema_auto_update_compatibility_strategy",
    "schema_compatibility_strategy",
    "is_allow_auto_update_schema",
    "schema_validation_enforced",
    "offload_policies",
    "deduplicationSnapshotIntervalSeconds",
    "subscription_types_enabled",
    "properties",
    "resource_group_name",
    "migrated",
    "dispatcherPauseOnAckStatePersistentEnabled",
    "entryFilters",
)
"""The members of Apache's `Policies`, as its broker writes them."""


LONG = frozenset(
    (
        "compaction_threshold",
        *("offload_threshold", "offload_threshold_in_seconds", "offload_deletion_lag_ms"),
        *("publishThrottlingRateInByte", "dispatchThrottlingRateInByte"),
        *("retentionSizeInMB", "limit", "limitSize"),
        *("tickTime", "maxDeliveryDelayInMillis"),
    )
)
"""The numbers among them, and within them, that are Java's `long`; others are `int`."""
NUMBER_MAX = (1 << 31) - 1
_OTHERS = ("auth_policies", "properties", "offload_policies")


def check_numbers(policies: JsonObject) -> None:
    """Raises the error for a bad body if Apache's broker couldn't read a number: nor could it read
    the record then, and load topics of the namespace.
    """
    for name, value in policies.items():
        if name not in _OTHERS:
            _check_number(name, name, value)


def _check_number(place: str, name: str, value: object) -> None:
    if isinstance(value, dict):
        for member, each in value.items():
            _check_number(f"{place}.{member}", str(member), each)
    elif isinstance(value, int) and name not in LONG and not -NUMBER_MAX - 1 <= value <= NUMBER_MAX:
        raise rest.bad_body(f"{place}: number {value} is out of range")


def checked_change(old: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """The changed record. Raises as `check_numbers` for what has changed."""
    new = change(dict(old))
    check_numbers({name: value for name, value in new.items() if old.get(name) != value})
    return new


def in_class_order(record: JsonObject) -> JsonObject:
    """The same record with its members in the order of Apache's; unknown ones come last."""
    return {name: record[name] for name in FIELDS if name in record} | record


async def policies_of(
    service: BrokerService, namespace: str, missing: str = NO_NAMESPACE
) -> JsonObject:
    """The record of a namespace that exists. Raises RestError 404."""
    if not await service.namespaces.exists(namespace):
        raise rest.RestError(404, missing)
    try:
        return await service.namespaces.policies(namespace)
    except ResourceMissing:
        raise rest.RestError(404, missing) from None


async def change_policies(
    service: BrokerService,
    namespace: str,
    change: Callable[[JsonObject], JsonObject],
    missing: str = NO_NAMESPACE,
) -> None:
    """Change the record, and let loaded topics take it; durable on return. Raises RestError 404,
    and what `change` raises.
    """
    if not await service.namespaces.exists(namespace):
        raise rest.RestError(404, missing)
    try:
        await service.namespaces.tenants.update(
            namespace, lambda old: in_class_order(checked_change(old, change))
        )
    except ResourceMissing:
        raise rest.RestError(404, missing) from None
    await service.topics.namespace_policies_changed(namespace)


def without(record: JsonObject, *names: str) -> JsonObject:
    """The record without these members."""
    return {name: value for name, value in record.items() if name not in names}
