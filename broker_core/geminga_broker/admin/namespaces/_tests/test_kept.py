"""What namespaces, resource groups and clusters keep, over REST: what only our broker answers so.
The answers that are Apache's too stand in `compat_tests/clients/namespace_calls.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from starlette.types import ASGIApp

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import call, secured
from geminga_broker.admin.app import create_app
from geminga_broker.admin.namespaces.changing import FIELDS, in_class_order
from geminga_broker.cluster.namespaces import new_policies
from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import BrokerConfig
from geminga_broker.limits import PROPERTIES_MAX
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic

SPACE = "/admin/v2/namespaces/public/default"
MISSING = "/admin/v2/namespaces/public/nope"
GROUPS = "/admin/v2/resourcegroups"
CLUSTER = "/admin/v2/clusters/standalone"
TOPIC = "persistent://public/default/t"


class Admin:
    """Requests to one broker."""

    def __init__(self, service: BrokerService, app: ASGIApp) -> None:
        self.service = service
        self._app = app

    async def ask(
        self, method: str, path: str, body: object = None, query: str = ""
    ) -> tuple[int, object]:
        """The status and the answer's JSON, its text where it is none."""
        answer = await call(self._app, method, path, None, body=body, query=query)
        try:
            return answer.status, json.loads(answer.body)
        except ValueError:
            return answer.status, answer.body.decode()

    async def done(self, method: str, path: str, body: object = None, query: str = "") -> None:
        status, told = await self.ask(method, path, body, query)
        assert status in (200, 204), told

    async def quorums(self) -> tuple[int, int, int]:
        """Of the topic's open ledger."""
        topic = self.service.topics.loaded[TOPIC]
        assert isinstance(topic, PersistentTopic)
        assert isinstance(topic.log, TopicLog)
        context = topic.log.context
        assert context.writer is not None
        found = await context.client.metadata(context.writer.ledger_id)
        return found.ensemble_size, found.write_quorum, found.ack_quorum


@asynccontextmanager
async def admin(config: BrokerConfig | None = None) -> AsyncIterator[Admin]:
    async with open_broker(config) as broker:
        yield Admin(broker.service, create_app(broker.service))


def persistence(ensemble: int, write: int, ack: int) -> JsonObject:
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
        "managedLedgerMaxMarkDeleteRate": 20.0,
    }


async def test_persistence_holds_for_ledgers_that_are_made_afterwards() -> None:
    """With one bookie no ledger can have two copies: so much is sure that it is asked for."""
    async with admin() as rest:
        path = TOPIC.replace("://", "/")
        await rest.done("PUT", f"/admin/v2/{path}")
        assert await rest.quorums() == (1, 1, 1)
        topic = rest.service.topics.loaded[TOPIC]
        assert isinstance(topic, PersistentTopic)
        assert isinstance(topic.log, TopicLog)
        context = topic.log.context
        await rest.done("POST", f"{SPACE}/persistence", persistence(2, 2, 1))
        durability = context.durability
        assert (durability.ensemble_size, durability.write_quorum) == (2, 2)
        assert context.flush_interval_s == pytest.approx(0.05)
        status, told = await rest.ask("PUT", f"/admin/v2/{path.replace('/t', '/new')}")
        assert (status, "2 bookies" in str(told)) == (503, True), told
        await rest.done("DELETE", f"{SPACE}/persistence")
        assert context.durability == context.options.durability
        assert context.flush_interval_s == 1.0
        await rest.done("PUT", f"/admin/v2/{path.replace('/t', '/new')}")


