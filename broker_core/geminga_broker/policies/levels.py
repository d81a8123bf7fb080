"""The options and policies of one topic, by the records of topic, namespace and broker, nearest
first (spec BR-22, BR-23, BR-37, BR-60).

Records are JSON with the field names of Apache's `Policies` (namespaces) and `TopicPolicies`
(topics), so that either side reads the other's. A field of a wrong type counts as not set.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import BrokerConfig, PolicyConfig
from geminga_broker.log.options import MIB, Persistence, Retention
from geminga_broker.policies.model import (
    DELIVERY_TICK_MS,
    CompactionPolicy,
    DeduplicationOptions,
    Inactivity,
    TopicOptions,
    TopicPolicies,
)
from geminga_broker.policies.quota import BacklogQuota, QuotaPolicy, Quotas, QuotaType
from geminga_broker.policies.rate_limit import Rate
from geminga_protocol.pb.pulsar_api_pb2 import CommandSubscribe

SubType = CommandSubscribe.SubType

T = TypeVar("T", bool, int)
GIB = 1 << 30


class Levels:
    """The records for one topic, nearest first."""

    def __init__(
        self, topic: JsonObject | None, namespace: JsonObject | None, cluster: str
    ) -> None:
        self._topic = topic or {}
        self._namespace = namespace or {}
        self._cluster = cluster

    def value(self, topic_field: str, namespace_field: str, default: T) -> T:
        """The nearest value of the default's type, else the default."""
        found = _of_type(self._namespace.get(namespace_field), default)
        return _of_type(self._topic.get(topic_field), found)

    def record(self, topic_field: str, namespace_field: str) -> JsonObject | None:
        """The nearest object of that name."""
        for found in (self._topic.get(topic_field), self._namespace.get(namespace_field)):
            if isinstance(found, dict):
                return found
        return None

    def rate(self, topic_field: str, namespace_field: str) -> JsonObject | None:
        """The nearest rate; namespaces have one for each cluster."""
        found = self._topic.get(topic_field)
        if not isinstance(found, dict):
            clusters = self._namespace.get(namespace_field)
            found = clusters.get(self._cluster) if isinstance(clusters, dict) else None
        return found if isinstance(found, dict) else None

    def quota(self, kind: QuotaType, default: BacklogQuota) -> BacklogQuota:
        """The nearest backlog quota of that kind."""
        for quotas in (
            self._topic.get("backLogQuotaMap"),
            self._namespace.get("backlog_quota_map"),
        ):
            record = quotas.get(kind.value) if isinstance(quotas, dict) else None
            if isinstance(record, dict):
                try:
                    return BacklogQuota.from_json(record)
                except ValueError:
                    continue
        return default

    def names(self, topic_field: str, namespace_field: str) -> list[str]:
        """The nearest list that isn't empty."""
        for found in (self._topic.get(topic_field), self._namespace.get(namespace_field)):
            if isinstance(found, list) and found:
                return [str(each) for each in found]
        return []

    def dispatch_rates(self) -> dict[str, Rate]:
        """Rates of single subscriptions."""
        found = self._topic.get("subscriptionPolicies")
        if not isinstance(found, dict):
            return {}
        return {
            str(name): dispatch_rate(record.get("dispatchRate"), Rate())
            for name, record in found.items()
            if isinstance(record, dict) and isinstance(record.get("dispatchRate"), dict)
        }


