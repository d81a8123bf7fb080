"""Each schema type between our SDK, the Java client and the official Python client, on both
servers (spec SDK-41).
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pulsar.schema
import pytest
import trio
from google.protobuf.timestamp_pb2 import Timestamp

import geminga
import geminga.blocking
from compat_tests.apache import jars
from compat_tests.clients.conftest import WAIT_MS, Peer
from compat_tests.clients.test_geminga_sdk import client_of, topic_name
from compat_tests.missing import JAVA_CLIENT, skipped_without
from compat_tests.processes import ServerProcess
from geminga import schema
from geminga.schema._tests.samples import samples

RECORDS = {"json", "avro", "avro_strict", "avro_times", "protobuf_native", "protobuf_native_api"}


def run_java(server: ServerProcess, prefix: str) -> dict[str, dict[str, str]]:
    """The Java client reads what ours wrote, and writes the same; what it told of each kind."""
    with skipped_without(JAVA_CLIENT):
        command = jars.java_command("Schemas", ["cross", server.service_url, prefix])
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert told, done.stderr[-2000:]
    return {each["kind"]: each for each in told}


@pytest.mark.java
@pytest.mark.slow
async def test_java_client(server: ServerProcess) -> None:
    prefix = topic_name("schemas")
    with trio.fail_after(280):
        async with client_of(server) as client:
            for kind, (typed, value) in samples().items():
                async with await client.create_producer(
                    f"{prefix}-sdk-{kind}", schema=typed
                ) as producer:
                    await producer.send(value)
            told = await trio.to_thread.run_sync(run_java, server, prefix)
            assert {k: v["error"] for k, v in told.items() if "error" in v} == {}
            for kind, each in told.items():
                assert each["found"] == each["expected"], kind
            assert set(told) == set(samples())
            for kind, (typed, value) in samples().items():
                await check_read(client, f"{prefix}-java-{kind}", kind, typed, value)


async def check_read(
    client: geminga.Client, topic: str, kind: str, typed: schema.Schema, value: object
) -> None:
    reader = await client.create_reader(topic, geminga.EARLIEST, schema=typed)
    message = await reader.read_next(60)
    assert message.value == value, kind
    await reader.aclose()
    auto = await client.create_reader(topic, geminga.EARLIEST, schema=schema.AutoConsume())
    found = (await auto.read_next(60)).value
    if kind in RECORDS:
        assert isinstance(found, schema.GenericRecord), kind
        assert found.schema_version == message.schema_version
    elif kind.startswith("key_value"):
        assert isinstance(found, tuple), kind
    elif not kind.startswith("protobuf"):
        assert found == value, kind
    await auto.aclose()


class Color(Enum):
    RED = 1
    GREEN = 2


@dataclass
class Item:
    sku: str | None = None
    count: int | None = None


@dataclass
class Order:
    id: int
    name: str | None = None
    color: Color | None = None
    item: Item | None = None
    tags: list[str] | None = field(default=None)
    prices: dict[str, float] | None = None


class TheirItem(pulsar.schema.Record):
    sku = pulsar.schema.String()
    count = pulsar.schema.Long()


class TheirOrder(pulsar.schema.Record):
    id = pulsar.schema.Long(required=True)
    name = pulsar.schema.String()
    color = pulsar.schema.CustomEnum(Color)
    item = TheirItem()
    tags = pulsar.schema.Array(pulsar.schema.String())
    prices = pulsar.schema.Map(pulsar.schema.Double())


# Their reader wants names to be the same.
TheirItem.__name__ = "Item"
TheirOrder.__name__ = "Order"

OURS = Order(5, "Zoë", Color.GREEN, Item("a", 3), ["x"], {"p": 1.5})
THEIRS = TheirOrder(
    id=5,
    name="Zoë",
    color=Color.GREEN,
    item=TheirItem(sku="a", count=3),
    tags=["x"],
    prices={"p": 1.5},
)
OFFICIAL: dict[str, tuple[Any, Any, schema.Schema, Any]] = {
    "bytes": (pulsar.schema.BytesSchema(), b"\x00", schema.Bytes(), b"\x00"),
    "string": (pulsar.schema.StringSchema(), "Zoë", schema.String(), "Zoë"),
    "json": (pulsar.schema.JsonSchema(TheirOrder), THEIRS, schema.Json(Order), OURS),
    "avro": (pulsar.schema.AvroSchema(TheirOrder), THEIRS, schema.Avro(Order), OURS),
    "json_record": (
        pulsar.schema.JsonSchema(TheirOrder), THEIRS, schema.Json(TheirOrder), THEIRS,
    ),
    "avro_record": (
        pulsar.schema.AvroSchema(TheirOrder), THEIRS, schema.Avro(TheirOrder), THEIRS,
    ),
    "protobuf_native": (
        pulsar.schema.ProtobufNativeSchema(Timestamp),
        Timestamp(seconds=5),
        schema.ProtobufNative(Timestamp),
        Timestamp(seconds=5),
    ),
}  # fmt: skip


def plain(value: Any) -> Any:
    """A value as it can be compared, whoever's record it is."""
    if isinstance(value, Enum):
        return value.name
    if hasattr(type(value), "_fields") or isinstance(value, Order | Item):
        names = getattr(type(value), "_fields", None) or type(value).__dataclass_fields__
        return {name: plain(getattr(value, name)) for name in names}
    return value


