"""Payloads as text: by schema, bounded, and never an exception."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.console import avro
from geminga_broker.console.avro_schema import BadAvro, Node, prepared
from geminga_broker.console.json_text import JsonText
from geminga_broker.console.payloads import CUT, DECODED_BYTES_MAX, SHOWN_BYTES_MAX, Payloads, Shown

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


def shown(data: bytes, kind: str, definition: str) -> Shown:
    return Payloads(kind, definition).shown(data)


def decoded(data: bytes, schema: object, limit: int = SHOWN_BYTES_MAX) -> object:
    out = JsonText(limit)
    avro.write(data, prepared(json.dumps(schema)), out)
    return json.loads(out.text)


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


MANY = b"\xfe\xff\xff\xff\x0f\0"
"""The start of an array of two thousand million items."""
EMPTY = {"type": "record", "name": "E", "fields": []}
LONG = "s" * 20_000


def test_as_many_values_as_a_writer_likes_are_not_read() -> None:
    for items in ("null", EMPTY):
        with pytest.raises(BadAvro, match="too many"):
            decoded(MANY, {"type": "array", "items": items}, limit=1_000_000)
    circle = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}
    with pytest.raises(BadAvro, match="too many"):
        decoded(b"", circle)


def test_every_field_counts() -> None:
    fields = [{"name": f"f{number}", "type": "null"} for number in range(900)]
    record = {"type": "record", "name": "R", "fields": fields}
    assert decoded(b"\x02\0", {"type": "array", "items": record}, limit=100_000)
    with pytest.raises(BadAvro, match="too many"):
        decoded(b"\x0a\0", {"type": "array", "items": record}, limit=1_000_000)


@pytest.mark.parametrize(
    ("data", "kind", "schema"),
    [
        (MANY, "AVRO", {"type": "array", "items": "null"}),
        (MANY, "AVRO", {"type": "array", "items": EMPTY}),
        (b"\x90\x4e" + b"\0" * 5000 + b"\0", "AVRO", {"type": "array", "items": {
            "type": "enum", "name": "N", "symbols": [LONG]}}),
        (MANY, "AVRO", {"type": "array", "items": {
            "type": "record", "name": "R", "fields": [{"name": LONG, "type": "null"}]}}),
        (b"[" * 900 + b"0," * 20_000 + b"0" + b"]" * 900, "JSON", ""),
        (b'{"a":' * 900 + b"0" + b"}" * 900, "JSON", ""),
        (b"[" * 900 + b"0," * 7000 + b"0" + b"]" * 900, "NONE", ""),
        (json.dumps({LONG: LONG}).encode(), "JSON", ""),
    ],
    ids=["nulls", "empty records", "symbols", "names", "deep", "objects", "text", "long"],
)  # fmt: skip
def test_no_more_text_is_made_than_is_shown(data: bytes, kind: str, schema: object) -> None:
    payloads = Payloads(kind, json.dumps(schema))
    tracemalloc.start()
    try:
        found = payloads.shown(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.form, found.note) == ("JSON text" if kind == "NONE" else kind, CUT)
    assert len(found.text) == SHOWN_BYTES_MAX
    assert peak < 2_000_000


def test_a_schema_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(definition: str) -> Node:
        calls.append(definition)
        return prepared(definition)

    monkeypatch.setattr("geminga_broker.console.payloads.prepared", counted)
    for definition in ('"int"', '{"type":3}', "{"):
        payloads = Payloads("AVRO", definition)
        assert payloads.shown(b"\x02") == payloads.shown(b"\x02")
    assert len(calls) == 3


def test_half_of_a_surrogate_pair_is_shown_as_it_was_sent() -> None:
    found = shown(b'["\\ud800"]', "JSON", "")
    assert found.text == '[\n  "\\ud800"\n]'
    assert found.text.encode()


def test_names_are_those_of_their_namespace() -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A"]}
    inner = {"type": "record", "name": "Inner", "namespace": "a", "fields": [
        {"name": "k", "type": kind}, {"name": "same", "type": "Kind"},
    ]}  # fmt: skip
    outer = {"type": "record", "name": "b.Outer", "fields": [
        {"name": "i", "type": ["null", inner]}, {"name": "k", "type": "a.Kind"},
        {"name": "again", "type": {"type": "record", "name": "Inner", "fields": []}},
    ]}  # fmt: skip
    assert decoded(b"\0\0", outer) == {"i": None, "k": "A", "again": {}}
    with pytest.raises(BadAvro, match="unknown type 'Kind'"):
        decoded(b"\0\0", ["null", {**outer, "fields": [{"name": "k", "type": "Kind"}]}])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "record", "name": "R", "fields": [1] * 900}},
        {"type": "record", "name": "R"}, {"type": "record", "fields": []},
        {"type": "record", "name": "R", "fields": [{"type": "null"}]},
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": "null"}] * 2},
        [["null"]], ["null", {"type": ["null"]}], [EMPTY, EMPTY], {"type": "array"}, {},
        {"type": "enum", "name": "E", "symbols": [{}]}, {"type": "enum", "name": "E"},
        {"type": "fixed", "name": "F", "size": -1}, ["null"] * 20_000, "x" * 300_000,
    ],
)  # fmt: skip
def test_a_malformed_schema_is_refused(schema: object) -> None:
    with pytest.raises(BadAvro, match="its schema"):
        prepared(json.dumps(schema))
    assert shown(b"\0\0", "AVRO", json.dumps(schema)).form == "bytes"


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
    with pytest.raises(BadAvro):
        decoded(data, schema)


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
@pytest.mark.slow
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
