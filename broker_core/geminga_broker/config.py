"""The broker's configuration: Apache's `broker.conf` keys, typed, with Apache's defaults (spec
OP-07).

Each group of settings is a small frozen dataclass; `BrokerConfig` holds one of each. `load_config`
reads a properties file and the environment (`PULSAR_PREFIX_<key>`), checks types and bounds, and
tells which keys it does not use.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from geminga_broker.properties_file import parse_properties

_log = logging.getLogger(__name__)

ENVIRONMENT_PREFIX = "PULSAR_PREFIX_"
MIB = 1 << 20


class ConfigError(Exception):
    """A setting can't be used. The text is one sentence that names the key and where it stands."""


def _setting(key: str, default: Any, *, at_least: float = 0, at_most: float = math.inf) -> Any:
    """A field that is read from `key`; numbers are checked against the bounds."""
    return field(default=default, metadata={"key": key, "min": at_least, "max": at_most})


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Addresses, connections and frames."""

    cluster_name: str = _setting("clusterName", "standalone")
    bind_address: str = _setting("bindAddress", "0.0.0.0")
    advertised_address: str = _setting("advertisedAddress", "")
    broker_service_port: int = _setting("brokerServicePort", 6650, at_most=65535)
    web_service_port: int = _setting("webServicePort", 8080, at_most=65535)
    max_message_size_bytes: int = _setting("maxMessageSize", 5 * MIB, at_least=1, at_most=1 << 30)
    keep_alive_interval_s: int = _setting("keepAliveIntervalSeconds", 30, at_least=1)
    connections_max: int = _setting("brokerMaxConnections", 0)
    publish_buffer_mb_max: int = _setting("maxMessagePublishBufferSizeInMB", 64, at_least=-1)
    shutdown_timeout_ms: int = _setting("brokerShutdownTimeoutMs", 60_000)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Topics: how they come and go, and who may use them."""

    allow_auto_creation: bool = _setting("allowAutoTopicCreation", True)
    auto_creation_type: str = _setting("allowAutoTopicCreationType", "non-partitioned")
    default_partitions: int = _setting("defaultNumPartitions", 1, at_least=1)
    partitions_max: int = _setting("maxNumPartitionsPerPartitionedTopic", 0)
    namespace_bundles: int = _setting("defaultNumberOfNamespaceBundles", 4, at_least=1, at_most=128)
    enable_persistent: bool = _setting("enablePersistentTopics", True)
    enable_non_persistent: bool = _setting("enableNonPersistentTopics", True)
    topics_per_namespace_max: int = _setting("maxTopicsPerNamespace", 0)
    loads_max: int = _setting("maxConcurrentTopicLoadRequest", 5000, at_least=1)
    load_timeout_s: int = _setting("topicLoadTimeoutSeconds", 60, at_least=1)
    lookups_max: int = _setting("maxConcurrentLookupRequest", 50_000, at_least=1)
    delete_inactive: bool = _setting("brokerDeleteInactiveTopicsEnabled", True)
    delete_inactive_period_s: int = _setting(
        "brokerDeleteInactiveTopicsFrequencySeconds", 60, at_least=1
    )
    delete_inactive_mode: str = _setting(
        "brokerDeleteInactiveTopicsMode", "delete_when_no_subscriptions"
    )
    pattern_filtering: bool = _setting("enableBrokerSideSubscriptionPatternEvaluation", True)
    pattern_length_max: int = _setting("subscriptionPatternMaxLength", 50, at_least=1)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Producers, consumers and what they may hold; zero is no limit."""

    producers_per_topic_max: int = _setting("maxProducersPerTopic", 0)
    consumers_per_topic_max: int = _setting("maxConsumersPerTopic", 0)
    consumers_per_subscription_max: int = _setting("maxConsumersPerSubscription", 0)
    subscriptions_per_topic_max: int = _setting("maxSubscriptionsPerTopic", 0)
    unacked_per_consumer_max: int = _setting("maxUnackedMessagesPerConsumer", 50_000)
    unacked_per_subscription_max: int = _setting("maxUnackedMessagesPerSubscription", 200_000)
    allow_auto_subscription: bool = _setting("allowAutoSubscriptionCreation", True)
    encryption_required: bool = _setting("encryptionRequireOnProducer", False)
    batch_index_ack: bool = _setting("acknowledgmentAtBatchIndexLevelEnabled", False)
    dispatch_entries_max: int = _setting("dispatcherMaxReadBatchSize", 100, at_least=1)
    dispatch_bytes_max: int = _setting("dispatcherMaxReadSizeBytes", 5 * MIB, at_least=1)
    subscription_types: str = _setting(
        "subscriptionTypesEnabled", "Exclusive,Shared,Failover,Key_Shared"
    )


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """What holds for topics whose namespace says nothing else."""

    deduplication: bool = _setting("brokerDeduplicationEnabled", False)
    deduplication_entries: int = _setting("brokerDeduplicationEntriesInterval", 1000, at_least=1)
    deduplication_producers_max: int = _setting(
        "brokerDeduplicationMaxNumberOfProducers", 10_000, at_least=1
    )
    deduplication_snapshot_s: int = _setting(
        "brokerDeduplicationSnapshotFrequencyInSeconds", 120, at_least=1
    )
    deduplication_inactivity_minutes: int = _setting(
        "brokerDeduplicationProducerInactivityTimeoutMinutes", 360, at_least=1
    )
    message_ttl_s: int = _setting("ttlDurationDefaultInSeconds", 0)
    publish_rate_messages: int = _setting("maxPublishRatePerTopicInMessages", 0)
    publish_rate_bytes: int = _setting("maxPublishRatePerTopicInBytes", 0)
    broker_publish_rate_messages: int = _setting("brokerPublisherThrottlingMaxMessageRate", 0)
    broker_publish_rate_bytes: int = _setting("brokerPublisherThrottlingMaxByteRate", 0)
    dispatch_rate_messages: int = _setting("dispatchThrottlingRateInMsg", 0)
    dispatch_rate_bytes: int = _setting("dispatchThrottlingRateInByte", 0)
    topic_dispatch_rate_messages: int = _setting("dispatchThrottlingRatePerTopicInMsg", 0)
    topic_dispatch_rate_bytes: int = _setting("dispatchThrottlingRatePerTopicInByte", 0)
    subscription_dispatch_rate_messages: int = _setting(
        "dispatchThrottlingRatePerSubscriptionInMsg", 0
    )
    subscription_dispatch_rate_bytes: int = _setting(
        "dispatchThrottlingRatePerSubscriptionInByte", 0
    )
    subscription_expiration_minutes: int = _setting("subscriptionExpirationTimeMinutes", 0)
    subscription_check_minutes: int = _setting(
        "subscriptionExpiryCheckIntervalInMinutes", 5, at_least=1
    )
    entry_filters: str = _setting("entryFilterNames", "")
    expiry_check_minutes: int = _setting("messageExpiryCheckIntervalInMinutes", 5, at_least=1)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Managed ledgers and their cursors."""

    ensemble_size: int = _setting("managedLedgerDefaultEnsembleSize", 1, at_least=1)
    write_quorum: int = _setting("managedLedgerDefaultWriteQuorum", 1, at_least=1)
    ack_quorum: int = _setting("managedLedgerDefaultAckQuorum", 1, at_least=1)
    digest_type: str = _setting("managedLedgerDigestType", "CRC32C")
    password: str = _setting("managedLedgerPassword", "")
    cache_mb: int = _setting("managedLedgerCacheSizeMB", 64)
    ledger_entries_max: int = _setting("managedLedgerMaxEntriesPerLedger", 50_000, at_least=1)
    ledger_mb_max: int = _setting("managedLedgerMaxSizePerLedgerMbytes", 2048, at_least=1)
    rollover_min_minutes: int = _setting("managedLedgerMinLedgerRolloverTimeMinutes", 10)
    rollover_max_minutes: int = _setting(
        "managedLedgerMaxLedgerRolloverTimeMinutes", 240, at_least=1
    )
    cursor_ledger_entries_max: int = _setting(
        "managedLedgerCursorMaxEntriesPerLedger", 50_000, at_least=1
    )
    cursor_rollover_s: int = _setting("managedLedgerCursorRolloverTimeInSeconds", 14_400)
    mark_delete_rate_per_s: float = _setting("managedLedgerDefaultMarkDeleteRateLimit", 1.0)
    ack_ranges_to_store_max: int = _setting(
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore", 1000
    )
    batch_indexes_max: int = _setting("managedLedgerMaxBatchDeletedIndexToPersist", 10_000)
    retention_minutes: int = _setting("defaultRetentionTimeInMinutes", 0, at_least=-1)
    retention_check_s: int = _setting("retentionCheckIntervalInSeconds", 120, at_least=1)
    retention_mb: int = _setting("defaultRetentionSizeInMB", 0, at_least=-1)
    entry_metadata_interceptors: str = _setting("brokerEntryMetadataInterceptors", "")
    expose_entry_metadata: bool = _setting("exposingBrokerEntryMetadataToClientEnabled", False)


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """The bookie inside a standalone process; keys of Apache's `bookkeeper.conf`."""

    journal_sync: bool = _setting("journalSyncData", True)
    journal_file_mb: int = _setting("journalMaxSizeMB", 64, at_least=1)
    write_cache_mb: int = _setting("dbStorage_writeCacheMaxSizeMb", 64, at_least=1)
    read_cache_mb: int = _setting("dbStorage_readAheadCacheMaxSizeMb", 32, at_least=1)
    entry_log_bytes: int = _setting("logSizeLimit", 1024 * MIB, at_least=1 << 16)
    gc_wait_ms: int = _setting("gcWaitTime", 900_000, at_least=1)
    disk_usage_max: float = _setting("diskUsageThreshold", 0.95, at_least=0.01, at_most=1)
    disk_usage_low: float = _setting("diskUsageLwmThreshold", 0.95, at_least=0.01, at_most=1)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """All settings of one process."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    topics: TopicConfig = field(default_factory=TopicConfig)
    clients: ClientLimits = field(default_factory=ClientLimits)
    policies: PolicyConfig = field(default_factory=PolicyConfig)
    log: LogConfig = field(default_factory=LogConfig)
    bookie: BookieConfig = field(default_factory=BookieConfig)

    def values(self) -> dict[str, str]:
        """Every setting under Apache's key, as it would stand in a file."""
        return {
            setting.metadata["key"]: _written(getattr(group, setting.name))
            for group in (getattr(self, part.name) for part in fields(self))
            for setting in fields(group)
        }


