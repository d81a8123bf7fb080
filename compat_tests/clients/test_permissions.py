"""Who may do what: each row of the permission table, on our broker and on Apache's as it is now,
over the binary protocol and REST (spec PX-22).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

import geminga
from compat_tests.processes import ServerProcess
from compat_tests.secured import BOTH, Keys, admin, start_broker
from compat_tests.wire.raw import RawClient
from geminga_protocol.commands import connection, consuming, lookup, producing, schemas
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    Schema,
    ServerError,
)

SEEN = json.loads(
    (
        Path(__file__).resolve().parents[2]
        / "broker_core/geminga_broker/admin/_tests/rest_permissions.json"
    ).read_text()
)
"""What an Apache broker was seen to let through, role by role."""

PARTS = {
    "tenant": "t", "namespace": "n", "topic": "top", "cluster": "standalone", "count": "1",
    "subscription": "sub", "timestamp": "1", "seconds": "9", "domain": "persistent", "role": "x",
    "bundle": "0x00000000_0xffffffff", "bookie": "b:3181", "key": "k", "value": "v",
    "resourcegroup": "g",
}  # fmt: skip
GRANTS = {"prod": ["produce"], "cons": ["consume"], "fn": ["functions"]}
ROLES = ("admin", "tadmin", "prod", "cons", "fn", "nobody")
BASE = "/admin/v2/namespaces/t/n"
TOPIC = "persistent://t/n/live"
SHARED = CommandSubscribe.SubType.Shared


class Site(NamedTuple):
    """A server with the tenant t, whose admin is tadmin, and GRANTS in t/n."""

    server: ServerProcess
    keys: Keys

    def rest(
        self,
        method: str,
        path: str,
        role: str | None,
        body: object = None,
        original: str | None = None,
    ) -> tuple[int, bytes]:
        """One request."""
        headers = {"Content-Type": "application/json"}
        if original is not None:
            headers["X-Original-Principal"] = original
        if role is not None:
            headers["Authorization"] = f"Bearer {self.keys.token(role)}"
        data = None if method == "GET" else json.dumps(body).encode()
        url = self.server.web_url + path
        request = urllib.request.Request(url, method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def must(self, method: str, path: str, body: object = None) -> None:
        """As the superuser. Raises URLError."""
        admin(self.server.web_url, self.keys, method, path, body)

    def locate(self, topic: str) -> None:
        """Apache's serves no topic of whose bundle nobody has asked."""
        self.must("GET", "/lookup/v2/topic/" + topic.replace("://", "/"))

    def session(self, role: str) -> RawClient:
        """A connection of the role's."""
        client = RawClient(self.server.address, handshake=False)
        token = self.keys.token(role).encode()
        client.send_bytes(connection.connect("x", auth_method_name="token", auth_data=token))
        client.wait_for(BaseCommand.CONNECTED)
        return client


@pytest.fixture(scope="module", params=BOTH)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp(f"permissions-{request.param}")
    keys = Keys(folder / "keys")
    server = start_broker(request.param, folder / "broker", keys)
    made = Site(server, keys)
    try:
        tenant = {"adminRoles": ["tadmin"], "allowedClusters": ["standalone"]}
        made.must("PUT", "/admin/v2/tenants/t", tenant)
        made.must("PUT", BASE)
        made.must("PUT", "/admin/v2/persistent/t/n/live")
        for role, actions in GRANTS.items():
            made.must("POST", f"{BASE}/permissions/{role}", actions)
        yield made
    finally:
        server.kill()


# ---- REST ----


@pytest.mark.slow
def test_rest_as_it_was_seen(site: Site) -> None:
    """What would be done is only tried where it changes nothing."""
    wrong = []
    compared = 0
    for row, seen in SEEN["rows"].items():
        method, path = row.split(" ")
        path = path.format_map(PARTS)
        for role, sign in zip(SEEN["roles"], seen, strict=True):
            if sign == "+" and method != "GET":
                continue
            status, body = site.rest(method, path, None if role == "None" else role, {})
            compared += 1
            if (status not in (401, 403)) != (sign == "+") and status not in (404, 405):
                wrong.append((row, role, sign, status, body[:200]))
    assert not wrong
    assert compared > 500


