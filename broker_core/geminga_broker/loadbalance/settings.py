"""The keys of `broker.conf` about load balancing, with the defaults of Apache's 4.0."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

from geminga_broker.loadbalance.model import Weights
from geminga_runtime.settings import ConfigError, Origins, check_choice, listed, setting

_PACKAGE = "org.apache.pulsar.broker.loadbalance"

MODULAR = f"{_PACKAGE}.impl.ModularLoadManagerImpl"
SIMPLE = f"{_PACKAGE}.impl.SimpleLoadManagerImpl"
NOOP = f"{_PACKAGE}.NoopLoadManager"

OVERLOAD_SHEDDER = f"{_PACKAGE}.impl.OverloadShedder"
THRESHOLD_SHEDDER = f"{_PACKAGE}.impl.ThresholdShedder"
UNIFORM_SHEDDER = f"{_PACKAGE}.impl.UniformLoadShedder"
AVERAGE_SHEDDER = f"{_PACKAGE}.impl.AvgShedder"

LEAST_MESSAGE_RATE = f"{_PACKAGE}.impl.LeastLongTermMessageRate"
LEAST_RESOURCE_USAGE = f"{_PACKAGE}.impl.LeastResourceUsageWithWeight"
ROUND_ROBIN = f"{_PACKAGE}.impl.RoundRobinBrokerSelector"

LEAST_LOADED_SERVER = "leastLoadedServer"
WEIGHTED_RANDOM = "weightedRandomSelection"
LEAST_MSG_PER_SECOND = "leastMsgPerSecond"

RANGE_EQUALLY_DIVIDE = "range_equally_divide"
TOPIC_COUNT_EQUALLY_DIVIDE = "topic_count_equally_divide"
SPECIFIED_POSITIONS_DIVIDE = "specified_positions_divide"
FLOW_OR_QPS_EQUALLY_DIVIDE = "flow_or_qps_equally_divide"
SPLIT_ALGORITHMS = (
    RANGE_EQUALLY_DIVIDE,
    TOPIC_COUNT_EQUALLY_DIVIDE,
    SPECIFIED_POSITIONS_DIVIDE,
    FLOW_OR_QPS_EQUALLY_DIVIDE,
)


@dataclass(frozen=True, slots=True)
class LoadBalanceConfig:
    """Where bundles are placed, moved and split; what is reported for it."""

    load_manager: str = setting("loadManagerClassName", MODULAR)
    enabled: bool = setting("loadBalancerEnabled", True)
    placement_strategy: str = setting("loadBalancerLoadPlacementStrategy", LEAST_MESSAGE_RATE)
    simple_placement_strategy: str = setting("loadBalancerPlacementStrategy", LEAST_LOADED_SERVER)
    spread_evenly: bool = setting("loadBalancerDistributeBundlesEvenlyEnabled", True)
    broker_topics_max: int = setting("loadBalancerBrokerMaxTopics", 50_000)
    overloaded_percent: int = setting("loadBalancerBrokerOverloadedThresholdPercentage", 85)
    underloaded_percent: int = setting("loadBalancerBrokerUnderloadedThresholdPercentage", 50)
    comfort_percent: int = setting("loadBalancerBrokerComfortLoadLevelPercentage", 65)
    usage_difference_percent: int = setting(
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage", 10
    )
    prefer_later_versions: bool = setting("preferLaterVersions", False)
    failure_domains: bool = setting("failureDomainsEnabled", False)

    cpu_weight: float = setting("loadBalancerCPUResourceWeight", 1.0)
    memory_weight: float = setting("loadBalancerMemoryResourceWeight", 0.0)
    direct_memory_weight: float = setting("loadBalancerDirectMemoryResourceWeight", 0.0)
    bandwidth_in_weight: float = setting("loadBalancerBandwidthInResourceWeight", 1.0)
    bandwidth_out_weight: float = setting("loadBalancerBandwidthOutResourceWeight", 1.0)
    history: float = setting("loadBalancerHistoryResourcePercentage", 0.9, at_most=1)

    report_change_percent: int = setting("loadBalancerReportUpdateThresholdPercentage", 10)
    report_interval_ms_min: int = setting(
        "loadBalancerReportUpdateMinIntervalMillis", 5000, at_least=1
    )
    report_interval_minutes_max: int = setting(
        "loadBalancerReportUpdateMaxIntervalMinutes", 15, at_least=1
    )
    usage_check_minutes: int = setting("loadBalancerHostUsageCheckIntervalMinutes", 1, at_least=1)
    nic_speed_gbps: float = setting("loadBalancerOverrideBrokerNicSpeedGbps", 0.0)
    """0: as the network cards tell."""
    averages_write_minutes: int = setting(
        "loadBalancerResourceQuotaUpdateIntervalMinutes", 15, at_least=1
    )
    averages_written_per_broker: int = setting(
        "loadBalancerMaxNumberOfBundlesInBundleLoadReport", 10
    )
    """Of the most loaded bundles; 0: of all."""

    expose_bundles: bool = setting("exposeBundlesMetricsInPrometheus", False)

    shedding: bool = setting("loadBalancerSheddingEnabled", True)
    shedding_strategy: str = setting("loadBalancerLoadSheddingStrategy", THRESHOLD_SHEDDER)
    shedding_interval_minutes: int = setting("loadBalancerSheddingIntervalMinutes", 1, at_least=1)
    grace_minutes: int = setting("loadBalancerSheddingGracePeriodMinutes", 30)
    threshold_percent: int = setting("loadBalancerBrokerThresholdShedderPercentage", 10)
    lower_boundary: bool = setting("lowerBoundarySheddingEnabled", False)
    unload_mb_min: float = setting("loadBalancerBundleUnloadMinThroughputThreshold", 10.0)
    rate_difference_percent: float = setting("loadBalancerMsgRateDifferenceShedderThreshold", 50.0)
    throughput_difference: float = setting(
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold", 4.0
    )
    unload_messages_min: int = setting("minUnloadMessage", 1000)
    unload_bytes_min: int = setting("minUnloadMessageThroughput", 1 << 20)
    unload_share_max: float = setting("maxUnloadPercentage", 0.2, at_most=1)
    unload_bundles_max: int = setting("maxUnloadBundleNumPerShedding", -1, at_least=-1)
    average_low_percent: int = setting("loadBalancerAvgShedderLowThreshold", 15)
    average_high_percent: int = setting("loadBalancerAvgShedderHighThreshold", 40)
    average_low_hits: int = setting("loadBalancerAvgShedderHitCountLowThreshold", 8, at_least=1)
    average_high_hits: int = setting("loadBalancerAvgShedderHitCountHighThreshold", 2, at_least=1)

    split: bool = setting("loadBalancerAutoBundleSplitEnabled", True)
    unload_split: bool = setting("loadBalancerAutoUnloadSplitBundlesEnabled", True)
    bundle_topics_max: int = setting("loadBalancerNamespaceBundleMaxTopics", 1000)
    bundle_sessions_max: int = setting("loadBalancerNamespaceBundleMaxSessions", 1000)
    """0: no limit."""
    bundle_rate_max: int = setting("loadBalancerNamespaceBundleMaxMsgRate", 30_000)
    bundle_mb_max: int = setting("loadBalancerNamespaceBundleMaxBandwidthMbytes", 100)
    namespace_bundles_max: int = setting("loadBalancerNamespaceMaximumBundles", 128)
    flow_difference_percent: int = setting("flowOrQpsDifferenceThresholdPercentage", 10)
    split_algorithm: str = setting("defaultNamespaceBundleSplitAlgorithm", RANGE_EQUALLY_DIVIDE)
    split_algorithms: str = setting(
        "supportedNamespaceBundleSplitAlgorithms", ",".join(SPLIT_ALGORITHMS)
    )

    @property
    def weights(self) -> Weights:
        """How much each resource counts."""
        return _weights(
            self.cpu_weight,
            self.memory_weight,
            self.direct_memory_weight,
            self.bandwidth_in_weight,
            self.bandwidth_out_weight,
        )

    @property
    def overloaded(self) -> float:
        """Use of a resource above which a broker is overloaded, 1 is all of it."""
        return self.overloaded_percent / 100.0

    @property
    def threshold(self) -> float:
        """How far the use of a resource may be above the average, 1 is all of it."""
        return self.threshold_percent / 100.0

    @property
    def grace_s(self) -> float:
        """Seconds after which a bundle may be moved again."""
        return self.grace_minutes * 60.0

    @property
    def supported_splits(self) -> tuple[str, ...]:
        """The algorithms that may be asked for."""
        return listed(self.split_algorithms)


@lru_cache(16)
def _weights(
    cpu: float, memory: float, direct_memory: float, bandwidth_in: float, bandwidth_out: float
) -> Weights:
    """The same object for the same weights: it is compared for each broker of each decision."""
    return Weights(cpu, memory, direct_memory, bandwidth_in, bandwidth_out)


CHOICES = {
    "loadManagerClassName": (MODULAR, SIMPLE, NOOP),
    "loadBalancerLoadSheddingStrategy": (
        *(THRESHOLD_SHEDDER, OVERLOAD_SHEDDER),
        *(UNIFORM_SHEDDER, AVERAGE_SHEDDER),
    ),
    "loadBalancerLoadPlacementStrategy": (
        *(LEAST_MESSAGE_RATE, LEAST_RESOURCE_USAGE),
        *(ROUND_ROBIN, AVERAGE_SHEDDER),
    ),
    "loadBalancerPlacementStrategy": (LEAST_LOADED_SERVER, WEIGHTED_RANDOM, LEAST_MSG_PER_SECOND),
    "defaultNamespaceBundleSplitAlgorithm": SPLIT_ALGORITHMS,
}


def check(config: LoadBalanceConfig, values: Origins) -> None:
    """Raises ConfigError if a name is unknown, or the settings contradict one another."""
    for one in fields(config):
        key = one.metadata["key"]
        if key in CHOICES:
            check_choice(values, key, getattr(config, one.name), CHOICES[key])
    for algorithm in config.supported_splits:
        key = "supportedNamespaceBundleSplitAlgorithms"
        check_choice(values, key, algorithm, SPLIT_ALGORITHMS)
    strategies = (config.placement_strategy, config.shedding_strategy)
    if config.placement_strategy == AVERAGE_SHEDDER and strategies[0] != strategies[1]:
        raise ConfigError(
            "loadBalancerLoadPlacementStrategy may be AvgShedder only if "
            "loadBalancerLoadSheddingStrategy is"
        )
