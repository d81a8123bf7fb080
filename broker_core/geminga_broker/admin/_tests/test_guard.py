"""Authorization of REST calls, as recorded from an Apache broker (spec PX-22)."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from starlette.types import ASGIApp, Message

from geminga_broker._tests.asgi import request
from geminga_broker._tests.wire import open_broker
from geminga_broker.admin.app import create_app, routes_of
from geminga_broker.authz.needs import Scope
from geminga_broker.authz.routes import need_of, rule_of
from geminga_broker.config import load_config
from geminga_broker.service import BrokerService
from geminga_broker.web.settings import TLS_PEER_CERTIFICATE
from geminga_protocol import tokens

SECRET = bytes(range(32))
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProviders": "token",
    "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
    "superUserRoles": "root,proxy",
    "proxyRoles": "proxy",
}
SEEN = json.loads((Path(__file__).parent / "rest_permissions.json").read_text())
PARTS = {
    "tenant": "t", "namespace": "n", "topic": "top", "cluster": "standalone", "count": "1",
    "subscription": "sub", "timestamp": "1", "seconds": "9", "domain": "persistent", "role": "x",
    "bundle": "0x00000000_0xffffffff", "bookie": "b:3181", "key": "k", "value": "v",
    "resourcegroup": "g",
}  # fmt: skip
GRANTS = {"prod": ["produce"], "cons": ["consume"], "fn": ["functions"]}


class Answer(msgspec.Struct):
    status: int
    body: bytes

    @property
    def reason(self) -> str:
        return str(msgspec.json.decode(self.body)["reason"])


async def call(
    app: ASGIApp,
    method: str,
    path: str,
    role: str | None,
    *,
    body: object = None,
    query: str = "",
    unread: bool = False,
    twice: str = "",
    **headers: str,
) -> Answer:
    """One request straight into the application, whose body must stay unread if that is said; with
    a header that is there `twice`.
    """
    pairs = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        pairs.setdefault("content-type", "application/json")
    if role is not None:
        pairs.setdefault("authorization", "Bearer " + tokens.create(SECRET, role))

    async def receive() -> Message:
        assert not unread
        content = b"" if body is None else msgspec.json.encode(body)
        return {"type": "http.request", "body": content, "more_body": False}

    listed = [pair for pair in pairs.items() for _ in range(1 + (pair[0] == twice))]
    certificate = {TLS_PEER_CERTIFICATE: None}
    reply = await request(
        app, method, f"{path}?{query}", headers=listed, receive=receive, **certificate
    )
    return Answer(reply.status, reply.body)


@asynccontextmanager
async def secured(**settings: str) -> AsyncIterator[tuple[BrokerService, ASGIApp]]:
    async with open_broker(load_config(None, {}, SETTINGS | settings)) as broker:
        service = broker.service
        app = create_app(service)
        await service.namespaces.create_tenant("t", ("tadmin",), ("standalone",))
        await service.namespaces.create("t/n", bundles=1, clusters=("standalone",))
        for role, actions in GRANTS.items():
            path = f"/admin/v2/namespaces/t/n/permissions/{role}"
            assert (await call(app, "POST", path, "root", body=actions)).status == 204
        yield service, app


def _routes(service: BrokerService) -> list[tuple[str, str]]:
    return [
        (method, route.path)
        for route in routes_of(service)
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]


async def test_every_route_has_a_need() -> None:
    async with open_broker() as broker:
        for method, path in _routes(broker.service):
            assert rule_of(method, path) is not None, f"who may {method} {path}?"
    assert need_of("GET", "/admin/v2/new").scope is Scope.SUPER_USER


@pytest.mark.slow
async def test_roles_are_allowed_as_by_apache() -> None:
    async with secured() as (service, app):
        ours = {f"{method} {path}" for method, path in _routes(service)}
        compared = 0
        for row, seen in SEEN["rows"].items():
            if row not in ours:
                continue
            compared += 1
            method, path = row.split(" ")
            path = path.format_map(PARTS)
            for role, sign in zip(SEEN["roles"], seen, strict=True):
                if sign == "+" and method != "GET":
                    continue  # an allowed call would take effect
                answer = await call(app, method, path, None if role == "None" else role, body={})
                through = answer.status not in (401, 403)
                assert through == (sign == "+"), (row, role, answer)
        assert compared > 60


NAMESPACE, TOPIC = "/admin/v2/namespaces/t/n", "/admin/v2/persistent/t/n/top"
NOBODY = "originalPrincipal [null] and clientAppId [fn]"


@pytest.mark.parametrize(
    ("call_", "status", "kind", "text"),
    [
        (f"GET {NAMESPACE}", 403, "NamespacePolicyOperation",
         "operation [READ] on namespace [t/n] on policy [ALL]"),
        (f"GET {NAMESPACE}/topics", 403, "NamespaceOperation",
         "operation [GET_TOPICS] on namespace [t/n]"),
        (f"PUT {TOPIC}/unload", 401, "TopicOperation",
         "operation [UNLOAD] on topic [persistent://t/n/top]"),
        (f"POST {TOPIC}/retention", 403, "TopicPolicyOperation",
         "operation [WRITE] on topic [persistent://t/n/top] on policy [RETENTION]"),
        ("GET /admin/v2/clusters/standalone", 401, "BothSuperuserAndClusterOperation",
         f"{NOBODY} about operation [GET_CLUSTER] on cluster [standalone]"),
        ("GET /admin/v2/tenants", 401, "BothTenantOperationAndSuperUser",
         f"{NOBODY} about operation [LIST_TENANTS] "),
        ("GET /admin/v2/namespaces/t", 401, "TenantOperation",
         f"{NOBODY} about operation [LIST_NAMESPACES] on tenant [t]"),
    ],
)  # fmt: skip
@pytest.mark.slow
async def test_refusals_are_worded_as_by_apache(
    call_: str, status: int, kind: str, text: str
) -> None:
    async with secured() as (_, app):
        method, path = call_.split(" ")
        answer = await call(app, method, path, "fn")
        assert (answer.status, answer.reason) == (
            status,
            f"Unauthorized to validate{kind} for {text}",
        )
        answer = await call(app, "PUT", NAMESPACE + "/unload", "tadmin")
        assert answer.reason == "This operation requires super-user access"


@pytest.mark.parametrize("name", ["t%2Fn", "%2F%2F", "t%2F", "%2F", "t%252Fn/x", "t/n%2Fx"])
async def test_names_are_single_parts_of_paths(name: str) -> None:
    """A tenant called `t/n` would be the namespace's record, without its checks."""
    async with secured() as (service, app):
        if "/" in name:
            name, _, second = name.partition("/")
            paths = [f"/admin/v2/namespaces/{name}/{second}"]
        else:
            paths = [f"/admin/v2/tenants/{name}", f"/admin/v2/namespaces/{name}"]
            paths += [f"/admin/v2/clusters/{name}", f"/admin/v2/namespaces/{name}/n/retention"]
        info = {"adminRoles": ["fn"], "allowedClusters": ["standalone"]}
        for path in paths:
            for method in ("GET", "POST", "PUT", "DELETE"):
                for role in ("root", "tadmin", "fn"):
                    answer = await call(app, method, path, role, body=info)
                    assert 400 <= answer.status < 500, f"{method} {path}: {answer}"
        assert await service.namespaces.exists("t/n")
        assert "adminRoles" not in await service.namespaces.policies("t/n")


