"""Reports and loads for the tests of load balancing."""

from __future__ import annotations

from collections.abc import Mapping

from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.model import NamespaceBundleStats, ResourceUsage
from geminga_broker.loadbalance.reports import LocalBrokerData
from geminga_broker.loadbalance.settings import MODULAR

MB = 1 << 20


def bundle(namespace: str, number: int = 0) -> str:
    """The name of one of 256 bundles of a namespace."""
    return f"{namespace}/0x{number:02x}000000_0x{number + 1:02x}000000"


def stats(
    rate: float = 0.0, mb: float = 0.0, *, topics: int = 2, sessions: int = 0
) -> NamespaceBundleStats:
    """A bundle with a message rate and a throughput, half of each in, half out."""
    return NamespaceBundleStats(
        msg_rate_in=rate / 2,
        msg_rate_out=rate / 2,
        msg_throughput_in=mb * MB / 2,
        msg_throughput_out=mb * MB / 2,
        topics=topics,
        producer_count=sessions,
    )


def report(
    bundles: Mapping[str, NamespaceBundleStats] | None = None,
    *,
    cpu: float = 0.0,
    at: int = 0,
    started: int = 0,
    persistent: bool = True,
    non_persistent: bool = True,
    version: str | None = "4.0.7",
    manager: str | None = MODULAR,
    topics: int | None = None,
) -> LocalBrokerData:
    """A broker's report; `cpu` in percent; `at` 0: it is always taken for a new one."""
    found = dict(bundles or {})
    return LocalBrokerData(
        cpu=ResourceUsage(cpu, 100.0),
        last_stats=found,
        bundles=set(found),
        msg_rate_in=sum(each.msg_rate_in for each in found.values()),
        msg_rate_out=sum(each.msg_rate_out for each in found.values()),
        msg_throughput_in=sum(each.msg_throughput_in for each in found.values()),
        msg_throughput_out=sum(each.msg_throughput_out for each in found.values()),
        num_bundles=len(found),
        num_topics=sum(each.topics for each in found.values()) if topics is None else topics,
        last_update=at,
        start_timestamp=started,
        persistent_topics_enabled=persistent,
        non_persistent_topics_enabled=non_persistent,
        broker_version_string=version,
        load_manager_class_name=manager,
    )


def load_of(reports: Mapping[str, LocalBrokerData], now_s: float = 0.0) -> LoadData:
    """What a leader knows after these reports."""
    load = LoadData()
    for broker_id, each in reports.items():
        load.report(broker_id, each, now_s)
    return load
