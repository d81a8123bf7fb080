"""When a broker's report is written, and what it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import MockClock

from geminga_broker.loadbalance.collect import BundleStatsCollector
from geminga_broker.loadbalance.model import (
    NamespaceBundleStats,
    ResourceUsage,
    SystemResourceUsage,
    broker_average_path,
    broker_path,
)
from geminga_broker.loadbalance.report import LoadReporter
from geminga_broker.loadbalance.reports import LocalBrokerData, decode_report
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.usage import HostUsage
from geminga_runtime.metadata.api import Stat, StoreUnavailable, ValueTooLarge
from geminga_runtime.metadata.memory import MemoryMetadataStore

ID = "h:8080"
BUNDLE = "public/default/0x00000000_0x80000000"
OTHER = "public/default/0x80000000_0xffffffff"
BASE = LocalBrokerData(web_service_url="http://h:8080", pulsar_service_url="pulsar://h:6650")


class FakeHost(HostUsage):
    """A use of the machine that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu = 10.0
        self.samples = 0

    def sample(self) -> SystemResourceUsage:
        self.samples += 1
        self.usage = SystemResourceUsage(cpu=ResourceUsage(self.cpu, 100.0))
        return self.usage


class FakeCollector(BundleStatsCollector):
    """Loads that a test sets."""

    def __init__(self) -> None:
        super().__init__(dict, list)
        self.stats: dict[str, NamespaceBundleStats] = {}
        self.passes = 0

    def owned(self) -> set[str]:
        return set(self.stats)

    async def collect(self) -> dict[str, NamespaceBundleStats]:
        self.passes += 1
        await trio.lowlevel.checkpoint()
        return {name: msgspec.structs.replace(stats) for name, stats in self.stats.items()}


class Store(MemoryMetadataStore):
    """Counts the writes of the report; may be away, and takes no large values."""

    writes = 0
    away = False
    takes_bytes = 1 << 20

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        if self.away:
            raise StoreUnavailable("away")
        if len(value) > self.takes_bytes:
            raise ValueTooLarge(f"{len(value)} bytes")
        self.writes += path == broker_path(ID)
        return await super().put(path, value, expected_version, epoch=epoch, sequential=sequential)


class Broker:
    def __init__(self, config: LoadBalanceConfig | None = None) -> None:
        self.store = Store()
        self.host = FakeHost()
        self.collector = FakeCollector()
        self.now_ms = 1_000_000
        began_s = trio.current_time()
        self.reporter = LoadReporter(
            self.store,
            self.collector,
            self.host,
            config or LoadBalanceConfig(),
            BASE,
            clock_ms=lambda: self.now_ms + int((trio.current_time() - began_s) * 1000),
        )

    async def seen(self) -> LocalBrokerData:
        """What other brokers read."""
        node = await self.store.get(broker_path(ID))
        assert node is not None
        report = decode_report(node.value)
        assert isinstance(report, LocalBrokerData)
        return report

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.reporter.registered(ID):
            yield


async def test_at_the_start_it_says_who_the_broker_is(autojump_clock: MockClock) -> None:
    broker = Broker()
    async with broker.running():
        seen = await broker.seen()
        assert seen.web_service_url == "http://h:8080"
        assert seen.pulsar_service_url == "pulsar://h:6650"
        assert seen.cpu == ResourceUsage(10.0, 100.0)
        assert seen.last_update == 1_000_000
        # Apache's `perf monitor-brokers` fails without this one.
        node = await broker.store.get(broker_average_path(ID))
        assert node is not None
        assert json.loads(node.value)["longTermMsgRateIn"] == 0
    assert not await broker.store.exists(broker_path(ID))


async def test_nothing_new_is_written_after_the_longest_interval_only(
    autojump_clock: MockClock,
) -> None:
    broker = Broker()
    async with broker.running():
        await trio.sleep(14 * 60)
        assert broker.store.writes == 1
        await trio.sleep(2 * 60)
        assert broker.store.writes == 2
        assert broker.collector.passes == 16