@pytest.mark.parametrize(
    ("role", "original", "status"),
    [
        ("proxy", "prod", 200),
        ("proxy", "fn", 403),
        ("proxy", "admin", 200),
        ("proxy", "", 403),
        ("proxy", None, 403),
        ("proxy", "proxy", 403),
        ("prod", "prod", 200),
        ("prod", "admin", 403),
        ("fn", "prod", 403),
    ],
)
def test_rest_in_the_name_of_others(
    site: Site, role: str, original: str | None, status: int
) -> None:
    assert site.rest("GET", f"{BASE}/topics", role, original=original)[0] == status


# ---- the binary protocol ----


def commands() -> dict[int, bytes]:
    """One frame for each command that needs a permission."""
    schema = Schema(name="s", type=Schema.Type.Value("String"), schema_data=b"")
    return {
        BaseCommand.LOOKUP: lookup.lookup(TOPIC, 7),
        BaseCommand.PARTITIONED_METADATA: lookup.partitioned_metadata(TOPIC, 7),
        BaseCommand.PRODUCER: producing.producer(TOPIC, 1, 7),
        BaseCommand.SUBSCRIBE: consuming.subscribe(TOPIC, "s", SHARED, 1, 7),
        BaseCommand.GET_TOPICS_OF_NAMESPACE: lookup.get_topics_of_namespace(7, "t/n"),
        BaseCommand.WATCH_TOPIC_LIST: lookup.watch_topic_list(7, 1, "t/n", "persistent://t/n/.*"),
        BaseCommand.GET_SCHEMA: schemas.get_schema(7, TOPIC),
        BaseCommand.GET_OR_CREATE_SCHEMA: schemas.get_or_create_schema(7, TOPIC, schema),
    }


_ADMINS = {"admin", "tadmin"}
_ANY = {*_ADMINS, "prod", "cons"}
ALLOWED: Mapping[int, set[str]] = {
    BaseCommand.LOOKUP: _ANY,
    BaseCommand.PARTITIONED_METADATA: _ANY,
    BaseCommand.PRODUCER: _ADMINS | {"prod"},
    BaseCommand.SUBSCRIBE: _ADMINS | {"cons"},
    BaseCommand.GET_TOPICS_OF_NAMESPACE: _ANY,
    BaseCommand.WATCH_TOPIC_LIST: _ANY,
    BaseCommand.GET_SCHEMA: _ANY,
    BaseCommand.GET_OR_CREATE_SCHEMA: _ADMINS | {"prod"},
}
STRICTER = {BaseCommand.GET_SCHEMA, BaseCommand.GET_OR_CREATE_SCHEMA}
"""Apache lets everybody through who is authenticated."""

ERROR_FIELDS = {
    "error": "error",
    "lookupTopicResponse": "error",
    "partitionMetadataResponse": "error",
    "getSchemaResponse": "error_code",
    "getOrCreateSchemaResponse": "error_code",
}


def error_of(command: BaseCommand) -> int | None:
    for name, field in ERROR_FIELDS.items():
        if command.HasField(name):
            answer = getattr(command, name)
            return int(getattr(answer, field)) if answer.HasField(field) else None
    return None


@pytest.mark.parametrize("kind", commands(), ids=lambda kind: BaseCommand.Type.Name(kind))
@pytest.mark.parametrize("role", ROLES)
def test_commands(site: Site, kind: int, role: str) -> None:
    with site.session(role) as client:
        client.send_bytes(commands()[kind])
        allowed = error_of(client.next_frame().command) != ServerError.AuthorizationError
    expected = role in ALLOWED[kind]
    if site.server.kind == "apache" and kind in STRICTER:
        expected = True
    assert allowed == expected


