"""Where bundles go that nobody owns."""

from __future__ import annotations

import json

import pytest
import trio
from trio.testing import MockClock

from geminga_broker.loadbalance._tests.played import NAMESPACE, bundles, playing, traffic
from geminga_broker.loadbalance.model import broker_path
from geminga_broker.loadbalance.settings import NOOP, LoadBalanceConfig
from geminga_broker.ownership.bundle import BundleId

BUNDLE = BundleId.parse(bundles(4)[0])


async def test_the_least_loaded_broker_is_chosen(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        leader = cluster.brokers["a:8080"]
        assert leader.election.is_leader
        assert leader.manager.centralized
        for host, rate in (("a", 5000.0), ("b", 10.0), ("c", 3000.0)):
            broker = cluster.brokers[f"{host}:8080"]
            broker.stats = {f"x/{host}/0x00000000_0xffffffff": traffic(1, rate=rate)}
        await cluster.tell()
        await trio.sleep(2)
        assert await leader.manager.choose(BUNDLE) == "b:8080"


async def test_non_persistent_topics_go_where_they_are_served(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        leader = cluster.brokers["a:8080"]
        await cluster.tell()
        await trio.sleep(2)
        for host in ("a", "c"):
            found = leader.manager.load.brokers[f"{host}:8080"]
            found.report.non_persistent_topics_enabled = False
        for name in bundles(6):
            leader.manager.has_non_persistent(BundleId.parse(name))
            assert await leader.manager.choose(BundleId.parse(name)) == "b:8080"


async def test_a_burst_doesnt_land_on_one_broker(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c", "d"]) as cluster:
        leader = cluster.brokers["a:8080"]
        chosen = [
            await leader.manager.choose(BundleId.parse(name)) for name in bundles(40, "public/many")
        ]
        assert {each: chosen.count(each) for each in chosen} == dict.fromkeys(cluster.brokers, 10)


async def test_a_choice_is_remembered_until_the_broker_reports(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        leader = cluster.brokers["a:8080"]
        chosen = await leader.manager.choose(BUNDLE)
        assert chosen is not None
        assert {await leader.manager.choose(BUNDLE) for _ in range(10)} == {chosen}
        cluster.brokers[chosen].stats[str(BUNDLE)] = traffic(1)
        await cluster.tell()
        await trio.sleep(2)
        assert leader.manager.load.preallocations == {}
        assert leader.manager.load.holder(str(BUNDLE)) == chosen


async def test_choices_for_a_broker_that_died_are_open_again(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        leader = cluster.brokers["a:8080"]
        for name in bundles(6, "public/many"):
            await leader.manager.choose(BundleId.parse(name))
        dead = cluster.brokers["c:8080"]
        assert dead.id in leader.manager.load.preallocations.values()
        await dead.kill()
        chosen = {
            await leader.manager.choose(BundleId.parse(name)) for name in bundles(6, "public/many")
        }
        assert chosen == {"a:8080", "b:8080"}


async def test_isolation_policies_are_followed_as_they_change(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        leader = cluster.brokers["a:8080"]
        path = "/admin/clusters/standalone/namespaceIsolationPolicies"
        policy = {"namespaces": [NAMESPACE], "primary": ["c"], "secondary": []}
        await cluster.store.put(path, json.dumps({"p": policy}).encode())
        names = bundles(4)
        assert await leader.manager.choose(BundleId.parse(names[0])) == "c:8080"
        policy["primary"] = ["b"]
        await cluster.store.put(path, json.dumps({"p": policy}).encode())
        assert await leader.manager.choose(BundleId.parse(names[1])) == "b:8080"
        policy["primary"] = ["nobody"]
        await cluster.store.put(path, json.dumps({"p": policy}).encode())
        assert await leader.manager.choose(BundleId.parse(names[2])) is None
        assert f"bundle={names[2]} no broker may own it: isolation policy p of" in caplog.text


async def test_namespaces_of_an_anti_affinity_group_go_apart(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        leader = cluster.brokers["a:8080"]
        names = [f"public/n{number}" for number in range(3)]
        for name in names:
            record = {"bundles": {"numBundles": 1}, "namespaceAntiAffinityGroup": "g"}
            await cluster.store.put(f"/admin/local-policies/{name}", json.dumps(record).encode())
        chosen = {
            await leader.manager.choose(BundleId(name, "0x00000000_0xffffffff")) for name in names
        }
        assert chosen == set(cluster.brokers)


async def test_a_follower_decides_itself_if_it_must(autojump_clock: MockClock) -> None:
    """Without a leader; what it knows is some seconds old at most."""
    async with playing(["a", "b", "c"]) as cluster:
        follower = cluster.brokers["c:8080"]
        await follower.manager.choose(BUNDLE)
        for host, rate in (("a", 5000.0), ("b", 10.0), ("c", 3000.0)):
            broker = cluster.brokers[f"{host}:8080"]
            broker.stats = {f"x/{host}/0x00000000_0xffffffff": traffic(1, rate=rate)}
        await cluster.tell()
        await trio.sleep(6)
        other = BundleId("public/other", "0x00000000_0xffffffff")
        assert await follower.manager.choose(other) == "b:8080"


async def test_alone_it_is_this_one(autojump_clock: MockClock) -> None:
    async with playing(["a"], LoadBalanceConfig(enabled=False)) as cluster:
        broker = cluster.brokers["a:8080"]
        assert await broker.manager.choose(BUNDLE) == "a:8080"
        await cluster.store.delete(broker_path("a:8080"))
        assert await broker.manager.choose(BundleId.parse(bundles(4)[1])) == "a:8080", "starting"


async def test_without_a_load_manager_each_broker_takes_what_it_is_asked_for(
    autojump_clock: MockClock,
) -> None:
    async with playing(["a", "b"], LoadBalanceConfig(load_manager=NOOP)) as cluster:
        for broker in cluster.brokers.values():
            assert not broker.manager.centralized
            assert await broker.manager.choose(BUNDLE) == broker.id


async def test_a_broker_that_was_named_for_a_bundle_is_chosen(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        leader = cluster.brokers["a:8080"]
        await trio.sleep(2)
        for host in ("c", "b", "a"):
            leader.manager.prefer(BUNDLE, f"{host}:8080")
            assert await leader.manager.choose(BUNDLE) == f"{host}:8080"


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"[]", b'{"lastStats":7}', b'{"cpu":{"usage":"x"}}', b'{"a":' + b"[" * 5000],
)
async def test_a_malformed_report_is_passed_over(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    """One line, and the other brokers are chosen."""
    async with playing(["a", "b", "c"]) as cluster:
        leader, bad = cluster.brokers["a:8080"], cluster.brokers["b:8080"]
        await bad.kill()
        await trio.sleep(2)
        await cluster.store.put(broker_path("b:8080"), value)
        chosen = {
            await leader.manager.choose(BundleId.parse(name)) for name in bundles(8, "public/many")
        }
        await trio.sleep(600)
        assert chosen == {"a:8080", "c:8080"}
        told = [each for each in caplog.records if "b:8080 can't be read" in each.getMessage()]
        assert len(told) == 1


async def test_a_broker_whose_report_became_malformed_keeps_the_last_one(
    autojump_clock: MockClock,
) -> None:
    async with playing(["a", "b"]) as cluster:
        leader, bad = cluster.brokers["a:8080"], cluster.brokers["b:8080"]
        bad.stats = {bundles(4)[3]: traffic(1)}
        await cluster.tell()
        await trio.sleep(2)
        await bad.write(b"{}}")
        await trio.sleep(600)
        assert leader.manager.load.brokers["b:8080"].report.bundles == {bundles(4)[3]}


async def test_rates_that_are_no_numbers_change_no_average(autojump_clock: MockClock) -> None:
    """As Jackson writes them."""
    async with playing(["a", "b"]) as cluster:
        leader, other = cluster.brokers["a:8080"], cluster.brokers["b:8080"]
        name = bundles(4)[3]
        other.stats = {name: traffic(1, rate=100.0)}
        await cluster.tell()
        await trio.sleep(2)
        for value in ('"NaN"', '"Infinity"', '"-Infinity"', "-5.0"):
            stats = f'{{"{name}":{{"msgRateIn":{value},"msgRateOut":1.0,"topics":3}}}}'
            report = f'{{"loadReportType":"LocalBrokerData","lastStats":{stats}}}'
            await other.write(report.encode())
            await trio.sleep(120)
            data = leader.manager.load.bundle(name)
            assert (data.long_term_data.rate, data.short_term_data.rate) == (100.0, 100.0)


async def test_what_doesnt_change_counts_too(autojump_clock: MockClock) -> None:
    """A load that has ended is reported once; the averages follow it all the same."""
    async with playing(["a", "b"]) as cluster:
        leader, other = cluster.brokers["a:8080"], cluster.brokers["b:8080"]
        name = bundles(4)[3]
        other.stats = {name: traffic(1, rate=1000.0)}
        await cluster.pass_minutes(10)
        assert leader.manager.load.bundle(name).short_term_data.rate == 1000.0
        other.stats = {name: traffic(0, rate=0.0)}
        await other.tell()
        await trio.sleep(30 * 60)
        assert leader.manager.load.bundle(name).short_term_data.rate < 100.0
