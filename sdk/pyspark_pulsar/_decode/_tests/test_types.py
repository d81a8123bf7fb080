"""The table of types: each schema's column, and each line decoded from payloads that the SDK
writes.

`TABLE` is printed in the documents: the schema, Spark's type, and a remark.
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp as ProtobufTimestamp
from pyspark.sql.types import StructType

from geminga import schema
from geminga.schema import Schema, SchemaInfo, SchemaType
from pyspark_pulsar._decode import Decoder, check_columns, columns_of
from pyspark_pulsar._decode._metadata import METADATA, arrow_schema
from pyspark_pulsar._options import ParseMode
from pyspark_pulsar.errors import SchemaMismatch

UTC = datetime.UTC
DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(2024, 2, 29, 12, 0, 1, 5000, UTC)
LOCAL = MOMENT.replace(tzinfo=None)
NOON = datetime.time(12, 0, 1)
NOON_US = 43_201_000_000
OF_DAY = "microseconds of the day"
NTZ = "timestamp_ntz"
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MANY = 60


class Line(NamedTuple):
    """A line of the table, and a value of the SDK with the column's value."""

    schema: str
    spark: str
    remark: str
    kind: Schema[Any]
    value: Any
    column: Any


def _logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


PRIMITIVES = [
    Line("none, BYTES", "binary", "", schema.Bytes(), b"\x00\xff", b"\x00\xff"),
    Line("BOOLEAN", "boolean", "", schema.Boolean(), True, True),
    Line("INT8", "tinyint", "", schema.Int8(), -5, -5),
    Line("INT16", "smallint", "", schema.Int16(), -500, -500),
    Line("INT32", "int", "", schema.Int32(), -70_000, -70_000),
    Line("INT64", "bigint", "", schema.Int64(), -7_000_000_000, -7_000_000_000),
    Line("FLOAT", "float", "", schema.Float(), 1.5, 1.5),
    Line("DOUBLE", "double", "", schema.Double(), -2.25, -2.25),
    Line("STRING", "string", "", schema.String(), "Zoë", "Zoë"),
    Line("DATE", "timestamp", "java.util.Date is a moment", schema.Date(), MOMENT, MOMENT),
    Line("TIME", "bigint", OF_DAY, schema.Time(), NOON, NOON_US),
    Line("TIMESTAMP", "timestamp", "", schema.Timestamp(), MOMENT, MOMENT),
    Line("INSTANT", "timestamp", "to the microsecond", schema.Instant(), MOMENT, MOMENT),
    Line("LOCAL_DATE", "date", "", schema.LocalDate(), DAY, DAY),
    Line("LOCAL_TIME", "bigint", OF_DAY, schema.LocalTime(), NOON, NOON_US),
    Line("LOCAL_DATE_TIME", "timestamp_ntz", "", schema.LocalDateTime(), LOCAL, LOCAL),
    Line(
        "PROTOBUF", "binary", "its schema doesn't number the fields",
        schema.Protobuf(ProtobufTimestamp), ProtobufTimestamp(seconds=1), b"\x08\x01",
    ),
    Line(
        "PROTOBUF_NATIVE", "a column for each field",
        "as Avro's types; uint32 is bigint, uint64 decimal(20,0), an enum string; binary if a "
        "message holds itself",
        schema.ProtobufNative(ProtobufTimestamp), ProtobufTimestamp(seconds=1, nanos=2), (1, 2),
    ),
    Line(
        "KEY_VALUE", "columns `key` and `value`", "records are structs, pairs inline or separated",
        schema.KeyValue(schema.String(), schema.Int32()), ("k", 1), ("k", 1),
    ),
]  # fmt: skip
"""Schemas whose values are one column, and those that aren't described by Avro."""

