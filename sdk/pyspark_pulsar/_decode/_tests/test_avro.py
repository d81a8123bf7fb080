"""Avro payloads by columns against the SDK's own decoder, one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geminga.schema import Avro, SchemaInfo, SchemaType
from pyspark_pulsar._decode._avro import AvroReader
from pyspark_pulsar._decode._avro_steps import DEPTH_MAX
from pyspark_pulsar._decode._list_steps import ITEMS_TOGETHER
from pyspark_pulsar._decode._objects import Columns
from pyspark_pulsar._decode._readers import fields_of, reader_of
from pyspark_pulsar._decode._tests.samples import LEAF_DEFINITIONS, expected, named, records, values

MANY = 50
relaxed = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def reader_for(schema: Avro, names: Sequence[str] | None = None) -> tuple[AvroReader, list[str]]:
    fields = [f for f in fields_of(schema.info) if names is None or f.name in names]
    reader = reader_of(schema.info, fields, strict=True)
    assert isinstance(reader, AvroReader)
    return reader, [each.name for each in fields]


def rows_of(found: Columns, names: list[str]) -> list[dict[str, Any]]:
    """Each row, without those that are wrong."""
    table = pa.table(found.arrays, names=names).to_pylist()
    return [row for number, row in enumerate(table) if number not in found.notes]


def told(rows: Any) -> str:
    """As a text: a NaN is itself there, and -0.0 isn't 0.0."""
    return repr(rows).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


@st.composite
def topics(draw: st.DrawFn) -> tuple[Any, list[Any], list[str]]:
    definition = draw(records(LEAF_DEFINITIONS, unions=True))
    some = draw(st.lists(values(definition), min_size=1, max_size=6))
    names = [each["name"] for each in definition["fields"]]
    return definition, some, draw(st.lists(st.sampled_from(names), min_size=1, unique=True))


@pytest.mark.slow
@relaxed
@given(topics(), st.booleans())
def test_columns_equal_the_values_decoded_by_the_sdk(
    topic: tuple[Any, list[Any], list[str]], are_many: bool
) -> None:
    definition, some, names = topic
    schema = Avro(json.dumps(definition))
    payloads = [schema.encode(each) for each in some]
    if are_many:
        payloads = (payloads * MANY)[:MANY]
    wanted = [expected(definition, schema.decode(each)) for each in payloads]
    for chosen in (None, names):
        reader, columns = reader_for(schema, chosen)
        found = reader.columns(payloads)
        assert not found.notes
        for array in found.arrays:
            array.validate(full=True)
        kept = [{name: row[name] for name in columns} for row in wanted]
        assert told(rows_of(found, columns)) == told(kept)


def broken(payload: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(5)
    at = chance.randrange(len(payload) + 1)
    if kind == 0 and payload:
        at %= len(payload)
        flipped = payload[at] ^ (1 << chance.randrange(8))
        return payload[:at] + bytes([flipped]) + payload[at + 1 :]
    if kind == 1:
        return payload[:at]
    if kind == 2:
        return payload + payload[:at] + b"\x00"
    if kind == 3:
        return payload[:at] + chance.randbytes(chance.randrange(1, 12)) + payload[at:]
    return chance.randbytes(len(payload) + chance.randrange(3))


@pytest.mark.slow
@relaxed
@given(topics(), st.integers(0, 1 << 32), st.booleans())
def test_broken_payloads_do_not_affect_others(
    topic: tuple[Any, list[Any], list[str]], seed: int, are_all: bool
) -> None:
    definition, some, _ = topic
    chance = random.Random(seed)
    schema = Avro(json.dumps(definition))
    good = ([schema.encode(each) for each in some] * MANY)[:MANY]
    hit = set(range(MANY)) if are_all else set(chance.sample(range(MANY), 5))
    payloads = [broken(each, chance) if n in hit else each for n, each in enumerate(good)]
    reader, names = reader_for(schema)
    found = reader.columns(payloads)
    assert set(found.notes) <= hit
    assert all(len(each) == MANY for each in found.arrays)
    table = pa.table(found.arrays, names=names).to_pylist()
    for number, payload in enumerate(payloads):
        if number in found.notes:
            continue
        # Payloads that aren't refused have fastavro's values.
        alone = reader._one_by_one([payload])
        assert not alone.notes
        assert told(rows_of(alone, names)) == told([table[number]])


def test_a_length_beyond_the_payload_is_malformed() -> None:
    schema = Avro('{"type":"record","name":"R","fields":[{"name":"s","type":"string"}]}')
    first, second = schema.encode({"s": "abc"}), schema.encode({"s": "xyz"})
    lying = bytes([2 * (len(first) - 1 + len(second))]) + first[1:]
    payloads = [first] * MANY
    payloads[3:5] = [lying, second]
    reader, names = reader_for(schema)
    found = reader.columns(payloads)
    assert found.notes == {3: "s: a length exceeds the payload"}
    assert [row["s"] for row in rows_of(found, names)] == ["abc"] * 3 + ["xyz"] + ["abc"] * (
        MANY - 5
    )


@pytest.mark.parametrize("size", [ITEMS_TOGETHER - 1, ITEMS_TOGETHER, 3 * ITEMS_TOGETHER])
def test_long_lists_of_few_payloads_are_read_one_by_one(size: int) -> None:
    schema = Avro(
        json.dumps(named({"type": "record", "fields": [
            {"name": "a", "type": {"type": "array", "items": {"type": "map", "values": "string"}}},
            {"name": "b", "type": "long"},
        ]}))
    )  # fmt: skip
    rows = [
        {"a": [{"k": str(n)} for n in range(number % 3)], "b": number} for number in range(MANY)
    ]
    for place in (1, MANY - 1):
        rows[place]["a"] = [{"k": str(n)} for n in range(size)]
    payloads = [schema.encode(each) for each in rows]
    reader, names = reader_for(schema)
    found = reader.columns(payloads)
    assert not found.notes
    wanted = [{"a": [list(each.items()) for each in row["a"]], "b": row["b"]} for row in rows]
    assert rows_of(found, names) == wanted


def test_blocks_with_sizes_are_read() -> None:
    schema = Avro(
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"long"}}]}'
    )
    # Two items in a block with a size, one in a block without.
    payload = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"
    assert schema.decode(payload) == {"a": [1, 2, 3]}
    reader, names = reader_for(schema)
    assert rows_of(reader.columns([payload] * MANY), names) == [{"a": [1, 2, 3]}] * MANY


