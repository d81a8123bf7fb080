"""The broker's configuration: Apache's `broker.conf` keys, typed, with Apache's defaults (spec
OP-07).

Each group of settings is a small frozen dataclass; `BrokerConfig` holds one of each. `load_config`
reads a properties file and the environment (`PULSAR_PREFIX_<key>`), checks types and bounds, and
logs unused keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from geminga_broker.admin.peer_settings import PeerSettings
from geminga_broker.authz.settings import AuthorizationSettings
from geminga_broker.bookies_config import BookiesConfig
from geminga_broker.console.settings import ConsoleSettings
from geminga_broker.loadbalance import settings as load_balance
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.metrics.settings import MetricsConfig
from geminga_broker.network_config import MIB as MIB
from geminga_broker.network_config import NetworkConfig, TlsConfig
from geminga_broker.older_keys import replace_older
from geminga_broker.websocket.settings import WebSocketSettings
from geminga_runtime.auth.settings import AuthSettings
from geminga_runtime.settings import (
    ConfigError,
    Origins,
    build,
    check_choice,
    gather,
    limit,
    parse_setting,
    setting,
    with_setting,
    written,
)
from geminga_runtime.tls_settings import NO_PORT, check_ports_differ

SYSTEM_TOPIC_POLICIES = "org.apache.pulsar.broker.service.SystemTopicBasedTopicPoliciesService"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Topics: their creation, deletion and use."""

    allow_auto_creation: bool = setting("allowAutoTopicCreation", True)
    auto_creation_type: str = setting("allowAutoTopicCreationType", "non-partitioned")
    default_partitions: int = setting("defaultNumPartitions", 1, at_least=1)
    partitions_max: int = limit("maxNumPartitionsPerPartitionedTopic", 0)
    namespace_bundles: int = setting("defaultNumberOfNamespaceBundles", 4, at_least=1, at_most=128)
    enable_persistent: bool = setting("enablePersistentTopics", True)
    enable_non_persistent: bool = setting("enableNonPersistentTopics", True)
    tenants_max: int = limit("maxTenants", 0)
    namespaces_per_tenant_max: int = limit("maxNamespacesPerTenant", 0)
    topics_per_namespace_max: int = limit("maxTopicsPerNamespace", 0)
    force_delete_namespaces: bool = setting("forceDeleteNamespaceAllowed", False)
    loads_max: int = setting("maxConcurrentTopicLoadRequest", 5000, at_least=1)
    load_timeout_s: int = setting("topicLoadTimeoutSeconds", 60, at_least=1)
    lookups_max: int = setting("maxConcurrentLookupRequest", 50_000, at_least=1)
    bundle_unload_timeout_ms: int = setting("namespaceBundleUnloadingTimeoutMs", 60_000, at_least=1)
    delete_inactive: bool = setting("brokerDeleteInactiveTopicsEnabled", True)
    delete_inactive_period_s: int = setting(
        "brokerDeleteInactiveTopicsFrequencySeconds", 60, at_least=1
    )
    delete_inactive_mode: str = setting(
        "brokerDeleteInactiveTopicsMode", "delete_when_no_subscriptions"
    )
    delete_inactive_after_s: int = setting(
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", 0
    )
    system_topics: bool = setting("systemTopicEnabled", True)
    topic_policies: bool = setting("topicLevelPoliciesEnabled", True)
    topic_policies_class: str = setting("topicPoliciesServiceClassName", SYSTEM_TOPIC_POLICIES)
    pattern_filtering: bool = setting("enableBrokerSideSubscriptionPatternEvaluation", True)
    pattern_length_max: int = setting("subscriptionPatternMaxLength", 50, at_least=1)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of producers and consumers; 0 is no limit."""

    producers_per_topic_max: int = limit("maxProducersPerTopic", 0)
    consumers_per_topic_max: int = limit("maxConsumersPerTopic", 0)
    consumers_per_subscription_max: int = limit("maxConsumersPerSubscription", 0)
    subscriptions_per_topic_max: int = limit("maxSubscriptionsPerTopic", 0)
    unacked_per_consumer_max: int = limit("maxUnackedMessagesPerConsumer", 50_000)
    unacked_per_subscription_max: int = limit("maxUnackedMessagesPerSubscription", 200_000)
    unacked_per_broker_max: int = limit("maxUnackedMessagesPerBroker", 0)
    unacked_share_when_full: float = setting(
        "maxUnackedMessagesPerSubscriptionOnBrokerBlocked", 0.16, at_most=1
    )
    allow_auto_subscription: bool = setting("allowAutoSubscriptionCreation", True)
    encryption_required: bool = setting("encryptionRequireOnProducer", False)
    delayed_delivery: bool = setting("delayedDeliveryEnabled", True)
    batch_index_ack: bool = setting("acknowledgmentAtBatchIndexLevelEnabled", False)
    dispatch_entries_max: int = setting("dispatcherMaxReadBatchSize", 100, at_least=1)
    dispatch_bytes_max: int = setting("dispatcherMaxReadSizeBytes", 5 * MIB, at_least=1)
    backlog_scan_entries_max: int = setting("subscriptionBacklogScanMaxEntries", 10_000, at_least=1)
    backlog_scan_time_max_ms: int = setting("subscriptionBacklogScanMaxTimeMs", 120_000, at_least=1)
    subscription_types: str = setting(
        "subscriptionTypesEnabled", "Exclusive,Shared,Failover,Key_Shared"
    )
    consistent_hashing: bool = setting("subscriptionKeySharedUseConsistentHashing", True)
    hash_points: int = setting(
        "subscriptionKeySharedConsistentHashingReplicaPoints", 100, at_least=1, at_most=65_535
    )
    look_ahead_per_consumer_entries: int = setting(
        "keySharedLookAheadMsgInReplayThresholdPerConsumer", 2000
    )
    look_ahead_entries_max: int = setting(
        "keySharedLookAheadMsgInReplayThresholdPerSubscription", 20_000
    )


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Policies of topics without one of topic or namespace."""

    deduplication: bool = setting("brokerDeduplicationEnabled", False)
    deduplication_entries: int = setting("brokerDeduplicationEntriesInterval", 1000, at_least=1)
    deduplication_producers_max: int = setting(
        "brokerDeduplicationMaxNumberOfProducers", 10_000, at_least=1
    )
    deduplication_snapshot_s: int = limit("brokerDeduplicationSnapshotFrequencyInSeconds", 120)
    deduplication_snapshot_interval_s: int = setting(
        "brokerDeduplicationSnapshotIntervalSeconds", 120
    )
    deduplication_inactivity_minutes: int = setting(
        "brokerDeduplicationProducerInactivityTimeoutMinutes", 360, at_least=1
    )
    message_ttl_s: int = setting("ttlDurationDefaultInSeconds", 0)
    quota_gb: float = limit("backlogQuotaDefaultLimitGB", -1.0, at_least=-1)
    quota_bytes: int = limit("backlogQuotaDefaultLimitBytes", -1, at_least=-1)
    quota_age_s: int = limit("backlogQuotaDefaultLimitSecond", -1, at_least=-1)
    quota_policy: str = setting("backlogQuotaDefaultRetentionPolicy", "producer_request_hold")
    quota_check: bool = setting("backlogQuotaCheckEnabled", True)
    quota_check_s: int = setting("backlogQuotaCheckIntervalInSeconds", 60, at_least=1)
    quota_precise_age: bool = setting("preciseTimeBasedBacklogQuotaCheck", False)
    delivery_delay_ms_max: int = setting("delayedDeliveryMaxDelayInMillis", 0)
    subscribe_rate: int = setting("subscribeThrottlingRatePerConsumer", 0)
    subscribe_rate_period_s: int = setting("subscribeRatePeriodPerConsumerInSecond", 30, at_least=1)
    override_entry_filters: bool = setting("allowOverrideEntryFilters", False)
    publish_rate_messages: int = limit("maxPublishRatePerTopicInMessages", 0)
    publish_rate_bytes: int = limit("maxPublishRatePerTopicInBytes", 0)
    broker_publish_rate_messages: int = limit("brokerPublisherThrottlingMaxMessageRate", 0)
    broker_publish_rate_bytes: int = limit("brokerPublisherThrottlingMaxByteRate", 0)
    dispatch_rate_messages: int = limit("dispatchThrottlingRateInMsg", 0)
    dispatch_rate_bytes: int = limit("dispatchThrottlingRateInByte", 0)
    topic_dispatch_rate_messages: int = limit("dispatchThrottlingRatePerTopicInMsg", 0)
    topic_dispatch_rate_bytes: int = limit("dispatchThrottlingRatePerTopicInByte", 0)
    subscription_dispatch_rate_messages: int = limit(
        "dispatchThrottlingRatePerSubscriptionInMsg", 0
    )
    subscription_dispatch_rate_bytes: int = limit("dispatchThrottlingRatePerSubscriptionInByte", 0)
    subscription_expiration_minutes: int = setting("subscriptionExpirationTimeMinutes", 0)
    subscription_check_minutes: int = limit("subscriptionExpiryCheckIntervalInMinutes", 5)
    entry_filters: str = setting("entryFilterNames", "")
    expiry_check_minutes: int = setting("messageExpiryCheckIntervalInMinutes", 5, at_least=1)
    compaction_threshold_bytes: int = setting("brokerServiceCompactionThresholdInBytes", 0)
    compaction_monitor_s: int = limit("brokerServiceCompactionMonitorIntervalInSeconds", 60)
    compaction_read_s: int = setting(
        "brokerServiceCompactionPhaseOneLoopTimeInSeconds", 30, at_least=1
    )
    compaction_retain_null_key: bool = setting("topicCompactionRetainNullKey", False)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Managed ledgers and their cursors."""

    ensemble_size: int = setting("managedLedgerDefaultEnsembleSize", 1, at_least=1)
    write_quorum: int = setting("managedLedgerDefaultWriteQuorum", 1, at_least=1)
    ack_quorum: int = setting("managedLedgerDefaultAckQuorum", 1, at_least=1)
    ensemble_size_max: int = setting("managedLedgerMaxEnsembleSize", 5, at_least=1)
    write_quorum_max: int = setting("managedLedgerMaxWriteQuorum", 5, at_least=1)
    ack_quorum_max: int = setting("managedLedgerMaxAckQuorum", 5, at_least=1)
    digest_type: str = setting("managedLedgerDigestType", "CRC32C")
    password: str = setting("managedLedgerPassword", "", secret=True)
    cache_mb: int = setting("managedLedgerCacheSizeMB", 64)
    ledger_entries_max: int = setting("managedLedgerMaxEntriesPerLedger", 50_000, at_least=1)
    ledger_mb_max: int = setting("managedLedgerMaxSizePerLedgerMbytes", 2048, at_least=1)
    rollover_min_minutes: int = setting("managedLedgerMinLedgerRolloverTimeMinutes", 10)
    rollover_max_minutes: int = setting(
        "managedLedgerMaxLedgerRolloverTimeMinutes", 240, at_least=1
    )
    cursor_ledger_entries_max: int = setting(
        "managedLedgerCursorMaxEntriesPerLedger", 50_000, at_least=1
    )
    cursor_rollover_s: int = setting("managedLedgerCursorRolloverTimeInSeconds", 14_400)
    mark_delete_rate_per_s: float = setting("managedLedgerDefaultMarkDeleteRateLimit", 1.0)
    ack_ranges_to_store_max: int = setting(
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore", 1000
    )
    batch_indexes_max: int = setting("managedLedgerMaxBatchDeletedIndexToPersist", 10_000)
    retention_minutes: int = setting("defaultRetentionTimeInMinutes", 0, at_least=-1)
    retention_check_s: int = limit("retentionCheckIntervalInSeconds", 120)
    retention_mb: int = setting("defaultRetentionSizeInMB", 0, at_least=-1)
    skips_damaged: bool = setting("autoSkipNonRecoverableData", False)
    entry_metadata_interceptors: str = setting("brokerEntryMetadataInterceptors", "")
    expose_entry_metadata: bool = setting("exposingBrokerEntryMetadataToClientEnabled", False)


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """The bookie inside a standalone process; keys of Apache's `bookkeeper.conf`."""

    journal_sync: bool = setting("journalSyncData", True)
    journal_file_mb: int = setting("journalMaxSizeMB", 64, at_least=1)
    write_cache_mb: int = setting("dbStorage_writeCacheMaxSizeMb", 64, at_least=1)
    read_cache_mb: int = setting("dbStorage_readAheadCacheMaxSizeMb", 32, at_least=1)
    entry_log_bytes: int = setting("logSizeLimit", 1024 * MIB, at_least=1 << 16)
    gc_wait_ms: int = setting("gcWaitTime", 900_000, at_least=1)
    disk_usage_max: float = setting("diskUsageThreshold", 0.95, at_least=0.01, at_most=1)
    disk_usage_low: float = setting("diskUsageLwmThreshold", 0.95, at_least=0.01, at_most=1)


