"""Rights revoked during an operation, and hostile peers (spec PX-22, PX-24)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_broker import health
from geminga_broker._tests.wire import Type, WireBroker, WireClient
from geminga_broker.admin._tests.test_guard import call
from geminga_broker.admin.app import create_app
from geminga_broker.errors import BrokerError
from geminga_broker.service import BrokerService
from geminga_broker.session._tests.test_authentication import TOPIC, hello, login, secured, token
from geminga_broker.topic.topic import Topic
from geminga_protocol.commands import connection, consuming, lookup, producing
from geminga_protocol.pb.pulsar_api_pb2 import CommandSubscribe, Schema, ServerError
from geminga_protocol.topic_name import TopicName

NAMESPACE = "acme/app"
WATCHER = lookup.watch_topic_list(7, 1, NAMESPACE, ".*")
GRANT = {"namespace_auth": {"writer": ["produce"], "reader": ["consume"]}}


async def set_grants(broker: WireBroker, grants: Mapping[str, object]) -> None:
    service = broker.service
    await service.namespaces.tenants.update(NAMESPACE, lambda old: old | {"auth_policies": grants})
    await service.permissions_changed("acme", NAMESPACE)


class SlowTopics:
    """Topics load only when a test lets them."""

    def __init__(self, broker: WireBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = trio.Event()
        self._get = broker.service.topics.get
        monkeypatch.setattr(broker.service.topics, "get", self._wait)

    async def _wait(self, name: TopicName, *, create: bool) -> Topic:
        await self.go.wait()
        return await self._get(name, create=create)


@pytest.mark.parametrize(
    ("role", "command"),
    [
        ("writer", producing.producer(TOPIC, 1, 7)),
        ("reader", consuming.subscribe(TOPIC, "s", CommandSubscribe.SubType.Shared, 1, 7)),
    ],
    ids=["producer", "consumer"],
)
@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_grant_revoked_while_the_topic_loads_is_noticed(
    role: str, command: bytes, comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with secured() as broker:
        client = await login(broker, role)
        slow = SlowTopics(broker, monkeypatch)
        await client.send(command)
        await wait_all_tasks_blocked()
        await set_grants(broker, {})
        if comes_back:
            await set_grants(broker, GRANT)
        slow.go.set()
        frame = await client.next()
        assert frame is not None
        if comes_back:
            assert not frame.command.HasField("error"), frame.command
        else:
            assert frame.command.error.error == ServerError.AuthorizationError
            topic = broker.service.topics.loaded[TOPIC]
            assert not topic.subscriptions
            assert not list(topic.producers)


async def test_nothing_is_made_for_who_lost_its_right_while_the_topic_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the first subscription nor the schema that the producer's command brings."""
    both = {"namespace_auth": {"writer": ["produce", "consume"]}}
    schema = Schema(name="s", schema_data=b"", type=Schema.Type.String)
    command = producing.producer(TOPIC, 1, 7, schema=schema, initial_subscription_name="mine")
    async with secured() as broker:
        await set_grants(broker, both)
        client = await login(broker, "writer")
        slow = SlowTopics(broker, monkeypatch)
        await client.send(command)
        await wait_all_tasks_blocked()
        await set_grants(broker, {})
        slow.go.set()
        frame = await client.next()
        assert frame is not None
        assert frame.command.error.error == ServerError.AuthorizationError
        assert not broker.service.topics.loaded[TOPIC].subscriptions
        name = TopicName.parse(TOPIC)
        assert await broker.service.schemas.registry.latest(name.schema_name) is None


