"""Values of policies as the admin API reads and writes them, and their checks (spec OP-03).

Names and sentences are Apache's (`NamespacesBase`, `PersistentTopicsBase`, `PolicyName`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from geminga_broker.admin import jackson
from geminga_broker.admin.rest import RestError
from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import LogConfig
from geminga_broker.log.options import MIB
from geminga_broker.policies.quota import BacklogQuota, QuotaPolicy, QuotaType

Check = Callable[[object], None]


class PublishRate(Struct):
    """`publishMaxMessageRate` of a cluster, `publishRate` of a topic."""

    messages: int = field(default=-1, name="publishThrottlingRateInMsg")
    bytes: int = field(default=-1, name="publishThrottlingRateInByte")


class DispatchRate(Struct):
    """`topicDispatchRate` and `subscriptionDispatchRate` of a cluster; of topics too."""

    messages: int = field(default=0, name="dispatchThrottlingRateInMsg")
    bytes: int = field(default=0, name="dispatchThrottlingRateInByte")
    relative: bool = field(default=False, name="relativeToPublishRate")
    period_s: int = field(default=0, name="ratePeriodInSecond")


class SubscribeRate(Struct):
    """`clusterSubscribeRate` of a cluster, `subscribeRate` of a topic."""

    subscribes: int = field(default=-1, name="subscribeThrottlingRatePerConsumer")
    period_s: int = field(default=30, name="ratePeriodInSecond")


class RetentionPolicies(Struct, rename="camel"):
    """How long and how much acknowledged data is retained; -1 is unlimited."""

    retention_time_in_minutes: int
    retention_size_in_m_b: int = field(name="retentionSizeInMB")


class DelayedDelivery(Struct, rename="camel"):
    """Whether, and how long, delivery may be delayed. Delivery is exact to a millisecond, whatever
    `tickTime` is.
    """

    tick_time: int = 0
    active: bool = False
    max_delivery_delay_in_millis: int = 0


class PersistencePolicies(Struct, rename="camel"):
    """Copies of the ledgers that are made afterwards, and how often each cursor is written."""

    bookkeeper_ensemble: int = 2
    bookkeeper_write_quorum: int = 2
    bookkeeper_ack_quorum: int = 2
    managed_ledger_max_mark_delete_rate: float = 0.0
    """Writes in a second; 0: no bound; negative: the broker's own (Apache's can't load the topics
    then).
    """
    managed_ledger_storage_class_name: str | None = None


DeleteMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]


class InactiveTopicPolicies(Struct, rename="camel"):
    """When an inactive topic is deleted."""

    inactive_topic_delete_mode: DeleteMode | None = None
    max_inactive_duration_seconds: int = 0
    delete_while_inactive: bool = False


class EntryFilters(Struct, rename="camel"):
    """Filters by name, separated by commas."""

    entry_filter_names: str = ""


class AutoTopicCreation(Struct, rename="camel"):
    """Automatic creation of topics on first use; fields that are not given are not stored."""

    allow_auto_topic_creation: bool
    topic_type: str | UnsetType | None = UNSET
    default_num_partitions: int | UnsetType | None = UNSET


class AutoSubscriptionCreation(Struct, rename="camel"):
    """Whether SUBSCRIBE creates a missing subscription."""

    allow_auto_subscription_creation: bool


TOPIC_TYPES = ("partitioned", "non-partitioned")
SubscriptionType = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]


class QuotaBody(Struct, rename="camel"):
    """A backlog quota; `limit` is an old name of `limitSize`."""

    limit: int | None = None
    limit_size: int | None = None
    limit_time: int = 0
    policy: object = None


class BundlesData(Struct, rename="camel"):
    """The number of bundles of a new namespace."""

    num_bundles: int | None = None
    boundaries: list[str] | None = None


class AuthPolicies(Struct):
    """What roles may do, in a new namespace."""

    namespace_auth: dict[str, list[str]] = {}
    destination_auth: dict[str, dict[str, list[str]]] = {}
    subscription_auth_roles: dict[str, list[str]] = {}


_Rates = dict[str, DispatchRate]
NAMESPACE_KINDS: dict[str, object] = {
    "bundles": BundlesData,
    "replication_clusters": list[str],
    "deduplicationEnabled": bool | None,
    "deduplicationSnapshotIntervalSeconds": int | None,
    "message_ttl_in_seconds": int | None,
    "subscription_expiration_time_minutes": int | None,
    "publishMaxMessageRate": dict[str, PublishRate],
    "topicDispatchRate": _Rates,
    "subscriptionDispatchRate": _Rates,
    "replicatorDispatchRate": _Rates,
    "persistence": PersistencePolicies,
    "properties": dict[str, str],
    "allowed_clusters": list[str],
    "resource_group_name": str,
    "dispatcherPauseOnAckStatePersistentEnabled": bool | None,
    "offload_threshold": int,
    "offload_threshold_in_seconds": int,
    "offload_deletion_lag_ms": int | None,
    "clusterSubscribeRate": dict[str, SubscribeRate],
    "max_producers_per_topic": int | None,
    "max_consumers_per_topic": int | None,
    "max_consumers_per_subscription": int | None,
    "max_subscriptions_per_topic": int | None,
    "max_unacked_messages_per_consumer": int | None,
    "max_unacked_messages_per_subscription": int | None,
    "max_topics_per_namespace": int | None,
    "delayed_delivery_policies": DelayedDelivery,
    "inactive_topic_policies": InactiveTopicPolicies,
    "subscription_types_enabled": list[SubscriptionType],
    "autoTopicCreationOverride": AutoTopicCreation,
    "autoSubscriptionCreationOverride": AutoSubscriptionCreation,
    "compaction_threshold": int | None,
    "encryption_required": bool,
    "retention_policies": RetentionPolicies,
    "entryFilters": EntryFilters,
    "is_allow_auto_update_schema": bool | None,
    "schema_validation_enforced": bool,
    "migrated": bool,
}
_KEPT_AS_GIVEN: dict[str, object] = {
    "auth_policies": AuthPolicies,
    "backlog_quota_map": dict[str, QuotaBody],
    "clusterDispatchRate": _Rates,
    "latency_stats_sample_rate": dict[str, int],
}
"""Of the members of a namespace's record that requests set."""


