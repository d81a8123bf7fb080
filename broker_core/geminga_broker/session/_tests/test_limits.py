"""Bounds and rights of commands (PR-16, PX-22)."""

from __future__ import annotations

import gc
import json
import logging

import pytest
import trio
import trio.testing
from google.protobuf.descriptor import FieldDescriptor

from geminga_broker import limits
from geminga_broker._tests.wire import Type, WireClient, message, open_broker, open_client
from geminga_broker.admin._tests.test_guard import call
from geminga_broker.admin.app import create_app
from geminga_broker.authz.commands import COMMANDS
from geminga_broker.authz.needs import Need, Scope
from geminga_broker.session._tests.test_authentication import login, secured
from geminga_broker.session.backpressure import REQUEST_BYTES_MAX, REQUEST_BYTES_SHARE
from geminga_broker.session.limits import BOUNDED_ELSEWHERE, FIRST_FRAMES_BYTES_MAX
from geminga_broker.session.session import REFUSALS_LOGGED_MAX, Session
from geminga_broker.session.table import (
    ROUTES,
    Direct,
    InTask,
    Opening,
    UnguardedHandler,
    build,
)
from geminga_broker.topic.api import SubType
from geminga_protocol.commands import (
    connection,
    consuming,
    lookup,
    producing,
    schemas,
)
from geminga_protocol.encode import framed
from geminga_protocol.frames import SUBMESSAGE
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandEndTxn,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    Schema,
    ServerError,
    Subscription,
)

TOPIC = "persistent://public/default/limits"
LONGEST = "persistent://public/default/" + "t" * (limits.TOPIC_BYTES_MAX - 28)


async def code_of(client: WireClient, request: bytes) -> ServerError | None:
    """Of the answer, whatever its type."""
    await client.send(request)
    frame = await client.next()
    assert frame is not None
    body = getattr(frame.command, SUBMESSAGE[frame.type])
    for name in ("error", "error_code"):
        if name in body.DESCRIPTOR.fields_by_name and body.HasField(name):
            return getattr(body, name)
    return None


# ---- needs ----


async def run(session: Session, command: object) -> None:
    """Never runs."""


def start(session: Session, command: object) -> None:
    """Never runs."""


@pytest.mark.parametrize("handling", [Direct(start), InTask(run, lambda *_: b""), Opening(start)])
def test_a_handler_without_a_need_is_not_built(handling: Direct | InTask | Opening) -> None:
    with pytest.raises(UnguardedHandler):
        build({Type.LOOKUP: handling}, {})


@pytest.mark.parametrize("kind", [kind for kind in COMMANDS if kind in ROUTES])
def test_a_handler_without_a_check_is_not_built(kind: int) -> None:
    need = COMMANDS[kind]
    if need.scope not in (Scope.PUBLIC, Scope.HELD):
        with pytest.raises(UnguardedHandler):
            build({kind: Direct(start)})
    if kind not in (Type.PRODUCER, Type.SUBSCRIBE):
        with pytest.raises(UnguardedHandler):
            build({kind: Opening(start)})


def test_only_public_commands_are_served_before_connect() -> None:
    early = {kind for kind, route in ROUTES.items() if route.before_connect}
    assert early == {Type.CONNECT, Type.AUTH_RESPONSE, Type.PING, Type.PONG}
    route = build({Type.PING: Direct(start)}, {Type.PING: Need(Scope.HELD)})[Type.PING]
    assert not route.before_connect


@pytest.mark.parametrize("role", ["writer", "reader", "boss", "stranger", "root"])
async def test_transactions_of_brokers_are_for_superusers(role: str) -> None:
    place = Subscription(topic=TOPIC, subscription="s")
    async with secured() as broker:
        client = await login(broker, role)
        for request in (
            CommandEndTxnOnPartition(request_id=1, topic=TOPIC),
            CommandEndTxnOnSubscription(request_id=1, subscription=place),
        ):
            refused = await code_of(client, framed(request)) == ServerError.AuthorizationError
            assert refused == (role != "root")
        answer = await code_of(client, framed(CommandEndTxn(request_id=1)))
        assert answer == ServerError.TransactionCoordinatorNotFound