@pytest.mark.parametrize(
    ("role", "method", "command"),
    [
        ("writer", "add_producer", producing.producer(TOPIC, 1, 7)),
        (
            "reader",
            "subscribe",
            consuming.subscribe(TOPIC, "s", CommandSubscribe.SubType.Shared, 1, 7),
        ),
    ],
    ids=["producer", "consumer"],
)
@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_grant_revoked_while_the_topic_is_joined_counts(
    role: str, method: str, command: bytes, comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ping of the client that it replaces, or a write of the epoch, takes long."""
    async with secured() as broker:
        client = await login(broker, role)
        topic = await broker.service.topics.get(TopicName.parse(TOPIC), create=True)
        join, go = getattr(topic, method), trio.Event()

        async def slowly(request: object) -> object:
            await go.wait()
            return await join(request)

        monkeypatch.setattr(topic, method, slowly)
        await client.send(command)
        await wait_all_tasks_blocked()
        await set_grants(broker, {})
        if comes_back:
            await set_grants(broker, GRANT)
        go.set()
        await wait_all_tasks_blocked()
        consumers = [c for each in topic.subscriptions.values() for c in each.consumers]
        assert len([*topic.producers, *consumers]) == comes_back
        frame = await client.next()
        assert frame is not None
        if role == "writer" and not comes_back:
            assert frame.command.error.error == ServerError.AuthorizationError
        else:
            assert not frame.command.HasField("error"), frame.command
        if role == "reader" and not comes_back:
            # It has its SUCCESS: it is closed like one that was open when the grant was revoked.
            await client.expect(Type.CLOSE_CONSUMER)


async def watching(broker: WireBroker) -> WireClient:
    client = await login(broker, "reader")
    await client.ask(WATCHER, Type.WATCH_TOPIC_LIST_SUCCESS)
    await broker.service.topics.get(TopicName.parse(TOPIC), create=True)
    update = await client.expect(Type.WATCH_TOPIC_UPDATE)
    assert list(update.command.watchTopicUpdate.new_topics) == [TOPIC]
    return client


async def test_a_watcher_gets_no_update_after_its_grant_is_revoked() -> None:
    async with secured() as broker:
        client = await watching(broker)
        await set_grants(broker, {})
        await broker.service.topics.get(TopicName.parse(TOPIC + "-secret"), create=True)
        await trio.sleep(0.1)
        await client.send(connection.PING)
        await client.expect(Type.PONG)


async def test_old_grants_do_not_watch_a_recreated_namespace() -> None:
    async with secured() as broker:
        client = await watching(broker)
        service = broker.service
        await service.topics.delete(TopicName.parse(TOPIC), force=True)
        await client.expect(Type.WATCH_TOPIC_UPDATE)
        await service.namespaces.delete(NAMESPACE)
        with trio.fail_after(60):
            while service.ownership.owned():  # noqa: ASYNC110 - its bundle is given up meanwhile
                await trio.sleep(0.01)
        await service.namespaces.create(NAMESPACE, bundles=1, clusters=("standalone",))
        await service.topics.get(TopicName.parse(TOPIC), create=True)
        await trio.sleep(0.1)
        await client.send(connection.PING)
        await client.expect(Type.PONG)


async def test_a_new_prefix_rule_closes_other_subscriptions() -> None:
    async with secured() as broker:
        client = await login(broker, "reader")
        await client.subscribe(TOPIC)
        app = create_app(broker.service)
        url = f"/admin/v2/namespaces/{NAMESPACE}/subscriptionAuthMode"
        assert (await call(app, "POST", url, "boss", body="Prefix")).status == 204
        await client.expect(Type.CLOSE_CONSUMER)


async def test_a_producers_initial_subscription_needs_consume() -> None:
    async with secured() as broker:
        client = await login(broker, "writer")
        first = producing.producer(TOPIC, 1, 7, initial_subscription_name="mine")
        answer = await client.ask(first, Type.ERROR)
        assert answer.error.error == ServerError.AuthorizationError
        assert TOPIC not in broker.service.topics.loaded
        both = {"namespace_auth": {"writer": ["produce", "consume"]}}
        kept = both | {"subscription_auth_roles": {"mine": ["reader"]}}
        await set_grants(broker, kept)
        await client.ask(first, Type.ERROR)
        await set_grants(broker, both)
        await client.ask(first, Type.PRODUCER_SUCCESS)


@pytest.mark.parametrize("name", ["__change_events", "__change_events-partition-0"])
async def test_who_may_produce_may_not_write_policies(name: str) -> None:
    """Of others' topics, in the namespace's system topic."""
    topic = f"persistent://{NAMESPACE}/{name}"
    async with secured() as broker:
        await set_grants(broker, {"namespace_auth": {"writer": ["produce", "consume"]}})
        client = await login(broker, "writer")
        answer = await client.ask(producing.producer(topic, 1, 7), Type.ERROR)
        assert answer.error.error == ServerError.AuthorizationError
        app = create_app(broker.service)
        url, body = f"/topics/persistent/{NAMESPACE}/{name}", {"messages": [{"payload": "a"}]}
        assert (await call(app, "POST", url, "writer", body=body)).status == 401
        assert (await call(app, "POST", url, "boss", body=body)).status != 401


@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
async def test_grants_are_deleted_with_the_topic(kind: str) -> None:
    topic = f"{kind}://acme/app/t"
    async with secured() as broker:
        app = create_app(broker.service)
        tenants = broker.service.namespaces.tenants
        base = f"/admin/v2/{kind}/acme/app"
        for path, body in (("t", None), ("p/partitions", 2)):
            assert (await call(app, "PUT", f"{base}/{path}", "root", body=body)).status == 204
        for path in ("t", "p", "p-partition-0"):
            url = f"{base}/{path}/permissions/guest"
            assert (await call(app, "POST", url, "root", body=["produce"])).status == 204
        guest = await login(broker, "guest")
        await guest.open_producer(topic)
        for path in ("t?force=true", "p/partitions"):
            url, _, query = f"{base}/{path}".partition("?")
            assert (await call(app, "DELETE", url, "root", query=query)).status == 204
        record = await tenants.get(NAMESPACE)
        assert record is not None
        assert isinstance(record["auth_policies"], dict)
        assert record["auth_policies"]["destination_auth"] == {}
        await guest.expect(Type.CLOSE_PRODUCER)
        answer = await guest.ask(producing.producer(topic, 2, 8), Type.ERROR)
        assert answer.error.error == ServerError.AuthorizationError


async def test_invented_names_are_bounded_in_memory_and_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    long = "x" * 1000
    async with secured() as broker:
        for number in range(20):
            client = broker.client()
            await client.ask(hello(b"", method=f"{number}{long}"), Type.ERROR)
        assert broker.service.authenticator is not None
        assert dict(broker.service.authenticator.failures) == {
            ("none", "unknown", "unsupported_method"): 20
        }
        client = broker.client()
        spoofed = hello(token("writer"), original=connection.Original(principal=f"a\n{long}"))
        await client.ask(spoofed, Type.ERROR)
        client = await login(broker, "writer")
        await client.ask(producing.producer(f"persistent://acme/other/{long}", 1, 7), Type.ERROR)
        app = create_app(broker.service)
        forged = "/admin/v2/namespaces/acme/app%0AINFO%20forged/topics"
        assert (await call(app, "GET", forged, "writer")).status == 403
    lines = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert len(lines) == 23
    assert max(len(line) for line in lines) < 1000
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize(
    "path",
    ["acme%2Fapp/x/topics", "acme/app%2Fx/topics", "acme/app%2F../topics"],
)
async def test_names_with_an_encoded_slash_are_refused(path: str) -> None:
    async with secured() as broker:
        app = create_app(broker.service)
        assert (await call(app, "GET", f"/admin/v2/namespaces/{path}", "boss")).status == 412


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "get", "TRACE"])
@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2/namespaces/acme/app/topics",
        "/admin/v2/namespaces/acme/app/topics/",
        "/admin/v2/namespaces/acme//app/topics",
        "/admin/v2/namespaces/acme/x/../app/topics",
        "/admin/v2/namespaces/acme/%61pp/topics",
        "/admin/v2/namespaces/acme/%2561pp/topics",
        "/admin/v2/Namespaces/acme/app/topics",
        "/admin//v2/namespaces/acme/app/topics",
        "//admin/v2/namespaces/acme/app/topics",
        "/metrics/../admin/v2/namespaces/acme/app/topics",
        "/status.html/../admin/v2/namespaces/acme/app/topics",
        "/metrics/%2e%2e/admin/v2/namespaces/acme/app/topics",
        "/admin/v2/namespaces/acme/app/topics;/metrics/",
    ],
)
@pytest.mark.slow
async def test_no_spelling_of_a_path_avoids_its_rule(method: str, path: str) -> None:
    async with secured() as broker:
        await broker.service.topics.get(TopicName.parse(TOPIC), create=True)
        app = create_app(broker.service)
        answer = await call(app, method, path, "stranger")
        # Which methods a path has is no secret from who has a role.
        known = (200,) if method == "OPTIONS" else ()
        assert answer.status in (401, 403, 404, 405, 501, *known), answer
        assert TOPIC.encode() not in answer.body


async def test_a_tenant_may_be_called_like_a_domain() -> None:
    async with secured() as broker:
        namespaces = broker.service.namespaces
        await namespaces.create_tenant("persistent", (), ("standalone",))
        await namespaces.create("persistent/n", bundles=1, clusters=("standalone",))
        app = create_app(broker.service)
        stored, volatile = "persistent/persistent/n/t", "non-persistent/persistent/n/t"
        assert (await call(app, "PUT", f"/admin/v2/{stored}", "root")).status == 204
        grant = f"/admin/v2/{stored}/permissions/guest"
        assert (await call(app, "POST", grant, "root", body=["consume"])).status == 204
        allowed = await call(app, "GET", f"/admin/v2/{stored}/stats", "guest")
        refused = await call(app, "GET", f"/admin/v2/{volatile}/stats", "guest")
        assert (allowed.status, refused.status) == (200, 401)
        assert "non-persistent://persistent/n/t" in refused.reason


async def test_bodies_of_unauthorized_requests_are_not_read() -> None:
    async with secured() as broker:
        app = create_app(broker.service)
        url = "/admin/v2/namespaces/acme/app/permissions/me"
        answer = await call(app, "POST", url, "stranger", body=["x"] * 1_000_000, unread=True)
        assert answer.status == 403


async def test_status_requests_store_one_message_a_second(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with secured() as broker:
        app = create_app(broker.service)
        checks = 0
        outcome: Exception | None = None

        async def check(_service: BrokerService) -> None:
            nonlocal checks
            checks += 1
            await trio.sleep(0.1)
            if outcome is not None:
                raise outcome

        monkeypatch.setattr(health, "check_health", check)

        async def ask(status: int) -> None:
            assert (await call(app, "GET", "/status.html", None)).status == status

        for outcome_, status in ((None, 200), (BrokerError(ServerError.ServiceNotReady, ""), 503)):
            outcome, checks = outcome_, 0
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(ask, status)
            assert checks == 1
            await trio.sleep(1)


async def test_a_subscription_reserved_for_other_roles_is_closed() -> None:
    async with secured() as broker:
        client = await login(broker, "reader")
        await client.subscribe(TOPIC)
        app = create_app(broker.service)
        url = f"/admin/v2/namespaces/{NAMESPACE}/permissions/subscription/sub"
        assert (await call(app, "POST", url, "boss", body=["another"])).status == 204
        await client.expect(Type.CLOSE_CONSUMER)
