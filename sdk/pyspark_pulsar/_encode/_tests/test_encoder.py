"""Frames: the roles of their columns, and the messages of their batches."""

from __future__ import annotations

import datetime
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar._encode import Encoder, Messages, frame_of, schema_of_frame
from pyspark_pulsar._encode._tests.frames import struct
from pyspark_pulsar._options._write_options import WriteOptions, parse_write
from pyspark_pulsar.errors import InvalidOption, SchemaMismatch

URL = {"service.url": "pulsar://localhost:6650"}


def options(**given: str) -> WriteOptions:
    topic = {} if "no_topic" in given else {"topic": "t"}
    given.pop("no_topic", None)
    return parse_write({**URL, **topic, **given}, streaming=False)


def batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def encoded(ddl: str, columns: dict[str, pa.Array], **given: str) -> Messages:
    return Encoder(frame_of(struct(ddl), options(**given))).encode(batch(columns))


def test_all_metadata_columns() -> None:
    moment = datetime.datetime(2026, 1, 1, microsecond=1999, tzinfo=datetime.UTC)
    found = encoded(
        "value string, __key string, __topic string, __eventTime timestamp, __partition int,"
        " __messageProperties map<string,string>, __orderingKey string, __sequenceId bigint",
        {
            "value": pa.array(["a", None, ""]),
            "__key": pa.array(["k", None, ""]),
            "__topic": pa.array(["x", "y", "x"]),
            "__eventTime": pa.array([moment, None, moment], pa.timestamp("us", "UTC")),
            "__partition": pa.array([1, None, -1], pa.int32()),
            "__messageProperties": pa.array(
                [[("p", "1"), ("q", "")], None, []], pa.map_(pa.string(), pa.string())
            ),
            "__orderingKey": pa.array(["o", None, "ö"]),
            "__sequenceId": pa.array([1, 2, 3]),
        },
        no_topic="",
    )
    assert found.payloads == [b"a", None, b""]
    assert found.keys == ["k", None, ""]
    assert found.topics == ["x", "y", "x"]
    at = 1767225600001
    assert found.event_times_ms == [at, None, at]
    assert found.partitions is not None
    assert found.partitions.tolist() == [1, -1, -1]
    assert found.properties == [{"p": "1", "q": ""}, None, None]
    assert found.ordering_keys == [b"o", None, "ö".encode()]


def test_missing_columns_are_none() -> None:
    found = encoded("value binary", {"value": pa.array([b"a"])})
    assert found == Messages([b"a"])


def test_several_columns_are_an_avro_record() -> None:
    schema = struct("a int, b struct<c: array<string>>")
    frame = frame_of(schema, options(recordName="my.space.Order"))
    definition: Any = frame.definition
    assert frame.info.type is SchemaType.AVRO
    assert definition == {
        "type": "record",
        "name": "Order",
        "namespace": "my.space",
        "fields": [
            {"name": "a", "type": ["null", "int"], "default": None},
            {
                "name": "b",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Order_b",
                        "fields": [
                            {
                                "name": "c",
                                "type": ["null", {"type": "array", "items": ["null", "string"]}],
                                "default": None,
                            }
                        ],
                    },
                ],
                "default": None,
            },
        ],
    }
    rows = [{"a": 1, "b": {"c": ["x", None]}}, {"a": 2, "b": None}]
    columns = {
        "a": pa.array([1, 2], pa.int32()),
        "b": pa.array([{"c": ["x", None]}, None]),
    }
    found = Encoder(frame).encode(batch(columns))
    parsed = fastavro.parse_schema(definition)
    read = [fastavro.schemaless_reader(io.BytesIO(each or b""), parsed) for each in found.payloads]
    assert read == rows


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_struct_called_value_is_the_record_and_may_be_null(kind: str) -> None:
    array = pa.array([{"a": 5}, None], pa.struct([("a", pa.int64())]))
    found = encoded("value struct<a: bigint>", {"value": array}, schemaType=kind)
    assert found.payloads == [b"\x02\x0a" if kind == "avro" else b'{"a":5}', None]


def test_one_column_by_another_name_is_a_record() -> None:
    info = schema_of_frame(struct("id int"), options())
    assert info.type is SchemaType.AVRO
    assert [each["name"] for each in json.loads(info.schema)["fields"]] == ["id"]


@pytest.mark.parametrize(
    ("ddl", "given", "kind"),
    [
        ("value int", {}, SchemaType.INT32),
        ("value timestamp", {}, SchemaType.INSTANT),
        ("value binary", {}, SchemaType.BYTES),
        ("value varchar(5)", {}, SchemaType.STRING),
        ("value decimal(5,2)", {}, SchemaType.AVRO),
        ("value array<int>", {"schemaType": "json"}, SchemaType.JSON),
        ("value int", {"schemaType": "avro"}, SchemaType.AVRO),
        ("v string", {"schemaType": "bytes"}, SchemaType.BYTES),
        ("v string, k string", {"schemaType": "string", "keyField": "k"}, SchemaType.STRING),
    ],
)
def test_schemas_by_columns(ddl: str, given: dict[str, str], kind: SchemaType) -> None:
    assert schema_of_frame(struct(ddl), options(**given)).type is kind


