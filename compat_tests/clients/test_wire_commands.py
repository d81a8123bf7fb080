"""What a server answers to single commands, on ours and on Apache's: codes that clients of other
languages act upon.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from compat_tests.apache.server import start_apache
from compat_tests.clients.conftest import eventually
from compat_tests.conftest import SETTINGS
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import ServerProcess, start_geminga
from compat_tests.wire.raw import RawClient, send_frame
from geminga_protocol.commands import consuming, lookup, producing, schemas
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    ProducerAccessMode,
    Schema,
    ServerError,
)

_C = BaseCommand
SHARED = CommandSubscribe.SubType.Shared


def fresh(domain: str = "persistent") -> str:
    return f"{domain}://public/default/wire-{uuid.uuid4().hex[:8]}"


def path_of(topic: str) -> str:
    return "/admin/v2/" + topic.replace("://", "/")


@contextmanager
def connected(server: ServerProcess, topic: str = "") -> Iterator[RawClient]:
    """A connection; Apache's broker serves no topic of whose bundle nobody has asked."""
    with RawClient(server.address) as client:
        if topic:
            client.send_bytes(lookup.lookup(topic, 1))
            client.wait_for(_C.LOOKUP_RESPONSE)
        yield client


def answer(client: RawClient, frame: bytes) -> BaseCommand:
    client.send_bytes(frame)
    return client.next_frame().command


def drained(client: RawClient, seconds: float = 1.0) -> list[BaseCommand]:
    """All that comes until nothing comes for so long."""
    client.socket.settimeout(seconds)
    found = []
    try:
        while True:
            found.append(client.next_frame().command)
    except TimeoutError:
        return found
    finally:
        client.socket.settimeout(client.timeout_s)


@pytest.fixture
def rest(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.web_url, timeout=60) as client:
        yield client


# ---- lookups ----


def test_a_listener_that_is_not_there(server: ServerProcess, rest: httpx.Client) -> None:
    topic = fresh()
    with connected(server) as client:
        command = _C(type=_C.LOOKUP)
        command.lookupTopic.topic = topic
        command.lookupTopic.request_id = 3
        command.lookupTopic.advertised_listener_name = "nowhere"
        client.send(command)
        told = client.next_frame().command.lookupTopicResponse
        assert (told.response, told.error) == (told.Failed, ServerError.ServiceNotReady)
        assert "nowhere listener" in told.message or "listener named nowhere" in told.message
        command.lookupTopic.advertised_listener_name = ""
        client.send(command)
        told = client.next_frame().command.lookupTopicResponse
        assert told.response == told.Connect
    path = "/lookup/v2/topic/" + topic.replace("://", "/")
    assert rest.get(path, params={"listenerName": "nowhere"}).status_code == 500
    assert rest.get(path, headers={"X-Pulsar-ListenerName": "nowhere"}).status_code == 500
    assert rest.get(path, params={"listenerName": ""}).status_code == 200
    # Partitions have no address: whoever asks for them names no listener that counts.
    headers = {"X-Pulsar-ListenerName": "nowhere"}
    found = rest.get(path_of(topic) + "/partitions?checkAllowAutoCreation=true", headers=headers)
    assert found.status_code == 200


@pytest.mark.parametrize("namespace", ["public/missing", "missing/n"])
@pytest.mark.parametrize("name", ["t", "t-partition-0"])
def test_partitions_where_no_namespace_is(server: ServerProcess, namespace: str, name: str) -> None:
    with connected(server) as client:
        told = answer(client, lookup.partitioned_metadata(f"persistent://{namespace}/{name}", 3))
    assert told.partitionMetadataResponse.error == ServerError.TopicNotFound


# ---- schemas of messages that have none ----

NONE, NONE_WITH_DATA, STRING = (0, b""), (0, b"abc"), (1, b"")
Given = tuple[int, bytes]


def schema(given: Given) -> Schema:
    return Schema(name="s", type=Schema.Type.ValueType(given[0]), schema_data=given[1])


def subscribe(topic: str, given: Given, number: int) -> bytes:
    options = consuming.SubscribeOptions(schema=schema(given))
    return consuming.subscribe(topic, "s", SHARED, number, number + 7, options)


def latest(client: RawClient, topic: str) -> Given | None:
    told = answer(client, schemas.get_schema(9, topic)).getSchemaResponse
    if told.HasField("error_code"):
        assert told.error_code == ServerError.TopicNotFound
        return None
    return int(told.schema.type), told.schema.schema_data