def namespace_policies(given: JsonObject) -> JsonObject:
    """A new namespace's policies, without null ones. Raises jackson.Unbindable for one that isn't
    of its type: no broker could read the record.
    """
    for name, kind in _KEPT_AS_GIVEN.items():
        jackson.bind(given.get(name), kind, name)
    found = {
        name: as_record(jackson.bind(value, NAMESPACE_KINDS.get(name, object), name))
        for name, value in given.items()
    }
    return {name: value for name, value in found.items() if value is not None}


def anything(value: object) -> None:
    """Accepts every value."""
    del value


def not_negative(reason: str) -> Check:
    """Raises RestError 412 for numbers below zero."""

    def check(value: object) -> None:
        if isinstance(value, int) and value < 0:
            raise RestError(412, reason)

    return check


ZERO_RETENTION = (
    "Setting a single time or size limit to 0 is invalid when one of the limits has a non-zero "
    "value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both "
    "limits must be set to 0."
)


def check_retention(value: object) -> None:
    """Raises RestError 400 for limits below -1, and for one of 0 beside another
    (AdminResource.validateRetentionPolicies).
    """
    assert isinstance(value, RetentionPolicies)
    time, size = value.retention_time_in_minutes, value.retention_size_in_m_b
    text = None
    if (time == 0) != (size == 0):
        text = ZERO_RETENTION
    elif time < -1 or size < -1:
        text = f"{'time' if time < -1 else 'size'} limit must be >= -1"
    if text is not None:
        raise RestError(400, f"Invalid retention policy: {text}")


NO_PERSISTENCE = "persistence policies should not be null"


def check_persistence(limits: LogConfig, value: object) -> None:
    """Raises RestError 400 for quorums that ledgers can't have, or the broker doesn't allow
    (AdminResource.validatePersistencePolicies).
    """
    assert isinstance(value, PersistencePolicies)
    ensemble, write, ack = (
        value.bookkeeper_ensemble,
        value.bookkeeper_write_quorum,
        value.bookkeeper_ack_quorum,
    )
    if not math.isfinite(rate := value.managed_ledger_max_mark_delete_rate):
        raise RestError(400, f"managedLedgerMaxMarkDeleteRate must be a number, not {rate}")
    for name, count, most in (
        ("Ensemble", ensemble, limits.ensemble_size_max),
        ("WriteQuorum", write, limits.write_quorum_max),
        ("AckQuorum", ack, limits.ack_quorum_max),
    ):
        if not 0 < count <= most:
            raise RestError(400, f"Bookkeeper-{name} must be <= {most} and > 0.")
    if not ensemble >= write >= ack:
        text = f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack})"
        raise RestError(400, text)