def test_a_column_may_be_the_key_too() -> None:
    columns = {"id": pa.array(["a", "b"]), "n": pa.array([1, 2], pa.int32())}
    found = encoded("id string, n int", columns, keyField="id", schemaType="json")
    assert found.keys == ["a", "b"]
    assert found.payloads[0] == b'{"id":"a","n":1}'


def test_the_topics_own_schema() -> None:
    definition = {
        "type": "record", "name": "Theirs", "fields": [
            {"name": "b", "type": "long"},
            {"name": "a", "type": ["null", "string"]},
            {"name": "other", "type": ["null", "string"]},
        ],
    }  # fmt: skip
    info = SchemaInfo("theirs", SchemaType.AVRO, json.dumps(definition).encode())
    given = options(schemaType="topic")
    frame = frame_of(struct("a string, b int"), given, info)
    assert frame.info is info
    columns = {"a": pa.array(["x"]), "b": pa.array([3], pa.int32())}
    assert Encoder(frame).encode(batch(columns)).payloads == [b"\x06\x02\x02x\x00"]
    single = SchemaInfo("n", SchemaType.INT64)
    assert Encoder(frame_of(struct("n int"), given, single)).encode(
        batch({"n": pa.array([1], pa.int32())})
    ).payloads == [bytes(7) + b"\x01"]
    with pytest.raises(InvalidOption, match=r"schemaType: .*has no schema"):
        frame_of(struct("a string"), given, None)
    with pytest.raises(SchemaMismatch, match="column b: is string"):
        frame_of(struct("b string"), given, info)
    with pytest.raises(SchemaMismatch, match=r"columns a, b: .*INT64"):
        frame_of(struct("a int, b int"), given, single)


@pytest.mark.parametrize(
    ("ddl", "given", "told"),
    [
        ("__key string", {}, "no column for the payload"),
        ("value string, __topic string", {}, "topic: can't be given beside the column __topic"),
        ("value string", {"no_topic": ""}, "topic: must be given"),
        ("value string, __KEY int", {}, "column __KEY: must be string or binary, not int"),
        ("value string, __eventTime bigint", {}, "__eventTime: must be timestamp"),
        (
            "value string, __messageProperties map<string,int>",
            {},
            "__messageProperties: must be map<string,string>",
        ),
        (
            "value string, __properties map<string,string>, __messageProperties map<string,string>",
            {},
            "means the same as",
        ),
        ("a interval day to second, b int", {}, "column a: is interval"),
        ("a struct<b: map<int,int>>, c int", {}, r"column a\.b: is a map with keys of int"),
        ("a struct<b: array<void>>", {}, r"column a\.b: is an array whose items have no type"),
        ("a~b int, c int", {}, "column a b: is not a valid Avro name"),
        ("a int, b int", {"schemaType": "bytes"}, "columns a, b: can't all be the payload"),
        ("a int", {"schemaType": "string"}, "column a: is int32"),
        ("a int", {"keyField": "b"}, "keyField: there is no column b"),
        ("a int", {"keyField": "a"}, "keyField: column a must be string or binary"),
        ("a string, __key string", {"keyField": "a"}, "keyField: can't be given beside"),
    ],
)
def test_invalid_frames_are_refused_at_once(ddl: str, given: dict[str, str], told: str) -> None:
    with pytest.raises((SchemaMismatch, InvalidOption), match=told):
        frame_of(struct(ddl), options(**given))


def test_duplicate_columns() -> None:
    twice = t.StructType([t.StructField("a", t.IntegerType())] * 2)
    with pytest.raises(SchemaMismatch, match="column a: appears twice"):
        frame_of(twice, options())


@pytest.mark.parametrize(
    ("column", "array", "told"),
    [
        ("__topic string", pa.array(["a", None]), "__topic: has a null"),
        (
            "__eventTime timestamp",
            pa.array([-1, 5], pa.timestamp("us", "UTC")),
            "__eventTime: has a time that isn't after the beginning of 1970",
        ),
        (
            "__eventTime timestamp",
            pa.array([None, 0], pa.timestamp("us", "UTC")),
            "__eventTime: has a time that isn't after the beginning of 1970",
        ),
        ("__key string", pa.array([b"a", b"\xff"]).view(pa.string()), "column __key: .*UTF-8"),
        (
            "__messageProperties map<string,string>",
            pa.array([[("a", None)], None], pa.map_(pa.string(), pa.string())),
            "__messageProperties: has a property whose value is null",
        ),
    ],
)
def test_rows_that_are_no_valid_messages(column: str, array: pa.Array, told: str) -> None:
    name = column.split()[0]
    given = {"no_topic": ""} if name == "__topic" else {}
    with pytest.raises(SchemaMismatch, match=told):
        encoded(f"value string, {column}", {"value": pa.array(["a", "b"]), name: array}, **given)


@pytest.mark.parametrize("kind", ["avro", "json", "keyvalue"])
def test_texts_must_be_utf_8(kind: str) -> None:
    wrong = pa.array([b"a", b"\xff"]).view(pa.string())
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), wrong)
    for ddl, array in (("string", wrong), ("struct<a: array<string>>", _struct_of(nested))):
        columns = {"key": pa.array([1, 2], pa.int32()), "value": array}
        with pytest.raises(SchemaMismatch, match=r"column value: .*cast strings that aren't UTF-8"):
            encoded(f"key int, value {ddl}", columns, schemaType=kind)


def _struct_of(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array], ["a"])