@dataclass(frozen=True, slots=True)
class SchemaConfig:
    """Schema policies of topics without one of topic or namespace."""

    compatibility_strategy: str = setting("schemaCompatibilityStrategy", "FULL")
    allow_auto_update: bool = setting("isAllowAutoUpdateSchemaEnabled", True)
    validation_enforced: bool = setting("isSchemaValidationEnforced", False)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Where a broker's metadata and ledgers are, if not in its own process."""

    metadata_store_url: str = setting("metadataStoreUrl", "")
    configuration_store_url: str = setting("configurationMetadataStoreUrl", "")
    session_timeout_ms: int = setting("metadataStoreSessionTimeoutMillis", 30_000, at_least=1)
    session_ends_with_process: bool = setting("metadataStoreSessionEndsWithProcess", True)
    ledgers_uri: str = setting("bookkeeperMetadataServiceUri", "")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """All settings of one process."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    auth: AuthSettings = field(default_factory=AuthSettings)
    authorization: AuthorizationSettings = field(default_factory=AuthorizationSettings)
    peers: PeerSettings = field(default_factory=PeerSettings)
    websockets: WebSocketSettings = field(default_factory=WebSocketSettings)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    topics: TopicConfig = field(default_factory=TopicConfig)
    clients: ClientLimits = field(default_factory=ClientLimits)
    policies: PolicyConfig = field(default_factory=PolicyConfig)
    schemas: SchemaConfig = field(default_factory=SchemaConfig)
    log: LogConfig = field(default_factory=LogConfig)
    bookie: BookieConfig = field(default_factory=BookieConfig)
    load_balance: LoadBalanceConfig = field(default_factory=LoadBalanceConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)

    def values(self) -> dict[str, str]:
        """Every setting under Apache's key, as in a file."""
        return written(self)


