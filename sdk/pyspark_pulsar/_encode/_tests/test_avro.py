"""Avro of columns beside fastavro, row by row."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import types as t

from pyspark_pulsar._encode._avro import avro_rows
from pyspark_pulsar._encode._plan import Planner
from pyspark_pulsar._encode._spark_types import Definer, arrow_of
from pyspark_pulsar._encode._tests.frames import SCALE, frames
from pyspark_pulsar.errors import SchemaMismatch


def written(definition: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(definition), value)
    return buffer.getvalue()


def encoded(definition: Any, array: pa.Array) -> list[bytes]:
    plan = Planner(definition).record(definition, ((each.name, each.type) for each in array.type))
    found: list[bytes] = avro_rows(plan, array).to_pylist()
    return found


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(frames())
def test_each_row_equals_fastavros(frame: tuple[t.StructType, list[dict[str, Any]]]) -> None:
    schema, rows = frame
    definition = Definer().record(schema, "Row", "")
    array = pa.array(rows, arrow_of(schema, ""))
    wanted = [written(definition, _shortest(row)) for row in rows]
    assert encoded(definition, array) == wanted
    # A part of an array begins in the middle of its buffers.
    assert encoded(definition, array[1:]) == wanted[1:]


def _shortest(value: Any) -> Any:
    """Decimals in the fewest bytes, as Java writes them: fastavro takes two for -128."""
    match value:
        case list():
            return [_shortest(each) for each in value]
        case dict():
            return {key: _shortest(each) for key, each in value.items()}
        case Decimal():
            unscaled = int(value.scaleb(SCALE))
            bits = (~unscaled if unscaled < 0 else unscaled).bit_length()
            return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)
    return value


def test_decimals_have_the_fewest_bytes() -> None:
    values = [Decimal(each) for each in ("-1.28", "1.27", "1.28", "-1.29", "0", "-0.01", "-327.68")]
    found = one(
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        values,
        pa.decimal128(5, 2),
    )
    assert [each.hex() for each in found] == [
        "0280", "027f", "040080", "04ff7f", "0200", "02ff", "048000",
    ]  # fmt: skip


def one(kind: object, values: list[Any], arrow: pa.DataType, *, null: bool = False) -> list[bytes]:
    kind = ["null", kind] if null else kind
    definition = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    array = pa.StructArray.from_arrays([pa.array(values, arrow)], ["a"])
    found = encoded(definition, array)
    parsed = fastavro.parse_schema(json.loads(json.dumps(definition)))
    for data in found:
        rest = io.BytesIO(data)
        fastavro.schemaless_reader(rest, parsed)
        assert not rest.read()
    return found


def test_the_topics_types_may_be_wider() -> None:
    assert one("long", [1, -1], pa.int8()) == [b"\x02", b"\x01"]
    assert one(["int", "null"], [1, None], pa.int32()) == [b"\x00\x02", b"\x02"]
    assert one("double", [2], pa.int32()) == [bytes.fromhex("0000000000000040")]
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    assert one(millis, [1999, -1], pa.timestamp("us", "UTC")) == [b"\x02", b"\x01"]
    micros = {"type": "long", "logicalType": "time-micros"}
    assert one(micros, [1999], pa.time64("ns")) == [b"\x02"]
    assert one(micros, [1999], pa.int64()) == [b"\x9e\x1f"]
    millis_of_day = {"type": "int", "logicalType": "time-millis"}
    assert one(millis_of_day, [1999, None, 0], pa.int64(), null=True)[0] == b"\x02\x02"
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    assert one(enum, ["B", "A"], pa.string()) == [b"\x02", b"\x00"]
    fixed = {"type": "fixed", "name": "F", "size": 2}
    assert one(fixed, [b"ab"], pa.binary()) == [b"ab"]
    fixed_decimal = {**fixed, "logicalType": "decimal", "precision": 4, "scale": 2}
    assert one(fixed_decimal, [Decimal("1.5"), Decimal("-0.5")], pa.decimal128(3, 1)) == [
        b"\x00\x96",
        b"\xff\xce",
    ]
    wide = {**fixed_decimal, "size": 18}
    assert one(wide, [Decimal("-0.5")], pa.decimal128(3, 1)) == [b"\xff" * 17 + b"\xce"]


def test_fields_without_a_column_are_null_if_nullable() -> None:
    definition = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": ["string", "null"]},
            {"name": "b", "type": "R2"},
            {"name": "c", "type": "null"},
        ],
    }
    inner = {"type": "record", "name": "R2", "fields": [{"name": "x", "type": "int"}]}
    definition["fields"][1]["type"] = inner
    array = pa.array([{"b": {"x": 3}}])
    array = array.cast(pa.struct([("b", pa.struct([("x", pa.int32())]))]))
    assert encoded(definition, array) == [b"\x02\x06"]


@pytest.mark.parametrize(
    ("kind", "values", "arrow", "told"),
    [
        ("int", [1], pa.int64(), "column a: is int64, but int in the topic's schema"),
        ("long", [None, 1], pa.int64(), "column a: has a null"),
        ({"type": "long", "logicalType": "timestamp-micros"}, [1], pa.timestamp("us"), "column a"),
        ("long", [1], pa.timestamp("us", "UTC"), "column a"),
        (
            {"type": "long", "logicalType": "time-micros"}, [86_400_000_000], pa.int64(),
            "column a: must have microseconds of a day",
        ),
        (
            {"type": "int", "logicalType": "time-millis"}, [-1], pa.int64(),
            "column a: must have microseconds of a day",
        ),
        (["int", "string"], [1], pa.int32(), "a union of several types"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, ["C"], pa.string(), "has 'C'"),
        ({"type": "fixed", "name": "F", "size": 2}, [b"abc"], pa.binary(), "isn't of 2 bytes"),
        (
            {
                "type": "fixed", "name": "F", "size": 1, "logicalType": "decimal",
                "precision": 4, "scale": 0,
            },
            [Decimal(999)], pa.decimal128(3, 0), "more than 1 bytes",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            [Decimal(999)], pa.decimal128(3, 0), "column a",
        ),
        ({"type": "array", "items": "int"}, [[1, None]], pa.list_(pa.int32()), r"column a\[\]"),
    ],
)  # fmt: skip
def test_errors_name_the_column(
    kind: object, values: list[Any], arrow: pa.DataType, told: str
) -> None:
    with pytest.raises(SchemaMismatch, match=told):
        one(kind, values, arrow)


def test_columns_and_fields_must_be_the_same() -> None:
    definition = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    two = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    with pytest.raises(SchemaMismatch, match="column b: isn't in the topic's schema"):
        encoded(definition, pa.array([{"a": 1, "b": 2}], two))
    with pytest.raises(SchemaMismatch, match="column a: is missing"):
        encoded(definition, pa.array([{}], pa.struct([])))


def test_items_of_null_lists_are_left_out() -> None:
    values = pa.array([1, 2, 3], pa.int32())
    offsets = pa.array([0, 2, 3], pa.int32())
    hidden = pa.ListArray.from_arrays(offsets, values, mask=pa.array([True, False]))
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": ["null", {"type": "array", "items": "int"}]}],
    }
    array = pa.StructArray.from_arrays([hidden], ["a"])
    assert encoded(definition, array) == [b"\x00", b"\x02\x02\x06\x00"]