def topic_policies(levels: Levels, config: BrokerConfig) -> TopicPolicies:
    """The policies of the levels; unset ones by the broker's configuration."""
    broker = config.policies
    delayed = levels.record("", "delayed_delivery_policies") or {}
    return TopicPolicies(
        deduplication=_deduplication(levels, broker),
        deduplication_snapshot_s=levels.value(
            "deduplicationSnapshotIntervalSeconds",
            "deduplicationSnapshotIntervalSeconds",
            broker.deduplication_snapshot_interval_s,
        ),
        message_ttl_s=levels.value(
            "messageTTLInSeconds", "message_ttl_in_seconds", broker.message_ttl_s
        ),
        subscription_expiration_s=60
        * levels.value(
            "", "subscription_expiration_time_minutes", broker.subscription_expiration_minutes
        ),
        retention=_retention(levels, config),
        persistence=_persistence(levels),
        quotas=Quotas(
            levels.quota(QuotaType.SIZE, default_quota(broker)),
            levels.quota(QuotaType.AGE, default_quota(broker)),
            broker.quota_precise_age,
        ),
        inactivity=_inactivity(levels, config),
        publish_rate=_publish_rate(levels, broker),
        dispatch_rate=dispatch_rate(
            levels.rate("dispatchRate", "topicDispatchRate"),
            Rate(broker.topic_dispatch_rate_messages, broker.topic_dispatch_rate_bytes),
        ),
        subscription_dispatch_rate=dispatch_rate(
            levels.rate("subscriptionDispatchRate", "subscriptionDispatchRate"),
            Rate(
                broker.subscription_dispatch_rate_messages,
                broker.subscription_dispatch_rate_bytes,
            ),
        ),
        dispatch_rates=levels.dispatch_rates(),
        subscribe_rate=_subscribe_rate(levels, broker),
        message_bytes_max=levels.value("maxMessageSize", "", 0),
        delivery_delay_ms_max=levels.value(
            "delayedDeliveryMaxDelayInMillis",
            "",
            _of_type(delayed.get("maxDeliveryDelayInMillis"), broker.delivery_delay_ms_max),
        ),
        delivery_tick_ms=levels.value(
            "delayedDeliveryTickTimeMillis",
            "",
            _of_type(delayed.get("tickTime"), DELIVERY_TICK_MS),
        ),
        auto_subscription=_auto_subscription(levels, config),
        compaction=_compaction(levels, broker),
    )


def topic_options(levels: Levels, broker: TopicOptions) -> TopicOptions:
    """The broker's options with those of the levels; entry filters are left to the caller."""
    value = levels.value
    types = levels.names("subscriptionTypesEnabled", "subscription_types_enabled")
    known = SubType.keys()
    delayed = levels.record("", "delayed_delivery_policies") or {}
    return replace(
        broker,
        producers_max=value("maxProducerPerTopic", "max_producers_per_topic", broker.producers_max),
        consumers_max=value("maxConsumerPerTopic", "max_consumers_per_topic", broker.consumers_max),
        consumers_per_subscription_max=value(
            "maxConsumersPerSubscription",
            "max_consumers_per_subscription",
            broker.consumers_per_subscription_max,
        ),
        subscriptions_max=value(
            "maxSubscriptionsPerTopic", "max_subscriptions_per_topic", broker.subscriptions_max
        ),
        unacked_per_consumer_max=value(
            "maxUnackedMessagesOnConsumer",
            "max_unacked_messages_per_consumer",
            broker.unacked_per_consumer_max,
        ),
        unacked_per_subscription_max=value(
            "maxUnackedMessagesOnSubscription",
            "max_unacked_messages_per_subscription",
            broker.unacked_per_subscription_max,
        ),
        encryption_required=value("", "encryption_required", False) or broker.encryption_required,
        delayed_delivery=value(
            "delayedDeliveryEnabled", "", _of_type(delayed.get("active"), broker.delayed_delivery)
        ),
        subscription_types=frozenset(SubType.Value(name) for name in types if name in known)
        or broker.subscription_types,
    )


def default_quota(broker: PolicyConfig) -> BacklogQuota:
    """The broker's quota, for both kinds."""
    size = broker.quota_bytes
    if broker.quota_gb > 0:
        size = int(broker.quota_gb * GIB)
    return BacklogQuota(size, broker.quota_age_s, QuotaPolicy(broker.quota_policy))