@pytest.mark.parametrize("kind", OFFICIAL)
async def test_official_python_client(peer: Peer, kind: str) -> None:
    their_schema, theirs, typed, ours = OFFICIAL[kind]
    topic = peer.topic("schemas")
    their_consumer = peer.consumer(topic, subscription="theirs", schema=their_schema)
    async with geminga.connect(peer.server.service_url) as client:
        with trio.fail_after(100):
            consumer = await client.subscribe(topic, "ours", schema=typed)
            async with await client.create_producer(topic, schema=typed) as producer:
                await producer.send(ours)
            message = await trio.to_thread.run_sync(their_consumer.receive, WAIT_MS)
            assert plain(message.value()) == plain(theirs)
            assert plain((await consumer.receive()).value) == plain(ours)
            their_producer = peer.producer(topic, schema=their_schema)
            await trio.to_thread.run_sync(their_producer.send, theirs)
            assert plain((await consumer.receive()).value) == plain(ours)


async def test_versions_batches_and_faces(server: ServerProcess) -> None:
    @dataclass
    class Old:
        id: int

    @dataclass
    class New:
        id: int
        name: str = "none"

    Old.__name__ = New.__name__ = "Thing"
    topic = topic_name("schemas")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s", schema=schema.Avro(New))
        for typed, value in ((schema.Avro(Old), Old(1)), (schema.Avro(New), New(2, "b"))):
            producer: geminga.Producer[Any] = await client.create_producer(
                topic, schema=typed, compression_type=geminga.CompressionType.LZ4
            )
            receipts = [producer.send_nowait(value) for _ in range(3)]
            for receipt in receipts:
                await receipt.wait()
        values = [(await consumer.receive(60)).value for _ in range(6)]
        assert values == [New(1)] * 3 + [New(2, "b")] * 3

    def blocking() -> list[New]:
        with geminga.blocking.connect(server.service_url) as facade:
            reader = facade.create_reader(topic, geminga.EARLIEST, schema=schema.Avro(New))
            facade.create_producer(topic, schema=schema.Avro(New)).send(New(3))
            return [reader.read_next(60).value for _ in range(7)]

    assert await trio.to_thread.run_sync(blocking) == [*values, New(3)]


async def test_what_does_not_fit_is_refused(server: ServerProcess) -> None:
    @dataclass
    class Thing:
        id: int

    @dataclass
    class Otherwise:
        name: str

    Otherwise.__name__ = "Thing"
    topic = topic_name("schemas")
    async with client_of(server) as client:
        producer = await client.create_producer(topic, schema=schema.Avro(Thing))
        await producer.send(Thing(1))
        for wrong in (schema.String(), schema.Avro(Otherwise)):
            with pytest.raises(geminga.IncompatibleSchemaError):
                await client.create_producer(topic, schema=wrong)
            with pytest.raises(geminga.IncompatibleSchemaError):
                await client.subscribe(topic, "s", schema=wrong)
        auto = await client.create_producer(topic, schema=schema.AutoProduce())
        with pytest.raises(geminga.InvalidValueError, match="data doesn't fit"):
            await auto.send(b"")
        await auto.send(schema.Avro(Thing).encode(Thing(2)))
        reader = await client.create_reader(topic, geminga.EARLIEST, schema=schema.Avro(Thing))
        assert [(await reader.read_next(60)).value for _ in range(2)] == [Thing(1), Thing(2)]


async def test_partitioned_and_chunked(peer: Peer) -> None:
    @dataclass
    class Thing:
        id: int
        text: str

    topic = peer.partitioned("schemas", 2)
    avro = schema.Avro(Thing)
    async with geminga.connect(peer.server.service_url) as client:
        with trio.fail_after(200):
            consumer = await client.subscribe(topic, "s", schema=avro)
            producer = await client.create_producer(
                topic, schema=avro, batching_enabled=False, chunking_enabled=True
            )
            sent = [Thing(n, "x" * size) for n, size in enumerate((5, 6_000_000, 7, 8))]
            for each in sent:
                await producer.send(each)
            found = [(await consumer.receive(60)).value for _ in sent]
            assert sorted(found, key=lambda each: each.id) == sent