@pytest.mark.parametrize(
    ("given", "versions", "then"),
    [
        ((NONE,), (0,), NONE),
        ((NONE_WITH_DATA,), (0,), NONE_WITH_DATA),
        ((NONE, NONE_WITH_DATA), (0, 1), NONE_WITH_DATA),
        ((NONE_WITH_DATA, NONE), (0, 1), NONE),
        ((NONE, NONE), (0, 0), NONE),
        ((STRING, NONE), (0, None), STRING),
        ((NONE, STRING), (0, None), NONE),
    ],
)
def test_producers_with_a_schema_of_bytes(
    server: ServerProcess,
    given: tuple[Given, ...],
    versions: tuple[int | None, ...],
    then: Given,
) -> None:
    topic = fresh()
    with connected(server, topic) as client:
        for number, (each, version) in enumerate(zip(given, versions, strict=True)):
            frame = producing.producer(topic, number, number + 7, schema=schema(each))
            told = answer(client, frame)
            if version is None:
                assert told.error.error == ServerError.IncompatibleSchema
            else:
                assert told.producer_success.schema_version == struct.pack(">q", version)
        assert latest(client, topic) == then


@pytest.mark.parametrize(
    ("given", "errors", "then"),
    [
        ((NONE,), (None,), NONE),
        ((NONE, NONE_WITH_DATA), (None, None), NONE),
        ((STRING, NONE), (None, ServerError.IncompatibleSchema), STRING),
    ],
)
def test_consumers_with_a_schema_of_bytes(
    server: ServerProcess,
    given: tuple[Given, ...],
    errors: tuple[int | None, ...],
    then: Given,
) -> None:
    topic = fresh()
    with connected(server, topic) as client:
        for number, (each, error) in enumerate(zip(given, errors, strict=True)):
            told = answer(client, subscribe(topic, each, number))
            assert (told.error.error if told.HasField("error") else None) == error
        assert latest(client, topic) == then


def test_a_topic_without_schema_takes_a_schema_of_bytes_only_from_a_producer(
    server: ServerProcess,
) -> None:
    topic = fresh()
    with connected(server, topic) as client:
        assert (
            answer(client, producing.producer(topic, 1, 7)).producer_success.schema_version == b""
        )
        assert latest(client, topic) is None
        refused = answer(client, subscribe(topic, NONE, 1))
        assert refused.error.error == ServerError.IncompatibleSchema
        asked = schemas.get_or_create_schema(9, topic, schema(NONE))
        told = answer(client, asked).getOrCreateSchemaResponse
        assert told.schema_version == b""
        assert latest(client, topic) is None
        told = answer(client, producing.producer(topic, 2, 10, schema=schema(NONE)))
        assert told.producer_success.schema_version == struct.pack(">q", 0)


KEY = b' {"type": "string"} '
VALUE = (
    b'{"type":"record", "name":"R","doc":"a  b\\u00e9 \\u2028", "fields":[ '
    b'{"name":"a","type":"double","default":1.50},{"name":"b","type":"double","default":1e5}]} \n'
)
COMPACT_VALUE = (
    b'{"type":"record","name":"R","doc":"a  b\xc3\xa9 \\u2028","fields":['
    b'{"name":"a","type":"double","default":1.50},{"name":"b","type":"double","default":1e5}]}'
)
PAIR_PROPERTIES = {
    "key.schema.type": "AVRO", "value.schema.type": "JSON", "key.schema.name": "k",
    "value.schema.name": "v", "key.schema.properties": "{}", "value.schema.properties": "{}",
    "kv.encoding.type": "INLINE",
}  # fmt: skip


def joined(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(part)) + part for part in parts)


def test_schemas_of_pairs_are_kept_byte_for_byte(server: ServerProcess, rest: httpx.Client) -> None:
    topic = fresh()
    given = schema((Schema.Type.KeyValue, joined(KEY, VALUE)))
    for key, value in PAIR_PROPERTIES.items():
        given.properties.add(key=key, value=value)
    with connected(server, topic) as client:
        told = answer(client, producing.producer(topic, 1, 7, schema=given))
        assert told.producer_success.schema_version == struct.pack(">q", 0)
        assert latest(client, topic) == (Schema.Type.KeyValue, joined(KEY, VALUE))
    # Over REST they come as one JSON text, of which the white space between tokens is lost.
    topic = fresh()
    text = f'{{ "key" : {KEY.decode()},  "value":{VALUE.decode()} }}'
    body = {"type": "KEY_VALUE", "schema": text, "properties": PAIR_PROPERTIES}
    path = f"/admin/v2/schemas/{topic.partition('://')[2]}/schema"
    assert rest.post(path, json=body).json() == {"version": {"version": 0}}
    with connected(server, topic) as client:
        pair = joined(b'{"type":"string"}', COMPACT_VALUE)
        assert latest(client, topic) == (Schema.Type.KeyValue, pair)


# ---- producers and consumers ----


def test_an_empty_subscription_name(server: ServerProcess) -> None:
    for domain, code in (("persistent", ServerError.ProducerBusy), ("non-persistent", None)):
        topic = fresh(domain)
        with connected(server, topic) as client:
            told = answer(client, consuming.subscribe(topic, "", SHARED, 1, 7))
            assert (told.error.error if told.HasField("error") else None) == code