@pytest.mark.parametrize(("cpu", "writes"), [(20.0, 1), (21.0, 2)])
async def test_use_is_compared_in_points(
    autojump_clock: MockClock, cpu: float, writes: int
) -> None:
    broker = Broker()
    async with broker.running():
        broker.host.cpu = cpu
        await trio.sleep(70)
        assert broker.store.writes == writes
        assert (await broker.seen()).cpu.usage == (cpu if writes == 2 else 10.0)


async def test_a_bundle_that_came_is_told_with_the_next_turn(autojump_clock: MockClock) -> None:
    broker = Broker()
    async with broker.running():
        await trio.sleep(7)
        broker.collector.stats[BUNDLE] = NamespaceBundleStats(msg_rate_in=5.0, topics=3)
        await trio.sleep(4)
        seen = await broker.seen()
        assert seen.bundles == {BUNDLE}
        assert seen.last_bundle_gains == {BUNDLE}
        assert seen.num_topics == 3
        assert broker.reporter.report.last_bundle_gains == set()


async def test_what_came_and_went_adds_up_until_it_is_told(autojump_clock: MockClock) -> None:
    broker = Broker(LoadBalanceConfig(report_change_percent=100_000))
    one = NamespaceBundleStats(msg_rate_in=1.0)
    broker.collector.stats = {BUNDLE: one}
    async with broker.running():
        await trio.sleep(6)
        broker.collector.stats = {BUNDLE: one, OTHER: one}
        await trio.sleep(60)
        broker.collector.stats = {OTHER: one}
        await trio.sleep(900)
        seen = await broker.seen()
        assert seen.last_bundle_gains == {OTHER}
        assert seen.last_bundle_losses == {BUNDLE}


@pytest.mark.parametrize(("rate", "writes"), [(109.0, 2), (112.0, 3)])
async def test_rates_are_compared_in_percent(
    autojump_clock: MockClock, rate: float, writes: int
) -> None:
    broker = Broker()
    broker.collector.stats[BUNDLE] = NamespaceBundleStats(msg_rate_in=100.0, msg_rate_out=0.0)
    async with broker.running():
        await trio.sleep(10)
        assert broker.store.writes == 2
        broker.collector.stats[BUNDLE] = NamespaceBundleStats(msg_rate_in=rate)
        await trio.sleep(120)
        assert broker.store.writes == writes


async def test_without_load_balancing_nothing_is_looked_at(autojump_clock: MockClock) -> None:
    """A standalone pays nothing for it."""
    broker = Broker(LoadBalanceConfig(enabled=False))
    broker.collector.stats[BUNDLE] = NamespaceBundleStats(msg_rate_in=100.0)
    async with broker.running():
        await trio.sleep(3600)
        assert (broker.store.writes, broker.collector.passes, broker.host.samples) == (1, 0, 0)
        assert not await broker.store.exists(broker_average_path(ID))
        broker.store.expire_session()
        await trio.sleep(10)
        assert (await broker.seen()).web_service_url == "http://h:8080"
        asked = await broker.reporter.refresh()
        assert (asked.cpu.usage, asked.num_bundles) == (10.0, 1)


async def test_in_a_new_session_the_last_report_is_told_again(autojump_clock: MockClock) -> None:
    broker = Broker()
    broker.collector.stats[BUNDLE] = NamespaceBundleStats(msg_rate_in=100.0)
    async with broker.running():
        await trio.sleep(10)
        for _ in range(3):
            broker.store.expire_session()
            assert not await broker.store.exists(broker_path(ID))
            await trio.sleep(0.1)
            assert (await broker.seen()).bundles == {BUNDLE}