# ---- bounds ----


def test_every_text_and_list_of_every_command_has_a_bound() -> None:
    """`build` would have raised; here it is shown that it does."""
    fields = BaseCommand.DESCRIPTOR.fields_by_name
    unbounded = [
        kind
        for kind in ROUTES
        if kind not in BOUNDED_ELSEWHERE
        and any(
            field.is_repeated or field.type == FieldDescriptor.TYPE_STRING
            for field in fields[SUBMESSAGE[kind]].message_type.fields
        )
        and ROUTES[kind].run.__name__ != "run_bounded"
    ]
    assert unbounded == []
    with pytest.raises(LookupError):
        build({Type.SEND_ERROR: Direct(start)}, {Type.SEND_ERROR: Need(Scope.PUBLIC)})
    with pytest.raises(LookupError):
        kind = Type.WATCH_TOPIC_UPDATE
        build({kind: Direct(start)}, {kind: Need(Scope.PUBLIC)})


def _with_topic(topic: str) -> dict[int, bytes]:
    schema = Schema(name="s", type=Schema.Type.Value("String"), schema_data=b"")
    return {
        Type.LOOKUP: lookup.lookup(topic, 7),
        Type.PARTITIONED_METADATA: lookup.partitioned_metadata(topic, 7),
        Type.PRODUCER: producing.producer(topic, 1, 7),
        Type.SUBSCRIBE: consuming.subscribe(topic, "s", SubType.Shared, 1, 7),
        Type.GET_SCHEMA: schemas.get_schema(7, topic),
        Type.GET_OR_CREATE_SCHEMA: schemas.get_or_create_schema(7, topic, schema),
    }


@pytest.mark.parametrize("kind", _with_topic(""), ids=lambda kind: BaseCommand.Type.Name(kind))
async def test_long_topic_names_are_refused_before_authorization(kind: int) -> None:
    async with secured() as broker:
        client = await login(broker, "stranger")
        answer = await code_of(client, _with_topic(LONGEST + "t")[kind])
        assert answer == ServerError.InvalidTopicName
        wide = TOPIC + "\u3000" * 700
        assert await code_of(client, _with_topic(wide)[kind]) == ServerError.InvalidTopicName
        answer = await code_of(client, _with_topic(LONGEST)[kind])
        assert answer == ServerError.AuthorizationError


async def test_the_longest_names_can_be_used() -> None:
    name = "n" * limits.NAME_BYTES_MAX
    async with open_client() as client:
        assert await code_of(client, lookup.lookup(LONGEST, 1)) is None
        assert await code_of(client, producing.producer(LONGEST, 1, 2, producer_name=name)) is None
        options = consuming.SubscribeOptions(
            consumer_name=name,
            metadata={str(number): "" for number in range(limits.PROPERTIES_MAX)},
            subscription_properties={"k": "v" * (limits.PROPERTIES_BYTES_MAX - 1)},
        )
        request = consuming.subscribe(LONGEST, name, SubType.Shared, 1, 3, options)
        assert await code_of(client, request) is None


