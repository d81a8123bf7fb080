"""Authentication and authorization at the wire (spec PX-20, PX-22, PX-24)."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from trio.testing import MockClock

from geminga_broker._tests.wire import Type, WireBroker, WireClient, message, open_broker
from geminga_broker.authz.commands import COMMANDS
from geminga_broker.authz.needs import Scope
from geminga_broker.config import load_config
from geminga_broker.session.table import ROUTES
from geminga_protocol import tokens
from geminga_protocol.commands import connection, consuming, lookup, producing, schemas
from geminga_protocol.commands.connection import Original
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    FeatureFlags,
    Schema,
    ServerError,
)
from geminga_runtime.auth.api import REFRESH

SECRET = bytes(range(32))
TOPIC = "persistent://acme/app/t"
NO_REQUEST = (1 << 64) - 1
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProviders": "token",
    "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
    "superUserRoles": "root, proxy",
    "proxyRoles": "proxy",
    "authenticationRefreshCheckSeconds": "5",
}
REFRESHES = FeatureFlags(supports_auth_refresh=True)


def token(role: str, *, lasts_s: float | None = None) -> bytes:
    expires = None if lasts_s is None else int(time.time() + lasts_s)
    return tokens.create(SECRET, role, expires_at_s=expires).encode()


def hello(
    data: bytes | None,
    *,
    method: str | None = "token",
    original: Original = Original(),
    flags: FeatureFlags | None = None,
) -> bytes:
    return connection.connect(
        "test", auth_method_name=method, auth_data=data, original=original, feature_flags=flags
    )


@asynccontextmanager
async def secured(**settings: str) -> AsyncIterator[WireBroker]:
    """Tenant acme with admin `boss`; `writer` may produce, `reader` consume in acme/app."""
    config = load_config(None, {}, SETTINGS | settings)
    async with open_broker(config) as broker:
        namespaces = broker.service.namespaces
        await namespaces.create_tenant("acme", ("boss",), ("standalone",))
        await namespaces.create("acme/app", bundles=1, clusters=("standalone",))
        grants = {
            "namespace_auth": {"writer": ["produce"], "reader": ["consume"]},
            "destination_auth": {},
            "subscription_auth_roles": {},
        }
        await namespaces.tenants.update("acme/app", lambda old: old | {"auth_policies": grants})
        yield broker


async def login(broker: WireBroker, role: str, original: str | None = None) -> WireClient:
    client = broker.client()
    await client.ask(hello(token(role), original=Original(principal=original)), Type.CONNECTED)
    return client


async def refused(broker: WireBroker, greeting: bytes) -> tuple[int, str]:
    client = broker.client()
    answer = (await client.ask(greeting, Type.ERROR)).error
    assert answer.request_id == NO_REQUEST
    assert await client.next() is None
    return answer.error, answer.message


@pytest.mark.parametrize(
    "greeting",
    [
        hello(None, method=None),
        hello(b"", method="none"),
        hello(b""),
        hello(b"rubbish"),
        hello(token("writer", lasts_s=-10)),
        hello(b"writer:pw", method="basic"),
        hello(b"", method="tls"),
        hello(tokens.create(bytes(32), "root").encode()),
        hello(b"a" * 50_000),
    ],
)
async def test_clients_without_a_valid_token_are_refused(greeting: bytes) -> None:
    async with secured() as broker:
        expected = (ServerError.AuthenticationError, "Failed to authenticate")
        assert await refused(broker, greeting) == expected
        assert not broker.service.connections.sessions


async def test_a_command_before_authentication_closes_the_connection() -> None:
    async with secured() as broker:
        client = broker.client()
        await client.send(lookup.lookup(TOPIC, 1))
        assert await client.next() is None
        client = broker.client()
        await client.send(connection.auth_response("c", "token", token("root")))
        assert await client.next() is None


async def test_secrets_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = token("writer").decode(), token("writer", lasts_s=-10).decode()
    async with secured() as broker:
        await login(broker, "writer")
        await refused(broker, hello(bad.encode()))
    assert "authentication failed: the token of role 'writer' has expired" in caplog.text
    for secret in (good, bad, bad.split(".")[2], SETTINGS["tokenSecretKey"]):
        assert secret not in caplog.text


# ---- original principals ----


@pytest.mark.parametrize(
    ("role", "original"),
    [("proxy", None), ("proxy", ""), ("proxy", "proxy"), ("writer", "root"), ("writer", "writer")],
)
async def test_invalid_original_principals_are_refused(role: str, original: str | None) -> None:
    async with secured() as broker:
        greeting = hello(token(role), original=Original(principal=original))
        expected = (ServerError.AuthorizationError, "Invalid roles.")
        assert await refused(broker, greeting) == expected


async def test_behind_a_proxy_both_roles_need_the_right() -> None:
    async with secured() as broker:
        good = await login(broker, "proxy", "writer")
        await good.open_producer(TOPIC)
        bad = await login(broker, "proxy", "reader")
        answer = await bad.ask(producing.producer(TOPIC, 1, 7), Type.ERROR)
        assert answer.error.message == "Proxy Client is not authorized to Produce"
    async with secured(superUserRoles="root") as broker:
        weak = await login(broker, "proxy", "writer")
        answer = await weak.ask(producing.producer(TOPIC, 1, 7), Type.ERROR)
        assert answer.error.error == ServerError.AuthorizationError


async def test_forwarded_credentials_are_checked_if_configured() -> None:
    async with secured(authenticateOriginalAuthData="true") as broker:
        forged = Original("root", token("reader").decode(), "token")
        client = broker.client()
        await client.ask(hello(token("proxy"), original=forged), Type.CONNECTED)
        (session,) = broker.service.connections.sessions
        assert session.caller == ("proxy", "reader")
        bad = Original("root", "rubbish", "token")
        await refused(broker, hello(token("proxy"), original=bad))
        # A name alone proves nothing.
        await refused(broker, hello(token("proxy"), original=Original("reader")))


# ---- expiry ----


@pytest.fixture
def wall(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """The wall clock goes with the loop's."""
    began_s = time.time()
    monkeypatch.setattr(time, "time", lambda: began_s + autojump_clock.current_time())
    return autojump_clock


