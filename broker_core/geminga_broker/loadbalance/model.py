"""The records of load balancing in the metadata store, with Apache's JSON names (spec CL-07).

Apache's NamespaceBundleStats, BundleData, TimeAverageMessageData, TimeAverageBrokerData and
ResourceQuota. Rates are messages a second, throughputs bytes a second. A bundle is named
`tenant/namespace/0xlow_0xhigh`, a broker by its id `host:port`.

Records of which there is one for each bundle are left out of garbage collection: the leader of a
large cluster has hundreds of thousands, and they can't form cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import msgspec

from geminga_runtime.json_text import read_json

BROKERS_PATH = "/loadbalance/brokers"
BUNDLE_DATA_PATH = "/loadbalance/bundle-data"
BROKER_AVERAGE_PATH = "/loadbalance/broker-time-average"
QUOTA_PATH = "/loadbalance/resource-quota"
DEFAULT_QUOTA_PATH = f"{QUOTA_PATH}/default"

SHORT_SAMPLES = 10
"""Samples of the short-term average of a bundle (Apache's NUM_SHORT_SAMPLES)."""
LONG_SAMPLES = 1000
"""Samples of the long-term average of a bundle (Apache's NUM_LONG_SAMPLES)."""
UNSEEN_RATE = 50.0
"""Messages a second that a bundle without samples is assumed to take, and to deliver."""
UNSEEN_THROUGHPUT = 50_000.0
"""Bytes a second that a bundle without samples is assumed to take, and to deliver."""


def per_second(count: float, interval_s: float) -> float | None:
    """Counted events as a rate; None if the interval or the count gives no rate.

    An interval of zero or less (two samples at once, a clock set back) and a counter that went
    back or isn't finite must not enter an average.
    """
    if not (isfinite(count) and isfinite(interval_s)) or count < 0 or interval_s <= 0:
        return None
    rate = count / interval_s
    return rate if isfinite(rate) else None


class ResourceUsage(msgspec.Struct, gc=False):
    """How much of a resource is used, in its unit. Apache's ResourceUsage."""

    usage: float = 0.0
    limit: float = 0.0

    def percent(self) -> float:
        """Use in percent; 0 if the limit is unknown or a value is no number."""
        if not (isfinite(self.usage) and isfinite(self.limit)) or self.limit <= 0:
            return 0.0
        percent = 100.0 * self.usage / self.limit
        return max(0.0, percent) if isfinite(percent) else 0.0


def _unknown() -> ResourceUsage:
    return ResourceUsage(-1.0, -1.0)


class SystemResourceUsage(msgspec.Struct, rename="camel", kw_only=True):
    """What a broker uses of its machine. CPU: percent, 100 a core; memory: MiB; bandwidth: kbit/s.

    Apache's SystemResourceUsage.
    """

    bandwidth_in: ResourceUsage = msgspec.field(default_factory=_unknown)
    bandwidth_out: ResourceUsage = msgspec.field(default_factory=_unknown)
    cpu: ResourceUsage = msgspec.field(default_factory=_unknown)
    memory: ResourceUsage = msgspec.field(default_factory=_unknown)
    direct_memory: ResourceUsage = msgspec.field(default_factory=_unknown)


class Weights(msgspec.Struct, frozen=True):
    """How much each resource counts, 1 is fully (the five `loadBalancer...ResourceWeight`)."""

    cpu: float = 1.0
    memory: float = 0.0
    direct_memory: float = 0.0
    bandwidth_in: float = 1.0
    bandwidth_out: float = 1.0


class NamespaceBundleStats(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """The load of one bundle. Apache's NamespaceBundleStats."""

    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    consumer_count: int = 0
    producer_count: int = 0
    topics: int = 0
    cache_size: int = 0

    @property
    def throughput(self) -> float:
        """Bytes a second, in and out."""
        return self.msg_throughput_in + self.msg_throughput_out

    @property
    def rate(self) -> float:
        """Messages a second, in and out."""
        return self.msg_rate_in + self.msg_rate_out

    @property
    def sessions(self) -> int:
        """Producers and consumers."""
        return self.consumer_count + self.producer_count

    def is_valid(self) -> bool:
        """Whether the four rates are finite and not negative: only then they are a sample."""
        total = self.msg_rate_in + self.msg_rate_out + self.throughput
        return isfinite(total) and not (
            self.msg_rate_in < 0
            or self.msg_rate_out < 0
            or self.msg_throughput_in < 0
            or self.msg_throughput_out < 0
        )


class TimeAverageMessageData(msgspec.Struct, rename="camel", gc=False):
    """An average over the last samples. Apache's TimeAverageMessageData."""

    max_samples: int = 0
    num_samples: int = 0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0

    @property
    def rate(self) -> float:
        """Messages a second, in and out."""
        return self.msg_rate_in + self.msg_rate_out

    @property
    def throughput(self) -> float:
        """Bytes a second, in and out."""
        return self.msg_throughput_in + self.msg_throughput_out

    def update(self, sample: NamespaceBundleStats) -> None:
        """Add a valid sample; the first one replaces what was assumed."""
        count = min(self.num_samples + 1, max(self.max_samples, 1))
        self.num_samples = count
        # The old average plus a part of the difference: exact for the first sample, and it
        # can't overflow where Apache's (count - 1) * average would.
        part = 1.0 / count
        self.msg_throughput_in += (sample.msg_throughput_in - self.msg_throughput_in) * part
        self.msg_throughput_out += (sample.msg_throughput_out - self.msg_throughput_out) * part
        self.msg_rate_in += (sample.msg_rate_in - self.msg_rate_in) * part
        self.msg_rate_out += (sample.msg_rate_out - self.msg_rate_out) * part

    def is_valid(self) -> bool:
        """Whether all is finite and not negative."""
        values = (
            *(self.msg_throughput_in, self.msg_throughput_out),
            *(self.msg_rate_in, self.msg_rate_out),
        )
        return self.num_samples >= 0 and all(isfinite(each) and each >= 0 for each in values)


def _average(samples: int) -> TimeAverageMessageData:
    """What is assumed of a bundle without samples."""
    return TimeAverageMessageData(
        samples, 0, UNSEEN_THROUGHPUT, UNSEEN_THROUGHPUT, UNSEEN_RATE, UNSEEN_RATE
    )


def _short() -> TimeAverageMessageData:
    return _average(SHORT_SAMPLES)


def _long() -> TimeAverageMessageData:
    return _average(LONG_SAMPLES)


class BundleData(msgspec.Struct, rename="camel", gc=False):
    """Averages of a bundle, at `bundle_data_path`; assumed until its first sample.

    Apache's BundleData.
    """

    short_term_data: TimeAverageMessageData = msgspec.field(default_factory=_short)
    long_term_data: TimeAverageMessageData = msgspec.field(default_factory=_long)
    topics: int = 0

    def update(self, sample: NamespaceBundleStats) -> bool:
        """Add a sample to both averages; False, and nothing changes, if it isn't valid."""
        if not sample.is_valid():
            return False
        self.short_term_data.update(sample)
        self.long_term_data.update(sample)
        self.topics = sample.topics
        return True


class TimeAverageBrokerData(msgspec.Struct, rename="camel", kw_only=True):
    """Sums of the averages of a broker's bundles, at `broker_average_path`.

    Apache's TimeAverageBrokerData.
    """

    short_term_msg_throughput_in: float = 0.0
    short_term_msg_throughput_out: float = 0.0
    short_term_msg_rate_in: float = 0.0
    short_term_msg_rate_out: float = 0.0
    long_term_msg_throughput_in: float = 0.0
    long_term_msg_throughput_out: float = 0.0
    long_term_msg_rate_in: float = 0.0
    long_term_msg_rate_out: float = 0.0


class ResourceQuota(msgspec.Struct, rename="camel"):
    """What a bundle is expected to need, at `quota_path`. Apache's ResourceQuota.

    The defaults of the fields are those of a body without them. `memory` is MB; a quota that is not
    `dynamic` is never recalculated.
    """

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    bandwidth_in: float = 0.0
    bandwidth_out: float = 0.0
    memory: float = 0.0
    dynamic: bool = True

    def is_valid(self) -> bool:
        """Whether all its figures are above zero: others are no estimate of a bundle."""
        return all(isfinite(each) and each > 0 for each in self._figures())

    def is_storable(self) -> bool:
        """Whether all are numbers that aren't negative: so much Apache's admin API keeps, too."""
        return all(isfinite(each) and each >= 0 for each in self._figures())

    def _figures(self) -> tuple[float, ...]:
        return (
            *(self.msg_rate_in, self.msg_rate_out),
            *(self.bandwidth_in, self.bandwidth_out, self.memory),
        )


def initial_quota() -> ResourceQuota:
    """The quota of a bundle if neither it nor the cluster has one (Apache's BundlesQuotas)."""
    return ResourceQuota(40.0, 120.0, 100_000.0, 300_000.0, 80.0)


def bundle_data_of_quota(quota: ResourceQuota) -> BundleData:
    """The averages to begin with for a bundle that has a quota and no averages yet.

    As if the history were full (ModularLoadManagerImpl.getBundleDataOrDefault).
    """

    def full(samples: int) -> TimeAverageMessageData:
        return TimeAverageMessageData(
            samples,
            samples,
            quota.bandwidth_in,
            quota.bandwidth_out,
            quota.msg_rate_in,
            quota.msg_rate_out,
        )

    return BundleData(full(SHORT_SAMPLES), full(LONG_SAMPLES))


def total(stats: Mapping[str, NamespaceBundleStats]) -> NamespaceBundleStats:
    """The sums of the valid ones; their counts are summed in any case."""
    sums = NamespaceBundleStats()
    for each in stats.values():
        if each.is_valid():
            sums.msg_rate_in += each.msg_rate_in
            sums.msg_rate_out += each.msg_rate_out
            sums.msg_throughput_in += each.msg_throughput_in
            sums.msg_throughput_out += each.msg_throughput_out
        sums.topics += each.topics
        sums.consumer_count += each.consumer_count
        sums.producer_count += each.producer_count
        sums.cache_size += each.cache_size
    return sums


def broker_path(broker_id: str) -> str:
    """Where a broker's report stands, an ephemeral node."""
    return f"{BROKERS_PATH}/{broker_id}"


def bundle_data_path(bundle: str) -> str:
    """Where the averages of a bundle stand."""
    return f"{BUNDLE_DATA_PATH}/{bundle}"


def broker_average_path(broker_id: str) -> str:
    """Where the averages of a broker stand."""
    return f"{BROKER_AVERAGE_PATH}/{broker_id}"


def quota_path(bundle: str) -> str:
    """Where the quota of a bundle stands; of all without one: DEFAULT_QUOTA_PATH."""
    return f"{QUOTA_PATH}/{bundle}"


_encoder = msgspec.json.Encoder()


def encode(record: BundleData | TimeAverageBrokerData | ResourceQuota) -> bytes:
    """The record as JSON."""
    return _encoder.encode(record)


def decode_bundle_data(raw: bytes) -> BundleData:
    """The record of `bundle_data_path`. Raises ValueError if it isn't one, or is no number."""
    data = read_json(raw, BundleData, strict=False)
    if not (data.short_term_data.is_valid() and data.long_term_data.is_valid()):
        raise ValueError("averages of a bundle that are negative or no numbers")
    return data


def decode_quota(raw: bytes) -> ResourceQuota:
    """The record of `quota_path`. Raises ValueError if it isn't one."""
    return read_json(raw, ResourceQuota, strict=False)