async def test_what_is_not_built_is_refused_by_name() -> None:
    async with admin() as rest:
        other = {"serviceUrl": "http://x:8080", "brokerServiceUrl": "pulsar://x:6650"}
        await rest.done("PUT", "/admin/v2/clusters/other", other)
        info = {"adminRoles": [], "allowedClusters": ["standalone", "other"]}
        await rest.done("POST", "/admin/v2/tenants/public", info)
        both = ["standalone", "other"]
        for method, path, body, query, word in (
            ("POST", f"{SPACE}/replication", both, "", "Geo-replication"),
            ("POST", f"{SPACE}/replication", ["other"], "", "Geo-replication"),
            ("PUT", MISSING, {"replication_clusters": both}, "", "Geo-replication"),
            ("GET", f"{SPACE}/scanOffloadedLedgers", None, "", "Tiered storage"),
            ("POST", f"{SPACE}/migration", True, "", "migration"),
            ("POST", f"{CLUSTER}/migrate", other, "migrated=true", "migration"),
        ):
            status, told = await rest.ask(method, path, body, query)
            assert (status, word in str(told)) == (501, True), (path, told)
        assert await rest.ask("GET", f"{SPACE}/replication") == (200, ["standalone"])
        assert (await rest.ask("GET", f"{CLUSTER}/migrate"))[0] == 404
        # To be allowed in the other cluster means no more than that.
        await rest.done("POST", f"{SPACE}/allowedClusters", both)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"properties": {str(n): "x" * 500 for n in range(1900)}}, 412),
        ({"migrated": True}, 501),
        ({"allowed_clusters": ["nope"]}, 403),
        ({"resource_group_name": "nope"}, 412),
        ({"offload_policies": {"managedLedgerOffloadDriver": "evil"}}, 412),
        ({"persistence": {"managedLedgerMaxMarkDeleteRate": "NaN"}}, 400),
        ({"persistence": {"managedLedgerMaxMarkDeleteRate": "-Infinity"}}, 400),
    ],
)
@pytest.mark.slow
async def test_a_new_namespace_has_what_it_could_be_given_later(
    body: JsonObject, status: int
) -> None:
    async with admin() as at:
        assert (await at.ask("PUT", MISSING, body))[0] == status
        assert (await at.ask("GET", MISSING))[0] == 404


async def test_a_new_namespace_is_not_being_deleted() -> None:
    async with admin() as at:
        await at.done("PUT", MISSING, {"deleted": True})
        await at.done("PUT", MISSING + "/property/k/v")


async def test_what_is_not_there() -> None:
    async with admin() as rest:
        for method, path, body in (
            ("GET", f"{MISSING}/scanOffloadedLedgers", None),
            ("POST", f"{MISSING}/migration", False),
            ("POST", f"{MISSING}/offloadPolicies", {"managedLedgerOffloadDriver": "filesystem"}),
            ("POST", "/admin/v2/clusters/nope/migrate", {}),
            ("DELETE", f"{GROUPS}/nope", None),
            ("DELETE", f"{GROUPS}/a%2Fb", None),
            ("GET", f"{GROUPS}/a%2Fb", None),
        ):
            assert (await rest.ask(method, path, body))[0] == 404, path
        assert (await rest.ask("PUT", f"{GROUPS}/a%2Fb", {}))[0] == 412
        assert (await rest.ask("POST", f"{SPACE}/resourcegroup/a%2Fb"))[0] == 412


async def test_bodies_that_are_missing() -> None:
    async with admin() as rest:
        for method, path in (
            ("PUT", f"{SPACE}/properties"),
            ("POST", f"{SPACE}/allowedClusters"),
            ("PUT", f"{GROUPS}/g"),
            ("POST", f"{CLUSTER}/migrate"),
        ):
            assert (await rest.ask(method, path))[0] == 400, path
        assert (await rest.ask("PUT", f"{SPACE}/properties", {"n": None}))[0] == 400
        for path in ("allowedClusters", "replication"):
            assert (await rest.ask("POST", f"{SPACE}/{path}", [None]))[0] == 400


async def test_properties_are_bounded_all_together() -> None:
    async with admin() as rest:
        many = {str(number): "" for number in range(PROPERTIES_MAX)}
        await rest.done("PUT", f"{SPACE}/properties", many)
        assert (await rest.ask("PUT", f"{SPACE}/properties", {"more": ""}))[0] == 412
        assert (await rest.ask("PUT", f"{SPACE}/property/more/x"))[0] == 412
        await rest.done("PUT", f"{SPACE}/property/0/x")
        assert await rest.ask("GET", f"{SPACE}/properties") == (200, many | {"0": "x"})


async def test_members_that_are_not_known_are_kept() -> None:
    async with admin() as rest:
        namespaces = rest.service.namespaces
        await namespaces.tenants.update("public/default", lambda old: {"of_5_0": [1]} | old)
        await rest.done("POST", f"{SPACE}/dispatcherPauseOnAckStatePersistent")
        record = await namespaces.policies("public/default")
        assert list(record)[-1] == "of_5_0"
        assert list(record)[:-1] == [name for name in FIELDS if name in record]
        await rest.done("PUT", f"{GROUPS}/g", {"publishRateInMsgs": 1})
        await namespaces.resource_groups.update("g", lambda old: old | {"of_5_0": 2})
        await rest.done("PUT", f"{GROUPS}/g", {"publishRateInBytes": 3})
        told = cast(JsonObject, (await rest.ask("GET", f"{GROUPS}/g"))[1])
        assert (told["of_5_0"], told["publishRateInMsgs"], told["publishRateInBytes"]) == (2, 1, 3)


