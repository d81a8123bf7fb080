"""What the leader does about the load, and what becomes of it when the leader dies."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.loadbalance._tests.played import (
    NAMESPACE,
    Cluster,
    bundles,
    playing,
    traffic,
)
from geminga_broker.loadbalance.model import (
    BROKER_AVERAGE_PATH,
    BUNDLE_DATA_PATH,
    NamespaceBundleStats,
    broker_average_path,
    bundle_data_path,
    decode_bundle_data,
    quota_path,
)
from geminga_broker.loadbalance.settings import LoadBalanceConfig

SLOW = LoadBalanceConfig(shedding=False)


def _fill(cluster: Cluster, host: str, count: int, mib: float, cpu: float) -> list[str]:
    """Give a broker bundles of that traffic."""
    broker = cluster.brokers[f"{host}:8080"]
    names = bundles(count, f"public/of-{host}")
    broker.stats = {name: traffic(mib) for name in names}
    broker.cpu = cpu
    return names


def _all_held(cluster: Cluster) -> list[str]:
    """Each bundle as often as somebody has it."""
    return sorted(name for names in cluster.holders().values() for name in names)


def _calls(cluster: Cluster) -> list[str]:
    return [call for broker in cluster.brokers.values() for call in broker.calls]


@pytest.mark.parametrize("busy", ["a", "b"])
async def test_a_busy_broker_gives_bundles_to_others(autojump_clock: MockClock, busy: str) -> None:
    """The leader its own, and another broker's by a call, with where they go."""
    async with playing(["a", "b", "c"]) as cluster:
        names = _fill(cluster, busy, 16, 10.0, 90.0)
        await cluster.pass_minutes(3)
        broker = cluster.brokers[f"{busy}:8080"]
        assert broker.calls
        assert all(call.startswith("unload ") for call in broker.calls)
        held = cluster.holders()
        assert len(held[broker.id]) < 16
        assert _all_held(cluster) == sorted(names)
        moved = {call.split()[1]: call.split()[2] for call in broker.calls}
        for name, destination in moved.items():
            assert name in held[destination]
        leader = cluster.brokers["a:8080"].manager.tasks
        assert leader.unloaded_bundles == len(moved)
        assert leader.unloaded_brokers >= 1


