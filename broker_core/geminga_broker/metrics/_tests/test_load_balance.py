"""What `/metrics` tells of load balancing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trio.testing import MockClock

from geminga_broker.loadbalance._tests.played import bundles, playing, traffic
from geminga_broker.loadbalance.model import ResourceUsage, SystemResourceUsage
from geminga_broker.loadbalance.settings import SIMPLE, LoadBalanceConfig
from geminga_broker.metrics.load_balance import samples


async def test_use_moves_and_splits(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"]) as cluster:
        broker = cluster.brokers["a:8080"]
        manager = broker.manager
        manager.reporter.report = broker.report
        manager.reporter.host.usage = SystemResourceUsage(cpu=ResourceUsage(30.0, 200.0))
        manager.tasks.unloaded_bundles = 7
        found = {sample.name: sample for sample in samples(manager)}
        assert found["pulsar_lb_cpu_usage"].value == 15.0
        assert found["pulsar_lb_cpu_usage"].labels == (("broker", "a"), ("metric", "loadBalancing"))
        assert found["pulsar_lb_bandwidth_in_usage"].value == 0.0
        assert found["pulsar_lb_unload_bundle_total"].value == 7
        assert found["pulsar_lb_unload_bundle_total"].labels == (("metric", "bundleUnloading"),)
        assert found.keys() == {
            *("pulsar_lb_cpu_usage", "pulsar_lb_memory_usage", "pulsar_lb_directMemory_usage"),
            *("pulsar_lb_bandwidth_in_usage", "pulsar_lb_bandwidth_out_usage"),
            *("pulsar_lb_unload_broker_total", "pulsar_lb_unload_bundle_total"),
            "pulsar_lb_bundles_split_total",
        }


async def test_bundles_if_wanted(autojump_clock: MockClock) -> None:
    config = replace(LoadBalanceConfig(), expose_bundles=True)
    async with playing(["a"], config) as cluster:
        broker = cluster.brokers["a:8080"]
        broker.stats = {bundles(4)[0]: traffic(1, topics=3, rate=10.0)}
        await broker.tell()
        broker.manager.reporter.report = broker.report
        found = {
            sample.name: sample.value
            for sample in samples(broker.manager)
            if ("bundle", bundles(4)[0]) in sample.labels
        }
        assert found["pulsar_bundle_topics_count"] == 3
        assert found["pulsar_bundle_msg_rate_in"] == 5.0
        assert len(found) == 7


async def test_ranks_of_the_simple_load_manager(autojump_clock: MockClock) -> None:
    async with playing(["a"], LoadBalanceConfig(load_manager=SIMPLE)) as cluster:
        broker = cluster.brokers["a:8080"]
        broker.cpu = 42.0
        broker.stats = {bundles(4)[0]: traffic(1, rate=10.0)}
        await broker.tell()
        await broker.manager.tasks.look()
        found = {sample.name: sample.value for sample in samples(broker.manager)}
        assert found["pulsar_lb_load_rank"] == 42
        assert found["pulsar_lb_quota_pct_cpu"] == pytest.approx(160 * 0.025)


async def test_none_while_it_is_off(autojump_clock: MockClock) -> None:
    async with playing(["a"], LoadBalanceConfig(enabled=False)) as cluster:
        assert list(samples(cluster.brokers["a:8080"].manager)) == []