def check_auto_topic_creation(value: object) -> None:
    """Raises RestError 412 for a number of partitions that doesn't fit the type."""
    assert isinstance(value, AutoTopicCreation)
    count, text = value.default_num_partitions, None
    if value.topic_type is not UNSET and value.topic_type not in TOPIC_TYPES:
        # Apache's text.
        text = f"Unknown topic type [{'null' if value.topic_type is None else value.topic_type}]"
    elif value.topic_type == "partitioned":
        if not isinstance(count, int):
            text = "[defaultNumPartitions] cannot be null when the type is partitioned."
        elif count <= 0:
            text = "[defaultNumPartitions] cannot be less than 1 for partition type."
    elif isinstance(count, int):
        text = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
    if text is not None:
        reason = f"Invalid configuration for autoTopicCreationOverride. the detail is {text}"
        raise RestError(412, reason)


def as_record(value: object) -> object:
    """The stored form of a value."""
    if isinstance(value, set | frozenset | list):
        if None in value:
            raise RestError(400, "The list has a null or unknown value")
        # Members that nobody knows may hold anything.
        texts = [each for each in value if isinstance(each, str)]
        return list(dict.fromkeys(texts)) if len(texts) == len(value) else list(value)
    record: object = msgspec.to_builtins(value)
    if isinstance(record, dict):
        return {name: each for name, each in record.items() if each is not None}
    return record


def in_order(value: object, kind: type) -> object:
    """A stored value with its fields in the kind's order, as Jackson writes them: those of a system
    topic come in Avro's.
    """
    if not (isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Struct)):
        return value
    return {name: value[name] for name in kind.__struct_encode_fields__ if name in value} | value


def quota_of(body: QuotaBody | None, owner: str) -> BacklogQuota:
    """The quota in a body. Raises RestError 400 without a policy."""
    if body is not None and isinstance(body.policy, int) and 0 <= body.policy < len(QuotaPolicy):
        body.policy = list(QuotaPolicy)[body.policy].value
    try:
        return BacklogQuota.from_json(msgspec.to_builtins(body) if body is not None else {})
    except ValueError:
        raise RestError(
            400,
            f"Set namespace[{owner}] backlog quota failed because the data validation failed. "
            "the attribute policy cannot be null",
        ) from None


def within_retention(quota: BacklogQuota, retention: object) -> bool:
    """Whether retention is larger than the quota; unlimited or no retention fits every quota
    (AdminResource.checkBacklogQuota).
    """
    record = retention if isinstance(retention, dict) else {}
    minutes, size_mb = record.get("retentionTimeInMinutes"), record.get("retentionSizeInMB")
    if not isinstance(minutes, int) or not isinstance(size_mb, int) or minutes <= 0 or size_mb <= 0:
        return True
    return quota.size_bytes < size_mb * MIB and quota.age_s < minutes * 60


def stored_quota(quotas: object, kind: QuotaType) -> BacklogQuota | None:
    """A quota in a stored map, or None."""
    record = quotas.get(kind.value) if isinstance(quotas, dict) else None
    try:
        return BacklogQuota.from_json(record) if isinstance(record, dict) else None
    except ValueError:
        return None


def quotas_json(quotas: object) -> JsonObject:
    """A stored map of quotas as the REST API returns it."""
    found = {kind: stored_quota(quotas, kind) for kind in QuotaType}
    return {kind.value: quota.to_json() for kind, quota in found.items() if quota is not None}


def with_quota(quotas: object, kind: QuotaType, quota: BacklogQuota | None) -> JsonObject:
    """A stored map of quotas with one set, or (None) without it."""
    changed: JsonObject = dict(quotas) if isinstance(quotas, dict) else {}
    changed.pop(kind.value, None)
    if quota is not None:
        changed[kind.value] = quota.to_json()
    return changed
