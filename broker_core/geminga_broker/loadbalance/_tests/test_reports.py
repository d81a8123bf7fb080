"""A report: its sums, what was gained and lost, Apache's JSON, and when it is written again."""

from __future__ import annotations

import json
from math import inf, nan

import msgspec
import pytest

from geminga_broker.loadbalance.model import (
    NamespaceBundleStats,
    ResourceUsage,
    SystemResourceUsage,
    Weights,
)
from geminga_broker.loadbalance.reports import (
    LoadReport,
    LocalBrokerData,
    as_local,
    decode_report,
    encode_report,
    report_change,
)

A = "public/default/0x00000000_0x80000000"
B = "public/default/0x80000000_0xffffffff"


def stats(rate: float = 1.0) -> NamespaceBundleStats:
    return NamespaceBundleStats(
        msg_rate_in=rate,
        msg_rate_out=2 * rate,
        msg_throughput_in=10 * rate,
        msg_throughput_out=20 * rate,
        consumer_count=2,
        producer_count=1,
        topics=3,
    )


def usage(cpu: float = 0, memory: float = 0, direct: float = 0) -> SystemResourceUsage:
    return SystemResourceUsage(
        cpu=ResourceUsage(cpu, 100),
        memory=ResourceUsage(memory, 100),
        direct_memory=ResourceUsage(direct, 100),
    )


def test_sums_gains_and_losses() -> None:
    first = LocalBrokerData().refreshed(usage(), {A: stats()})
    assert (first.bundles, first.last_bundle_gains, first.last_bundle_losses) == ({A}, {A}, set())
    second = first.refreshed(usage(), {B: stats(2)})
    assert (second.last_bundle_gains, second.last_bundle_losses) == ({A, B}, {A})
    both = second.written().refreshed(usage(), {A: stats(), B: stats(2)})
    assert (both.last_bundle_gains, both.last_bundle_losses) == ({A}, set())
    assert (both.num_bundles, both.num_topics, both.num_consumers, both.num_producers) == (
        *(2, 6),
        *(4, 2),
    )
    assert (both.msg_rate_in, both.msg_rate_out) == (3, 6)
    assert (both.msg_throughput_in, both.msg_throughput_out) == (30, 60)
    assert first.bundles == {A}


@pytest.mark.parametrize("bad", [nan, inf, -1.0])
def test_figures_that_are_no_sample_do_not_enter(bad: float) -> None:
    first = LocalBrokerData().refreshed(usage(), {A: stats(5)})
    odd = stats(7)
    odd.msg_rate_in = bad
    odd.topics = 9
    second = first.refreshed(usage(), {A: odd, B: odd})
    assert second.last_stats[A].msg_rate_in == 5
    assert second.last_stats[A].topics == 9
    assert second.last_stats[B].rate == 0
    assert second.msg_rate_in == 5
    assert decode_report(encode_report(second)) == second


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_use_that_is_no_number_is_not_reported(bad: float) -> None:
    first = LocalBrokerData().refreshed(usage(cpu=50), {})
    odd = SystemResourceUsage(cpu=ResourceUsage(bad, 100), bandwidth_in=ResourceUsage(1, bad))
    second = first.refreshed(odd, {})
    assert second.cpu == ResourceUsage(50, 100)
    assert decode_report(encode_report(second)) == second


@pytest.mark.parametrize("bad", ['"NaN"', '"Infinity"', '"-Infinity"', "-1", "1.7e308"])
def test_sums_that_are_no_figures_are_made_anew(bad: str) -> None:
    """Apache's broker writes them so; a leader would take all bundles off a broker, or shed none
    at all, for an infinite throughput.
    """
    stats = '{"t/n/0x00000000_0xffffffff": {"msgThroughputIn": 5, "msgThroughputOut": 7}}'
    raw = f'{{"msgThroughputIn": {bad}, "msgThroughputOut": {bad}, "lastStats": {stats}}}'
    found = as_local(decode_report(raw.encode()))
    assert (found.msg_throughput_in, found.msg_throughput_out) == (5, 7)
    assert (found.msg_rate_in, found.msg_rate_out) == (0, 0)


def test_a_use_beyond_all_figures_is_none() -> None:
    assert ResourceUsage(1e308, 1e-300).percent() == 0


def test_highest_use() -> None:
    report = LocalBrokerData().refreshed(usage(cpu=50, memory=90, direct=60), {})
    assert report.max_usage() == pytest.approx(0.6)
    assert report.max_usage(Weights()) == pytest.approx(0.5)
    assert report.max_usage(Weights(memory=1)) == pytest.approx(0.9)
    assert report.max_usage(Weights(direct_memory=1)) == pytest.approx(0.6)
    inward = msgspec.structs.replace(report, bandwidth_in=ResourceUsage(70, 100))
    assert inward.max_usage(Weights()) == pytest.approx(0.7)
    assert inward.max_usage(Weights(bandwidth_in=0.5)) == pytest.approx(0.5)
    outward = msgspec.structs.replace(report, bandwidth_out=ResourceUsage(80, 100))
    assert outward.max_usage(Weights(cpu=0, bandwidth_out=0.5)) == pytest.approx(0.4)


