"""The load of bundles, summed over the loaded topics."""

from __future__ import annotations

import time

import pytest
import trio
from trio.testing import MockClock

from geminga_broker._tests.fake_client import FakeConnection, producer_request, subscribe_request
from geminga_broker._tests.topic_world import World
from geminga_broker.loadbalance.collect import BundleStatsCollector
from geminga_broker.loadbalance.model import NamespaceBundleStats
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.topic.topic import Topic

NAMESPACE = "public/default"
LOW = BundleId(NAMESPACE, "0x00000000_0x80000000")
HIGH = BundleId(NAMESPACE, "0x80000000_0xffffffff")


def _named(bundle: BundleId, domain: str = "persistent") -> str:
    """A topic's name in a bundle."""
    names = (f"{domain}://{bundle.namespace}/topic-{number}" for number in range(1000))
    return next(name for name in names if bundle.covers(name))


async def test_rates_and_sessions_are_summed_by_bundle(
    autojump_clock: MockClock, world: World
) -> None:
    topics: dict[str, Topic] = {}
    for name in (_named(LOW), _named(HIGH)):
        topics[name] = world.topic(name)
    other = _named(LOW, "non-persistent")
    topics[other] = world.passing(other)
    stored = topics[_named(LOW)]
    connection = FakeConnection()
    await stored.add_producer(producer_request(connection))
    consumers = [
        await stored.subscribe(subscribe_request(connection, number, f"s{number % 2}", sub_type=1))
        for number in range(3)
    ]
    collector = BundleStatsCollector(lambda: topics, lambda: [LOW, HIGH])
    await trio.sleep(10)
    stored.rates.add(600, 6000)
    topics[other].rates.add(20, 100)
    for consumer in consumers:
        consumer.rates.add(100, 1000)
    found = await collector.collect()
    assert found == {
        str(LOW): NamespaceBundleStats(
            msg_rate_in=62.0,
            msg_throughput_in=610.0,
            msg_rate_out=30.0,
            msg_throughput_out=300.0,
            consumer_count=3,
            producer_count=1,
            topics=2,
        ),
        str(HIGH): NamespaceBundleStats(topics=1),
    }


async def test_bundles_without_topics_are_told_and_topics_without_bundle_are_not(
    world: World,
) -> None:
    foreign = "persistent://other/namespace/t"
    topics: dict[str, Topic] = {
        name: world.topic(name) for name in (_named(LOW), _named(HIGH), foreign)
    }
    empty = BundleId("a/b", "0x00000000_0xffffffff")
    found = await BundleStatsCollector(lambda: topics, lambda: [HIGH, empty]).collect()
    assert {bundle: stats.topics for bundle, stats in found.items()} == {
        str(HIGH): 1,
        str(empty): 0,
    }


@pytest.mark.alone
@pytest.mark.slow
async def test_many_topics_dont_hold_up_the_loop(world: World) -> None:
    """In CPU time: what else the machine does must not fail the test."""
    topics: dict[str, Topic] = {}
    for number in range(20_000):
        name = f"persistent://{NAMESPACE}/t-{number}"
        topics[name] = world.topic(name)
    longest_s = 0.0
    done = False

    async def watch() -> None:
        nonlocal longest_s
        while not done:
            began_s = time.thread_time()
            await trio.lowlevel.checkpoint()
            longest_s = max(longest_s, time.thread_time() - began_s)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        found = await BundleStatsCollector(lambda: topics, lambda: [LOW, HIGH]).collect()
        done = True
    assert sum(stats.topics for stats in found.values()) == 20_000
    assert longest_s < 0.05