def test_recursive_records_can_be_skipped() -> None:
    definition = {
        "type": "record", "name": "Node", "fields": [
            {"name": "id", "type": "long"},
            {"name": "next", "type": ["null", "Node"]},
            {"name": "text", "type": "string"},
        ],
    }  # fmt: skip
    schema = Avro(json.dumps(definition))
    leaf = {"id": 2, "next": None, "text": "b"}
    payload = schema.encode({"id": 1, "next": leaf, "text": "a"})
    wanted = [pa.field("id", pa.int64()), pa.field("text", pa.string())]
    reader = reader_of(schema.info, wanted, strict=True)
    found = reader.columns([payload] * MANY + [payload[:-1]])
    assert rows_of(found, ["id", "text"]) == [{"id": 1, "text": "a"}] * MANY
    assert list(found.notes) == [MANY]


@pytest.mark.parametrize("depth", [DEPTH_MAX, DEPTH_MAX + 2, 100_000])
@pytest.mark.parametrize("count", [1, MANY])
def test_deeply_nested_recursive_records(depth: int, count: int) -> None:
    fields = [{"name": "n", "type": ["null", "N"]}, {"name": "i", "type": "long"}]
    text = json.dumps({"type": "record", "name": "N", "fields": fields})
    info = SchemaInfo("", SchemaType.AVRO, text.encode())
    reader = reader_of(info, [pa.field("i", pa.int64())], strict=True)
    payload = b"\x02" * depth + b"\x00" + b"\x04" * (depth + 1)
    found = reader.columns([payload] * count)
    if depth > DEPTH_MAX:
        assert len(found.notes) == count
        assert found.notes[0] == "n: records are nested too deeply"
    else:
        assert not found.notes
        assert found.arrays[0].to_pylist() == [2] * count


@pytest.mark.parametrize("count", [1, MANY])
def test_errors_name_the_field(count: int) -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "real", "type": "double"},
    ]
    schema = Avro(json.dumps({"type": "record", "name": "R", "fields": fields}))
    good = b"\x02\x02\x00\x02\x02a" + bytes(8)
    assert schema.decode(good)["note"] == "a"
    reader, _ = reader_for(schema, ["id", "day", "note", "real"])
    for payload, reason in (
        (b"\xff" * 10 + good, "id: a number is too large for its type"),
        (b"\x02\xfe\xff\xff\xff\x0f" + good[2:], "day: a date, time or decimal is out of range"),
        (b"\x02\x02\x02\x00" + bytes(8), "kind: the symbol of an enum is out of range"),
        (b"\x02\x02\x00\x04" + bytes(8), "note: the branch of a union is out of range"),
        (b"\x02\x02\x00\x02\x02\xff" + bytes(8), "note: a string is not UTF-8"),
        (b"\x02\x02\x00\x02\x03a" + bytes(8), "note: a length exceeds the payload"),
        (good[:-1], "real: the payload is longer or shorter than its record"),
        (good + b"\x00", "the payload is longer or shorter than its record"),
    ):  # fmt: skip
        found = reader.columns([good] * count + [payload])
        assert found.notes == {count: reason}


def test_no_wanted_fields() -> None:
    schema = Avro('{"type":"record","name":"R","fields":[{"name":"s","type":"string"}]}')
    reader = reader_of(schema.info, [])
    good = schema.encode({"s": "abc"})
    found = reader.columns([good] * MANY + [b""])
    assert found.arrays == []
    assert list(found.notes) == [MANY]
    assert reader.columns([]) == Columns([], {})
