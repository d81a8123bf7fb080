"""How quotas follow the load."""

from __future__ import annotations

import pytest

from geminga_broker.loadbalance.model import (
    NamespaceBundleStats,
    ResourceQuota,
    ResourceUsage,
    initial_quota,
)
from geminga_broker.loadbalance.reports import LocalBrokerData
from geminga_broker.loadbalance.strategies.quotas import Quotas, differs

MINUTE_MS = 60_000


def _report(at_ms: int, **bundles: NamespaceBundleStats) -> LocalBrokerData:
    return LocalBrokerData(
        last_update=at_ms,
        last_stats=dict(bundles),
        cpu=ResourceUsage(60.0, 100.0),
        memory=ResourceUsage(1200.0, 4000.0),
    )


def _busy(rate: float = 1000.0, *, topics: int = 1) -> NamespaceBundleStats:
    return NamespaceBundleStats(
        msg_rate_in=rate,
        msg_rate_out=rate,
        msg_throughput_in=rate * 100,
        msg_throughput_out=rate * 100,
        topics=topics,
    )


def test_a_bundle_without_a_quota_has_the_average() -> None:
    quotas = Quotas()
    assert quotas.of("b") == initial_quota()
    assert quotas.total(["a", "b"]).msg_rate_in == 80.0


def test_up_in_half_an_hour_down_in_a_day() -> None:
    quotas = Quotas()
    quotas.update({"x": _report(1, b=_busy())})
    assert quotas.of("b").msg_rate_in == 40.0, "no time has passed"
    quotas.update({"x": _report(1 + 15 * MINUTE_MS, b=_busy())})
    assert quotas.of("b").msg_rate_in == pytest.approx(520.0)
    quotas.update({"x": _report(1 + 45 * MINUTE_MS, b=_busy())})
    assert quotas.of("b").msg_rate_in == 1000.0
    quotas.update({"x": _report(1 + (45 + 720) * MINUTE_MS, b=_busy(0.0))})
    assert quotas.of("b").msg_rate_in == pytest.approx(502.5)


def test_figures_stay_within_bounds() -> None:
    quotas = Quotas()
    quotas.update({"x": _report(1, b=_busy(1e9, topics=1_000_000))})
    quotas.update({"x": _report(1 + 60 * MINUTE_MS, b=_busy(1e9, topics=1_000_000))})
    assert quotas.of("b").bandwidth_in == 1_000_000.0
    assert quotas.of("b").memory == 200.0
    quotas.update({"x": _report(1 + 6000 * MINUTE_MS, b=_busy(0.0))})
    least = quotas.of("b")
    assert (least.msg_rate_in, least.msg_rate_out) == (5.0, 5.0)
    assert (least.bandwidth_in, least.bandwidth_out) == (10_000.0, 10_000.0)
    assert least.memory == quotas.memory_factor


def test_what_an_administrator_has_fixed_stays() -> None:
    quotas = Quotas()
    fixed = ResourceQuota(1.0, 2.0, 3.0, 4.0, 5.0, dynamic=False)
    quotas.learn("b", fixed)
    quotas.update({"x": _report(1, b=_busy())})
    quotas.update({"x": _report(1 + 60 * MINUTE_MS, b=_busy())})
    assert quotas.of("b") == fixed
    assert not differs(fixed, ResourceQuota(100.0, 100.0, 1e6, 1e6, 100.0))


def test_a_bundle_that_nobody_reports_is_forgotten() -> None:
    quotas = Quotas()
    quotas.update({"x": _report(1, b=_busy(), c=_busy())})
    quotas.update({"x": _report(2, c=_busy())})
    assert [bundle for bundle, _ in quotas.items()] == ["c"]


def test_the_average_is_that_of_many_bundles() -> None:
    quotas = Quotas()
    few = {f"b{number}": _busy(100.0) for number in range(30)}
    for minute in (0, 60):
        quotas.update({"x": _report(1 + minute * MINUTE_MS, **few)})
    assert quotas.average == initial_quota()
    many = few | {"b30": _busy(100.0)}
    for minute in (120, 180):
        quotas.update({"x": _report(1 + minute * MINUTE_MS, **many)})
    assert quotas.average.msg_rate_in == 100.0
    assert quotas.average.memory < initial_quota().memory


def test_the_cost_of_a_message_is_learnt_from_busy_brokers() -> None:
    quotas = Quotas()
    many = {f"b{number}": _busy(100.0) for number in range(40)}
    for minute in (0, 60):
        quotas.update({"x": _report(1 + minute * MINUTE_MS, **many)})
    # 60 percent of a core for 8 000 messages a second; 1 200 MiB for 40 groups
    assert quotas.cpu_factor == pytest.approx(0.025 * (1 - 60 / 1440) + 0.01 * 60 / 1440)
    assert quotas.memory_factor == 30.0


def test_a_clock_that_went_back_and_rates_that_are_none_change_nothing() -> None:
    quotas = Quotas()
    quotas.update({"x": _report(10_000_000, b=_busy())})
    before = quotas.of("b")
    quotas.update({"x": _report(5, b=_busy())})
    quotas.update({"x": _report(10_000_000, b=_busy(float("nan")))})
    quotas.update({})
    assert before == initial_quota()
    assert quotas.of("b") == initial_quota()


def test_small_changes_are_not_written() -> None:
    old = initial_quota()
    assert not differs(old, old)
    assert not differs(old, ResourceQuota(44.9, 120.0, 100_000.0, 300_000.0, 80.0))
    assert differs(old, ResourceQuota(45.0, 120.0, 100_000.0, 300_000.0, 80.0))
    assert differs(old, ResourceQuota(40.0, 120.0, 100_000.0, 300_000.0, 82.0))
