"""Schemas as trees, independent of their format, and their Arrow types (spec SP-02). Pure.

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
"""Maximum of Spark's and Arrow's decimals."""


class Kind(enum.Enum):
    """The kind of a primitive value."""

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
"""Spark's `time`, of 4.1 and newer: by default times of day are microseconds."""
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
    """A primitive value. `size` is that of fixed ones, and of decimals in fixed ones; `numbers`
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
    """A record; it may be recursive."""

    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Array:
    """A list of values of one shape."""

    item: Shape


@dataclass(frozen=True, eq=False)
class Map:
    """A map with string keys and values of one shape."""

    value: Shape


@dataclass(frozen=True, eq=False)
class Union:
    """A union; branches are in the schema's order."""

    branches: tuple[Shape, ...]

    @property
    def real(self) -> tuple[Shape, ...]:
        """The branches except null."""
        return tuple(each for each in self.branches if not is_null(each))


Shape = Leaf | Record | Array | Map | Union


def is_null(shape: Shape) -> TypeGuard[Leaf]:
    """Whether the shape is the null type."""
    return isinstance(shape, Leaf) and shape.kind is Kind.NULL


def leaf_type(leaf: Leaf) -> pa.DataType:
    """The Arrow type of a primitive value."""
    if leaf.kind is Kind.DECIMAL:
        return pa.decimal128(leaf.precision, leaf.scale)
    return _TYPES[leaf.kind]


def list_type(item: pa.DataType) -> pa.DataType:
    """The Arrow type of a Spark array."""
    return pa.list_(pa.field(ELEMENT, item))


def map_type(value: pa.DataType) -> pa.DataType:
    """The Arrow type of a Spark map with string keys."""
    return pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", value))


def arrow_type(shape: Shape, path: str) -> pa.DataType:
    """The Arrow type of a shape. Raises SchemaMismatch, naming the field, for recursive records and
    for fields that differ in case only.
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
    """The name of a type in Spark."""
    try:
        return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())
    except PySparkException:
        return str(kind)


def dotted(path: str, name: str) -> str:
    """The path of a field."""
    return f"{path}.{name}" if path else name


def merged_type(types: list[pa.DataType]) -> pa.DataType | None:
    """The common type of a union's branches, if there is one: as in spark-avro, integers are long,
    numbers double.
    """
    if len(types) == 1:
        return types[0]
    for wide, narrow in ((pa.int64(), pa.int32()), (pa.float64(), pa.float32())):
        if len(types) == 2 and wide in types and narrow in types:
            return wide
    return None


def check_names(names: Iterator[str], path: str) -> None:
    """Raises SchemaMismatch for names that Spark considers equal."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise SchemaMismatch(
                dotted(path, name),
                f"differs from {other!r} only in case, which Spark ignores",
            )


def holds_itself(shape: Shape, around: tuple[Record, ...] = ()) -> bool:
    """Whether the shape contains a recursive record."""
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
    """The minimum size of a value in Avro: 0 or 1 bytes."""
    if isinstance(shape, Leaf):
        return 0 if shape.kind is Kind.NULL or shape.size == 0 else 1
    if isinstance(shape, Record):
        if shape in seen:
            return 1
        return max((smallest(each.shape, (*seen, shape)) for each in shape.fields), default=0)
    return 1
