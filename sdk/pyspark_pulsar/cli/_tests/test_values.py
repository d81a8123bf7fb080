"""Values of results as JSON, CSV and table cells."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_pulsar.cli._values import cell, plain, shown, table

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000)
RECORD = StructType([StructField("a", LongType()), StructField("b", BinaryType())])
CASES: list[tuple[object, DataType, object, str]] = [
    (None, LongType(), None, "NULL"),
    (True, LongType(), True, "true"),
    (7, LongType(), 7, "7"),
    (1.5, DoubleType(), 1.5, "1.5"),
    (float("nan"), DoubleType(), "nan", "nan"),
    ("é", StringType(), "é", "é"),
    (bytearray(b"text"), BinaryType(), "text", "text"),
    (bytearray(b"\xff\x00"), BinaryType(), "/wA=", "/wA="),
    (MOMENT, TimestampType(), "2026-01-02T03:04:05.678000Z", "2026-01-02T03:04:05.678000Z"),
    (MOMENT, TimestampNTZType(), "2026-01-02T03:04:05.678000", "2026-01-02T03:04:05.678000"),
    (MOMENT.date(), DateType(), "2026-01-02", "2026-01-02"),
    (Decimal("1.20"), DecimalType(5, 2), "1.20", "1.20"),
    (Row(a=1, b=b"x"), RECORD, {"a": 1, "b": "x"}, '{"a": 1, "b": "x"}'),
    ([b"x", None], ArrayType(BinaryType()), ["x", None], '["x", null]'),
    ({1: "é"}, MapType(IntegerType(), StringType()), {"1": "é"}, '{"1": "é"}'),
]


@pytest.mark.parametrize(("value", "kind", "expected", "text"), CASES)
def test_values(value: object, kind: DataType, expected: object, text: str) -> None:
    assert plain(value, kind) == expected
    assert cell(value, kind) == text
    json.dumps(expected, allow_nan=False)


def test_a_cell_keeps_to_its_line() -> None:
    assert shown("a\nb\x1b[31m", StringType()) == "a\\nb\\x1b[31m"
    assert len(shown("x" * 10_000, StringType())) == 200


def test_tables_are_aligned() -> None:
    assert table(["id", "name"], [["1", "one"], ["12345", ""]]) == [
        "id     name",
        "-----  ----",
        "1      one",
        "12345",
    ]
    assert table(["only"], []) == ["only", "----"]
