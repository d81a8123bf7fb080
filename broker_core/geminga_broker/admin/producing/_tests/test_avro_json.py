"""Avro's JSON form, beside what Avro's own libraries make of it."""

from __future__ import annotations

import io
import json
import struct

import fastavro
import pytest

from geminga_broker.admin.producing.avro_json import AvroWriter, NotOfSchema
from geminga_protocol.avro_schema import parse_avro

INNER = {
    "type": "record",
    "name": "In",
    "namespace": "a.b",
    "fields": [{"name": "x", "type": "int"}],
}
FIELDS = [
    {"name": "n", "type": "null"},
    {"name": "b", "type": "boolean"},
    {"name": "i", "type": "int"},
    {"name": "l", "type": "long"},
    {"name": "f", "type": "float"},
    {"name": "d", "type": "double"},
    {"name": "y", "type": "bytes"},
    {"name": "s", "type": "string"},
    {"name": "x", "type": {"type": "fixed", "name": "F", "size": 2}},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
    {"name": "r", "type": {"type": "array", "items": ["null", "string", INNER]}},
    {"name": "m", "type": {"type": "map", "values": "a.b.In"}},
    {"name": "u", "type": ["null", "R"]},
]  # fmt: skip
SCHEMA = {"type": "record", "name": "R", "fields": FIELDS}


def value(**others: object) -> dict[str, object]:
    found: dict[str, object] = {
        "n": None, "b": True, "i": -(2**31), "l": 2**63 - 1, "f": 1.5, "d": -0.1, "y": "\xff\0",
        "s": "é", "x": "ab", "e": "B", "r": [None, {"string": "q"}, {"a.b.In": {"x": 64}}],
        "m": {"k": {"x": -65}}, "u": None,
    }  # fmt: skip
    return found | others


def test_a_value_of_every_type() -> None:
    given = value(u={"R": value()})
    written = AvroWriter(parse_avro(json.dumps(SCHEMA)).root).encode(given)
    plain = value(y=b"\xff\0", x=b"ab", r=[None, "q", {"x": 64}])
    expected = io.BytesIO()
    fastavro.schemaless_writer(expected, fastavro.parse_schema(SCHEMA), plain | {"u": dict(plain)})
    assert written == expected.getvalue()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("null", 0),
        ("boolean", 1),
        ("int", 2**31),
        ("int", True),
        ("int", "1"),
        ("long", -(2**63) - 1),
        ("float", "1"),
        ("float", 1e300),
        ("double", 10**400),
        ("string", 1),
        ("string", "\ud800"),
        ("bytes", "€"),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, ["A"]),
        ({"type": "array", "items": "int"}, {"a": 1}),
        ({"type": "map", "values": "int"}, [1]),
        (["null", "int"], 1),
        (["null", "int"], {"long": 1}),
        (["null", "int"], {"int": 1, "null": None}),
        (["int", "string"], None),
        (SCHEMA, {}),
        (SCHEMA, [1]),
        (SCHEMA, value(more=1)),
        (SCHEMA, {("nn" if name == "n" else name): each for name, each in value().items()}),
    ],
)
def test_no_value_of_the_type(kind: object, wrong: object) -> None:
    with pytest.raises(NotOfSchema):
        AvroWriter(parse_avro(json.dumps(kind)).root).encode(wrong)


def test_the_form_of_a_union_is_told() -> None:
    with pytest.raises(NotOfSchema, match=r'with its type, \{"string": \.\.\.\}, not tea'):
        AvroWriter(parse_avro('["null", "string"]').root).encode("tea")


def test_numbers_may_be_whole_fractions() -> None:
    assert AvroWriter(parse_avro('"int"').root).encode(3.0) == b"\6"
    assert AvroWriter(parse_avro('"double"').root).encode(3) == struct.pack("<d", 3)
