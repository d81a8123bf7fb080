"""The records of load balancing, read and written by Apache's classes and by ours (spec CL-07)."""

from __future__ import annotations

import json

import msgspec
import pytest

from compat_tests.apache.jars import run_java
from compat_tests.missing import APACHE, skipped_without
from geminga_broker.loadbalance.model import (
    BundleData,
    NamespaceBundleStats,
    ResourceQuota,
    ResourceUsage,
    SystemResourceUsage,
    TimeAverageBrokerData,
    TimeAverageMessageData,
    decode_bundle_data,
    decode_quota,
    encode,
)
from geminga_broker.loadbalance.reports import (
    LoadReport,
    LocalBrokerData,
    as_local,
    decode_report,
    encode_report,
)
from geminga_broker.loadbalance.settings import MODULAR, SIMPLE, LoadBalanceConfig
from geminga_broker.loadbalance.strategies.quotas import Quotas
from geminga_broker.loadbalance.strategies.simple import load_report
from geminga_broker.ownership.records import ListenerRecord

pytestmark = pytest.mark.java

BUNDLE = "public/default/0x00000000_0x40000000"
OTHER = "public/default/0x40000000_0x80000000"
STATS = {
    BUNDLE: NamespaceBundleStats(
        msg_rate_in=1.5,
        msg_rate_out=2.5,
        msg_throughput_in=1e9,
        msg_throughput_out=0.001,
        consumer_count=3,
        producer_count=4,
        topics=5,
        cache_size=1 << 40,
    ),
    OTHER: NamespaceBundleStats(),
}
USAGE = SystemResourceUsage(
    cpu=ResourceUsage(12.5, 400.0),
    memory=ResourceUsage(100.0, 24_000.0),
    direct_memory=ResourceUsage(100.0, 24_000.0),
    bandwidth_in=ResourceUsage(1e6, 1e7),
    bandwidth_out=ResourceUsage(0.0, 0.0),
)
LOCAL = msgspec.structs.replace(
    LocalBrokerData(
        web_service_url="http://one.example.org:8080",
        pulsar_service_url="pulsar://one.example.org:6650",
        non_persistent_topics_enabled=False,
        start_timestamp=1_700_000_000_000,
        broker_version_string="Geminga 1.2.3",
        protocols={"kafka": "one:9092"},
        advertised_listeners={
            "inner": ListenerRecord("pulsar://10.0.0.1:6650", None, "http://10.0.0.1:8080")
        },
        load_manager_class_name=MODULAR,
    ).refreshed(USAGE, STATS),
    last_update=1_700_000_012_345,
)


def _through_apache(*records: tuple[str, bytes]) -> list[str]:
    """What Apache's classes write after they have read that."""
    lines = "".join(f"{kind}\t{value.decode()}\n" for kind, value in records)
    with skipped_without(APACHE):
        said = run_java("LoadRecords", [], stdin=lines)
    found = said.splitlines()
    assert len(found) == len(records)
    for line in found:
        assert not line.startswith("error"), line
    return found


def test_reports_of_the_modular_load_manager() -> None:
    """Nothing is lost on the way to Apache's broker and back."""
    empty = LocalBrokerData()
    as_it_is, as_any, nothing = _through_apache(
        ("LocalBrokerData", encode_report(LOCAL)),
        ("LoadManagerReport", encode_report(LOCAL)),
        ("LocalBrokerData", encode_report(empty)),
    )
    for line in (as_it_is, as_any):
        assert decode_report(line.encode()) == LOCAL
        told = json.loads(line)
        # What Apache's class makes of the fields.
        assert told["maxResourceUsage"] == pytest.approx(LOCAL.max_usage(), rel=1e-5)
        assert told["loadReportType"] == "LocalBrokerData"
    found = decode_report(nothing.encode())
    assert isinstance(found, LocalBrokerData)
    assert found.last_stats == {}


def test_reports_of_the_simple_load_manager() -> None:
    report = msgspec.structs.replace(LOCAL, load_manager_class_name=SIMPLE)
    made = load_report(report, Quotas(), LoadBalanceConfig(load_manager=SIMPLE))
    as_it_is, as_any = _through_apache(
        ("LoadReport", encode_report(made)), ("LoadManagerReport", encode_report(made))
    )
    for line in (as_it_is, as_any):
        found = decode_report(line.encode())
        assert isinstance(found, LoadReport)
        local = as_local(found)
        assert local.last_stats == STATS
        assert local.cpu == USAGE.cpu
        assert (found.allocated_cpu, found.allocated_memory) == (
            made.allocated_cpu,
            made.allocated_memory,
        )
        assert found.name == "one.example.org:8080"


def test_averages_and_quotas() -> None:
    bundle = BundleData(
        TimeAverageMessageData(10, 10, 1.5, 2.5, 3.5, 4.5),
        TimeAverageMessageData(1000, 20, 5.5, 6.5, 7.5, 8.5),
        77,
    )
    broker = TimeAverageBrokerData(short_term_msg_rate_in=1.0, long_term_msg_throughput_out=2.0)
    quota = ResourceQuota(1.0, 2.0, 3.0, 4.0, 5.0, dynamic=False)
    of_bundle, of_broker, of_quota = _through_apache(
        ("BundleData", encode(bundle)),
        ("TimeAverageBrokerData", encode(broker)),
        ("ResourceQuota", encode(quota)),
    )
    assert decode_bundle_data(of_bundle.encode()) == bundle
    assert msgspec.json.decode(of_broker, type=TimeAverageBrokerData) == broker
    assert decode_quota(of_quota.encode()) == quota


def test_numbers_that_are_none_are_read() -> None:
    """As Apache's broker writes them: as texts."""
    value = b'{"lastStats":{"%s":{"msgRateIn":"NaN","msgRateOut":1.0}}}' % BUNDLE.encode()
    (line,) = _through_apache(("LocalBrokerData", value))
    assert '"NaN"' in line
    found = decode_report(line.encode())
    assert isinstance(found, LocalBrokerData)
    assert not found.last_stats[BUNDLE].is_valid()
