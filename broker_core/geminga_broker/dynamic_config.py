"""Settings that are changed while the brokers run (spec OP-07; Apache's dynamic configuration).

They stand in `/admin/configuration`, one record for all brokers of the cluster; each follows it.
Only settings are taken of which a change takes effect at once: some are read when they are used,
for others somebody listens (`when`). A setting that is removed has its value of the start again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import trio

from geminga_broker.cluster.records import JsonObject, Records, ResourceExists, ResourceMissing
from geminga_broker.config import BrokerConfig, checked_change
from geminga_broker.policies.broker_options import broker_options
from geminga_runtime.json_text import BadJson
from geminga_runtime.metadata.api import MetadataError, MetadataStore
from geminga_runtime.settings import ConfigError, current, overwrite, with_setting

_log = logging.getLogger(__name__)

Listener = Callable[[Mapping[str, object]], Awaitable[None]]
"""Called with the settings that changed, and their values."""

NAME = "configuration"
PATH = f"/admin/{NAME}"
RETRY_S = 1.0
VALUE_BYTES_MAX = 16 * 1024


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


AT_USE = _keys(
    """
    allowAutoTopicCreation allowAutoTopicCreationType defaultNumPartitions
    maxNumPartitionsPerPartitionedTopic defaultNumberOfNamespaceBundles maxTopicsPerNamespace
    maxTenants maxNamespacesPerTenant
    forceDeleteNamespaceAllowed isAllowAutoUpdateSchemaEnabled brokerShutdownTimeoutMs
    brokerDeleteInactiveTopicsFrequencySeconds autoSkipNonRecoverableData
    """
)
"""Read when they are used."""

POLICIES = _keys(
    """
    allowAutoSubscriptionCreation dispatchThrottlingRatePerTopicInMsg
    dispatchThrottlingRatePerTopicInByte dispatchThrottlingRatePerSubscriptionInMsg
    dispatchThrottlingRatePerSubscriptionInByte maxPublishRatePerTopicInMessages
    maxPublishRatePerTopicInBytes subscribeThrottlingRatePerConsumer
    subscribeRatePeriodPerConsumerInSecond brokerDeleteInactiveTopicsEnabled
    brokerDeleteInactiveTopicsMode brokerDeleteInactiveTopicsMaxInactiveDurationSeconds
    subscriptionTypesEnabled dispatcherMaxReadBatchSize dispatcherMaxReadSizeBytes
    keySharedLookAheadMsgInReplayThresholdPerConsumer
    keySharedLookAheadMsgInReplayThresholdPerSubscription allowOverrideEntryFilters
    entryFilterNames
    """
)
"""Loaded topics take them over again."""

LIMITS = _keys(
    """
    brokerPublisherThrottlingMaxMessageRate brokerPublisherThrottlingMaxByteRate
    dispatchThrottlingRateInMsg dispatchThrottlingRateInByte
    """
)
"""Shared by all topics of a broker."""

LOAD_BALANCE = _keys(
    """
    defaultNamespaceBundleSplitAlgorithm exposeBundlesMetricsInPrometheus failureDomainsEnabled
    flowOrQpsDifferenceThresholdPercentage loadBalancerAutoBundleSplitEnabled
    loadBalancerAutoUnloadSplitBundlesEnabled
    loadBalancerAverageResourceUsageDifferenceThresholdPercentage
    loadBalancerAvgShedderHighThreshold loadBalancerAvgShedderHitCountHighThreshold
    loadBalancerAvgShedderHitCountLowThreshold loadBalancerAvgShedderLowThreshold
    loadBalancerBandwidthInResourceWeight loadBalancerBandwidthOutResourceWeight
    loadBalancerBrokerMaxTopics loadBalancerBrokerOverloadedThresholdPercentage
    loadBalancerBrokerThresholdShedderPercentage loadBalancerBundleUnloadMinThroughputThreshold
    loadBalancerCPUResourceWeight loadBalancerDirectMemoryResourceWeight
    loadBalancerDistributeBundlesEvenlyEnabled loadBalancerHistoryResourcePercentage
    loadBalancerHostUsageCheckIntervalMinutes loadBalancerLoadSheddingStrategy
    loadBalancerMaxNumberOfBundlesInBundleLoadReport loadBalancerMemoryResourceWeight
    loadBalancerMsgRateDifferenceShedderThreshold
    loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold
    loadBalancerNamespaceBundleMaxBandwidthMbytes loadBalancerNamespaceBundleMaxMsgRate
    loadBalancerNamespaceBundleMaxSessions loadBalancerNamespaceBundleMaxTopics
    loadBalancerNamespaceMaximumBundles loadBalancerReportUpdateMaxIntervalMinutes
    loadBalancerReportUpdateMinIntervalMillis loadBalancerReportUpdateThresholdPercentage
    loadBalancerSheddingEnabled loadBalancerSheddingGracePeriodMinutes
    loadBalancerSheddingIntervalMinutes loadManagerClassName maxUnloadBundleNumPerShedding
    maxUnloadPercentage minUnloadMessage minUnloadMessageThroughput preferLaterVersions
    supportedNamespaceBundleSplitAlgorithms
    """
)
"""Told to the load manager."""

BOUNDS = _keys(
    """
    managedLedgerCacheSizeMB maxConcurrentLookupRequest maxConcurrentTopicLoadRequest
    maxMessagePublishBufferSizeInMB namespaceBundleUnloadingTimeoutMs
    """
)
"""Told to what they bound."""

SUPER_USERS = "superUserRoles"

KEYS = tuple(sorted({*AT_USE, *POLICIES, *LIMITS, *LOAD_BALANCE, *BOUNDS, SUPER_USERS}))
"""Of Apache's dynamic settings those that take effect at once."""


