"""A broker's report of its load, an ephemeral node of `/loadbalance/brokers` (spec CL-07).

`LocalBrokerData` is what Apache's modular load manager writes, `LoadReport` its simple one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import cast

import msgspec

from geminga_broker.loadbalance.model import (
    NamespaceBundleStats,
    ResourceUsage,
    SystemResourceUsage,
    Weights,
    total,
)
from geminga_broker.ownership.records import ListenerRecord
from geminga_runtime.json_text import BadJson, read_json


class LocalBrokerData(
    msgspec.Struct, rename="camel", kw_only=True, tag_field="loadReportType", tag="LocalBrokerData"
):
    """A broker's addresses and load. Apache's LocalBrokerData.

    `bundleStats` and `maxResourceUsage`, which Apache's broker writes too and derives when it
    reads, are left out: the first is a second copy of `lastStats`.
    """

    web_service_url: str | None = None
    web_service_url_tls: str | None = None
    pulsar_service_url: str | None = None
    pulsar_service_url_tls: str | None = None
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    cpu: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    memory: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    direct_memory: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    bandwidth_in: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    bandwidth_out: ResourceUsage = msgspec.field(default_factory=ResourceUsage)
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    last_update: int = 0
    start_timestamp: int = 0
    last_stats: dict[str, NamespaceBundleStats] = {}
    num_topics: int = 0
    num_bundles: int = 0
    num_consumers: int = 0
    num_producers: int = 0
    bundles: set[str] = set()
    last_bundle_gains: set[str] = set()
    last_bundle_losses: set[str] = set()
    broker_version_string: str | None = None
    protocols: dict[str, str] = {}
    advertised_listeners: dict[str, ListenerRecord] = {}
    load_manager_class_name: str | None = None

    def refreshed(
        self, usage: SystemResourceUsage, stats: Mapping[str, NamespaceBundleStats]
    ) -> LocalBrokerData:
        """A report with a new sample. Gains and losses add up until `written`.

        A bundle or resource whose figures are no sample (NaN, infinite, a negative rate) keeps its
        last valid ones: JSON has no such numbers.
        """
        last = {
            bundle: each if each.is_valid() else _repaired(each, self.last_stats.get(bundle))
            for bundle, each in stats.items()
        }
        sums = total(last)
        return msgspec.structs.replace(
            self.with_usage(usage),
            msg_throughput_in=sums.msg_throughput_in,
            msg_throughput_out=sums.msg_throughput_out,
            msg_rate_in=sums.msg_rate_in,
            msg_rate_out=sums.msg_rate_out,
            last_stats=last,
            num_topics=sums.topics,
            num_bundles=len(last),
            num_consumers=sums.consumer_count,
            num_producers=sums.producer_count,
            bundles=set(last),
            last_bundle_gains=self.last_bundle_gains | (last.keys() - self.bundles),
            last_bundle_losses=self.last_bundle_losses | (self.bundles - last.keys()),
        )

    def with_usage(self, usage: SystemResourceUsage) -> LocalBrokerData:
        """A report with a new sample of the host alone; the loads of bundles stay. A resource
        whose figures are no sample keeps its last valid ones.
        """
        return msgspec.structs.replace(
            self,
            cpu=_finite(usage.cpu, self.cpu),
            memory=_finite(usage.memory, self.memory),
            direct_memory=_finite(usage.direct_memory, self.direct_memory),
            bandwidth_in=_finite(usage.bandwidth_in, self.bandwidth_in),
            bandwidth_out=_finite(usage.bandwidth_out, self.bandwidth_out),
        )

    def written(self) -> LocalBrokerData:
        """The report without gains and losses, after the store has it."""
        return msgspec.structs.replace(self, last_bundle_gains=set(), last_bundle_losses=set())

    def max_usage(self, weights: Weights | None = None) -> float:
        """The highest use of a resource, 1 is all of it; each times its weight if given.

        Without weights memory is left out, as in Apache's getMaxResourceUsage: a broker's caches
        fill it at any load.
        """
        cpu, direct = self.cpu.percent(), self.direct_memory.percent()
        inward, outward = self.bandwidth_in.percent(), self.bandwidth_out.percent()
        if weights is None:
            return max(cpu, direct, inward, outward) / 100.0
        return (
            max(
                cpu * weights.cpu,
                self.memory.percent() * weights.memory,
                direct * weights.direct_memory,
                inward * weights.bandwidth_in,
                outward * weights.bandwidth_out,
            )
            / 100.0
        )


def _finite(usage: ResourceUsage, last: ResourceUsage) -> ResourceUsage:
    return usage if isfinite(usage.usage) and isfinite(usage.limit) else last


def _repaired(
    stats: NamespaceBundleStats, last: NamespaceBundleStats | None
) -> NamespaceBundleStats:
    """Counts of now, rates of the last valid sample, or none."""
    rates = last or NamespaceBundleStats()
    return msgspec.structs.replace(
        stats,
        msg_rate_in=rates.msg_rate_in,
        msg_rate_out=rates.msg_rate_out,
        msg_throughput_in=rates.msg_throughput_in,
        msg_throughput_out=rates.msg_throughput_out,
    )


class LoadReport(
    msgspec.Struct, rename="camel", kw_only=True, tag_field="loadReportType", tag="LoadReport"
):
    """A broker's addresses and load, as the simple load manager writes it. Apache's LoadReport.

    `allocated...` is what the leader's quotas give to its bundles, `pre_allocated...` the same for
    bundles that it was chosen for and hasn't loaded yet.
    """

    name: str | None = None
    broker_version_string: str | None = None
    web_service_url: str | None = None
    web_service_url_tls: str | None = None
    pulsar_service_url: str | None = None
    pulsar_service_url_tls: str | None = None
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    under_loaded: bool = False
    over_loaded: bool = False
    timestamp: int = 0
    start_timestamp: int = 0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    num_topics: int = 0
    num_consumers: int = 0
    num_producers: int = 0
    num_bundles: int = 0
    protocols: dict[str, str] = {}
    advertised_listeners: dict[str, ListenerRecord] = {}
    system_resource_usage: SystemResourceUsage = msgspec.field(default_factory=SystemResourceUsage)
    bundle_stats: dict[str, NamespaceBundleStats] = {}
    bundle_gains: set[str] = set()
    bundle_losses: set[str] = set()
    allocated_cpu: float = msgspec.field(name="allocatedCPU", default=0.0)
    allocated_memory: float = 0.0
    allocated_bandwidth_in: float = 0.0
    allocated_bandwidth_out: float = 0.0
    allocated_msg_rate_in: float = 0.0
    allocated_msg_rate_out: float = 0.0
    pre_allocated_cpu: float = msgspec.field(name="preAllocatedCPU", default=0.0)
    pre_allocated_memory: float = 0.0
    pre_allocated_bandwidth_in: float = 0.0
    pre_allocated_bandwidth_out: float = 0.0
    pre_allocated_msg_rate_in: float = 0.0
    pre_allocated_msg_rate_out: float = 0.0
    load_manager_class_name: str | None = None


Report = LocalBrokerData | LoadReport

_encoder = msgspec.json.Encoder()


def encode_report(report: Report) -> bytes:
    """The report as JSON."""
    return _encoder.encode(report)


def decode_report(raw: bytes) -> Report:
    """A report of ours or of Apache's broker; one without its type is a LocalBrokerData.

    Raises ValueError if it is neither.
    """
    try:
        return read_json(raw, cast(type[Report], Report), strict=False)
    except BadJson:
        return read_json(raw, LocalBrokerData, strict=False)


def as_local(report: Report) -> LocalBrokerData:
    """A report of the simple load manager as one of the modular one.

    Brokers of both kinds may stand in one cluster while its load manager is changed. Sums that are
    no figures are made anew: Apache's broker writes NaN and Infinity as texts.
    """
    if isinstance(report, LocalBrokerData):
        return _with_valid_sums(report)
    base = LocalBrokerData(
        web_service_url=report.web_service_url,
        web_service_url_tls=report.web_service_url_tls,
        pulsar_service_url=report.pulsar_service_url,
        pulsar_service_url_tls=report.pulsar_service_url_tls,
        persistent_topics_enabled=report.persistent_topics_enabled,
        non_persistent_topics_enabled=report.non_persistent_topics_enabled,
        last_update=report.timestamp,
        start_timestamp=report.start_timestamp,
        broker_version_string=report.broker_version_string,
        protocols=report.protocols,
        advertised_listeners=report.advertised_listeners,
        load_manager_class_name=report.load_manager_class_name,
    )
    return base.refreshed(report.system_resource_usage, report.bundle_stats).written()


def _with_valid_sums(report: LocalBrokerData) -> LocalBrokerData:
    rates = (report.msg_rate_in, report.msg_rate_out)
    throughputs = (report.msg_throughput_in, report.msg_throughput_out)
    if isfinite(sum(rates) + sum(throughputs)) and min(*rates, *throughputs) >= 0:
        return report
    sums = total(report.last_stats)
    return msgspec.structs.replace(
        report,
        msg_rate_in=sums.msg_rate_in,
        msg_rate_out=sums.msg_rate_out,
        msg_throughput_in=sums.msg_throughput_in,
        msg_throughput_out=sums.msg_throughput_out,
    )


def report_change(
    last: LocalBrokerData, now: LocalBrokerData, weights: Weights | None = None
) -> float:
    """How far a report is from the last one written, in percent; infinite from nothing.

    The largest change of message rate, throughput, bundles, and of the weighted use in points.
    A report is written when this passes `loadBalancerReportUpdateThresholdPercentage`
    (ModularLoadManagerImpl.needBrokerDataUpdate).
    """
    used = weights or Weights()
    return max(
        _percent(last.msg_rate_in + last.msg_rate_out, now.msg_rate_in + now.msg_rate_out),
        _percent(
            last.msg_throughput_in + last.msg_throughput_out,
            now.msg_throughput_in + now.msg_throughput_out,
        ),
        _percent(last.num_bundles, now.num_bundles),
        100.0 * abs(last.max_usage(used) - now.max_usage(used)),
    )


def _percent(old: float, new: float) -> float:
    if not (isfinite(old) and isfinite(new)):
        return float("inf")
    if old == 0:
        return 0.0 if new == 0 else float("inf")
    return 100.0 * abs((old - new) / old)