def test_who_waits_for_exclusive_access_is_told_when_another_takes_it(
    server: ServerProcess,
) -> None:
    topic = fresh()
    modes = ProducerAccessMode
    with (
        connected(server, topic) as owner,
        connected(server) as waiting,
        connected(server) as fencing,
    ):
        for client, mode, number in (
            (owner, modes.Exclusive, 1),
            (waiting, modes.WaitForExclusive, 2),
            (fencing, modes.ExclusiveWithFencing, 3),
        ):
            told = answer(client, producing.producer(topic, number, number, access_mode=mode))
            assert told.producer_success.producer_ready == (client is not waiting)
        refused = waiting.next_frame().command
        assert (refused.error.request_id, refused.error.error) == (2, ServerError.ProducerFenced)
        assert not drained(waiting, 0.5)
        # The id is free again.
        told = answer(waiting, producing.producer(topic, 2, 4))
        assert told.error.error == ServerError.ProducerBusy


def test_sends_to_a_topic_that_is_terminated(server: ServerProcess, rest: httpx.Client) -> None:
    topic = fresh()
    with connected(server, topic) as client:
        client.producer(topic)
        client.publish(0, b"stored")
        for number in range(1, 300):
            client.send_bytes(send_frame(1, number, bytes(1000)))
        # Adds in flight when Apache's closes the ledger fail, and leave its topic fenced for good.
        in_flight = 299 if server.kind == "apache" else 0
        answers = [client.wait_for(_C.SEND_RECEIPT).command for _ in range(in_flight)]
        assert rest.post(path_of(topic) + "/terminate").status_code == 200
        for number in range(300, 303):
            client.send_bytes(send_frame(1, number, b"late"))
        answers.append(client.next_frame().command)
        while not answers[-1].HasField("close_producer"):
            answers.append(client.next_frame().command)
        answers += drained(client)
        receipts = [each.send_receipt for each in answers if each.type == _C.SEND_RECEIPT]
        errors = [each.send_error for each in answers if each.type == _C.SEND_ERROR]
        # What was stored is told in order; of the rest each is refused, or the producer is closed.
        stored = [each.sequence_id for each in receipts]
        assert stored == list(range(1, len(stored) + 1))
        assert {each.error for each in errors} <= {ServerError.TopicTerminatedError}
        assert [each.sequence_id for each in errors] == sorted(each.sequence_id for each in errors)
        closed = [
            each.close_producer.producer_id for each in answers if each.HasField("close_producer")
        ]
        assert closed == [1]
        # Apache's broker fences the topic for a moment.
        refused: list[BaseCommand] = []

        def is_told() -> bool:
            number = len(refused)
            refused.append(answer(client, producing.producer(topic, number + 2, number + 9)))
            return refused[-1].error.error != ServerError.ServiceNotReady

        eventually(is_told, "the topic stays fenced")
        assert refused[-1].error.error == ServerError.TopicTerminatedError
    with connected(server, topic) as client:
        client.subscribe(topic, "r")
        last = answer(client, consuming.get_last_message_id(1, 8)).getLastMessageIdResponse
        assert last.last_message_id.entryId == len(stored)


# ---- topics that are made by hand only ----


@pytest.fixture(scope="module", params=["geminga", pytest.param("apache", marks=pytest.mark.java)])
def strict(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server that makes no topics by itself."""
    folder: Path = tmp_path_factory.mktemp(f"strict-{request.param}")
    settings = {**SETTINGS, "allowAutoTopicCreation": "false"}
    if request.param == "apache":
        with skipped_without(APACHE):
            running = start_apache(folder / "work", settings=settings)
    else:
        running = start_geminga(folder / "data", settings=settings)
    yield running
    running.kill()


def test_topics_that_are_made_by_hand(strict: ServerProcess) -> None:
    with httpx.Client(base_url=strict.web_url, timeout=60) as rest:
        topic = fresh()
        with connected(strict) as client:
            told = answer(client, lookup.partitioned_metadata(topic, 3)).partitionMetadataResponse
            assert told.error == ServerError.TopicNotFound
        for domain in ("persistent", "non-persistent"):
            topic = fresh(domain)
            assert rest.put(path_of(topic)).status_code == 204
            assert rest.put(path_of(topic)).status_code == 409
            with connected(strict, topic) as client:
                told = answer(client, producing.producer(topic, 1, 7))
                assert told.HasField("producer_success")
        whole = fresh()
        assert rest.put(f"{path_of(whole)}/partitions", json=2).status_code == 204
        with connected(strict, f"{whole}-partition-1") as client:
            client.producer(f"{whole}-partition-1")
            client.publish(0, b"x")
        assert rest.post(f"{path_of(whole)}/partitions", json=3).status_code == 204
        with connected(strict, f"{whole}-partition-2") as client:
            client.producer(f"{whole}-partition-2")
            client.publish(0, b"x")
