"""Frames of any types, and their rows, for tests that have an oracle."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
SCALE = 4
_DECIMAL = t.DecimalType(20, SCALE)
LEAVES: list[tuple[t.DataType, st.SearchStrategy[Any]]] = [
    (t.BooleanType(), st.booleans()),
    (t.ByteType(), st.integers(-128, 127)),
    (t.ShortType(), st.integers(-(1 << 15), (1 << 15) - 1)),
    (t.IntegerType(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (t.LongType(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (t.FloatType(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (t.DoubleType(), st.floats(allow_nan=False, allow_infinity=False)),
    (t.StringType(), st.text(max_size=20)),
    (t.BinaryType(), st.binary(max_size=200)),
    (t.DateType(), st.dates()),
    (
        t.TimestampType(),
        st.datetimes(datetime.datetime(1900, 1, 1), timezones=st.just(UTC)),
    ),
    (t.TimestampNTZType(), st.datetimes(datetime.datetime(1900, 1, 1))),
    (
        _DECIMAL,
        st.decimals(
            min_value=decimal.Decimal("-1e15"),
            max_value=decimal.Decimal("1e15"),
            places=SCALE,
        ),
    ),
    (t.NullType(), st.none()),
]
Typed = tuple[t.DataType, st.SearchStrategy[Any]]


def _nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


def _array(inner: Typed) -> Typed:
    if isinstance(inner[0], t.NullType):
        return inner
    return t.ArrayType(inner[0]), st.lists(_nullable(inner[1]), max_size=4)


def _map(inner: Typed) -> Typed:
    values = st.dictionaries(st.text(max_size=5), _nullable(inner[1]), max_size=4)
    return t.MapType(t.StringType(), inner[0]), values


def _struct(inner: list[Typed]) -> Typed:
    names = [f"f{n}" for n in range(len(inner))]
    kind = t.StructType([t.StructField(n, each[0]) for n, each in zip(names, inner, strict=True)])
    fields = {n: _nullable(each[1]) for n, each in zip(names, inner, strict=True)}
    return kind, st.fixed_dictionaries(fields)


TYPES: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.map(_array), inner.map(_map), st.lists(inner, min_size=1, max_size=3).map(_struct)
    ),
    max_leaves=5,
)


@st.composite
def frames(draw: st.DrawFn) -> tuple[t.StructType, list[dict[str, Any]]]:
    """A schema of some columns, and rows."""
    columns = draw(st.lists(TYPES, min_size=1, max_size=5))
    kind, rows = _struct(columns)
    assert isinstance(kind, t.StructType)
    return kind, draw(st.lists(rows, max_size=8))


_SIMPLE = {
    each.simpleString(): each
    for each in (
        t.BooleanType(), t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType(),
        t.FloatType(), t.DoubleType(), t.StringType(), t.BinaryType(), t.DateType(),
        t.TimestampType(), t.TimestampNTZType(), t.DayTimeIntervalType(), t.VarcharType(5),
        t.DecimalType(5, 2), t.NullType(),
    )
}  # fmt: skip


def struct(text: str) -> t.StructType:
    """A schema of a text such as `a int, b array<string>`; PySpark parses these in the JVM only."""
    fields: list[t.StructField] = []
    for part in _parts(text):
        name, _, kind = part.strip().replace(": ", " ").partition(" ")
        fields.append(t.StructField(name.replace("~", " "), _kind(kind.strip())))
    return t.StructType(fields)


def _parts(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def _kind(text: str) -> t.DataType:
    head, _, inner = text.removesuffix(">").partition("<")
    if head == "struct":
        return struct(inner)
    if head == "array":
        return t.ArrayType(_kind(inner))
    if head == "map":
        key, value = _parts(inner)
        return t.MapType(_kind(key.strip()), _kind(value.strip()))
    return _SIMPLE[text]