_NOT_FOUND, _NOT_ALLOWED = ServerError.TopicNotFound, ServerError.AuthorizationError


@pytest.mark.parametrize(
    ("kind", "namespace", "role", "error"),
    [
        (BaseCommand.PARTITIONED_METADATA, "missing/n", "admin", _NOT_FOUND),
        (BaseCommand.PARTITIONED_METADATA, "missing/n", "prod", _NOT_FOUND),
        (BaseCommand.PARTITIONED_METADATA, "missing/n", "nobody", _NOT_FOUND),
        (BaseCommand.PARTITIONED_METADATA, "t/missing", "admin", _NOT_FOUND),
        (BaseCommand.PARTITIONED_METADATA, "t/missing", "nobody", _NOT_ALLOWED),
        (BaseCommand.LOOKUP, "missing/n", "admin", _NOT_FOUND),
        (BaseCommand.LOOKUP, "missing/n", "nobody", _NOT_ALLOWED),
        (BaseCommand.LOOKUP, "t/missing", "nobody", _NOT_ALLOWED),
    ],
)
def test_places_that_are_not_there(
    site: Site, kind: int, namespace: str, role: str, error: int
) -> None:
    topic = f"persistent://{namespace}/x"
    ask = lookup.lookup if kind == BaseCommand.LOOKUP else lookup.partitioned_metadata
    with site.session(role) as client:
        client.send_bytes(ask(topic, 7))
        assert error_of(client.next_frame().command) == error


@pytest.mark.parametrize(
    ("role", "original", "outcome"),
    [
        ("proxy", "prod", None),
        ("proxy", "cons", ServerError.AuthorizationError),
        ("proxy", None, "closed"),
        ("proxy", "proxy", "closed"),
        ("prod", "admin", "closed"),
        ("prod", "prod", "closed"),
    ],
)
def test_commands_in_the_name_of_others(
    site: Site, role: str, original: str | None, outcome: object
) -> None:
    site.locate(TOPIC)
    with RawClient(site.server.address, handshake=False) as client:
        greeting = connection.connect(
            "x",
            auth_method_name="token",
            auth_data=site.keys.token(role).encode(),
            original=connection.Original(principal=original),
        )
        client.send_bytes(greeting)
        answer = client.wait_for(BaseCommand.CONNECTED, BaseCommand.ERROR).command
        if outcome == "closed":
            assert answer.error.error == ServerError.AuthorizationError
            return
        client.send_bytes(producing.producer(TOPIC, 1, 7))
        assert error_of(client.next_frame().command) == outcome


def test_a_first_subscription_needs_consume(site: Site) -> None:
    topic = "persistent://t/n/first"
    site.locate(topic)
    frame = producing.producer(topic, 1, 7, initial_subscription_name="mine")
    with site.session("prod") as client:
        client.send_bytes(frame)
        assert error_of(client.next_frame().command) == ServerError.AuthorizationError
    with site.session("tadmin") as client:
        client.send_bytes(frame)
        assert error_of(client.next_frame().command) is None


def test_grants_of_a_topic_are_for_its_partitions_and_go_with_it(site: Site) -> None:
    path, whole = "/admin/v2/persistent/t/n/parts", "persistent://t/n/parts"
    site.must("PUT", f"{path}/partitions", 2)
    site.must("POST", f"{path}/permissions/guest", ["produce"])
    with site.session("guest") as client:
        client.send_bytes(producing.producer(f"{whole}-partition-1", 1, 1))
        client.wait_for(BaseCommand.PRODUCER_SUCCESS)
        client.send_bytes(consuming.subscribe(f"{whole}-partition-1", "s", SHARED, 1, 2))
        refused = client.wait_for(BaseCommand.ERROR).command
        assert refused.error.error == ServerError.AuthorizationError
        client.send_bytes(lookup.lookup(TOPIC, 3))
        refused = client.wait_for(BaseCommand.LOOKUP_RESPONSE).command
        assert error_of(refused) == ServerError.AuthorizationError
    assert "guest" in _destinations(site)
    site.must("DELETE", f"{path}/partitions?force=true")
    assert "guest" not in _destinations(site)