def load_config(
    path: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """The configuration by Apache's keys: defaults, then a file, the environment, overrides.

    Keys that Geminga does not use are named in one warning. Raises ConfigError.
    """
    values: dict[str, tuple[str, str]] = {}
    for key, value in (defaults or {}).items():
        values[key] = (value, "defaults")
    if path is not None:
        for key, value in _read(path).items():
            values[key] = (value, str(path))
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            values[name.removeprefix(ENVIRONMENT_PREFIX)] = (value, f"environment {name}")
    for key, value in (overrides or {}).items():
        values[key] = (value, "command line")
    config, used = _build(values)
    _check(config, values)
    if unused := sorted(values.keys() - used):
        _log.warning("configuration keys that are not used: %s", ", ".join(unused))
    return config


def _read(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {path} can't be read: {error}") from error


def _build(values: Mapping[str, tuple[str, str]]) -> tuple[BrokerConfig, set[str]]:
    used: set[str] = set()
    groups = {}
    for part in fields(BrokerConfig):
        group_type: type[Any] = part.default_factory  # type: ignore[assignment]
        given = {}
        for setting in fields(group_type):
            key = setting.metadata["key"]
            used.add(key)
            if key in values:
                given[setting.name] = _parse(setting, *values[key])
        groups[part.name] = group_type(**given)
    return BrokerConfig(**groups), used


def _parse(setting: Field[Any], text: str, origin: str) -> object:
    """The typed value; an empty one means the default, as in Apache's files."""
    key = setting.metadata["key"]
    if text == "":
        return setting.default
    parse = _PARSERS[type(setting.default)]
    try:
        value = parse(text.strip())
    except ValueError as error:
        raise ConfigError(f"{key} in {origin}: {text!r} is not {error}") from error
    low, high = setting.metadata["min"], setting.metadata["max"]
    if isinstance(value, int | float) and not low <= value <= high:
        bounds = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise ConfigError(f"{key} in {origin}: {text} is out of bounds, it must be {bounds}")
    return value


def _parse_bool(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError("true or false")


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _parse_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a number") from None
    if not math.isfinite(value):
        raise ValueError("a finite number")
    return value


_PARSERS: Mapping[type, Callable[[str], object]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: str,
}

_CHOICES = {
    "allowAutoTopicCreationType": ("partitioned", "non-partitioned"),
    "brokerDeleteInactiveTopicsMode": (
        "delete_when_no_subscriptions",
        "delete_when_subscriptions_caught_up",
    ),
    "managedLedgerDigestType": ("CRC32", "MAC", "CRC32C", "DUMMY"),
}


def _check(config: BrokerConfig, values: Mapping[str, tuple[str, str]]) -> None:
    """What one setting alone can't tell."""
    written = config.values()
    for key, allowed in _CHOICES.items():
        if written[key] not in allowed:
            origin = values[key][1]
            raise ConfigError(
                f"{key} in {origin}: {written[key]!r} is none of {', '.join(allowed)}"
            )
    log = config.log
    if not log.ack_quorum <= log.write_quorum <= log.ensemble_size:
        raise ConfigError(
            "managedLedgerDefaultAckQuorum must not be above managedLedgerDefaultWriteQuorum, "
            "nor that above managedLedgerDefaultEnsembleSize"
        )


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