def _deduplication(levels: Levels, broker: PolicyConfig) -> DeduplicationOptions | None:
    if not levels.value("deduplicationEnabled", "deduplicationEnabled", broker.deduplication):
        return None
    return DeduplicationOptions(
        broker.deduplication_entries,
        broker.deduplication_producers_max,
        broker.deduplication_inactivity_minutes * 60,
    )


def _auto_subscription(levels: Levels, config: BrokerConfig) -> bool:
    field_name = "autoSubscriptionCreationOverride"
    record = levels.record(field_name, field_name) or {}
    return _of_type(
        record.get("allowAutoSubscriptionCreation"), config.clients.allow_auto_subscription
    )


def _compaction(levels: Levels, broker: PolicyConfig) -> CompactionPolicy:
    threshold = levels.value(
        "compactionThreshold", "compaction_threshold", broker.compaction_threshold_bytes
    )
    return CompactionPolicy(threshold, broker.compaction_retain_null_key, broker.compaction_read_s)


def _retention(levels: Levels, config: BrokerConfig) -> Retention:
    """Negative values are unlimited."""
    default = Retention(config.log.retention_minutes * 60, config.log.retention_mb * MIB)
    record = levels.record("retentionPolicies", "retention_policies") or {}
    minutes, size_mb = record.get("retentionTimeInMinutes"), record.get("retentionSizeInMB")
    if not isinstance(minutes, int) or not isinstance(size_mb, int):
        return default
    return Retention(minutes * 60, size_mb * MIB)


def _persistence(levels: Levels) -> Persistence | None:
    """None where there is none, or none that ledgers could be made by."""
    record = levels.record("persistence", "persistence") or {}
    ensemble, write, ack = (
        _of_type(record.get(name), 0)
        for name in ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
    )
    rate = record.get("managedLedgerMaxMarkDeleteRate")
    if not 0 < ack <= write <= ensemble:
        return None
    return Persistence(ensemble, write, ack, rate if isinstance(rate, int | float) else 0.0)


def _inactivity(levels: Levels, config: BrokerConfig) -> Inactivity:
    topics = config.topics
    after_s = topics.delete_inactive_after_s or topics.delete_inactive_period_s
    record = levels.record("inactiveTopicPolicies", "inactive_topic_policies") or {}
    mode = record.get("inactiveTopicDeleteMode")
    return Inactivity(
        _of_type(record.get("deleteWhileInactive"), topics.delete_inactive),
        _of_type(record.get("maxInactiveDurationSeconds"), after_s),
        mode if isinstance(mode, str) else topics.delete_inactive_mode,
    )


def _publish_rate(levels: Levels, broker: PolicyConfig) -> Rate:
    record = levels.rate("publishRate", "publishMaxMessageRate")
    if record is None:
        return Rate(broker.publish_rate_messages, broker.publish_rate_bytes)
    return Rate(
        _of_type(record.get("publishThrottlingRateInMsg"), 0),
        _of_type(record.get("publishThrottlingRateInByte"), 0),
    )


def _subscribe_rate(levels: Levels, broker: PolicyConfig) -> Rate:
    record = levels.rate("subscribeRate", "clusterSubscribeRate")
    if record is None:
        return Rate(broker.subscribe_rate, 0, broker.subscribe_rate_period_s)
    return Rate(
        _of_type(record.get("subscribeThrottlingRatePerConsumer"), 0),
        0,
        max(1, _of_type(record.get("ratePeriodInSecond"), 30)),
    )


def dispatch_rate(record: object, default: Rate) -> Rate:
    """The rate in a record."""
    if not isinstance(record, dict):
        return default
    return Rate(
        _of_type(record.get("dispatchThrottlingRateInMsg"), 0),
        _of_type(record.get("dispatchThrottlingRateInByte"), 0),
        _of_type(record.get("ratePeriodInSecond"), 1),
        _of_type(record.get("relativeToPublishRate"), False),
    )


def _of_type(value: object, default: T) -> T:
    """The value, if it is of the default's type."""
    return value if type(value) is type(default) else default