def _long_ones() -> dict[str, bytes]:
    name = "n" * (limits.NAME_BYTES_MAX + 1)
    many = {str(number): "" for number in range(limits.PROPERTIES_MAX + 1)}
    large = {"k": "v" * limits.PROPERTIES_BYTES_MAX}
    avro = Schema.Type.Value("Avro")
    schema = Schema(name="s", type=avro, schema_data=b" " * (limits.SCHEMA_BYTES_MAX + 1))

    def subscribe(subscription: str = "s", **options: object) -> bytes:
        given = consuming.SubscribeOptions(**options)
        return consuming.subscribe(TOPIC, subscription, SubType.Shared, 1, 7, given)

    return {
        "subscription": subscribe(name),
        "consumer name": subscribe(consumer_name=name),
        "many properties of a consumer": subscribe(metadata=many),
        "large properties of a consumer": subscribe(metadata=large),
        "many properties of a subscription": subscribe(subscription_properties=many),
        "large properties of a subscription": subscribe(subscription_properties=large),
        "a consumer's schema": subscribe(schema=schema),
        "producer name": producing.producer(TOPIC, 1, 7, producer_name=name),
        "many properties of a producer": producing.producer(TOPIC, 1, 7, metadata=many),
        "large properties of a producer": producing.producer(TOPIC, 1, 7, metadata=large),
        "first subscription": producing.producer(TOPIC, 1, 7, initial_subscription_name=name),
        "a producer's schema": producing.producer(TOPIC, 1, 7, schema=schema),
        "a schema": schemas.get_or_create_schema(7, TOPIC, schema),
        "hash of topics": lookup.get_topics_of_namespace(7, "public/default", topics_hash=name),
    }


@pytest.mark.parametrize("what", _long_ones())
async def test_too_long_values_are_refused_without_leftovers(what: str) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        assert await code_of(client, _long_ones()[what]) == ServerError.NotAllowedError
        assert not broker.service.topics.loaded
        await client.ask(connection.PING, Type.PONG)