async def test_only_the_leader_does_anything(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        _fill(cluster, "b", 16, 10.0, 90.0)
        await cluster.pass_minutes(5)
        for host in ("b", "c"):
            assert cluster.brokers[f"{host}:8080"].manager.tasks.unloaded_bundles == 0
            assert cluster.brokers[f"{host}:8080"].manager.load.brokers == {}, "reads nothing"


@pytest.mark.parametrize("config", [LoadBalanceConfig(enabled=False), SLOW])
async def test_what_is_switched_off_is_not_done(
    autojump_clock: MockClock, config: LoadBalanceConfig
) -> None:
    async with playing(["a", "b"], config) as cluster:
        _fill(cluster, "b", 16, 10.0, 90.0)
        await cluster.pass_minutes(10)
        assert _calls(cluster) == []


async def test_one_broker_alone_sheds_and_splits_nothing(autojump_clock: MockClock) -> None:
    async with playing(["a"]) as cluster:
        _fill(cluster, "a", 16, 1000.0, 99.0)
        cluster.brokers["a:8080"].stats[bundles(4)[0]] = traffic(1, topics=5000)
        await cluster.pass_minutes(30)
        assert _calls(cluster) == []


async def test_a_move_that_fails_may_be_tried_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        _fill(cluster, "b", 16, 10.0, 90.0)
        busy = cluster.brokers["b:8080"]
        busy.answers = 500
        await cluster.pass_minutes(2)
        assert len(cluster.holders()["b:8080"]) == 16
        assert cluster.brokers["a:8080"].manager.load.preallocations == {}
        assert any("is not moved from b:8080" in each.getMessage() for each in caplog.records)
        busy.answers = 204
        await cluster.pass_minutes(2)
        assert len(cluster.holders()["b:8080"]) < 16


async def test_a_broker_that_doesnt_answer_doesnt_hold_up_others(
    autojump_clock: MockClock,
) -> None:
    async with playing(["a", "b", "c", "d"]) as cluster:
        _fill(cluster, "b", 3, 10.0, 90.0)
        _fill(cluster, "c", 16, 10.0, 90.0)
        cluster.brokers["b:8080"].takes_s = inf
        await cluster.pass_minutes(5)
        assert len(cluster.holders()["b:8080"]) == 3
        assert len(cluster.holders()["c:8080"]) < 16


async def test_apaches_brokers_are_not_told_where_a_bundle_goes(autojump_clock: MockClock) -> None:
    """They would send the call back to the leader; its clients ask that."""
    async with playing(["a", "b", "c"]) as cluster:
        names = _fill(cluster, "b", 16, 10.0, 90.0)
        busy = cluster.brokers["b:8080"]
        busy.report.broker_version_string = "4.0.7"
        await cluster.pass_minutes(3)
        assert busy.calls
        for call in busy.calls:
            _, name, destination = call.split(" ")
            assert destination == ""
            assert name not in busy.stats
        assert _all_held(cluster) == sorted(names)


async def test_a_leader_that_dies_in_the_midst_of_shedding(autojump_clock: MockClock) -> None:
    """The next one goes on with what is reported; nothing is lost, nothing moved twice."""
    async with playing(["a", "b", "c"]) as cluster:
        names = _fill(cluster, "b", 32, 10.0, 95.0)
        busy, old = cluster.brokers["b:8080"], cluster.brokers["a:8080"]
        busy.takes_s = 20.0
        await cluster.pass_minutes(1)
        with trio.fail_after(600):
            await busy.called.wait()
        asked = len(busy.calls)
        await old.kill()
        await wait_all_tasks_blocked()
        assert busy.election.is_leader or cluster.brokers["c:8080"].election.is_leader
        await trio.sleep(30)
        assert len(busy.calls) == asked, "what the dead one had planned is forgotten"
        del cluster.brokers[old.id]
        busy.takes_s = 0.5
        await cluster.pass_minutes(10)
        assert _all_held(cluster) == sorted(names)
        assert len(cluster.holders()["b:8080"]) < 32


async def test_a_leader_that_loses_its_session_stops(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        _fill(cluster, "b", 64, 10.0, 95.0)
        busy, old = cluster.brokers["b:8080"], cluster.brokers["a:8080"]
        busy.takes_s = 30.0
        await cluster.pass_minutes(1)
        with trio.fail_after(600):
            await busy.called.wait()
        asked = len(busy.calls)
        old.store.expire_session()
        old.store.set_available(False)
        await wait_all_tasks_blocked()
        assert not old.election.is_leader
        await trio.sleep(45)
        assert len(busy.calls) == asked
        assert old.manager.tasks.unloaded_bundles == 0


# ---- splits ----


async def test_a_large_bundle_is_split_and_unloaded(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"], SLOW) as cluster:
        large = bundles(4)[2]
        broker = cluster.brokers["b:8080"]
        broker.stats = {large: traffic(1, topics=1001), bundles(4)[0]: traffic(1, topics=1000)}
        await cluster.store.put(bundle_data_path(large), b'{"topics":1}')
        await cluster.pass_minutes(5)
        assert broker.calls == [f"split {large} true"]
        assert len(broker.stats) == 3
        leader = cluster.brokers["a:8080"].manager
        assert leader.tasks.split_bundles == 1
        assert large not in leader.load.bundles
        assert not await cluster.store.exists(bundle_data_path(large))


async def test_only_topics_that_can_be_parted_are_split(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"], SLOW) as cluster:
        broker = cluster.brokers["b:8080"]
        broker.stats = {bundles(4)[0]: traffic(10_000, topics=1, rate=1e6)}
        await cluster.pass_minutes(5)
        assert broker.calls == []


@pytest.mark.parametrize(("key", "unload"), [(True, "true"), (False, "false")])
async def test_a_split_bundle_is_unloaded_if_wanted(
    autojump_clock: MockClock, *, key: bool, unload: str
) -> None:
    async with playing(["a", "b"], replace(SLOW, unload_split=key)) as cluster:
        broker = cluster.brokers["b:8080"]
        broker.stats = {bundles(4)[0]: traffic(1, topics=1001)}
        await cluster.pass_minutes(2)
        assert broker.calls == [f"split {bundles(4)[0]} {unload}"]


async def test_a_split_bundle_that_may_be_nowhere_else_stays(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"], SLOW) as cluster:
        policy = {"p": {"namespaces": [NAMESPACE], "primary": ["b"], "secondary": []}}
        path = "/admin/clusters/standalone/namespaceIsolationPolicies"
        await cluster.store.put(path, json.dumps(policy).encode())
        broker = cluster.brokers["b:8080"]
        broker.stats = {bundles(4)[0]: traffic(1, topics=1001)}
        await cluster.pass_minutes(2)
        assert broker.calls == [f"split {bundles(4)[0]} false"]


async def test_a_namespace_is_not_split_beyond_its_limit(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"], replace(SLOW, namespace_bundles_max=6)) as cluster:
        broker = cluster.brokers["b:8080"]
        broker.stats = {name: traffic(1, topics=100_000) for name in bundles(4)}
        await cluster.pass_minutes(30)
        assert len(broker.calls) == 2
        assert len(broker.stats) == 6


async def test_a_split_that_fails_is_tried_again_after_a_while(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"], SLOW) as cluster:
        broker = cluster.brokers["b:8080"]
        broker.stats = {bundles(4)[0]: traffic(1, topics=1001)}
        broker.answers = 412
        await cluster.pass_minutes(9)
        assert len(broker.calls) == 1
        broker.answers = 204
        await cluster.pass_minutes(5)
        assert len(broker.calls) == 2
        assert len(broker.stats) == 2


async def test_a_report_of_a_bundle_that_is_gone_splits_nothing(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"], SLOW) as cluster:
        broker = cluster.brokers["b:8080"]
        broker.stats = {
            f"{NAMESPACE}/0x00000000_0x20000000": traffic(1, topics=1001),
            "no/where/0x00000000_0xffffffff": traffic(1, topics=1001),
            "odd": traffic(1, topics=1001),
            "v1/cluster/namespace/0x00000000_0xffffffff": traffic(1, topics=1001),
        }
        await cluster.pass_minutes(5)
        assert broker.calls == []


async def test_a_leader_that_dies_in_the_midst_of_a_split(autojump_clock: MockClock) -> None:
    """The owner splits all the same, and the next leader doesn't split it again."""
    async with playing(["a", "b", "c"], SLOW) as cluster:
        broker, old = cluster.brokers["b:8080"], cluster.brokers["a:8080"]
        large = bundles(4)[2]
        broker.stats = {large: traffic(1, topics=1001)}
        broker.takes_s = 20.0
        await broker.tell()
        with trio.fail_after(300):
            await broker.called.wait()
        await old.kill()
        del cluster.brokers[old.id]
        broker.takes_s = 0.5
        await cluster.split(large, broker)
        await cluster.pass_minutes(30)
        assert broker.calls == [f"split {large} true"]
        assert len(broker.stats) == 2


# ---- what is written ----


async def test_averages_are_written_for_the_next_leader(autojump_clock: MockClock) -> None:
    config = replace(LoadBalanceConfig(), averages_written_per_broker=3)
    async with playing(["a", "b"], config) as cluster:
        for host in ("a", "b"):
            names = bundles(8, f"public/of-{host}")
            cluster.brokers[f"{host}:8080"].stats = {
                name: traffic(float(number), rate=100.0) for number, name in enumerate(names)
            }
        gone = "public/gone/0x00000000_0xffffffff"
        await cluster.store.put(bundle_data_path(gone), b"{}")
        await cluster.store.put(broker_average_path("dead:8080"), b"{}")
        await cluster.pass_minutes(16)
        written = {
            host: list(await cluster.store.children(f"{BUNDLE_DATA_PATH}/public/of-{host}"))
            for host in ("a", "b")
        }
        most = [name.rpartition("/")[2] for name in bundles(8)[5:]]
        assert written == {"a": most, "b": most}
        assert list(await cluster.store.children(f"{BUNDLE_DATA_PATH}/public")) == ["of-a", "of-b"]
        assert list(await cluster.store.children(BROKER_AVERAGE_PATH)) == ["a:8080", "b:8080"]
        node = await cluster.store.get(broker_average_path("b:8080"))
        assert node is not None
        assert json.loads(node.value)["longTermMsgRateIn"] == 400.0


async def test_a_new_leader_knows_what_the_one_before_had_learnt(
    autojump_clock: MockClock,
) -> None:
    async with playing(["a", "b", "c"], SLOW) as cluster:
        name = bundles(4)[0]
        cluster.brokers["c:8080"].stats = {name: traffic(1, rate=1000.0)}
        await cluster.pass_minutes(40)
        await cluster.brokers["a:8080"].kill()
        del cluster.brokers["a:8080"]
        cluster.brokers["c:8080"].stats = {name: traffic(1, rate=0.0)}
        await cluster.pass_minutes(2)
        leader = next(each for each in cluster.brokers.values() if each.election.is_leader)
        data = leader.manager.load.bundle(name)
        assert data.long_term_data.num_samples > 50
        assert 800 < data.long_term_data.rate < 1000


async def test_an_unseen_bundle_begins_with_its_quota(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"]) as cluster:
        name = bundles(4)[0]
        quota = {"msgRateIn": 7.0, "msgRateOut": 5.0, "bandwidthIn": 3.0, "bandwidthOut": 2.0}
        await cluster.store.put(quota_path(name), json.dumps(quota | {"memory": 1.0}).encode())
        cluster.brokers["b:8080"].stats = {name: traffic(0, rate=12.0)}
        await cluster.tell()
        await trio.sleep(2)
        data = cluster.brokers["a:8080"].manager.load.bundle(name)
        assert data.long_term_data.rate == 12.0
        assert data.long_term_data.num_samples == 1000


@pytest.mark.parametrize("value", [b"", b"{", b'{"longTermData":{"msgRateIn":-1}}', b"[]"])
async def test_averages_that_are_none_are_passed_over(
    autojump_clock: MockClock, value: bytes
) -> None:
    async with playing(["a", "b"]) as cluster:
        name = bundles(4)[0]
        await cluster.store.put(bundle_data_path(name), value)
        cluster.brokers["b:8080"].stats = {name: traffic(0, rate=12.0)}
        await cluster.tell()
        await trio.sleep(2)
        data = cluster.brokers["a:8080"].manager.load.bundle(name)
        assert (data.long_term_data.rate, data.long_term_data.num_samples) == (12.0, 1)


async def test_apache_reads_what_is_written(autojump_clock: MockClock) -> None:
    """BundleData's and TimeAverageMessageData's fields."""
    async with playing(["a", "b"]) as cluster:
        name = bundles(4)[0]
        cluster.brokers["b:8080"].stats = {name: NamespaceBundleStats(msg_rate_in=3.0, topics=2)}
        await cluster.pass_minutes(16)
        node = await cluster.store.get(bundle_data_path(name))
        assert node is not None
        found = json.loads(node.value)
        assert found.keys() == {"shortTermData", "longTermData", "topics"}
        assert found["longTermData"].keys() == {
            *("maxSamples", "numSamples", "msgThroughputIn", "msgThroughputOut"),
            *("msgRateIn", "msgRateOut"),
        }
        assert decode_bundle_data(node.value).long_term_data.msg_rate_in == 3.0


async def test_averages_of_a_broker_that_died_are_removed_soon(autojump_clock: MockClock) -> None:
    async with playing(["a", "b", "c"]) as cluster:
        for broker_id in cluster.brokers:
            await cluster.store.put(broker_average_path(broker_id), b"{}")
        await cluster.brokers["c:8080"].kill()
        await trio.sleep(5)
        assert list(await cluster.store.children(BROKER_AVERAGE_PATH)) == ["a:8080", "b:8080"]


@pytest.mark.slow
async def test_a_store_that_is_away_stops_nothing_for_good(autojump_clock: MockClock) -> None:
    async with playing(["a", "b"], SLOW) as cluster:
        leader, broker = cluster.brokers["a:8080"], cluster.brokers["b:8080"]
        leader.store.set_available(False)
        await trio.sleep(3600)
        leader.store.set_available(True)
        broker.stats = {bundles(4)[0]: traffic(1, topics=1001)}
        await cluster.pass_minutes(5)
        assert broker.calls
