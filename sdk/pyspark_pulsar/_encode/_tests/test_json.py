"""JSON of columns beside values that are put together one by one."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import types as t

from pyspark_pulsar._encode._json import json_rows
from pyspark_pulsar._encode._plan import Planner
from pyspark_pulsar._encode._spark_types import Definer, arrow_of
from pyspark_pulsar._encode._tests.frames import EPOCH, UTC, frames
from pyspark_pulsar.errors import SchemaMismatch

MICROSECOND = datetime.timedelta(microseconds=1)


def plain(kind: t.DataType, value: Any) -> Any:
    """A value's form in JSON."""
    if value is None:
        return None
    match kind:
        case t.BinaryType():
            return base64.b64encode(value).decode()
        case t.TimestampType() | t.TimestampNTZType():
            return (value.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
        case t.DateType():
            return (value - EPOCH.date()).days
        case t.FloatType():
            return float(str(np.float32(value)))
        case t.ArrayType():
            return [plain(kind.elementType, each) for each in value]
        case t.MapType():
            return {key: plain(kind.valueType, each) for key, each in value.items()}
        case t.StructType():
            return {each.name: plain(each.dataType, value[each.name]) for each in kind.fields}
    return value


def encoded(definition: Any, array: pa.Array) -> list[Any]:
    plan = Planner(definition).record(definition, ((each.name, each.type) for each in array.type))
    return [json.loads(each) for each in json_rows(plan, array)]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(frames())
def test_each_row_is_its_values(frame: tuple[t.StructType, list[dict[str, Any]]]) -> None:
    schema, rows = frame
    definition = Definer().record(schema, "Row", "")
    array = pa.array(rows, arrow_of(schema, ""))
    wanted = [plain(schema, row) for row in rows]
    found = [read(schema, row) for row in encoded(definition, array)]
    assert found == wanted
    assert [read(schema, row) for row in encoded(definition, array[1:])] == wanted[1:]


def read(kind: t.DataType, value: Any) -> Any:
    """Texts of decimal columns as numbers: one value has many, as 0.0000 and 0E-4."""
    if value is None:
        return None
    match kind:
        case t.DecimalType():
            return decimal.Decimal(value)
        case t.ArrayType():
            return [read(kind.elementType, each) for each in value]
        case t.MapType():
            return {key: read(kind.valueType, each) for key, each in value.items()}
        case t.StructType():
            kinds = {each.name: each.dataType for each in kind.fields}
            return {name: read(kinds[name], each) for name, each in value.items()}
    return value


def test_floats_have_the_shortest_text() -> None:
    definition = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "float"}]}
    array = pa.array([{"a": 0.1}], pa.struct([("a", pa.float32())]))
    plan = Planner(definition).record(definition, iter([("a", pa.float32())]))
    assert json_rows(plan, array) == [b'{"a":0.1}']


def test_line_ends_in_strings_do_not_split_rows() -> None:
    definition = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    array = pa.array([{"a": "x\ny"}, {"a": "\r\n"}])
    assert encoded(definition, array) == [{"a": "x\ny"}, {"a": "\r\n"}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("kind", [("float", pa.float32()), ("double", pa.float64())])
def test_numbers_without_a_json_form_are_refused(
    value: float, kind: tuple[str, pa.DataType]
) -> None:
    definition = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind[0]}]}
    array = pa.array([{"a": 1.0}, {"a": value}], pa.struct([("a", kind[1])]))
    with pytest.raises(SchemaMismatch, match=r"column a: has .*JSON can't represent"):
        encoded(definition, array)