@pytest.mark.parametrize(
    "namespace", ["", "/", "nonsense", "public/", "a/b/c/d", "public/de fault", "a/\nb", "n" * 5000]
)
async def test_names_that_are_no_namespaces_are_refused_quietly(
    namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_client() as client:
        for request in (
            lookup.get_topics_of_namespace(7, namespace),
            lookup.watch_topic_list(7, 1, namespace, ".*"),
        ):
            assert await code_of(client, request) == ServerError.InvalidTopicName
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_refusals_of_one_connection_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with secured() as broker:
        client = await login(broker, "stranger")
        [session] = broker.service.connections.sessions
        for _ in range(10 * REFUSALS_LOGGED_MAX):
            answer = await code_of(client, lookup.lookup(TOPIC, 1))
            assert answer == ServerError.AuthorizationError
        assert session.refusals.left_out == 9 * REFUSALS_LOGGED_MAX
    lines = [each.getMessage() for each in caplog.records if "may not" in each.getMessage()]
    assert len(lines) == REFUSALS_LOGGED_MAX
    assert lines[0].endswith(f"may not LOOKUP {TOPIC}")


@pytest.mark.parametrize("size", [FIRST_FRAMES_BYTES_MAX, 5 << 20])
async def test_before_connect_frames_are_small(size: int) -> None:
    async with open_broker() as broker:
        client = broker.client()
        lengths = size.to_bytes(4, "big") + (size - 4).to_bytes(4, "big")
        await client.send(lengths)
        assert await client.next() is None
        client = broker.client()
        await client.connect()
        await client.open_producer(TOPIC)
        await client.send(size.to_bytes(4, "big") + b"\0\0\0\x0c")
        await client.send(b"\x08\x06\x32\x08\x08\x01\x10\x00\x18\x01\x28\x01")
        await client.send(bytes(size - 16))
        assert (await client.expect(Type.SEND_RECEIPT)).command.send_receipt.producer_id == 1


async def test_the_first_frame_after_authentication_may_be_large() -> None:
    async with secured() as broker:
        client = await login(broker, "root")
        record = {"type": "record", "name": "r", "fields": [], "doc": "x" * 200_000}
        data = json.dumps(record).encode()
        schema = Schema(name="s", type=Schema.Type.Value("Avro"), schema_data=data)
        request = producing.producer(TOPIC, 1, 7, schema=schema)
        assert await code_of(client, request) is None


async def test_commands_that_wait_are_bounded_by_bytes() -> None:
    async with open_broker() as broker:
        client, other = broker.client(), broker.client()
        await client.connect()
        await other.connect()
        first, second = broker.service.connections.sessions
        wait = trio.Event()
        first.spawn(lambda *_: b"", wait.wait, size_bytes=REQUEST_BYTES_MAX)
        assert not first.backpressure.overloaded
        first.spawn(lambda *_: b"", wait.wait, size_bytes=1)
        assert first.backpressure.overloaded
        second.spawn(lambda *_: b"", wait.wait, size_bytes=2 * REQUEST_BYTES_SHARE)
        assert not second.backpressure.overloaded
        broker.service.connections.request_bytes += 256 << 20
        assert second.backpressure.overloaded
        broker.service.connections.request_bytes -= 256 << 20
        wait.set()
        await trio.testing.wait_all_tasks_blocked()
        assert not first.backpressure.overloaded
        assert broker.service.connections.request_bytes == 0


async def test_a_closed_connection_releases_its_commands_share() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        [session] = broker.service.connections.sessions
        session.spawn(lambda *_: b"", trio.sleep_forever, size_bytes=1000)
        assert broker.service.connections.request_bytes == 1000
        await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert not broker.service.connections.sessions
        assert broker.service.connections.request_bytes == 0


def large_views() -> list[memoryview]:
    """All in this process."""
    return [each for each in gc.get_objects() if isinstance(each, memoryview) and is_large(each)]


def is_large(view: memoryview) -> bool:
    try:
        return view.nbytes >= 1_000_000
    except ValueError:  # it was released
        return False


@pytest.mark.slow
async def test_an_idle_client_s_last_message_is_not_kept() -> None:
    gc.collect()
    others = large_views()  # of earlier tests in this process
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer("non-persistent://public/default/limits")
        await client.send(message(0, bytes(3_000_000)))
        await client.expect(Type.SEND_RECEIPT)
        await trio.testing.wait_all_tasks_blocked()
        assert [each for each in large_views() if not any(each is one for one in others)] == []


async def test_rest_has_the_same_bounds() -> None:
    name = "n" * (limits.NAME_BYTES_MAX + 1)
    large = {"k": "v" * limits.PROPERTIES_BYTES_MAX}
    topic, made = "/admin/v2/persistent/public/default/", "t"
    async with secured() as broker:
        app = create_app(broker.service)

        async def status(method: str, path: str, body: object = None) -> int:
            return (await call(app, method, path, "root", body=body)).status

        tenant = {"adminRoles": [], "allowedClusters": ["standalone"]}
        entity = "e" * limits.ENTITY_BYTES_MAX
        assert await status("PUT", f"/admin/v2/tenants/{entity}", tenant) == 204
        assert await status("PUT", f"/admin/v2/tenants/{entity}e", tenant) == 412
        assert await status("PUT", f"/admin/v2/namespaces/acme/{entity}", {}) == 204
        assert await status("PUT", f"/admin/v2/namespaces/acme/{entity}e", {}) == 412
        rest = limits.TOPIC_BYTES_MAX - len("persistent://public/default/")
        assert await status("PUT", topic + "t" * rest) == 204
        assert await status("PUT", topic + "t" * (rest + 1)) == 412
        assert await status("PUT", topic + "p" * rest + "/partitions", 1) == 412
        assert await status("PUT", topic + "p" * (rest - 21) + "/partitions", 1) == 204
        partitioned = {"partitions": 1, "properties": large}
        assert await status("PUT", topic + "q/partitions", partitioned) == 412
        assert await status("PUT", topic + made) == 204
        assert await status("PUT", topic + f"{made}/subscription/{name}") == 412
        assert await status("PUT", topic + f"{made}/subscription/{name[1:]}") == 204
        properties = f"{made}/subscription/{name[1:]}/properties"
        assert await status("PUT", topic + properties, large) == 412
        assert await status("PUT", topic + properties, {"k": "v"}) == 204