@dataclass(frozen=True, slots=True)
class ClusterBrokerConfig(BrokerConfig):
    """All settings of a broker on the metadata store and bookies of a cluster."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    bookies: BookiesConfig = field(default_factory=BookiesConfig)


Config = TypeVar("Config", bound=BrokerConfig)


def load_config(
    path: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
    overrides_from: str = "command line",
) -> BrokerConfig:
    """The configuration by Apache's keys: defaults, then a file, the environment, overrides.

    Unused keys are logged in one warning. Errors name `overrides_from` as the origin of overrides.
    Raises ConfigError.
    """
    values = gather(path, environment, overrides, defaults, overrides_from)
    replace_older(values, cluster=False)
    return _load(BrokerConfig, values, "standalone")


def load_cluster_config(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> ClusterBrokerConfig:
    """As `load_config`, for a broker of a cluster. Raises ConfigError."""
    values = gather(path, environment, overrides, _CLUSTER_DEFAULTS, "command line")
    replace_older(values, cluster=True)
    return _load(ClusterBrokerConfig, values, "broker")


def _load(kind: type[Config], values: dict[str, tuple[str, str]], reader: str) -> Config:
    for key in ("brokerServicePort", "webServicePort"):
        text, origin = values.get(key, ("6650", ""))
        if not text.strip() and values.get(f"{key}Tls", ("", ""))[0].strip():
            # As in Apache, an empty value beside a TLS port means no plaintext port.
            values[key] = (str(NO_PORT), origin)
    config = build(kind, values, reader)
    _check(config, values)
    return config


def checked_change(config: BrokerConfig, key: str, text: str) -> object:
    """The typed value of one setting, if it is valid beside the others. Raises ConfigError."""
    value = parse_setting(config, key, text, "the dynamic configuration")
    changed = with_setting(config, key, value)
    _check(changed, dict.fromkeys(changed.values(), (text, "the dynamic configuration")))
    return value


_CLUSTER_DEFAULTS = {
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
}
"""Where Apache's broker.conf differs from its standalone.conf."""

