"""How full a broker is, and how much it could take, by its use and by the quotas of its bundles
(Apache's ResourceUnitRanking).
"""

from __future__ import annotations

from typing import NamedTuple

from geminga_broker.loadbalance.model import ResourceQuota, ResourceUsage
from geminga_broker.loadbalance.reports import LocalBrokerData

BYTES_PER_KBIT = 128.0
DIFFERENCE_PERCENT = 5.0
"""Brokers that differ by less are equally full."""


class Ranking(NamedTuple):
    """A broker's load, in percent of each resource, with the bundles that it was chosen for."""

    cpu: float
    memory: float
    direct_memory: float
    bandwidth_in: float
    bandwidth_out: float
    rate: float
    """Messages a second by quota."""
    capacity: int
    """How many bundles it could take if it were empty."""
    idle: bool
    """Whether it has no bundle, and was chosen for none."""

    @property
    def percent(self) -> float:
        """The fullest resource."""
        return max(self.cpu, self.memory, self.direct_memory, self.bandwidth_in, self.bandwidth_out)

    @property
    def room(self) -> float:
        """Weight of the choice by chance."""
        return self.capacity * ((100.0 - self.percent) / 100.0) ** 2

    def is_below(self, other: Ranking) -> bool:
        """Whether it is less full, looked at one resource after the other."""
        for mine, theirs in (
            (self.percent, other.percent),
            (self.memory, other.memory),
            (self.cpu, other.cpu),
            (self.bandwidth_in, other.bandwidth_in),
            (self.bandwidth_out, other.bandwidth_out),
        ):
            if abs(mine - theirs) > DIFFERENCE_PERCENT:
                return mine < theirs
        return self.percent < other.percent


def rank(
    report: LocalBrokerData,
    allotted: ResourceQuota,
    coming: ResourceQuota,
    average: ResourceQuota,
    cpu_factor: float,
    *,
    idle: bool,
) -> Ranking:
    """`allotted` is the quota of its bundles, `coming` of those that it was chosen for."""

    def percent(used: ResourceUsage, quota: float, more: float) -> float:
        usage = max(used.usage, quota) + more
        return min(100.0, ResourceUsage(usage, used.limit).percent())

    rate, more_rate = _rate(allotted), _rate(coming)
    return Ranking(
        percent(report.cpu, rate * cpu_factor, more_rate * cpu_factor),
        percent(report.memory, allotted.memory, coming.memory),
        percent(report.direct_memory, 0.0, 0.0),
        percent(
            report.bandwidth_in,
            allotted.bandwidth_in / BYTES_PER_KBIT,
            coming.bandwidth_in / BYTES_PER_KBIT,
        ),
        percent(
            report.bandwidth_out,
            allotted.bandwidth_out / BYTES_PER_KBIT,
            coming.bandwidth_out / BYTES_PER_KBIT,
        ),
        rate + more_rate,
        _capacity(report, average, cpu_factor),
        idle,
    )


def _rate(quota: ResourceQuota) -> float:
    return quota.msg_rate_in + quota.msg_rate_out


def _capacity(report: LocalBrokerData, average: ResourceQuota, cpu_factor: float) -> int:
    """By the scarcest resource; one whose limit isn't known limits nothing."""
    found = [
        limit / need
        for limit, need in (
            (report.cpu.limit, _rate(average) * cpu_factor),
            (report.memory.limit, average.memory),
            (report.bandwidth_in.limit * BYTES_PER_KBIT, average.bandwidth_in),
            (report.bandwidth_out.limit * BYTES_PER_KBIT, average.bandwidth_out),
        )
        if limit > 0 and need > 0
    ]
    return int(min(found, default=0.0))
