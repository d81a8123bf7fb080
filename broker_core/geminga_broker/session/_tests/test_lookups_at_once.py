"""Lookups that need no record to be read are answered without a task; none is answered wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from geminga_broker._tests.wire import Type, WireBroker, WireClient, open_broker
from geminga_broker.authz import authorizer
from geminga_broker.authz.authorizer import LARGE_BYTES
from geminga_broker.cluster.records import JsonObject
from geminga_broker.session._tests.test_authentication import login, secured
from geminga_broker.session.session import Refuse, Session
from geminga_protocol.commands import lookup
from geminga_protocol.pb.pulsar_api_pb2 import CommandLookupTopicResponse, ServerError

TOPIC = "persistent://public/default/a"


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands that got a task."""
    begun: list[str] = []
    spawn = Session.spawn

    def counted(
        self: Session,
        refuse: Refuse,
        run: Callable[..., Awaitable[None]],
        *args: object,
        size_bytes: int = 0,
    ) -> None:
        begun.append(type(args[1]).__name__)
        spawn(self, refuse, run, *args, size_bytes=size_bytes)

    monkeypatch.setattr(Session, "spawn", counted)
    return begun


async def ask(
    client: WireClient, topic: str, listener_name: str | None = None
) -> CommandLookupTopicResponse:
    request = lookup.lookup(topic, 7, listener_name=listener_name)
    found = (await client.ask(request, Type.LOOKUP_RESPONSE)).lookupTopicResponse
    assert found.request_id == 7
    return found


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[WireBroker, WireClient]]:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        assert (await ask(client, TOPIC)).brokerServiceUrl == "pulsar://here:1"
        yield broker, client


async def test_only_the_first_one_needs_a_task(tasks: list[str]) -> None:
    async with connected() as (_, client):
        assert tasks == ["CommandLookupTopic"]
        for _ in range(3):
            found = await ask(client, TOPIC)
            assert found.brokerServiceUrl == "pulsar://here:1"
            assert found.authoritative
        assert len(tasks) == 1


async def test_a_bundle_that_is_given_up_is_not_told() -> None:
    async with connected() as (broker, client):
        namespaces, ownership = broker.service.namespaces, broker.service.ownership
        (bundle,) = [each for each in ownership.owned() if each.covers(TOPIC)]
        await ownership.disable(bundle)
        found = await ask(client, TOPIC)
        assert found.error == ServerError.MetadataError
        assert "is being unloaded" in found.message
        await namespaces.tenants.update("public/default", lambda old: old | {"deleted": True})
        assert (await ask(client, TOPIC)).error == ServerError.TopicNotFound


async def test_bundles_that_changed_are_read_again() -> None:
    async with connected() as (broker, client):
        namespaces = broker.service.namespaces
        before = {bundle.range for bundle in broker.service.ownership.owned()}
        whole = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
        await namespaces.change_local_policies(
            "public/default", lambda old: old | {"bundles": whole}
        )
        assert (await ask(client, TOPIC)).brokerServiceUrl == "pulsar://here:1"
        after = {bundle.range for bundle in broker.service.ownership.owned()}
        assert after - before == {"0x00000000_0xffffffff"}


async def test_refusals_are_those_of_a_task(tasks: list[str]) -> None:
    async with connected() as (broker, client):
        for _ in range(2):
            found = await ask(client, TOPIC, listener_name="none")
            assert found.error == ServerError.ServiceNotReady
            assert "no listener named" in found.message
        assert (await ask(client, "a/b")).error == ServerError.InvalidTopicName
        broker.service.lookup.is_open = False
        found = await ask(client, TOPIC)
        assert found.error == ServerError.ServiceNotReady
        assert "shutting down" in found.message
        assert len(tasks) == 1


async def test_rights_are_asked_for_each(tasks: list[str]) -> None:
    topic = "persistent://acme/app/t"
    async with secured() as broker:
        writer, stranger = await login(broker, "writer"), await login(broker, "stranger")
        for _ in range(3):
            assert (await ask(writer, topic)).brokerServiceUrl == "pulsar://here:1"
            assert (await ask(stranger, topic)).error == ServerError.AuthorizationError
        assert tasks.count("CommandLookupTopic") == 4, "each refusal, and the first of the writer"
        await broker.service.namespaces.tenants.update(
            "acme/app", lambda old: old | {"auth_policies": {"namespace_auth": {}}}
        )
        assert (await ask(writer, topic)).error == ServerError.AuthorizationError


async def test_large_policies_are_decoded_once_in_a_task(
    tasks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    large: list[int] = []
    decode = authorizer.decode

    def decoding(value: bytes) -> JsonObject:
        if len(value) > LARGE_BYTES:
            large.append(len(value))
        return decode(value)

    monkeypatch.setattr(authorizer, "decode", decoding)
    topic = "persistent://acme/app/t"
    async with secured() as broker:
        writer = await login(broker, "writer")
        for _ in range(3):
            await ask(writer, topic)
        assert tasks.count("CommandLookupTopic") == 1
        grants = {f"role-{number}": ["consume"] for number in range(LARGE_BYTES // 10)}
        await broker.service.namespaces.tenants.update(
            "acme/app",
            lambda old: (
                old | {"auth_policies": {"namespace_auth": grants | {"writer": ["produce"]}}}
            ),
        )
        for _ in range(3):
            assert (await ask(writer, topic)).brokerServiceUrl == "pulsar://here:1"
        assert tasks.count("CommandLookupTopic") == 2
        assert len(large) == 1
        # Those that are refused must be asked in tasks, each of them.
        stranger = await login(broker, "stranger")
        for _ in range(5):
            assert (await ask(stranger, topic)).error == ServerError.AuthorizationError
        assert len(large) == 1
        await broker.service.namespaces.tenants.update(
            "acme/app", lambda old: old | {"auth_policies": {"namespace_auth": grants}}
        )
        assert (await ask(writer, topic)).error == ServerError.AuthorizationError
        assert len(large) == 2


async def test_decoded_policies_are_bounded_by_their_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authorizer, "DECODED_BYTES_MAX", 1000)
    async with secured() as broker:
        asked = broker.service.authorizer
        for number in range(60):
            value = b'{"adminRoles":["r%04d"]}' % number
            assert asked._decoded(f"t{number % 50}", value) == {"adminRoles": [f"r{number:04}"]}
            kept = asked._records
            assert sum(len(value) for value, _ in kept.values()) == asked._records_bytes <= 1000
        assert len(kept) > 5
