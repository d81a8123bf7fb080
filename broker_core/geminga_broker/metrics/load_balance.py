"""What `/metrics` tells of load balancing, under Apache's names and labels (spec OP-05;
getLoadBalancingMetrics of Apache's load managers). All are gauges, as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from geminga_broker.loadbalance.manager import LoadManager

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One figure; its labels are without the cluster."""

    name: str
    labels: Labels
    value: float


def samples(manager: LoadManager) -> Iterator[Sample]:
    """All figures of this broker; none while load balancing is off."""
    if not manager.config.enabled:
        return
    report, tasks = manager.reporter.report, manager.tasks
    url = report.web_service_url or report.web_service_url_tls or report.pulsar_service_url or ""
    own = (("broker", urlsplit(url).hostname or ""),)
    of_broker: Labels = (*own, ("metric", "loadBalancing"))
    used = manager.reporter.host.usage
    for name, usage in (
        ("cpu", used.cpu),
        ("memory", used.memory),
        ("directMemory", used.direct_memory),
        ("bandwidth_in", used.bandwidth_in),
        ("bandwidth_out", used.bandwidth_out),
    ):
        yield Sample(f"pulsar_lb_{name}_usage", of_broker, usage.percent())
    for name, value in manager.strategy_metrics().items():
        yield Sample(f"pulsar_{name}", own, value)
    unloading: Labels = (("metric", "bundleUnloading"),)
    yield Sample("pulsar_lb_unload_broker_total", unloading, tasks.unloaded_brokers)
    yield Sample("pulsar_lb_unload_bundle_total", unloading, tasks.unloaded_bundles)
    splits: Labels = (("metric", "bundlesSplit"),)
    yield Sample("pulsar_lb_bundles_split_total", splits, tasks.split_bundles)
    if manager.config.expose_bundles:
        yield from _bundles(manager, own)


def _bundles(manager: LoadManager, own: Labels) -> Iterator[Sample]:
    for bundle, stats in manager.reporter.report.last_stats.items():
        where: Labels = (*own, ("bundle", bundle), ("metric", "bundle"))
        for name, value in (
            ("msg_rate_in", stats.msg_rate_in),
            ("msg_rate_out", stats.msg_rate_out),
            ("topics_count", stats.topics),
            ("consumer_count", stats.consumer_count),
            ("producer_count", stats.producer_count),
            ("msg_throughput_in", stats.msg_throughput_in),
            ("msg_throughput_out", stats.msg_throughput_out),
        ):
            yield Sample(f"pulsar_bundle_{name}", where, value)