APACHE = {
    "webServiceUrl": "http://broker-1:8080",
    "pulsarServiceUrl": "pulsar://broker-1:6650",
    "persistentTopicsEnabled": True,
    "nonPersistentTopicsEnabled": False,
    "cpu": {"usage": 12.5, "limit": 400.0},
    "memory": {"usage": 100.0, "limit": 512.0},
    "directMemory": {"usage": "NaN", "limit": 512.0},
    "bandwidthIn": {"usage": 1.0, "limit": 1e7},
    "bandwidthOut": {"usage": 1.0, "limit": 1e7},
    "msgThroughputIn": 10.0,
    "msgThroughputOut": 20.0,
    "msgRateIn": 1.0,
    "msgRateOut": 2.0,
    "lastUpdate": 1700000000000,
    "startTimestamp": 1690000000000,
    "lastStats": {
        A: {
            "msgRateIn": 1.0,
            "msgThroughputIn": 10.0,
            "msgRateOut": 2.0,
            "msgThroughputOut": 20.0,
            "consumerCount": 2,
            "producerCount": 1,
            "topics": 3,
            "cacheSize": 0,
        }
    },
    "numTopics": 3,
    "numBundles": 1,
    "numConsumers": 2,
    "numProducers": 1,
    "bundles": [A],
    "lastBundleGains": [],
    "lastBundleLosses": [],
    "brokerVersionString": "4.0.7",
    "protocols": {"kafka": "broker-1:9092"},
    "advertisedListeners": {"internal": {"brokerServiceUrl": "pulsar://broker-1:6650"}},
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "bundleStats": {},
    "maxResourceUsage": 0.03,
    "loadReportType": "LocalBrokerData",
}


def test_report_of_apaches_broker() -> None:
    report = decode_report(json.dumps(APACHE).encode())
    assert isinstance(report, LocalBrokerData)
    assert report.last_stats == {A: stats()}
    assert report.max_usage() == pytest.approx(12.5 / 400)
    assert report.protocols == {"kafka": "broker-1:9092"}
    report.direct_memory.usage = 1.0
    back = json.loads(encode_report(report))
    derived = {"bundleStats", "maxResourceUsage"}
    expected = {
        **APACHE,
        "directMemory": {"usage": 1.0, "limit": 512.0},
        "webServiceUrlTls": None,
        "pulsarServiceUrlTls": None,
    }
    assert back == {key: value for key, value in expected.items() if key not in derived}


def test_report_of_the_simple_load_manager() -> None:
    report = LoadReport(
        web_service_url="http://b:8080",
        system_resource_usage=usage(cpu=30),
        bundle_stats={A: stats()},
        allocated_cpu=1.0,
        timestamp=17,
    )
    record = json.loads(encode_report(report))
    assert record["allocatedCPU"] == 1.0
    assert record["preAllocatedCPU"] == 0.0
    assert record["systemResourceUsage"]["cpu"] == {"usage": 30.0, "limit": 100.0}
    back = decode_report(encode_report(report))
    assert back == report
    local = as_local(back)
    assert (local.bundles, local.max_usage(), local.last_update) == ({A}, 0.3, 17)
    assert local.msg_rate_out == 2
    assert as_local(local) is local


def test_report_without_its_type_is_the_modular_one() -> None:
    report = decode_report(b'{"webServiceUrl": "http://b:8080", "other": [1]}')
    assert report == LocalBrokerData(web_service_url="http://b:8080")


@pytest.mark.parametrize("raw", [b"", b"[1]", b'{"lastStats": 5}', b'{"loadReportType": "Other"}'])
def test_node_that_is_no_report(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"truncated|Expected|Invalid"):
        decode_report(raw)


def test_change_since_the_report_was_written() -> None:
    last = LocalBrokerData().refreshed(usage(cpu=20), {A: stats(10)}).written()
    assert report_change(last, last) == 0
    assert report_change(last, last.refreshed(usage(cpu=20), {A: stats(11)})) == pytest.approx(10)
    assert report_change(last, last.refreshed(usage(cpu=35), {A: stats(10)})) == pytest.approx(15)
    assert report_change(last, last.refreshed(usage(cpu=20), {A: stats(5), B: stats(5)})) == 100
    assert report_change(LocalBrokerData(), last) == inf
    full = last.refreshed(usage(cpu=20, memory=99), {A: stats(10)})
    assert report_change(last, full) == 0
    assert report_change(last, full, Weights(memory=1)) == pytest.approx(79)