def test_a_new_namespace_has_the_order_already() -> None:
    from geminga_broker.cluster.namespaces import Bundles

    record = new_policies(Bundles.even(4), ["standalone"])
    assert list(in_class_order(record)) == list(record)


async def test_older_members_of_offloading_move_to_the_policies() -> None:
    """As Apache's broker does it when something among them is changed."""
    async with admin() as rest:
        older = {"offload_threshold": 7, "offload_deletion_lag_ms": 8}
        await rest.service.namespaces.tenants.update("public/default", lambda old: old | older)
        assert await rest.ask("GET", f"{SPACE}/offloadThreshold") == (200, 7)
        assert await rest.ask("GET", f"{SPACE}/offloadDeletionLagMs") == (200, 8)
        await rest.done("PUT", f"{SPACE}/offloadThresholdInSeconds", 9)
        record = await rest.service.namespaces.policies("public/default")
        assert (record["offload_threshold"], "offload_deletion_lag_ms" in record) == (-1, False)
        for path, value in (("", 7), ("InSeconds", 9)):
            assert await rest.ask("GET", f"{SPACE}/offloadThreshold{path}") == (200, value)
        assert await rest.ask("GET", f"{SPACE}/offloadDeletionLagMs") == (200, 8)
        await rest.done("DELETE", f"{SPACE}/offloadDeletionLagMs")
        assert await rest.ask("GET", f"{SPACE}/offloadDeletionLagMs") == (200, "")


async def test_a_cluster_goes_with_its_migration() -> None:
    async with admin() as rest:
        await rest.done("PUT", "/admin/v2/clusters/other", {"serviceUrl": "http://x:8080"})
        await rest.done("POST", "/admin/v2/clusters/other/migrate", {}, "migrated=false")
        await rest.done("DELETE", "/admin/v2/clusters/other")
        await rest.done("PUT", "/admin/v2/clusters/other", {"serviceUrl": "http://x:8080"})
        assert (await rest.ask("GET", "/admin/v2/clusters/other/migrate"))[0] == 404


async def test_figures_of_the_broker() -> None:
    async with admin() as rest:
        await rest.done("PUT", f"/admin/v2/{TOPIC.replace('://', '/')}")
        status, told = await rest.ask("GET", "/admin/v2/broker-stats/bookieops")
        found = cast("dict[str, dict[str, dict[str, int]]]", told)["public/default"][TOPIC]
        assert (status, len(found), set(found.values())) == (200, 8, {0})
        status, told = await rest.ask("GET", "/admin/v2/broker-stats/mbeans")
        beans = cast("list[dict[str, dict[str, object]]]", told)
        assert {"java.lang:type=Runtime", "java.lang:type=Threading"} < {
            each["dimensions"]["MBean"] for each in beans
        }


@pytest.mark.parametrize(
    ("method", "path", "tenants_admin"),
    [
        ("GET", "/admin/v2/namespaces/t/n/properties", 200),
        ("DELETE", "/admin/v2/namespaces/t/n/property/a", 200),
        ("GET", "/admin/v2/namespaces/t/n/persistence", 200),
        ("DELETE", "/admin/v2/namespaces/t/n/removeOffloadPolicies", 204),
        ("GET", "/admin/v2/namespaces/t/n/replication", 200),
        ("DELETE", "/admin/v2/namespaces/t/n/resourcegroup", 204),
        ("POST", "/admin/v2/namespaces/t/n/migration", 401),
        ("GET", "/admin/v2/resourcegroups", 401),
        ("DELETE", "/admin/v2/resourcegroups/g", 401),
        ("GET", "/admin/v2/clusters/standalone/migrate", 401),
        ("GET", "/admin/v2/broker-stats/mbeans", 401),
    ],
)
async def test_who_may(method: str, path: str, tenants_admin: int) -> None:
    async with secured() as (_, app):
        assert (await call(app, method, path, "tadmin")).status == tenants_admin
        assert (await call(app, method, path, "prod")).status in (401, 403)
        assert (await call(app, method, path, None)).status == 401
