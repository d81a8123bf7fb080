"""Payloads as text: by schema, bounded, and never an exception."""

from __future__ import annotations

import io
import json
import struct

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.console import avro
from geminga_broker.console.payloads import DECODED_BYTES_MAX, SHOWN_BYTES_MAX, shown

RECORD = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "parts", "type": {"type": "map", "values": "double"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
        {"name": "next", "type": ["null", "Order"]}, {"name": "seen", "type": "boolean"},
        {"name": "weight", "type": "float"}, {"name": "data", "type": "bytes"},
    ],
}  # fmt: skip
ORDER = {
    "id": -(2**62), "name": "ä<b>", "tags": ["x", "y"], "parts": {"p": 1.5}, "kind": "B",
    "raw": b"\1\2", "next": None, "seen": True, "weight": 0.5, "data": b"\xff",
}  # fmt: skip


def written(value: object, schema: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def test_a_record_of_avro() -> None:
    data = written({**ORDER, "next": ORDER}, RECORD)
    found = shown(data, "AVRO", json.dumps(RECORD))
    expected = {**ORDER, "raw": "0102", "data": "ff"}
    assert (found.form, found.note) == ("AVRO", "")
    assert json.loads(found.text) == {**expected, "next": expected}


def test_as_many_values_as_a_writer_likes_are_not_read() -> None:
    nulls = {"type": "array", "items": "null"}
    many = b"\xfe\xff\xff\xff\x0f\0"
    with pytest.raises(avro.BadAvro, match="too many"):
        avro.decoded(many, nulls)
    circle = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}
    with pytest.raises(avro.BadAvro, match="too many"):
        avro.decoded(b"", circle)


@pytest.mark.parametrize(
    ("data", "schema"),
    [
        (b"", "int"), (b"\x80" * 20, "long"), (b"\x02", ["null"]), (b"\x01", ["null"]),
        (b"\x0a", "string"), (b"\x01", "bytes"), (b"\0\0", "int"), (b"\x06", "unknown"),
        (b"\x08", {"type": "enum", "name": "E", "symbols": ["A"]}), (b"\0", {"type": "fixed"}),
        (b"\0", None), (b"\0", {"type": 3}),
    ],
)  # fmt: skip
def test_bytes_that_do_not_follow_the_schema(data: bytes, schema: object) -> None:
    with pytest.raises(avro.BadAvro):
        avro.decoded(data, schema)


_SCHEMAS = st.recursive(
    st.sampled_from(["null", "int", "string", "bytes", "double", "boolean", "x"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        inner.map(lambda each: {"type": "array", "items": each}),
        inner.map(lambda each: {"type": "map", "values": each}),
        inner.map(
            lambda each: {"type": "record", "name": "x", "fields": [{"name": "f", "type": each}]}
        ),
    ),
    max_leaves=6,
)


@given(st.binary(max_size=60), _SCHEMAS)
def test_no_bytes_and_no_schema_are_an_exception(data: bytes, schema: object) -> None:
    found = shown(data, "AVRO", json.dumps(schema))
    assert len(found.text) <= SHOWN_BYTES_MAX


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        ("grüße".encode(), "STRING", "grüße"), (b'{"a":[1]}', "JSON", '{\n  "a": [\n    1\n  ]\n}'),
        (struct.pack(">i", -5), "INT32", "-5"), (struct.pack(">d", 1.5), "DOUBLE", "1.5"),
        (b"\1", "BOOLEAN", "True"), (b"plain", "NONE", "plain"), (b"", "AVRO", ""),
        (b"\0\1ab", "BYTES", "000000  00 01 61 62                                      ..ab"),
    ],
)  # fmt: skip
def test_other_schemas(data: bytes, kind: str, text: str) -> None:
    assert shown(data, kind, "").text == text


@pytest.mark.parametrize("kind", ["JSON", "AVRO", "INT32", "STRING", "PROTOBUF", "what"])
@pytest.mark.parametrize("data", [b"\xff\xfe", b"not it", b"[" * 100_000, b"x" * 2_000_000])
def test_what_is_not_decoded_is_shown_as_it_is(kind: str, data: bytes) -> None:
    found = shown(data, kind, "{")
    assert 0 < len(found.text) <= SHOWN_BYTES_MAX
    if len(data) > DECODED_BYTES_MAX:
        assert "not decoded" in found.note
