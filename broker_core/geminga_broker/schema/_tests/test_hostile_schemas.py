"""Schemas made to take long (PR-16, BR-51)."""

from __future__ import annotations

import json
import threading

import pytest

from geminga_broker.limits import SCHEMA_BYTES_MAX
from geminga_broker.schema import registry as registry_module
from geminga_broker.schema._tests.test_storage import ID, World
from geminga_broker.schema.compatibility import check_latest
from geminga_broker.schema.model import IncompatibleSchema, InvalidSchemaData, SchemaData, Strategy
from geminga_broker.schema.registry import INLINE_BYTES_MAX, VERSIONS_BYTES_MAX
from geminga_broker.schema.validation import validate
from geminga_protocol import avro_schema
from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.schema_type import SchemaType

FULL = Strategy.FULL


def record(fields: object) -> dict[str, object]:
    return {"type": "record", "name": "r", "fields": fields}


def avro(source: object) -> SchemaData:
    return SchemaData(SchemaType.AVRO, json.dumps(source).encode())


def many_fields(count: int) -> SchemaData:
    return avro(record([{"name": f"f{n}", "type": "int", "default": 0} for n in range(count)]))


def wide_union(count: int, kind: str) -> SchemaData:
    more = {"fixed": {"size": 1}, "record": {"fields": []}}[kind]
    branches = [{"type": kind, "name": f"{kind}{count}x{n}"} | more for n in range(count)]
    return avro(record([{"name": "a", "type": branches}]))


def doubling_defaults(depth: int) -> SchemaData:
    """Each default needs two of the next."""
    inner: object = {"type": "record", "name": f"r{depth}", "fields": []}
    for number in reversed(range(depth)):
        fields = [
            {"name": "a", "type": inner, "default": {}},
            {"name": "b", "type": f"r{number + 1}", "default": {}},
        ]
        inner = {"type": "record", "name": f"r{number}", "fields": fields}
    return avro(record([{"name": "z", "type": inner, "default": {}}]))


def many_symbols(count: int) -> SchemaData:
    symbols = [f"s{n}" for n in range(count)]
    items = {"type": "enum", "name": "e", "symbols": symbols}
    kind = {"type": "array", "items": items}
    return avro(record([{"name": "a", "type": kind, "default": [symbols[-1]] * count}]))


PAIRS = {
    "fields": (many_fields(18_000), many_fields(18_001)),
    "fixed": (wide_union(15_000, "fixed"), wide_union(15_001, "fixed")),
    "records": (wide_union(15_000, "record"), wide_union(15_001, "record")),
    "defaults": (avro(record([])), doubling_defaults(90)),
    "symbols": (avro(record([])), many_symbols(20_000)),
}


@pytest.mark.alone
@pytest.mark.parametrize("what", PAIRS)
@pytest.mark.slow
def test_no_comparison_is_slow(what: str) -> None:
    old, new = PAIRS[what]
    assert max(len(old.data), len(new.data)) < SCHEMA_BYTES_MAX

    def compare() -> None:
        avro_schema._kept.cache_clear()
        try:
            check_latest(old, new, FULL)
        except IncompatibleSchema:
            pass

    # Unions took 19 s, doubled defaults for ever.
    assert cpu_s(compare, 5, tries=3) < 5


@pytest.mark.alone
def test_a_small_one_takes_little() -> None:
    new = doubling_defaults(90)
    assert len(new.data) < INLINE_BYTES_MAX

    def compare() -> None:
        avro_schema._kept.cache_clear()
        with pytest.raises(IncompatibleSchema):
            check_latest(avro(record([])), new, FULL)

    assert cpu_s(compare, 0.5) < 0.5


@pytest.mark.slow
def test_large_schemas_can_be_compatible() -> None:
    check_latest(*PAIRS["fields"], FULL)


def test_nesting_outside_of_types_is_refused() -> None:
    data = b'{"type":"record","name":"r","fields":[],"x":' + b"[" * 900 + b"]" * 900 + b"}"
    with pytest.raises(InvalidSchemaData):
        validate(SchemaData(SchemaType.AVRO, data))
    with pytest.raises(InvalidSchemaData):
        validate(SchemaData(SchemaType.PROTOBUF_NATIVE, b'{"a":' * 100_000))
    with pytest.raises(InvalidSchemaData, match="larger than"):
        validate(SchemaData(SchemaType.BYTES, bytes(SCHEMA_BYTES_MAX + 1)))


@pytest.mark.slow
async def test_large_schemas_are_compared_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = set()

    def compared(*args: object) -> None:
        threads.add(threading.get_ident())

    monkeypatch.setattr(registry_module, "check_latest", compared)
    registry = World().registry()
    for number, schema in enumerate(PAIRS["fields"]):
        assert await registry.register(ID, schema, FULL) == number
        assert await registry.find(ID, schema) == number
    await registry.check_consumer(ID, PAIRS["fields"][0], FULL)
    assert threads
    assert threading.get_ident() not in threads


async def test_the_versions_of_a_topic_are_bounded_together() -> None:
    registry = World().registry()
    filling = b" " * (SCHEMA_BYTES_MAX - 100)
    for number in range(VERSIONS_BYTES_MAX // SCHEMA_BYTES_MAX):
        schema = SchemaData(SchemaType.BYTES, b"%d" % number + filling)
        assert await registry.register(ID, schema, Strategy.ALWAYS_COMPATIBLE) == number
    with pytest.raises(IncompatibleSchema, match="bytes of schemas"):
        last = SchemaData(SchemaType.BYTES, bytes(SCHEMA_BYTES_MAX))
        await registry.register(ID, last, Strategy.ALWAYS_COMPATIBLE)