async def test_an_expired_client_is_challenged_and_stays_with_a_fresh_token(
    wall: MockClock,
) -> None:
    async with secured() as broker:
        client = broker.client()
        await client.ask(hello(token("writer", lasts_s=90), flags=REFRESHES), Type.CONNECTED)
        for _ in range(2):
            while (frame := await client.next()) is not None and frame.type != Type.AUTH_CHALLENGE:
                await client.send(connection.PONG)
            assert frame is not None
            assert frame.command.authChallenge.challenge.auth_data == REFRESH
            fresh = token("writer", lasts_s=90)
            await client.send(connection.auth_response("c", "token", fresh))
        await client.open_producer(TOPIC)


@pytest.mark.parametrize(
    "answer", [None, b"rubbish", token("reader")], ids=["silent", "bad", "another role"]
)
async def test_an_expired_client_is_closed_without_a_good_fresh_token(
    answer: bytes | None, wall: MockClock
) -> None:
    async with secured() as broker:
        client = broker.client()
        await client.ask(hello(token("writer", lasts_s=10), flags=REFRESHES), Type.CONNECTED)
        seen = []
        while (frame := await client.next()) is not None:
            seen.append(frame.type)
            if frame.type == Type.AUTH_CHALLENGE and answer is not None:
                await client.send(connection.auth_response("c", "token", answer))
        assert seen == [Type.AUTH_CHALLENGE, Type.ERROR]
        assert not broker.service.connections.sessions


async def test_an_expired_token_is_asked_for_once_when_the_clocks_may_differ(
    wall: MockClock,
) -> None:
    """The same token is as good as before until the allowed skew has passed as well."""
    async with secured(tokenAllowedClockSkewSeconds="600") as broker:
        began_s = time.time()
        client = broker.client()
        same = token("writer", lasts_s=10)
        await client.ask(hello(same, flags=REFRESHES), Type.CONNECTED)
        challenges = 0
        while (frame := await client.next()) is not None and challenges < 20:
            if frame.type == Type.PING:
                await client.send(connection.PONG)
            elif frame.type == Type.AUTH_CHALLENGE:
                challenges += 1
                await client.send(connection.auth_response("c", "token", same))
        assert challenges == 1
        assert 600 <= time.time() - began_s < 620


async def test_a_client_that_cannot_refresh_is_closed_at_expiry(wall: MockClock) -> None:
    async with secured() as broker:
        client = broker.client()
        await client.ask(hello(token("writer", lasts_s=10)), Type.CONNECTED)
        await client.expect(Type.ERROR)
        assert await client.next() is None


# ---- permissions ----


def test_every_served_command_has_a_need() -> None:
    assert set(ROUTES) == set(COMMANDS) - {Type.SEND}


def _topic_commands() -> dict[int, bytes]:
    """One frame for each command that needs a permission."""
    schema = Schema(name="s", type=Schema.Type.Value("String"), schema_data=b"")
    return {
        Type.LOOKUP: lookup.lookup(TOPIC, 7),
        Type.PARTITIONED_METADATA: lookup.partitioned_metadata(TOPIC, 7),
        Type.PRODUCER: producing.producer(TOPIC, 1, 7),
        Type.SUBSCRIBE: consuming.subscribe(TOPIC, "s", CommandSubscribe.SubType.Shared, 1, 7),
        Type.GET_TOPICS_OF_NAMESPACE: lookup.get_topics_of_namespace(7, "acme/app"),
        Type.WATCH_TOPIC_LIST: lookup.watch_topic_list(
            7, 1, "acme/app", "persistent://acme/app/.*"
        ),
        Type.GET_SCHEMA: schemas.get_schema(7, TOPIC),
        Type.GET_OR_CREATE_SCHEMA: schemas.get_or_create_schema(7, TOPIC, schema),
    }


