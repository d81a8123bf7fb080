"""What stands in the store about clusters and brokers, and what a change of it does."""

from __future__ import annotations

import pytest
import trio

from geminga_broker.admin._tests.several_brokers import Cluster, cluster_of
from geminga_broker.authz.needs import Place, Scope
from geminga_broker.authz.refusals import refusal
from geminga_broker.authz.routes import need_of
from geminga_broker.errors import BrokerError
from geminga_broker.ownership.bundle import BundleId

CLUSTER = "/admin/v2/clusters/standalone"
POLICIES = f"{CLUSTER}/namespaceIsolationPolicies"
DOMAINS = f"{CLUSTER}/failureDomains"
BROKERS = "/admin/v2/brokers"


def policy(namespaces: str = "public/.*", primary: str = "b0", **more: object) -> dict[str, object]:
    return {
        "namespaces": [namespaces],
        "primary": [primary],
        "secondary": ["b1"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
        **more,
    }


async def owned(cluster: Cluster) -> int:
    return sum(len(one.service.ownership.owned()) for one in cluster)


class TestIsolationPolicies:
    async def test_a_new_one_unloads_its_namespaces_at_all_brokers(self) -> None:
        async with cluster_of() as cluster:
            first, second = cluster
            await cluster.share()
            assert (await first.ask("POST", f"{POLICIES}/other", policy("tenant/.*"))).status == 204
            assert await owned(cluster) == 4
            kept = policy(unload_scope="none")
            assert (await first.ask("POST", f"{POLICIES}/p", kept)).status == 204
            assert await owned(cluster) == 4
            assert (await first.ask("DELETE", f"{POLICIES}/p")).status == 204
            assert (await first.ask("POST", f"{POLICIES}/p", policy())).status == 204
            assert await owned(cluster) == 0
            bundle = (await cluster.bundles())[0]
            assert await first.service.load_manager.choose(bundle) == "b0:8080"
            await cluster.share()
            # Nothing changes: only another list of primary brokers would move them.
            assert (await second.ask("POST", f"{POLICIES}/p", policy())).status == 204
            assert await owned(cluster) == 4
            again = policy(unload_scope="all_matching")
            assert (await second.ask("POST", f"{POLICIES}/p", again)).status == 204
            assert await owned(cluster) == 0
            await cluster.share()
            assert (await second.ask("POST", f"{POLICIES}/p", policy(primary="b1"))).status == 204
            assert await owned(cluster) == 0

    async def test_who_has_which(self) -> None:
        async with cluster_of() as cluster:
            first = cluster[0]
            wide = policy(primary="b0:80.*", secondary=["b1:.*"])
            assert (await first.ask("POST", f"{POLICIES}/p", wide)).status == 204
            found = (await first.ask("GET", f"{POLICIES}/brokers")).json
            regex = ["public/.*"]
            assert found == [
                {
                    "brokerName": "b0:8080",
                    "policyName": "p",
                    "namespaceRegex": regex,
                    "primary": True,
                },
                {
                    "brokerName": "b1:8080",
                    "policyName": "p",
                    "namespaceRegex": regex,
                    "primary": False,
                },
            ]

    @pytest.mark.parametrize(
        "wrong",
        [
            policy(primary="("),
            policy(namespaces="["),
            policy() | {"namespaces": []},
            policy() | {"primary": None},
            policy() | {"secondary": None},
            policy() | {"auto_failover_policy": None},
            policy() | {"auto_failover_policy": {"policy_type": "min_available"}},
            policy(primary="x" * 5000),
        ],
    )
    async def test_wrong_ones(self, wrong: dict[str, object]) -> None:
        async with cluster_of(1) as cluster:
            reply = await cluster[0].ask("POST", f"{POLICIES}/p", wrong)
            assert reply.status == 400
            assert isinstance(reply.json, dict)
            assert reply.json["reason"].startswith("Invalid format of input policy data. policy: p")

    async def test_all_together_are_bounded(self) -> None:
        async with cluster_of(1) as cluster:
            first = cluster[0]
            big = policy() | {"secondary": ["x" * 4000] * 60}
            statuses = [
                (await first.ask("POST", f"{POLICIES}/p{number}", big)).status
                for number in range(5)
            ]
            assert statuses == [204, 204, 204, 413, 413]

    async def test_a_cluster_with_one_is_not_deleted(self) -> None:
        async with cluster_of(1) as cluster:
            first = cluster[0]
            base = "/admin/v2/clusters/c2"
            assert (await first.ask("PUT", base, {"serviceUrl": "http://x:1"})).status == 200
            path = f"{base}/namespaceIsolationPolicies/p"
            assert (await first.ask("POST", path, policy())).status == 204
            domain = f"{base}/failureDomains/d"
            assert (await first.ask("POST", domain, {"brokers": ["a:1"]})).status == 204
            refused = await first.ask("DELETE", base)
            assert (refused.status, refused.json) == (412, {"reason": "Cluster not empty"})
            assert (await first.ask("DELETE", path)).status == 204
            assert (await first.ask("DELETE", base)).status == 204
            assert not await first.service.store.exists("/admin/clusters/c2")

    def test_the_refusal_names_the_policy(self) -> None:
        need = need_of("POST", POLICIES.replace("standalone", "{cluster}") + "/{policy}")
        assert need.scope is Scope.CLUSTER
        _, reason = refusal(need, Place(name="c"), "r", None)
        assert reason == (
            "Unauthorized to validateBothSuperuserAndClusterPolicyOperation for originalPrincipal "
            "[null] and clientAppId [r] about operation [WRITE] on cluster [c]"
        )


@pytest.mark.parametrize("name", ["standalone%2Fx", "..", "a%20b"])
async def test_names_lead_nowhere_else(name: str) -> None:
    async with cluster_of(1) as cluster:
        first = cluster[0]
        base = f"/admin/v2/clusters/{name}"
        assert (await first.ask("GET", base)).status == 404
        assert (await first.ask("POST", base, {"serviceUrl": "http://x:1"})).status == 404
        assert (await first.ask("DELETE", base)).status == 404
        assert (await first.ask("GET", f"{base}/failureDomains")).json == {}
        for path in ("namespaceIsolationPolicies", "failureDomains/d", "peers"):
            assert (await first.ask("GET", f"{base}/{path}")).status in (404, 412)
        assert (await first.ask("POST", f"{DOMAINS}/{name}", {"brokers": []})).status == 404


class TestBrokers:
    async def test_who_is_there_and_who_leads(self) -> None:
        async with cluster_of() as cluster:
            for broker in cluster:
                assert (await broker.ask("GET", BROKERS)).json == ["b0:8080", "b1:8080"]
                assert (await broker.ask("GET", f"{BROKERS}/standalone")).status == 200
                assert (await broker.ask("GET", f"{BROKERS}/leaderBroker")).json == {
                    "serviceUrl": "http://b0:8080",
                    "brokerId": "b0:8080",
                }

    async def test_no_leader(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def nobody() -> None:
            await trio.lowlevel.checkpoint()

        async with cluster_of(1) as cluster:
            first = cluster[0]
            monkeypatch.setattr(first.service.election, "leader", nobody)
            reply = await first.ask("GET", f"{BROKERS}/leaderBroker")
            assert (reply.status, reply.json) == (404, {"reason": "Couldn't find leader broker"})

    async def test_what_a_broker_owns_is_told_by_itself(self) -> None:
        async with cluster_of() as cluster:
            first, second = cluster
            await cluster.share()
            assert (
                await first.ask("POST", f"{POLICIES}/p", policy(unload_scope="none"))
            ).status == 204
            path = f"{BROKERS}/standalone/b1:8080/ownedNamespaces"
            assert (await first.ask("GET", path)).location == f"http://b1:8080{path}"
            found = (await second.ask("GET", path)).json
            assert isinstance(found, dict)
            assert len(found) == 2
            for bundle, status in found.items():
                assert bundle.startswith("public/default/0x")
                assert status == {
                    "broker_assignment": "secondary",
                    "is_controlled": True,
                    "is_active": True,
                }
            reply = await first.ask("GET", f"{BROKERS}/standalone/x:1/ownedNamespaces")
            assert (reply.status, reply.json) == (
                404,
                {"reason": "Broker id 'x:1' not found in available brokers."},
            )

    async def test_health(self) -> None:
        async with cluster_of() as cluster:
            first, second = cluster
            path = f"{BROKERS}/health?brokerId=b1:8080"
            assert (await first.ask("GET", path)).location == f"http://b1:8080{path}"
            assert (await second.ask("GET", path)).body == b"ok"
            assert (await second.ask("GET", f"{BROKERS}/health?topicVersion=V1")).status == 200
            assert (await second.ask("GET", f"{BROKERS}/health?topicVersion=V3")).status == 404
            assert (await second.ask("GET", f"{BROKERS}/ready")).body == b"ok"

    async def test_a_broker_is_told_to_stop(self) -> None:
        async with cluster_of() as cluster:
            first, second = cluster
            await cluster.share()
            assert not second.service.stop_requested.is_set()
            wrong = await second.ask("POST", f"{BROKERS}/shutdown?maxConcurrentUnloadPerSec=x")
            assert wrong.status == 404
            assert len(second.service.ownership.owned()) == 2
            asked = f"{BROKERS}/shutdown?maxConcurrentUnloadPerSec=1000"
            assert (await second.ask("POST", asked)).status == 204
            assert second.service.stop_requested.is_set()
            assert not second.service.ownership.owned()
            assert (await second.ask("GET", f"{BROKERS}/ready")).status == 500
            assert (await second.ask("GET", f"{BROKERS}/health")).status == 503
            assert len(first.service.ownership.owned()) == 2

    @pytest.mark.slow
    async def test_a_broker_that_gives_its_bundles_up_gets_none(self) -> None:
        async with cluster_of() as cluster, trio.open_nursery() as nursery:
            first, second = cluster
            await cluster.share()
            before = second.service.ownership.owned()
            asked = f"{BROKERS}/shutdown?maxConcurrentUnloadPerSec=2"
            nursery.start_soon(second.ask, "POST", asked)
            with trio.fail_after(10):
                while len(second.service.ownership.owned()) == len(before):  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert second.service.ownership.owned(), "it has some still"
            assert await first.service.brokers.ids() == ["b0:8080"]
            (given_up,) = {*before} - {*second.service.ownership.owned()}
            found = await first.service.finder.find(given_up)
            assert found is not None
            assert found.addresses == first.addresses
            with pytest.raises(BrokerError, match="Please redo the lookup"):
                await second.service.finder.find(
                    BundleId("public/x", "0x0_0x1"), authoritative=True
                )

    async def test_figures_of_a_broker(self) -> None:
        async with cluster_of(1) as cluster:
            first = cluster[0]
            await cluster.share()
            topic = "persistent://public/default/t"
            assert (await first.ask("PUT", "/admin/v2/persistent/public/default/t")).status == 204
            sub = "/admin/v2/persistent/public/default/t/subscription/s"
            assert (await first.ask("PUT", sub)).status == 204
            found = (await first.ask("GET", "/admin/v2/broker-stats/topics")).json
            assert isinstance(found, dict)
            (bundle,) = found["public/default"].values()
            assert list(bundle) == ["persistent"]
            assert bundle["persistent"][topic]["producerCount"] == 0
            assert list(bundle["persistent"][topic]["subscriptions"]) == ["s"]
            found = (await first.ask("GET", "/admin/v2/broker-stats/metrics")).json
            assert isinstance(found, list)
            (figures,) = found
            assert figures["dimensions"] == {"namespace": "public/default"}
            assert figures["metrics"]["brk_no_of_subscriptions"] == 1
            report = (await first.ask("GET", "/admin/v2/broker-stats/load-report")).json
            assert isinstance(report, dict)
            assert report["numBundles"] == 4
            assert report["webServiceUrl"] == "http://b0:8080"
            assert report["loadReportType"] == "LocalBrokerData"
            assert (await first.ask("GET", f"{BROKERS}/backlog-quota-check")).status == 204

    async def test_other_clusters_names(self) -> None:
        async with cluster_of(1) as cluster:
            first = cluster[0]
            assert (await first.ask("GET", f"{BROKERS}/nope")).status == 200
            first.service.authorizer.enabled = True
            reply = await first.ask("GET", f"{BROKERS}/nope")
            assert (reply.status, reply.json) == (
                404,
                {"reason": "Cluster does not exist: cluster=nope"},
            )
            first.service.authorizer.enabled = False
            data = {"serviceUrl": "http://far:8080"}
            assert (await first.ask("PUT", "/admin/v2/clusters/far", data)).status == 200
            first.service.authorizer.enabled = True
            reply = await first.ask("GET", f"{BROKERS}/far")
            assert reply.location == f"http://far:8080{BROKERS}/far"