_RECORD = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
_FIELDS: list[tuple[str, Any, str, str, Any, Any]] = [
    ("null", "null", "void", "", None, None),
    ("boolean", "boolean", "boolean", "", True, True),
    ("int", "int", "int",
     "`tinyint` and `smallint` in a record are written so, and come back as int", -5, -5),
    ("long", "long", "bigint", "", 1 << 60, 1 << 60),
    ("float", "float", "float", "", 1.5, 1.5),
    ("double", "double", "double", "", 0.1, 0.1),
    ("string", "string", "string", "", "Zoë", "Zoë"),
    ("bytes", "bytes", "binary", "Base64 in JSON", b"\x00\xff", b"\x00\xff"),
    ("fixed", {"type": "fixed", "name": "F", "size": 2}, "binary", "", b"ab", b"ab"),
    ("enum", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", "by name", "B", "B"),
    ("array of T", {"type": "array", "items": "int"}, "array<T>", "", [1, 2], [1, 2]),
    ("map of T", {"type": "map", "values": "int"}, "map<string,T>", "", {"a": 1}, [("a", 1)]),
    ("record", _RECORD, "struct", "of its fields, by name", {"x": 1}, {"x": 1}),
    ("union of null and T", ["null", "int"], "T", "", None, None),
    ("decimal(p,s)", MONEY, "decimal(p,s)",
     "to 38 digits; binary beyond", Decimal("1.50"), Decimal("1.50")),
    ("date", _logical("int", "date"), "date", "", DAY, DAY),
    ("time-millis", _logical("int", "time-millis"), "bigint", OF_DAY, NOON, NOON_US),
    ("time-micros", _logical("long", "time-micros"), "bigint", OF_DAY, NOON, NOON_US),
    ("timestamp-millis", _logical("long", "timestamp-millis"), "timestamp", "", MOMENT, MOMENT),
    ("timestamp-micros", _logical("long", "timestamp-micros"), "timestamp", "", MOMENT, MOMENT),
    ("local-timestamp-millis", _logical("long", "local-timestamp-millis"), NTZ, "", LOCAL, LOCAL),
    ("local-timestamp-micros", _logical("long", "local-timestamp-micros"), NTZ, "", LOCAL, LOCAL),
    ("uuid", _logical("string", "uuid"), "string", "", "00000000-0000-0000-0000-000000000001",
     "00000000-0000-0000-0000-000000000001"),
    ("union of int and long", ["int", "long"], "bigint", "", 7, 7),
    ("union of float and double", ["float", "double"], "double", "", 1.5, 1.5),
    ("other logical types", _logical("long", "timestamp-nanos"), "as without", "", 7, 7),
]  # fmt: skip
_AVRO_ONLY: list[tuple[str, Any, str, str, Any, Any]] = [
    ("union of others", ["string", "null", "boolean"], "struct<member0,member1,...>",
     "one of which is set, in the schema's order without null; in JSON a string, the JSON text",
     True, {"member0": None, "member1": True}),
]  # fmt: skip


def _line(part: tuple[str, Any, str, str, Any, Any], make: Any) -> Line:
    name, definition, spark, remark, value, column = part
    fields = [{"name": "a", "type": definition}]
    kind = make(json.dumps({"type": "record", "name": "R", "fields": fields}))
    return Line(f"AVRO, JSON: {name}", spark, remark, kind, {"a": value}, column)


AVRO = [_line(each, schema.Avro) for each in [*_FIELDS, *_AVRO_ONLY]]
TABLE = [(each.schema, each.spark, each.remark) for each in [*PRIMITIVES, *AVRO]]
"""For the documents: schema, Spark's type, remark."""


LINES = [
    *(pytest.param(each, id=each.schema) for each in [*PRIMITIVES, *AVRO]),
    *(pytest.param(_line(each, schema.Json), id=f"{each[0]} in JSON") for each in _FIELDS),
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("count", [1, MANY])
def test_every_line_of_the_table(line: Line, count: int) -> None:
    columns = columns_of(line.kind.info)
    if "<T>" not in line.spark and line.spark in _PLAIN:
        assert columns[0].spark.dataType.simpleString() == line.spark
    decoder = Decoder(
        [each.arrow for each in columns], lambda v: line.kind.info, ParseMode.FAILFAST
    )
    payload = line.kind.encode(line.value)
    found = decoder.decode([payload] * count, [False] * count, None, None)
    for array, column in zip(found.columns, columns, strict=True):
        array.validate(full=True)
        assert array.type == column.arrow.type
    wanted = line.column if isinstance(line.column, tuple) else (line.column,)
    assert tuple(each[0].as_py() for each in found.columns) == wanted
    assert all(len(set(map(repr, each.to_pylist()))) == 1 for each in found.columns)


_PLAIN = {
    "binary", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string",
    "date", "timestamp", "timestamp_ntz", "void",
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_messages_that_are_all_null(line: Line) -> None:
    columns = columns_of(line.kind.info)
    decoder = Decoder(
        [each.arrow for each in columns], lambda v: line.kind.info, ParseMode.FAILFAST
    )
    for count in (0, 1, MANY):
        found = decoder.decode([b""] * count, [True] * count, None, None)
        assert [each.type for each in found.columns] == [each.arrow.type for each in columns]
        assert [each.null_count for each in found.columns] == [count] * len(columns)
        assert not found.malformed


@pytest.mark.parametrize("line", LINES)
def test_arrow_types_equal_sparks(line: Line) -> None:
    columns = columns_of(line.kind.info)
    wanted = arrow_schema(StructType([each.spark for each in columns]))
    assert pa.schema([each.arrow for each in columns]) == wanted
    assert all(each.spark.nullable for each in columns)


def test_spark_types_with_parts() -> None:
    inner = {"type": "array", "items": ["null", _RECORD]}
    fields = [
        {"name": "l", "type": inner},
        {"name": "m", "type": {"type": "map", "values": MONEY}},
        {"name": "u", "type": ["int", "string"]},
    ]  # fmt: skip
    kind = schema.Avro(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert {each.name: each.spark.dataType.simpleString() for each in columns_of(kind.info)} == {
        "l": "array<struct<x:int>>",
        "m": "map<string,decimal(9,2)>",
        "u": "struct<member0:int,member1:string>",
    }
    assert [each.path for each in columns_of(kind.info)] == [("l",), ("m",), ("u",)]
    assert columns_of(None)[0].path == ()


def refused(fields: list[dict[str, Any]]) -> str:
    text = json.dumps({"type": "record", "name": "R", "namespace": "n", "fields": fields})
    with pytest.raises(SchemaMismatch) as raised:
        columns_of(SchemaInfo("", SchemaType.AVRO, text.encode()))
    return str(raised.value)


def test_fields_without_a_column_type() -> None:
    assert refused([{"name": "a", "type": ["null", "R"]}]).startswith(
        "a: the record n.R is recursive"
    )
    items = [{"name": "b", "type": {"type": "array", "items": "R"}}]
    nested = {"type": "record", "name": "S", "fields": items}
    assert refused([{"name": "a", "type": nested}]).startswith("a.b[]: the record n.R is recursive")
    zero = {"type": "array", "items": "null"}
    assert (
        refused([{"name": "a", "type": zero}]) == "a: its items have no bytes, so it can't be read"
    )
    assert refused([{"name": "a", "type": "nope"}]) == "a: 'nope' is not an Avro type"


@pytest.mark.parametrize("name", [*METADATA, "__KEY", "__topiC"])
def test_fields_with_the_names_of_metadata(name: str) -> None:
    told = refused([{"name": name, "type": "int"}])
    assert told.startswith(f"{name}: is also the name of a metadata column")


def test_fields_that_differ_in_case_only() -> None:
    twice = [{"name": "Id", "type": "int"}, {"name": "iD", "type": "int"}]
    assert refused(twice) == "iD: differs from 'Id' only in case, which Spark ignores"
    nested = {"type": "record", "name": "S", "fields": twice}
    assert refused([{"name": "a", "type": nested}]).startswith("a.iD: differs from 'Id'")


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"type":"record"}', '{"type":"enum","name":"E"}']
)
def test_invalid_definitions(text: str) -> None:
    for kind in (SchemaType.AVRO, SchemaType.JSON):
        with pytest.raises(SchemaMismatch):
            columns_of(SchemaInfo("", kind, text.encode()))


@pytest.mark.parametrize("line", [each for each in [*PRIMITIVES, *AVRO] if each.remark == OF_DAY])
def test_times_can_be_sparks(line: Line) -> None:
    column = columns_of(line.kind.info)[0]
    wanted = [pa.field(column.name, pa.time64("ns"))]
    check_columns(wanted, line.kind.info)
    decoder = Decoder(wanted, lambda v: line.kind.info, ParseMode.FAILFAST)
    for count in (1, MANY):
        payloads = [line.kind.encode(line.value)] * count
        found = decoder.decode(payloads, [False] * count, None, None).columns[0]
        assert found.to_pylist() == [NOON] * count
    with pytest.raises(SchemaMismatch):
        check_columns(wanted, schema.Int64().info)


def test_decimals_beyond_sparks() -> None:
    fields = [{"name": "a", "type": {**MONEY, "precision": 39}}]
    kind = schema.Avro(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert columns_of(kind.info)[0].spark.dataType.simpleString() == "binary"


def test_the_table_has_each_schema_type() -> None:
    told = " ".join(name for name, _, _ in TABLE)
    clients_own = {SchemaType.NONE, *(each for each in SchemaType if each < SchemaType.BYTES)}
    assert not [
        each.name for each in SchemaType if each not in clients_own and each.name not in told
    ]