def _destinations(site: Site) -> str:
    _, body = site.rest("GET", BASE, "admin")
    return json.dumps(json.loads(body)["auth_policies"]["destination_auth"])


def test_grants_on_several_topics(site: Site) -> None:
    topic = {"topic": TOPIC, "role": "many"}
    for role, expected in (("nobody", 401), ("tadmin", 204)):
        wanted = [topic | {"actions": ["consume"]}]
        path = "/admin/v2/namespaces/grantPermissionsOnTopics"
        assert site.rest("POST", path, role, wanted)[0] == expected
    assert '"many": ["consume"]' in _destinations(site)
    site.must("POST", "/admin/v2/namespaces/revokePermissionsOnTopics", [topic])
    assert "many" not in _destinations(site)
    path = "/admin/v2/namespaces/revokePermissionsOnTopics"
    assert site.rest("POST", path, "admin", [])[0] == 400


async def _subscribe(site: Site, role: str, subscription: str) -> None:
    who = geminga.AuthenticationToken(site.keys.token(role))
    with trio.fail_after(100):
        async with geminga.connect(site.server.service_url, authentication=who) as client:
            await client.subscribe(TOPIC, subscription, consumer_type=geminga.ConsumerType.SHARED)


async def test_subscriptions_of_roles(site: Site) -> None:
    path = f"{BASE}/permissions/subscription/kept"
    site.must("POST", path, ["other"])
    with pytest.raises(geminga.AuthorizationError):
        await _subscribe(site, "cons", "kept")
    site.must("POST", path, ["other", "cons"])
    await _subscribe(site, "cons", "kept")
    site.must("DELETE", f"{BASE}/permissions/kept/cons")
    with pytest.raises(geminga.AuthorizationError):
        await _subscribe(site, "cons", "kept")
    await _subscribe(site, "cons", "free")


async def test_subscriptions_with_the_role_as_prefix(site: Site) -> None:
    path = f"{BASE}/subscriptionAuthMode"
    assert site.rest("GET", path, "tadmin") == (200, b'"None"')
    assert site.rest("POST", path, "prod", "Prefix")[0] == 403
    site.must("POST", path, "Prefix")
    try:
        assert site.rest("GET", path, "tadmin") == (200, b'"Prefix"')
        with pytest.raises(geminga.GemingaError, match="prefixed by the authentication role"):
            await _subscribe(site, "cons", "any")
        await _subscribe(site, "cons", "cons-any")
        await _subscribe(site, "tadmin", "any")
    finally:
        site.must("POST", path, "None")


def test_paths_that_nobody_serves_are_told_to_known_roles_only(site: Site) -> None:
    for method, path in (("GET", "/admin/v2/nowhere"), ("PATCH", BASE)):
        assert site.rest(method, path, None)[0] == 401
        assert site.rest(method, path, "nobody")[0] in (404, 405)


def test_a_tenants_admin_may_no_more(site: Site) -> None:
    tenant = {"adminRoles": ["second"], "allowedClusters": ["standalone"]}
    site.must("PUT", "/admin/v2/tenants/t2", tenant)
    site.must("PUT", "/admin/v2/namespaces/t2/n")
    topic = "persistent://t2/n/x"
    site.locate(topic)
    with site.session("second") as client:
        client.send_bytes(producing.producer(topic, 1, 1))
        client.wait_for(BaseCommand.PRODUCER_SUCCESS)
        site.must("POST", "/admin/v2/tenants/t2", tenant | {"adminRoles": ["third"]})
        if site.server.kind == "geminga":  # Apache's closes nothing
            client.wait_for(BaseCommand.CLOSE_PRODUCER)
        client.send_bytes(producing.producer(topic, 2, 2))
        refused = client.wait_for(BaseCommand.ERROR).command
        assert refused.error.error == ServerError.AuthorizationError