class NotDynamic(Exception):
    """The setting is none of `KEYS`."""


class DynamicConfiguration:
    """Follows the record of the cluster for one broker."""

    def __init__(self, store: MetadataStore, config: BrokerConfig) -> None:
        self._store = store
        self._config = config
        self._records = Records(store, "/admin")
        self._start_values = {key: current(config, key) for key in KEYS}
        self._values = dict(self._start_values)
        self._listeners: list[tuple[frozenset[str], Listener]] = []
        self._turn = trio.Lock()

    def when(self, keys: Iterable[str], listener: Listener) -> None:
        """Call it when one of these changes; it must not raise but MetadataError."""
        self._listeners.append((frozenset(keys), listener))

    async def values(self) -> JsonObject:
        """What is set, also what this broker doesn't apply. Raises MetadataError."""
        return await self._records.get(NAME) or {}

    async def put(self, key: str, text: str) -> None:
        """Set it for all brokers; this one has it when this returns. Raises NotDynamic,
        ConfigError, MetadataError.
        """
        if key not in KEYS:
            raise NotDynamic(key)
        if len(text) > VALUE_BYTES_MAX:
            raise ConfigError(f"{key}: longer than {VALUE_BYTES_MAX} characters")
        self._checked(key, text)
        await self._change(lambda old: old | {key: text})

    async def remove(self, key: str) -> None:
        """Have the brokers' own values again. Raises NotDynamic, MetadataError."""
        if key not in KEYS:
            raise NotDynamic(key)
        await self._change(lambda old: {name: old[name] for name in old if name != key})

    def _checked(self, key: str, text: str) -> object:
        """Raises ConfigError."""
        value = checked_change(self._config, key, text)
        if key in POLICIES:
            try:
                broker_options(with_setting(self._config, key, value))
            except ValueError as error:
                raise ConfigError(f"{key}: {error}") from error
        return value

    async def _change(self, change: Callable[[JsonObject], JsonObject]) -> None:
        while True:
            try:
                await self._records.update(NAME, change)
            except ResourceMissing:
                with suppress(ResourceExists):
                    await self._records.create(NAME, {})
            else:
                return await self.load()

    async def load(self) -> None:
        """Take over what is set. A value that isn't valid counts as not set. Raises MetadataError,
        BadJson.
        """
        async with self._turn:
            record = await self.values()
            wanted = {key: self._wanted(key, record) for key in KEYS}
            changed = {key: value for key, value in wanted.items() if value != self._values[key]}
            for key, value in changed.items():
                overwrite(self._config, key, value)
            self._values = wanted
            if changed:
                shown = ", ".join(f"{key}={value}" for key, value in changed.items())
                _log.info("settings changed: %s", shown)
            for keys, listener in self._listeners:
                if concerned := {key: changed[key] for key in changed if key in keys}:
                    await listener(concerned)

    def _wanted(self, key: str, record: JsonObject) -> object:
        text = record.get(key)
        if isinstance(text, str):
            try:
                return self._checked(key, text)
            except ConfigError as error:
                _log.warning("%s: %s", PATH, error)
        return self._start_values[key]

    async def run(self) -> None:
        """Follow the record until cancelled, or until the store is closed."""
        async with self._store.watch(PATH) as changes:
            while True:
                try:
                    await self.load()
                except (MetadataError, BadJson) as error:
                    _log.warning("changed settings can't be applied yet: %s", error)
                    await trio.sleep(RETRY_S)
                    continue
                try:
                    await changes.receive()
                except trio.EndOfChannel:
                    return