ALLOWED = {
    Type.LOOKUP: {"writer", "reader", "boss", "root"},
    Type.PARTITIONED_METADATA: {"writer", "reader", "boss", "root"},
    Type.PRODUCER: {"writer", "boss", "root"},
    Type.SUBSCRIBE: {"reader", "boss", "root"},
    Type.GET_TOPICS_OF_NAMESPACE: {"writer", "reader", "boss", "root"},
    Type.WATCH_TOPIC_LIST: {"writer", "reader", "boss", "root"},
    Type.GET_SCHEMA: {"writer", "reader", "boss", "root"},
    Type.GET_OR_CREATE_SCHEMA: {"writer", "boss", "root"},
}


def test_every_command_with_a_need_is_tried() -> None:
    asked = {
        kind for kind, need in COMMANDS.items() if need.scope in (Scope.TOPIC, Scope.NAMESPACE)
    }
    assert asked == set(ALLOWED) == set(_topic_commands())


ANSWERS = {
    "error": "error",
    "lookupTopicResponse": "error",
    "partitionMetadataResponse": "error",
    "getSchemaResponse": "error_code",
    "getOrCreateSchemaResponse": "error_code",
}


def _refusal(command: BaseCommand) -> int | None:
    for name, code in ANSWERS.items():
        if command.HasField(name):
            answer = getattr(command, name)
            return getattr(answer, code) if answer.HasField(code) else None
    return None


@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: BaseCommand.Type.Name(kind))
@pytest.mark.parametrize("role", ["root", "boss", "writer", "reader", "stranger"])
async def test_authorized_commands_succeed(kind: int, role: str) -> None:
    async with secured() as broker:
        client = await login(broker, role)
        await client.send(_topic_commands()[kind])
        frame = await client.next()
        assert frame is not None
        allowed = _refusal(frame.command) != ServerError.AuthorizationError
        assert allowed == (role in ALLOWED[kind]), frame.command


async def test_grants_on_a_topic_apply_to_its_partitions() -> None:
    async with secured() as broker:
        grants = {"destination_auth": {TOPIC: {"guest": ["produce"]}}}
        await broker.service.namespaces.tenants.update(
            "acme/app", lambda old: old | {"auth_policies": grants}
        )
        client = await login(broker, "guest")
        await client.open_producer(TOPIC, 1)
        await client.open_producer(TOPIC + "-partition-0", 2)
        answer = await client.ask(producing.producer(TOPIC + "2", 3, 7), Type.ERROR)
        assert answer.error.error == ServerError.AuthorizationError


async def test_subscriptions_may_be_restricted_to_roles_and_prefixes() -> None:
    async with secured() as broker:
        tenants = broker.service.namespaces.tenants
        grants = {
            "namespace_auth": {"reader": ["consume"], "other": ["consume"]},
            "subscription_auth_roles": {"mine": ["other"]},
        }
        await tenants.update("acme/app", lambda old: old | {"auth_policies": grants})
        client = await login(broker, "reader")
        shared = CommandSubscribe.SubType.Shared
        answer = await client.ask(consuming.subscribe(TOPIC, "mine", shared, 1, 7), Type.ERROR)
        assert answer.error.message == "Client is not authorized to subscribe"
        await tenants.update("acme/app", lambda old: old | {"subscription_auth_mode": "Prefix"})
        answer = await client.ask(consuming.subscribe(TOPIC, "x", shared, 1, 7), Type.ERROR)
        assert "prefixed by the authentication role, like reader-xxxx" in answer.error.message
        await client.ask(consuming.subscribe(TOPIC, "reader-1", shared, 1, 7), Type.SUCCESS)


async def test_a_revoked_grant_closes_producers_and_consumers() -> None:
    async with secured() as broker:
        service = broker.service
        writer, reader = await login(broker, "writer"), await login(broker, "reader")
        await writer.open_producer(TOPIC)
        await reader.subscribe(TOPIC)
        grants = {"namespace_auth": {"reader": ["consume"]}}
        await service.namespaces.tenants.update(
            "acme/app", lambda old: old | {"auth_policies": grants}
        )
        await service.permissions_changed("acme", "acme/app")
        await writer.expect(Type.CLOSE_PRODUCER)
        await reader.send(connection.PING)
        await reader.expect(Type.PONG)
        await writer.send(message(1))
        answer = await writer.ask(producing.producer(TOPIC, 1, 7), Type.ERROR)
        assert answer.error.error == ServerError.AuthorizationError
