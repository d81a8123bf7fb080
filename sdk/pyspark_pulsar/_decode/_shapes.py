"""Schemas as trees, whatever they were written in, and their Arrow types (spec SP-02). Pure.

Everything is nullable: a message may be null, a field may be missing in an older version, and Spark
reads files the same way.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type

from pyspark_pulsar.errors import SchemaMismatch

ELEMENT = "element"
DECIMAL_DIGITS_MAX = 38
"""Of Spark's and Arrow's decimals."""


class Kind(enum.Enum):
    """What a value without parts is."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    FIXED = "fixed"
    ENUM = "enum"
    DECIMAL = "decimal"
    DATE = "date"
    TIME_MILLIS = "time-millis"
    TIME_MICROS = "time-micros"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"
    JSON = "json"
    """Any JSON value, as its text."""


MOMENT = pa.timestamp("us", tz="UTC")
LOCAL_MOMENT = pa.timestamp("us")
TIME = pa.time64("ns")
"""Spark's `time`, of 4.1 and newer: times of day are microseconds unless it is asked for."""
_TYPES: dict[Kind, pa.DataType] = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.UINT32: pa.int64(),
    Kind.UINT64: pa.decimal128(20, 0),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.FIXED: pa.binary(),
    Kind.ENUM: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.TIME_MILLIS: pa.int64(),
    Kind.TIME_MICROS: pa.int64(),
    Kind.TIMESTAMP_MILLIS: MOMENT,
    Kind.TIMESTAMP_MICROS: MOMENT,
    Kind.LOCAL_TIMESTAMP_MILLIS: LOCAL_MOMENT,
    Kind.LOCAL_TIMESTAMP_MICROS: LOCAL_MOMENT,
    Kind.JSON: pa.string(),
}


@dataclass(frozen=True)
class Leaf:
    """A value without parts. `size` is that of fixed ones, and of decimals in fixed ones; `numbers`
    those of Protobuf's enums.
    """

    kind: Kind
    size: int | None = None
    symbols: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class Field:
    """A field of a record. `default` is as the schema's JSON has it, if there is one."""

    name: str
    shape: Shape
    has_default: bool = False
    default: object = None
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class Record:
    """A record; its fields may lead back to it."""

    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Array:
    """A list of values of one shape."""

    item: Shape


@dataclass(frozen=True, eq=False)
class Map:
    """Values of one shape by texts."""

    value: Shape


@dataclass(frozen=True, eq=False)
class Union:
    """One of several; the order is that of the schema."""

    branches: tuple[Shape, ...]

    @property
    def real(self) -> tuple[Shape, ...]:
        """The branches but null."""
        return tuple(each for each in self.branches if not is_null(each))


Shape = Leaf | Record | Array | Map | Union


def is_null(shape: Shape) -> TypeGuard[Leaf]:
    """Whether it is the type that has null only."""
    return isinstance(shape, Leaf) and shape.kind is Kind.NULL


def leaf_type(leaf: Leaf) -> pa.DataType:
    """The Arrow type of a value without parts."""
    if leaf.kind is Kind.DECIMAL:
        return pa.decimal128(leaf.precision, leaf.scale)
    return _TYPES[leaf.kind]


def list_type(item: pa.DataType) -> pa.DataType:
    """A list as Spark's arrays are."""
    return pa.list_(pa.field(ELEMENT, item))


def map_type(value: pa.DataType) -> pa.DataType:
    """A map as Spark's are, by texts."""
    return pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", value))


def arrow_type(shape: Shape, path: str) -> pa.DataType:
    """The Arrow type of a shape. Raises SchemaMismatch, naming the field, for records within
    themselves and for fields that differ in case only.
    """
    return _Typing().of(shape, path)


class _Typing:
    """Arrow types of one tree."""

    def __init__(self) -> None:
        self._open: list[Record] = []

    def of(self, shape: Shape, path: str) -> pa.DataType:
        if isinstance(shape, Leaf):
            return leaf_type(shape)
        if isinstance(shape, Array):
            return list_type(self.of(shape.item, f"{path}[]"))
        if isinstance(shape, Map):
            return map_type(self.of(shape.value, f"{path}[]"))
        if isinstance(shape, Union):
            return self._union(shape, path)
        if shape in self._open:
            raise SchemaMismatch(
                path,
                f"the record {shape.name} is recursive, which no column can be; read with a schema "
                "that leaves this field out, or with `value binary`",
            )
        check_names((each.name for each in shape.fields), path)
        self._open.append(shape)
        made = pa.struct(
            [
                pa.field(each.name, self.of(each.shape, dotted(path, each.name)))
                for each in shape.fields
            ]
        )
        self._open.pop()
        return made

    def _union(self, union: Union, path: str) -> pa.DataType:
        types = [self.of(each, path) for each in union.real]
        if not types:
            return pa.null()
        return merged_type(types) or pa.struct(
            [pa.field(f"member{number}", each) for number, each in enumerate(types)]
        )


def spark_name(kind: pa.DataType) -> str:
    """A type as Spark's users write it."""
    try:
        return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())
    except PySparkException:
        return str(kind)


def dotted(path: str, name: str) -> str:
    """Where a field stands, as users write it."""
    return f"{path}.{name}" if path else name


def merged_type(types: list[pa.DataType]) -> pa.DataType | None:
    """The one type of a union's branches, if there is one: as spark-avro has them, whole numbers
    are long, numbers double.
    """
    if len(types) == 1:
        return types[0]
    for wide, narrow in ((pa.int64(), pa.int32()), (pa.float64(), pa.float32())):
        if len(types) == 2 and wide in types and narrow in types:
            return wide
    return None


def check_names(names: Iterator[str], path: str) -> None:
    """Raises SchemaMismatch for names that Spark takes for the same."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise SchemaMismatch(
                dotted(path, name),
                f"differs from {other!r} only in case, which Spark ignores",
            )


def holds_itself(shape: Shape, around: tuple[Record, ...] = ()) -> bool:
    """Whether there is a record within itself."""
    if isinstance(shape, Leaf):
        return False
    if isinstance(shape, Array):
        return holds_itself(shape.item, around)
    if isinstance(shape, Map):
        return holds_itself(shape.value, around)
    if isinstance(shape, Union):
        return any(holds_itself(each, around) for each in shape.branches)
    within = (*around, shape)
    return shape in around or any(holds_itself(each.shape, within) for each in shape.fields)


def smallest(shape: Shape, seen: tuple[Record, ...] = ()) -> int:
    """The least bytes that a value has in Avro: 0 or 1."""
    if isinstance(shape, Leaf):
        return 0 if shape.kind is Kind.NULL or shape.size == 0 else 1
    if isinstance(shape, Record):
        if shape in seen:
            return 1
        return max((smallest(each.shape, (*seen, shape)) for each in shape.fields), default=0)
    return 1
