"""What bundles are expected to need, as the simple load manager learns it from reports (spec CL-07;
Apache's SimpleLoadManagerImpl.updateRealtimeResourceQuota).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

from geminga_broker.loadbalance.model import NamespaceBundleStats, ResourceQuota, initial_quota
from geminga_broker.loadbalance.reports import LocalBrokerData

UP_MS = 30 * 60_000
"""A higher need counts fully after this time."""
DOWN_MS = 24 * 60 * 60_000
"""A lower need counts fully after this time."""
CPU_FACTOR = (0.01, 0.1)
"""Bounds of the percent of a core for a message a second."""
MEMORY_FACTOR = (10.0, 50.0)
"""Bounds of the MiB for a group of topics, producers and consumers."""
GROUP = 500
RATE = (5.0, 0.0)
BANDWIDTH = (10_000.0, 1_000_000.0)
MEMORY = (2.0, 200.0)
"""Bounds of a quota's figures; an upper one of 0 is none."""
BUNDLES_MIN = 30
"""The average of fewer bundles tells nothing."""
BUSY_RATE_MIN = 1000.0
BUSY_GROUPS_MIN = 30


class Quotas:
    """The quotas of all bundles."""

    def __init__(self) -> None:
        self.cpu_factor = 0.025
        self.memory_factor = 25.0
        self.average = initial_quota()
        """Of a bundle that has none."""
        self.version = 0
        """Changes with the quotas."""
        self._of: dict[str, ResourceQuota] = {}
        self._updated_ms = 0

    def of(self, bundle: str) -> ResourceQuota:
        """A bundle's quota."""
        return self._of.get(bundle) or self.average

    def has(self, bundle: str) -> bool:
        """Whether a bundle has a quota of its own."""
        return bundle in self._of

    def items(self) -> list[tuple[str, ResourceQuota]]:
        """The bundles that have one of their own."""
        return list(self._of.items())

    def learn(self, bundle: str, quota: ResourceQuota) -> None:
        """A quota that the store has."""
        if bundle not in self._of:
            self._of[bundle] = quota
            self.version += 1

    def total(self, bundles: Iterable[str]) -> ResourceQuota:
        """The sum over bundles."""
        sums = ResourceQuota()
        for bundle in bundles:
            quota = self.of(bundle)
            sums.msg_rate_in += quota.msg_rate_in
            sums.msg_rate_out += quota.msg_rate_out
            sums.bandwidth_in += quota.bandwidth_in
            sums.bandwidth_out += quota.bandwidth_out
            sums.memory += quota.memory
        return sums

    def update(self, reports: Mapping[str, LocalBrokerData]) -> None:
        """Take the brokers' reports: the longer the time since the last ones, the more they count.
        Bundles that nobody reports are forgotten.
        """
        at_ms = max((report.last_update for report in reports.values()), default=0)
        past_ms = at_ms - self._updated_ms if self._updated_ms else 0
        self._updated_ms = max(at_ms, self._updated_ms)
        bundles = {
            bundle: stats
            for report in reports.values()
            for bundle, stats in report.last_stats.items()
            if stats.is_valid()
        }
        self._update_factors(reports.values(), bundles, past_ms)
        self._update_average(reports.values(), bundles, past_ms)
        self._of = {
            bundle: self._smoothed(self.of(bundle), _need(stats, self._memory(stats)), past_ms)
            for bundle, stats in bundles.items()
        }
        self.version += 1

    def _memory(self, stats: NamespaceBundleStats) -> float:
        return _groups(stats) * self.memory_factor

    def _update_factors(
        self,
        reports: Iterable[LocalBrokerData],
        bundles: Mapping[str, NamespaceBundleStats],
        past_ms: int,
    ) -> None:
        rate = sum(stats.rate for stats in bundles.values())
        groups = sum(map(_groups, bundles.values()))
        cpu = sum(report.cpu.usage for report in reports)
        memory = sum(report.memory.usage for report in reports)
        if rate > BUSY_RATE_MIN and groups > BUSY_GROUPS_MIN and isfinite(cpu + memory):
            self.cpu_factor = _smooth(self.cpu_factor, cpu / rate, CPU_FACTOR, past_ms)
            self.memory_factor = _smooth(
                self.memory_factor, memory / groups, MEMORY_FACTOR, past_ms
            )

    def _update_average(
        self,
        reports: Iterable[LocalBrokerData],
        bundles: Mapping[str, NamespaceBundleStats],
        past_ms: int,
    ) -> None:
        count = len(bundles)
        memory = sum(report.memory.usage for report in reports)
        if count > BUNDLES_MIN and isfinite(memory):
            need = ResourceQuota(
                sum(stats.msg_rate_in for stats in bundles.values()) / count,
                sum(stats.msg_rate_out for stats in bundles.values()) / count,
                sum(stats.msg_throughput_in for stats in bundles.values()) / count,
                sum(stats.msg_throughput_out for stats in bundles.values()) / count,
                memory / count,
            )
            self.average = self._smoothed(self.average, need, past_ms)

    def _smoothed(self, old: ResourceQuota, need: ResourceQuota, past_ms: int) -> ResourceQuota:
        """One that an administrator has fixed stays."""
        if not old.dynamic:
            return old
        return ResourceQuota(
            _smooth(old.msg_rate_in, need.msg_rate_in, RATE, past_ms),
            _smooth(old.msg_rate_out, need.msg_rate_out, RATE, past_ms),
            _smooth(old.bandwidth_in, need.bandwidth_in, BANDWIDTH, past_ms),
            _smooth(old.bandwidth_out, need.bandwidth_out, BANDWIDTH, past_ms),
            _smooth(old.memory, need.memory, MEMORY, past_ms),
        )


def _groups(stats: NamespaceBundleStats) -> int:
    return 1 + (stats.topics + stats.sessions) // GROUP


def _need(stats: NamespaceBundleStats, memory: float) -> ResourceQuota:
    return ResourceQuota(
        stats.msg_rate_in,
        stats.msg_rate_out,
        stats.msg_throughput_in,
        stats.msg_throughput_out,
        memory,
    )


def _smooth(old: float, sample: float, bounds: tuple[float, float], past_ms: int) -> float:
    low, high = bounds
    sample = max(low, sample)
    if high > 0:
        sample = min(high, sample)
    weight = min(1.0, max(0.0, past_ms / (UP_MS if sample >= old else DOWN_MS)))
    return (1 - weight) * old + weight * sample


def differs(old: ResourceQuota, new: ResourceQuota) -> bool:
    """Whether a quota is worth writing; one that an administrator has fixed never is."""
    return old.dynamic and (
        abs(new.msg_rate_in - old.msg_rate_in) >= RATE[0]
        or abs(new.msg_rate_out - old.msg_rate_out) >= RATE[0]
        or abs(new.bandwidth_in - old.bandwidth_in) >= BANDWIDTH[0]
        or abs(new.bandwidth_out - old.bandwidth_out) >= BANDWIDTH[0]
        or abs(new.memory - old.memory) >= MEMORY[0]
    )
