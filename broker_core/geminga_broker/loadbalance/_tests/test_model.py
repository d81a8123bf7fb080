"""Averages take only samples that are numbers; records have Apache's JSON names."""

from __future__ import annotations

import json
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.loadbalance.model import (
    LONG_SAMPLES,
    SHORT_SAMPLES,
    BundleData,
    NamespaceBundleStats,
    ResourceQuota,
    ResourceUsage,
    TimeAverageBrokerData,
    TimeAverageMessageData,
    broker_average_path,
    broker_path,
    bundle_data_of_quota,
    bundle_data_path,
    decode_bundle_data,
    decode_quota,
    encode,
    initial_quota,
    per_second,
    quota_path,
    total,
)

RATES = st.floats(0, 1e12)


def stats(rate: float, throughput: float = 0.0, topics: int = 1) -> NamespaceBundleStats:
    return NamespaceBundleStats(
        msg_rate_in=rate,
        msg_rate_out=rate,
        msg_throughput_in=throughput,
        msg_throughput_out=throughput,
        topics=topics,
    )


@pytest.mark.parametrize(
    ("count", "interval_s", "rate"),
    [
        (100, 10, 10.0),
        (0, 10, 0.0),
        (100, 0, None),
        (100, -1, None),
        (-1, 10, None),
        (nan, 10, None),
        (inf, 10, None),
        (10, nan, None),
        (10, inf, None),
        (1e308, 1e-9, None),
    ],
)
def test_rate_of_an_interval(count: float, interval_s: float, rate: float | None) -> None:
    assert per_second(count, interval_s) == rate


@pytest.mark.parametrize(
    ("usage", "limit", "percent"),
    [(50, 200, 25), (300, 200, 150), (-1, -1, 0), (1, 0, 0), (nan, 1, 0), (1, inf, 0), (-5, 10, 0)],
)
def test_percent_of_a_resource(usage: float, limit: float, percent: float) -> None:
    assert ResourceUsage(usage, limit).percent() == percent


def test_unseen_bundle_is_assumed_until_its_first_sample() -> None:
    data = BundleData()
    assert data.long_term_data.rate == 100
    assert data.short_term_data.throughput == 100_000
    assert data.update(stats(7, 70, topics=3))
    for average in (data.short_term_data, data.long_term_data):
        assert (average.rate, average.throughput, average.num_samples) == (14, 140, 1)
    assert data.topics == 3


@given(st.lists(RATES, min_size=1, max_size=60))
def test_average_is_the_mean_while_samples_are_few(rates: list[float]) -> None:
    data = BundleData()
    for rate in rates:
        data.update(stats(rate))
    mean = sum(rates) / len(rates)
    assert data.long_term_data.msg_rate_in == pytest.approx(mean, rel=1e-9, abs=1e-6)
    # Apache's formula, with the number of samples bounded.
    short = 0.0
    for at, rate in enumerate(rates):
        count = min(at + 1, SHORT_SAMPLES)
        short = ((count - 1) * short + rate) / count
    assert data.short_term_data.msg_rate_in == pytest.approx(short, rel=1e-9, abs=1e-6)
    assert data.short_term_data.num_samples == min(len(rates), SHORT_SAMPLES)


def test_number_of_samples_is_bounded() -> None:
    data = BundleData()
    for _ in range(LONG_SAMPLES + 5):
        data.update(stats(1))
    assert data.long_term_data.num_samples == LONG_SAMPLES
    data.update(stats(1 + LONG_SAMPLES))
    assert data.long_term_data.msg_rate_in == pytest.approx(2)


@pytest.mark.parametrize("bad", [nan, inf, -inf, -1.0])
@pytest.mark.parametrize(
    "name", ["msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out"]
)
def test_sample_that_is_no_number_changes_nothing(bad: float, name: str) -> None:
    data = BundleData()
    data.update(stats(5, 50))
    before = encode(data)
    sample = stats(6, 60, topics=9)
    setattr(sample, name, bad)
    assert not data.update(sample)
    assert encode(data) == before
    assert total({"a": stats(1, 10), "b": sample}).rate == 2
    assert total({"a": stats(1, 10), "b": sample}).topics == 10


def test_sum_of_rates_that_overflows_is_no_sample() -> None:
    assert not stats(1e308).is_valid()
    assert not BundleData().update(stats(1e308))


def test_json_names_are_apaches() -> None:
    average = {
        "maxSamples": 10,
        "numSamples": 2,
        "msgThroughputIn": 1.5,
        "msgThroughputOut": 2.5,
        "msgRateIn": 3.5,
        "msgRateOut": 4.5,
    }
    record = {
        "shortTermData": average,
        "longTermData": {**average, "maxSamples": 1000},
        "topics": 7,
    }
    data = decode_bundle_data(json.dumps(record).encode())
    assert data.long_term_data == TimeAverageMessageData(1000, 2, 1.5, 2.5, 3.5, 4.5)
    assert json.loads(encode(data)) == record
    assert set(json.loads(encode(TimeAverageBrokerData()))) == {
        f"{term}TermMsg{what}"
        for term in ("short", "long")
        for what in ("ThroughputIn", "ThroughputOut", "RateIn", "RateOut")
    }
    assert json.loads(encode(initial_quota())) == {
        "msgRateIn": 40,
        "msgRateOut": 120,
        "bandwidthIn": 100_000,
        "bandwidthOut": 300_000,
        "memory": 80,
        "dynamic": True,
    }


@pytest.mark.parametrize(
    "record",
    [
        b"{",
        b"[]",
        b'{"shortTermData": {"msgRateIn": "NaN"}}',
        b'{"longTermData": {"msgRateIn": "Infinity"}}',
        b'{"longTermData": {"msgThroughputOut": -1}}',
    ],
)
def test_averages_that_are_no_numbers_are_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"truncated|Expected|no numbers"):
        decode_bundle_data(record)


def test_quota_is_taken_for_a_full_history() -> None:
    quota = decode_quota(b'{"msgRateIn": 1, "msgRateOut": 2, "bandwidthIn": 3, "bandwidthOut": 4}')
    assert quota.dynamic
    assert not quota.is_valid()
    assert quota.is_storable()
    assert not ResourceQuota(1, 1, 1, 1, -1).is_storable()
    assert not ResourceQuota(1, 1, 1, 1, float("inf")).is_storable()
    assert ResourceQuota(1, 1, 1, 1, 1).is_valid()
    data = bundle_data_of_quota(quota)
    assert data.short_term_data == TimeAverageMessageData(SHORT_SAMPLES, SHORT_SAMPLES, 3, 4, 1, 2)
    assert data.long_term_data == TimeAverageMessageData(LONG_SAMPLES, LONG_SAMPLES, 3, 4, 1, 2)


def test_paths() -> None:
    bundle = "public/default/0x00000000_0x40000000"
    assert broker_path("b:8080") == "/loadbalance/brokers/b:8080"
    assert broker_average_path("b:8080") == "/loadbalance/broker-time-average/b:8080"
    assert bundle_data_path(bundle) == f"/loadbalance/bundle-data/{bundle}"
    assert quota_path(bundle) == f"/loadbalance/resource-quota/{bundle}"