async def test_original_principals_over_http() -> None:
    async with secured() as (_, app):
        path = "/admin/v2/namespaces/t/n/topics"

        async def status(role: str, original: str) -> int:
            return (await call(app, "GET", path, role, x_original_principal=original)).status

        assert await status("proxy", "prod") == 200
        assert await status("proxy", "fn") == 403
        assert await status("proxy", "") == 403
        assert await status("proxy", "proxy") == 403
        assert await status("prod", "prod") == 200
        assert await status("prod", "root") == 403


async def test_grants_and_revocations(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with secured() as (_, app):
        base = "/admin/v2/namespaces/t/n/permissions"
        assert msgspec.json.decode((await call(app, "GET", base, "tadmin")).body) == GRANTS
        bad = await call(app, "POST", base + "/x", "tadmin", body=["write"])
        assert (bad.status, b"'write' is none of produce" in bad.body) == (400, True)
        assert (await call(app, "DELETE", base + "/fn", "tadmin")).status == 204
        for roles in (["prod"], ["prod", "cons"]):
            path = base + "/subscription/sub"
            assert (await call(app, "POST", path, "tadmin", body=roles)).status == 204
        assert (await call(app, "DELETE", base + "/sub/prod", "tadmin")).status == 204
        assert (await call(app, "DELETE", base + "/none/prod", "tadmin")).status == 404
        known = await call(app, "GET", base + "/subscription", "tadmin")
        assert msgspec.json.decode(known.body) == {"sub": ["cons"]}

        topic = "/admin/v2/persistent/t/n/p"
        assert (await call(app, "PUT", topic + "/partitions", "tadmin", body=2)).status == 204
        path = topic + "/permissions/guest"
        assert (await call(app, "POST", path, "tadmin", body=["consume"])).status == 204
        part = topic + "-partition-1"
        assert (await call(app, "GET", part + "/stats", "guest")).status != 401
        path_of_part = part + "/permissions/guest"
        assert (await call(app, "POST", path_of_part, "tadmin", body=["produce"])).status == 204
        known = await call(app, "GET", part + "/permissions", "tadmin")
        assert msgspec.json.decode(known.body)["guest"] == ["produce"]
        for _ in range(2):
            assert (await call(app, "DELETE", path, "tadmin")).status == 204
        assert (await call(app, "GET", part + "/stats", "guest")).status == 401
        assert (await call(app, "GET", topic + "/stats", "guest")).status == 401
        policies = msgspec.json.decode((await call(app, "GET", NAMESPACE, "tadmin")).body)
        assert policies["auth_policies"]["destination_auth"] == {}
    assert "PUT /admin/v2/persistent/t/n/p/partitions by role=tadmin: 204" in caplog.text
    assert f"DELETE {NAMESPACE}/permissions/none/prod by role=tadmin: 404" in caplog.text


async def test_grants_on_several_topics_at_once() -> None:
    async with secured() as (_, app):
        for name in "ab":
            path = f"/admin/v2/persistent/t/n/{name}"
            assert (await call(app, "PUT", path, "tadmin")).status == 204
        a, b = ({"topic": f"persistent://t/n/{name}", "role": "guest"} for name in "ab")
        grant, revoke = (f"/admin/v2/namespaces/{verb}PermissionsOnTopics" for verb in VERBS)
        wanted = [a | {"actions": ["consume"]}, b | {"actions": ["produce"]}]
        for role, status in ((None, 401), ("guest", 401), ("tadmin", 204)):
            assert (await call(app, "POST", grant, role, body=wanted)).status == status
        known = msgspec.json.decode((await call(app, "GET", NAMESPACE, "tadmin")).body)
        assert known["auth_policies"]["destination_auth"] == {
            "persistent://t/n/a": {"guest": ["consume"]},
            "persistent://t/n/b": {"guest": ["produce"]},
        }
        assert (await call(app, "POST", revoke, "guest", body=[a, b])).status == 401
        assert (await call(app, "POST", revoke, "tadmin", body=[a, b])).status == 204
        known = msgspec.json.decode((await call(app, "GET", NAMESPACE, "tadmin")).body)
        assert known["auth_policies"]["destination_auth"] == {}
        other = b | {"topic": "persistent://public/default/x"}
        absent = a | {"topic": "persistent://t/n/absent"}
        for body, status in (
            ([], 400),
            ([a, other], 400),
            ([absent], 404),
            ([a | {"role": None}], 400),
        ):
            assert (await call(app, "POST", revoke, "root", body=body)).status == status
        unknown = [a | {"actions": ["write"]}]
        assert (await call(app, "POST", grant, "tadmin", body=unknown)).status == 400


VERBS = ("grant", "revoke")


async def test_subscription_mode() -> None:
    async with secured() as (_, app):
        path = NAMESPACE + "/subscriptionAuthMode"

        async def mode() -> object:
            return msgspec.json.decode((await call(app, "GET", path, "tadmin")).body)

        assert await mode() == "None"
        for body, status, then in (("Prefix", 204, "Prefix"), ("Other", 400, "Prefix")):
            assert (await call(app, "POST", path, "tadmin", body=body)).status == status
            assert await mode() == then
        assert (await call(app, "POST", path, "prod", body="None")).status == 403
        assert (await call(app, "POST", path, "tadmin")).status == 204
        assert await mode() == "None"
        missing = "/admin/v2/namespaces/t/none/subscriptionAuthMode"
        assert (await call(app, "GET", missing, "root")).status == 404


@pytest.mark.parametrize(
    ("method", "path", "stranger"),
    [("GET", "/admin/v2/nowhere", 404), ("OPTIONS", NAMESPACE, 200), ("PATCH", NAMESPACE, 405)],
)
async def test_unauthenticated_clients_learn_no_paths(
    method: str, path: str, stranger: int
) -> None:
    async with secured() as (_, app):
        assert (await call(app, method, path, None)).status == 401
        assert (await call(app, method, path, "nobody")).status == stranger
        assert (await call(app, "GET", "/", None)).status == 404


@pytest.mark.parametrize("name", ["authorization", "x-original-principal"])
async def test_credentials_given_twice_are_refused(name: str) -> None:
    """Servers differ in which one counts: a proxy may have checked the other."""
    async with secured() as (_, app):
        for path in ("/admin/v2/tenants", "/admin/v2/no-such-page"):
            asked = await call(
                app, "GET", path, "proxy", twice=name, **{"x-original-principal": "root"}
            )
            assert (asked.status, asked.reason) == (400, f"More than one header {name}")


async def test_metrics_are_open_unless_configured() -> None:
    async with secured() as (_, app):
        assert (await call(app, "GET", "/metrics/", None)).status == 200
    async with secured(authenticateMetricsEndpoint="true") as (_, app):
        assert (await call(app, "GET", "/metrics/", None)).status == 401
        assert (await call(app, "GET", "/metrics/", "nobody")).status == 200


async def test_secrets_are_not_shown_by_the_runtime_configuration() -> None:
    async with secured() as (_, app):
        shown = await call(app, "GET", "/admin/v2/brokers/configuration/runtime", "root")
        values = msgspec.json.decode(shown.body)
        assert values["tokenSecretKey"] == "*****"
        assert values["superUserRoles"] == "root,proxy"


async def test_passwords_of_ledgers_are_not_shown_by_the_runtime_configuration() -> None:
    async with secured(managedLedgerPassword="hidden-away") as (_, app):
        answer = await call(app, "GET", "/admin/v2/brokers/configuration/runtime", "root")
        assert b"managedLedgerPassword" in answer.body
        assert b"hidden-away" not in answer.body


async def test_metrics_count_authentications() -> None:
    async with secured() as (_, app):
        await call(app, "GET", "/admin/v2/clusters", None, authorization="Bearer rubbish")
        text = (await call(app, "GET", "/metrics/", None)).body.decode()
    labels = 'provider_name="AuthenticationProviderToken",auth_method="token"'
    assert f'pulsar_authentication_success_total{{cluster="standalone",{labels}}} 3' in text
    assert f'{labels},reason="invalid_token"}} 1' in text
