"""Pairs of columns beside the SDK's own schema for them, and read again."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from geminga import schema as schemas
from geminga.schema import KeyValueEncodingType, SchemaInfo, SchemaType
from pyspark_pulsar._decode import Decoder, columns_of, pair_info
from pyspark_pulsar._encode import Encoder, Frame, frame_of
from pyspark_pulsar._encode._spark_types import arrow_of
from pyspark_pulsar._encode._tests.frames import LEAVES, Typed, _struct, struct
from pyspark_pulsar._encode._tests.test_encoder import options
from pyspark_pulsar._options import ParseMode
from pyspark_pulsar.errors import InvalidOption, SchemaMismatch

INLINE, SEPARATED = KeyValueEncodingType
ENCODINGS = pytest.mark.parametrize("encoding", ["inline", "separated"])
SIMPLE = [each for each in LEAVES if not isinstance(each[0], t.DecimalType | t.NullType)]
RECORDS = st.lists(st.sampled_from(LEAVES), min_size=1, max_size=3).map(_struct)
HALVES: st.SearchStrategy[Typed] = st.one_of(st.sampled_from(SIMPLE), RECORDS)


def pairs(ddl: str, **given: str) -> Frame:
    return frame_of(struct(ddl), options(**{"schemaType": "keyvalue", **given}))


def batch(frame: Frame, kinds: list[t.DataType], rows: list[tuple[Any, Any]]) -> pa.RecordBatch:
    columns = [
        pa.array(values, arrow_of(kind, ""))
        for kind, values in zip(kinds, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, list(frame.layout.values))


def read_again(frame: Frame, found: Any) -> list[tuple[Any, Any]]:
    """As a read has it."""
    wanted = [each.arrow for each in columns_of(frame.info)]
    payloads = [each or b"" for each in found.payloads]
    nulls = [each is None for each in found.payloads]
    decoder = Decoder(wanted, lambda version: frame.info, ParseMode.FAILFAST)
    decoded = decoder.decode(payloads, nulls, found.keys, None)
    return list(zip(*(each.to_pylist() for each in decoded.columns), strict=True))


@ENCODINGS
@pytest.mark.parametrize("kind", ["auto", "json"])
@pytest.mark.slow
def test_round_trip(encoding: str, kind: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.data(), HALVES, HALVES)
    def check(data: st.DataObject, key: Typed, value: Typed) -> None:
        names = ("key", "value")
        schema = t.StructType(
            [t.StructField(name, each[0]) for name, each in zip(names, (key, value), strict=True)]
        )
        types = {
            f"{name}SchemaType": kind
            for name, each in zip(names, (key, value), strict=True)
            if isinstance(each[0], t.StructType)
        }
        given_options = options(schemaType="keyvalue", keyValueEncoding=encoding, **types)
        frame = frame_of(schema, given_options)
        one = st.tuples(*(st.one_of(st.none(), each[1]) for each in (key, value)))
        rows = batch(frame, [key[0], value[0]], data.draw(st.lists(one, min_size=1, max_size=6)))
        wanted = list(zip(*(each.to_pylist() for each in rows.columns), strict=True))
        assert read_again(frame, Encoder(frame).encode(rows)) == wanted
        # A part of a batch begins in the middle of its buffers.
        assert read_again(frame, Encoder(frame).encode(rows[1:])) == wanted[1:]

    check()


@pytest.mark.parametrize("encoding", [INLINE, SEPARATED])
def test_payloads_equal_the_sdks(encoding: KeyValueEncodingType) -> None:
    given = {"keyValueEncoding": encoding.value, "valueSchemaType": "json"}
    frame = pairs("key int, value struct<a: string>", **given)
    assert frame.info.type is SchemaType.KEY_VALUE
    key, value, is_separated = pair_info(frame.info)
    assert is_separated == (encoding is SEPARATED)
    assert (key.type, value.type) == (SchemaType.INT32, SchemaType.JSON)
    theirs = schemas.KeyValue(schemas.Int32(), schemas.Json(value.schema.decode()), encoding)
    rows: list[tuple[Any, Any]] = [
        (1, {"a": "x"}), (None, {"a": None}), (2, None), (None, None), (-1, {"a": ""}),
    ]  # fmt: skip
    found = Encoder(frame).encode(
        batch(frame, [each.dataType for each in struct("key int, value struct<a: string>")], rows)
    )
    outgoing = [theirs._outgoing(row) for row in rows]
    assert found.payloads == [None if each.is_null else each.data for each in outgoing]
    assert found.keys == (None if encoding is INLINE else [each.key for each in outgoing])


def test_schemas_of_new_topics() -> None:
    frame = pairs("key struct<id: bigint>, value struct<a: int>", recordName="my.Order")
    key, value, is_separated = pair_info(frame.info)
    assert not is_separated
    assert [json.loads(each.schema)["name"] for each in (key, value)] == ["OrderKey", "Order"]
    assert {json.loads(each.schema)["namespace"] for each in (key, value)} == {"my"}
    assert {each.type for each in (key, value)} == {SchemaType.AVRO}
    raw = pairs("key string, value binary", keySchemaType="bytes")
    assert {each.type for each in pair_info(raw.info)[:2]} == {SchemaType.BYTES}
    same = schemas.KeyValue(schemas.Int64(), schemas.String(), SEPARATED)
    assert pairs("value string, key bigint", keyValueEncoding="Separated").info == same.info


def test_the_topics_own_pairs() -> None:
    definition = {"type": "record", "name": "Theirs", "fields": [{"name": "a", "type": "long"}]}
    theirs = schemas.KeyValue(schemas.Int64(), schemas.Avro(definition), SEPARATED)
    schema = struct("value struct<a: int>, key int")
    for kind in ("topic", "auto"):
        frame = frame_of(schema, options(schemaType=kind), theirs.info)
        assert frame.info is theirs.info
        rows = pa.RecordBatch.from_pylist(
            [{"value": {"a": 1}, "key": 2}],
            pa.schema([(each.name, arrow_of(each.dataType, "")) for each in schema]),
        )
        found = Encoder(frame).encode(rows)
        assert (found.keys, found.payloads) == ([bytes(7) + b"\x02"], [b"\x02"])
    for ddl, told in (
        ("key string, value struct<a: int>", "column key: is string, but the schema is INT64"),
        ("key int, value struct<b: int>", r"column value\.a: is missing"),
        ("key int, value int", "column value: is int32, but record"),
        ("value struct<a: int>", "columns value: aren't a pair: .*needs key and value"),
        ("key int, value struct<a: int>, c int", "columns key, value, c: aren't a pair"),
    ):
        with pytest.raises(SchemaMismatch, match=told):
            frame_of(struct(ddl), options(schemaType="topic"), theirs.info)


def test_the_encoding_is_the_topics() -> None:
    schema = struct("key int, value string")
    keyvalue = {"schemaType": "keyvalue"}
    for encoding in KeyValueEncodingType:
        theirs = schemas.KeyValue(schemas.Int32(), schemas.String(), encoding)
        assert frame_of(schema, options(**keyvalue), theirs.info).info == theirs.info
        same = options(**keyvalue, keyValueEncoding=encoding.value.lower())
        assert frame_of(schema, same, theirs.info).info == theirs.info
        other = options(**keyvalue, keyValueEncoding=_other(encoding).value)
        with pytest.raises(InvalidOption, match=f"keyValueEncoding: must be {encoding.value}"):
            frame_of(schema, other, theirs.info)
    for theirs in (
        schemas.KeyValue(schemas.Int32(), schemas.Int32()),
        schemas.KeyValue(
            schemas.Int32(), schemas.Avro({"type": "record", "name": "A", "fields": []})
        ),
    ):
        with pytest.raises(SchemaMismatch, match="column value: would be STRING, but is"):
            frame_of(schema, options(**keyvalue), theirs.info)
    single = frame_of(schema, options(**keyvalue), schemas.String().info)
    assert not single.is_separated


def _other(encoding: KeyValueEncodingType) -> KeyValueEncodingType:
    return INLINE if encoding is SEPARATED else SEPARATED


def test_key_and_value_are_a_record_unless_the_topic_has_pairs() -> None:
    for info in (None, schemas.String().info):
        made = frame_of(struct("key int, value int"), options(), info)
        assert made.info.type is SchemaType.AVRO


@ENCODINGS
def test_a_key_beside_the_pairs(encoding: str) -> None:
    ddl = "key int, value string, __key string"
    by_field = {"keyField": "value", "keyValueEncoding": encoding}
    if encoding == "inline":
        frame = pairs(ddl)
        columns = [pa.array([1], pa.int32()), pa.array(["v"]), pa.array(["k"])]
        rows = pa.RecordBatch.from_arrays(columns, ["key", "value", "__key"])
        assert Encoder(frame).encode(rows).keys == ["k"]
        rows = pa.RecordBatch.from_arrays(columns[:2], ["key", "value"])
        assert Encoder(pairs("key int, value string", **by_field)).encode(rows).keys == ["v"]
        return
    for name in ("__key", "__keyBytes"):
        with pytest.raises(SchemaMismatch, match=f"column {name}: .*column key; drop it"):
            pairs(f"key int, value string, {name} binary", keyValueEncoding=encoding)
    with pytest.raises(InvalidOption, match="keyField: must be left out"):
        pairs("key int, value string", **by_field)


@pytest.mark.parametrize(
    ("ddl", "given", "told"),
    [
        ("key int, v int", {}, "columns key, v: aren't a pair: schemaType=keyvalue needs key and"),
        ("value int", {}, "columns value: aren't a pair"),
        ("key int, value array<int>", {}, "column value: is array<int>, which can't be half"),
        ("key decimal(5,2), value int", {}, r"column key: is decimal\(5,2\), which can't"),
        ("key int, value string", {"valueSchemaType": "json"}, "valueSchemaType: is json, which"),
        ("key int, value int", {"keySchemaType": "string"}, "column key: is int32, but"),
        ("key int, value struct<a~b: int>", {}, r"column value\.a b: is not a valid Avro name"),
        ("key int, value map<int,int>", {}, "column value: is map<int,int>"),
    ],
)
def test_invalid_pairs(ddl: str, given: dict[str, str], told: str) -> None:
    with pytest.raises((SchemaMismatch, InvalidOption), match=told):
        pairs(ddl, **given)


def test_options_of_pairs() -> None:
    for name in ("keyValueEncoding", "keySchemaType", "valueSchemaType"):
        with pytest.raises(InvalidOption, match=f"option {name}: needs schemaType=keyvalue"):
            options(**{name: "auto"})
        with pytest.raises(InvalidOption, match=f"option {name}: must be one of"):
            options(schemaType="keyvalue", **{name: "topic"})


def test_pair_schemas_that_cannot_be_written() -> None:
    kind = SchemaInfo("P", SchemaType.PROTOBUF, b"{}")
    info = schemas.KeyValue(schemas.Int32(), schemas.AlreadyEncoded(kind)).info
    with pytest.raises(SchemaMismatch, match="PROTOBUF, which can't be written"):
        frame_of(struct("key int, value binary"), options(schemaType="topic"), info)