async def test_a_store_that_is_away_is_told_when_it_is_back(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    async with broker.running():
        broker.store.away = True
        broker.collector.stats[BUNDLE] = NamespaceBundleStats(msg_rate_in=100.0)
        await trio.sleep(100)
        broker.store.away = False
        await trio.sleep(10)
        assert (await broker.seen()).last_bundle_gains == {BUNDLE}
    told = [record for record in caplog.records if "can't be written" in record.message]
    assert len(told) == 1


async def test_of_too_many_bundles_the_most_loaded_are_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    broker.store.takes_bytes = 30_000
    for number in range(200):
        name = f"public/ns-{number}/0x00000000_0xffffffff"
        broker.collector.stats[name] = NamespaceBundleStats(
            msg_throughput_in=float(number), msg_rate_in=1.0, topics=1
        )
    async with broker.running():
        await trio.sleep(10)
        seen = await broker.seen()
        assert seen.num_bundles == 200
        assert seen.num_topics == 200
        assert 20 < len(seen.last_stats) < 200
        assert seen.bundles == seen.last_stats.keys()
        least = min(stats.msg_throughput_in for stats in seen.last_stats.values())
        assert least == 200 - len(seen.last_stats)
        await trio.sleep(3600)
    assert sum("too large" in record.message for record in caplog.records) == 1


async def test_a_clock_that_is_set_back_holds_nothing_up(autojump_clock: MockClock) -> None:
    broker = Broker()
    async with broker.running():
        broker.now_ms -= 500_000
        await trio.sleep(6)
        assert broker.store.writes == 2
        assert (await broker.seen()).last_update < 1_000_000


async def test_rates_that_are_no_numbers_are_not_told(autojump_clock: MockClock) -> None:
    broker = Broker()
    broker.collector.stats[BUNDLE] = NamespaceBundleStats(msg_rate_in=100.0, topics=1)
    async with broker.running():
        await trio.sleep(10)
        broker.collector.stats[BUNDLE] = NamespaceBundleStats(msg_rate_in=float("nan"), topics=9)
        await trio.sleep(920)
        seen = await broker.seen()
        assert seen.msg_rate_in == 100.0
        assert seen.num_topics == 9


async def test_between_two_passes_only_the_host_is_new(autojump_clock: MockClock) -> None:
    """The loads of bundles are not summed up again each turn: there may be thousands."""
    broker = Broker()
    broker.collector.stats[BUNDLE] = NamespaceBundleStats(msg_rate_in=100.0, topics=1)
    async with broker.running():
        await trio.sleep(10)
        loads = broker.reporter.report.last_stats
        broker.host.usage = SystemResourceUsage(cpu=ResourceUsage(33.0, 100.0))
        await trio.sleep(10)
        assert broker.reporter.report.last_stats is loads
        assert broker.reporter.report.cpu.usage == 33.0


async def test_apaches_brokers_find_all_that_they_read(autojump_clock: MockClock) -> None:
    """The fields of LocalBrokerData that its getters derive nothing for."""
    broker = Broker()
    async with broker.running():
        node = await broker.store.get(broker_path(ID))
        assert node is not None
        found = json.loads(node.value)
    assert found["loadReportType"] == "LocalBrokerData"
    assert set(found) >= {
        *("webServiceUrl", "webServiceUrlTls", "pulsarServiceUrl", "pulsarServiceUrlTls"),
        *("persistentTopicsEnabled", "nonPersistentTopicsEnabled", "cpu", "memory"),
        *("directMemory", "bandwidthIn", "bandwidthOut", "msgThroughputIn", "msgThroughputOut"),
        *("msgRateIn", "msgRateOut", "lastUpdate", "lastStats", "numTopics", "numBundles"),
        *("numConsumers", "numProducers", "bundles", "lastBundleGains", "lastBundleLosses"),
        *("brokerVersionString", "protocols", "advertisedListeners", "loadManagerClassName"),
        "startTimestamp",
    }


async def test_a_broker_that_leaves_doesnt_come_back(autojump_clock: MockClock) -> None:
    broker = Broker()
    async with broker.running():
        await broker.reporter.leave()
        assert await broker.store.get(broker_path(ID)) is None
        broker.reporter.reconfigure(LoadBalanceConfig())  # would be written soon
        await trio.sleep(60)
        assert await broker.store.get(broker_path(ID)) is None
        await broker.reporter.leave()
    async with broker.running():
        assert (await broker.seen()).web_service_url == "http://h:8080"


async def test_two_brokers_of_the_same_id_both_say_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Both are idle, so that the first one has no news to write; the second has just started."""
    first, second = Broker(), Broker()
    second.reporter._store = first.store.another_session()
    async with first.running():
        await trio.sleep(60)
        async with second.running():
            await trio.sleep(30)
    said = [each for each in caplog.records if "has the id of this one, h:8080" in each.message]
    assert len(said) == 2
