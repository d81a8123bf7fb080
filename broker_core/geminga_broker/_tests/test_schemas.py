"""Schema versions of a topic."""

from __future__ import annotations

from geminga_broker.schemas import SchemaStore
from geminga_protocol.pb.pulsar_api_pb2 import Schema
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.memory import MemoryMetadataStore

TOPIC = TopicName.parse("a")


def schema(data: bytes) -> Schema:
    return Schema(name="s", schema_data=data, type=Schema.Type.Json)


async def test_versions_count_up_and_known_schemas_keep_theirs() -> None:
    store = SchemaStore(MemoryMetadataStore())
    first = await store.register(TOPIC, schema(b"1"))
    second = await store.register(TOPIC.partition(3), schema(b"2"))
    assert (first, second) == (bytes(8), bytes(7) + b"\x01")
    assert await store.register(TOPIC, schema(b"1")) == first
    latest = await store.get(TOPIC)
    assert latest is not None
    assert latest.version == second
    old = await store.get(TOPIC, first)
    assert old is not None
    assert old.schema == schema(b"1")


async def test_what_is_not_there() -> None:
    store = SchemaStore(MemoryMetadataStore())
    assert await store.get(TOPIC) is None
    await store.delete(TOPIC)
    version = await store.register(TOPIC, schema(b"1"))
    assert await store.get(TOPIC, bytes(7) + b"\x05") is None
    assert await store.get(TOPIC, b"odd") is None
    await store.delete(TOPIC)
    assert await store.get(TOPIC, version) is None