CHOICES = {
    "allowAutoTopicCreationType": ("partitioned", "non-partitioned"),
    "brokerDeleteInactiveTopicsMode": (
        "delete_when_no_subscriptions",
        "delete_when_subscriptions_caught_up",
    ),
    "backlogQuotaDefaultRetentionPolicy": (
        "producer_request_hold",
        "producer_exception",
        "consumer_backlog_eviction",
    ),
    "schemaCompatibilityStrategy": (
        *("UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL"),
        *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
    ),
    "topicPoliciesServiceClassName": (SYSTEM_TOPIC_POLICIES,),
    "managedLedgerDigestType": ("CRC32", "MAC", "CRC32C", "DUMMY"),
}


_HOST = re.compile(r"[^\s/:@?#\[\]]*|\[[0-9A-Fa-f:.%\w]+\]")
"""What can stand before the port in a URL, or nothing."""


def _check(config: BrokerConfig, values: Origins) -> None:
    """Checks that concern several settings."""
    load_balance.check(config.load_balance, values)
    texts = config.values()
    for key, allowed in CHOICES.items():
        check_choice(values, key, texts[key], allowed)
    for kind, plain, secure in (
        ("broker", config.network.broker_service_port, config.tls.broker_service_port),
        ("web", config.network.web_service_port, config.tls.web_service_port),
    ):
        if plain == secure == NO_PORT:
            raise ConfigError(f"{kind}ServicePort, {kind}ServicePortTls: one must be set")
    check_ports_differ(
        {
            "brokerServicePort": config.network.broker_service_port,
            "brokerServicePortTls": config.tls.broker_service_port,
            "webServicePort": config.network.web_service_port,
            "webServicePortTls": config.tls.web_service_port,
        }
    )
    host = config.network.advertised_address
    if not _HOST.fullmatch(host):
        raise ConfigError(
            f"advertisedAddress in {values['advertisedAddress'][1]}: {host!r} is not a host's name "
            "or address; its port is brokerServicePort, without a scheme"
        )
    config.network.listeners()
    log = config.log
    if not log.ack_quorum <= log.write_quorum <= log.ensemble_size:
        raise ConfigError(
            "managedLedgerDefaultAckQuorum must not be above managedLedgerDefaultWriteQuorum, "
            "nor that above managedLedgerDefaultEnsembleSize"
        )
