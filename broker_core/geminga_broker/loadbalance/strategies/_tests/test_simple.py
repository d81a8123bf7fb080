"""The simple load manager."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from geminga_broker.loadbalance._tests.played import bundles, playing, traffic
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.model import (
    DEFAULT_QUOTA_PATH,
    ResourceQuota,
    ResourceUsage,
    decode_quota,
    encode,
    quota_path,
)
from geminga_broker.loadbalance.reports import LoadReport, LocalBrokerData, decode_report
from geminga_broker.loadbalance.settings import (
    LEAST_MSG_PER_SECOND,
    MODULAR,
    NOOP,
    SIMPLE,
    WEIGHTED_RANDOM,
    LoadBalanceConfig,
)
from geminga_broker.loadbalance.strategies.simple import SimpleStrategy
from geminga_broker.ownership.bundle import BundleId

CONFIG = LoadBalanceConfig(load_manager=SIMPLE)
NEW = "public/new/0x00000000_0xffffffff"


def _strategy(config: LoadBalanceConfig = CONFIG, **cpu: float) -> SimpleStrategy:
    """Brokers with that use of their CPUs, each with one bundle unless it uses nothing."""
    strategy = SimpleStrategy(LoadData(), config, random.Random(3))
    for broker_id, percent in cpu.items():
        stats = {f"public/{broker_id}/0x00000000_0xffffffff": traffic(0.1)} if percent else {}
        report = LocalBrokerData(
            cpu=ResourceUsage(percent, 100.0),
            memory=ResourceUsage(100.0, 10_000.0),
            last_stats=stats,
            last_update=1,
        )
        strategy.load.report(broker_id, report, 0.0)
    strategy.reports_read(1)
    return strategy


def test_brokers_are_filled_up_before_an_idle_one_begins() -> None:
    strategy = _strategy(a=20.0, b=40.0, c=0.0)
    assert strategy.choose(NEW, ["a", "b", "c"], 0.0) == "a"
    assert strategy.choose(NEW, ["a", "b", "c"], 0.0) == "a", "is remembered"
    strategy = _strategy(a=60.0, b=70.0, c=0.0)
    assert strategy.choose(NEW, ["a", "b", "c"], 0.0) == "c"


def test_the_least_loaded_of_busy_ones() -> None:
    strategy = _strategy(a=70.0, b=60.0, c=80.0)
    assert strategy.choose(NEW, ["a", "b", "c"], 0.0) == "b"


def test_what_was_chosen_counts_before_it_is_reported() -> None:
    strategy = _strategy(a=0.0, b=0.0, c=0.0)
    chosen = [
        strategy.choose(f"public/n{number}/0x00000000_0xffffffff", ["a", "b", "c"], 0.0)
        for number in range(60)
    ]
    assert min(Counter(chosen).values()) > 5


def test_by_messages_a_second() -> None:
    config = replace(CONFIG, simple_placement_strategy=LEAST_MSG_PER_SECOND, underloaded_percent=99)
    strategy = _strategy(config, a=90.0, b=95.0)
    strategy.quotas.learn("x", ResourceQuota())
    strategy.load.preallocate("public/x/0x00000000_0xffffffff", "a", 0.0)
    assert strategy.choose(NEW, ["a", "b"], 0.0) == "b", "it has less quota"


def test_by_chance_and_room() -> None:
    config = replace(CONFIG, simple_placement_strategy=WEIGHTED_RANDOM)
    strategy = _strategy(config, a=10.0, b=90.0, c=100.0)
    assert not strategy.centralized
    chosen: Counter[str | None] = Counter()
    for number in range(200):
        bundle = f"public/n{number}/0x00000000_0xffffffff"
        chosen[strategy.choose(bundle, ["a", "b", "c"], 0.0)] += 1
        strategy.load.unallocate(bundle)
    assert chosen["a"] > 150
    assert chosen["c"] == 0
    assert 0 < chosen["b"] < 20


def test_nobody_is_permitted() -> None:
    assert _strategy().choose(NEW, ["unknown"], 0.0) is None


@pytest.mark.parametrize(
    ("cpu", "moved"),
    [
        ({"a": 86.0, "b": 60.0}, True),
        ({"a": 85.0, "b": 60.0}, False),
        ({"a": 86.0, "b": 65.0}, False),
    ],
)
def test_one_bundle_leaves_an_overloaded_broker(cpu: dict[str, float], *, moved: bool) -> None:
    strategy = _strategy(CONFIG, **cpu)
    heavy = bundles(4)[1]
    stats = {bundles(4)[0]: traffic(1, rate=10.0), heavy: traffic(1, rate=1000.0)}
    report = LocalBrokerData(cpu=ResourceUsage(cpu["a"], 100.0), last_stats=stats, last_update=2)
    strategy.load.report("a", report, 0.0)
    moves = strategy.plan(["a", "b"], 10.0, 0)
    assert [(move.bundle, move.source, move.destination) for move in moves] == (
        [(heavy, "a", "")] if moved else []
    )
    assert strategy.plan(["a", "b"], 70.0, 0) == [], "not again within the grace period"
    for move in moves:
        strategy.failed(move)
        assert strategy.plan(["a", "b"], 130.0, 0) == moves


def test_the_only_bundle_stays() -> None:
    assert _strategy(a=99.0, b=10.0).plan(["a", "b"], 10.0, 0) == []


def test_a_report_in_apaches_form() -> None:
    strategy = _strategy(a=90.0)
    made = strategy.form(
        LocalBrokerData(
            web_service_url="http://h:8080",
            cpu=ResourceUsage(90.0, 100.0),
            last_stats={NEW: traffic(1, topics=7)},
            bundles={NEW},
            last_update=5,
        )
    )
    assert isinstance(made, LoadReport)
    assert made.name == "h:8080"
    assert made.over_loaded
    assert not made.under_loaded
    assert made.allocated_msg_rate_in == 40.0
    assert made.allocated_cpu == pytest.approx(160 * 0.025)
    assert made.timestamp == 5


async def test_in_a_cluster_it_sheds_and_writes_quotas(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"], CONFIG) as cluster:
        busy = cluster.brokers["b:8080"]
        names = bundles(8, "public/of-b")
        busy.stats = {name: traffic(0.5, rate=2000.0) for name in names}
        busy.cpu = 95.0
        fixed = ResourceQuota(1.0, 1.0, 1.0, 1.0, 1.0, dynamic=False)
        await cluster.store.put(quota_path(names[0]), encode(fixed))
        began_ms = int(time.time() * 1000)  # by which the first reports may be dated
        for minute in range(70):
            await trio.sleep(60)
            for broker in cluster.brokers.values():
                broker.report.last_update = began_ms + minute * 60_000
                await broker.tell()
        assert len(busy.stats) < 8
        assert all(call.split(" ")[2] == "" for call in busy.calls)
        node = await cluster.store.get(quota_path(names[0]))
        assert node is not None
        assert decode_quota(node.value) == fixed
        stayed = next(name for name in names[1:] if name in busy.stats)
        node = await cluster.store.get(quota_path(stayed))
        assert node is not None
        assert decode_quota(node.value).msg_rate_in > 500
        node = await cluster.store.get("/loadbalance/settings/load_factor_cpu")
        assert node is not None
        assert float(json.loads(node.value)["loadFactorCPU"]) > 0
        assert not await cluster.store.exists(DEFAULT_QUOTA_PATH), "as it was"


async def test_each_broker_has_its_own_bundles_split(autojump_clock: MockClock) -> None:
    """Also one that is alone."""
    async with playing(["a"], CONFIG) as cluster:
        broker = cluster.brokers["a:8080"]
        broker.stats = {bundles(4)[0]: traffic(1, topics=1001), bundles(4)[1]: traffic(1, topics=9)}
        await broker.tell()
        broker.manager.reporter.report = broker.report
        await trio.sleep(70)
        assert broker.calls == [f"split {bundles(4)[0]} true"]


async def test_the_load_manager_is_changed_while_it_runs(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"]) as cluster:
        manager = cluster.brokers["a:8080"].manager
        assert await manager.choose(BundleId.parse(NEW)) is not None
        kinds = [type(manager.reporter.form(manager.reporter.report))]
        manager.reconfigure(replace(manager.config, load_manager=SIMPLE))
        kinds.append(type(manager.reporter.form(manager.reporter.report)))
        assert kinds == [LocalBrokerData, LoadReport]
        assert await manager.choose(BundleId.parse(bundles(4)[0])) in cluster.brokers
        manager.reconfigure(replace(manager.config, load_manager=NOOP))
        assert await manager.choose(BundleId.parse(bundles(4)[1])) == "a:8080"
        manager.reconfigure(replace(manager.config, load_manager=MODULAR))
        assert manager.reporter.report.load_manager_class_name == MODULAR


def test_what_it_writes_is_read_back() -> None:
    """Beside brokers with the other load manager."""
    from geminga_broker.loadbalance.reports import as_local, encode_report

    strategy = _strategy(a=90.0)
    report = LocalBrokerData(last_stats={NEW: traffic(1, topics=7)}, last_update=5)
    found = as_local(decode_report(encode_report(strategy.form(report))))
    assert found.last_stats == report.last_stats
    assert found.num_topics == 7
