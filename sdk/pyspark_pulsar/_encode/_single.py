"""Encodes single values with Pulsar's primitive schemas, big-endian (spec SP-06)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar._encode import _columns as columns
from pyspark_pulsar._encode._cells import Cells, Whole, all_of, binary, fixed
from pyspark_pulsar._encode._plan import DAY_US, Plan, is_bytes, is_text, is_time_of_day
from pyspark_pulsar.errors import SchemaMismatch

INFOS = {
    "boolean": SchemaInfo("Boolean", SchemaType.BOOLEAN),
    "tinyint": SchemaInfo("INT8", SchemaType.INT8),
    "smallint": SchemaInfo("INT16", SchemaType.INT16),
    "int": SchemaInfo("INT32", SchemaType.INT32),
    "bigint": SchemaInfo("INT64", SchemaType.INT64),
    "float": SchemaInfo("Float", SchemaType.FLOAT),
    "double": SchemaInfo("Double", SchemaType.DOUBLE),
    "string": SchemaInfo("String", SchemaType.STRING),
    "binary": SchemaInfo("Bytes", SchemaType.BYTES),
    "date": SchemaInfo("LocalDate", SchemaType.LOCAL_DATE),
    "timestamp": SchemaInfo("Instant", SchemaType.INSTANT),
    "timestamp_ntz": SchemaInfo("LocalDateTime", SchemaType.LOCAL_DATE_TIME),
    "time": SchemaInfo("LocalTime", SchemaType.LOCAL_TIME),
}
"""Spark's name of a type -> the lossless schema of a column `value` of it."""


def _numbers(layout: str) -> Callable[[Plan, pa.Array], Cells]:
    def cells(plan: Plan, array: pa.Array) -> Cells:
        if layout in (">f4", ">f8"):
            kind = pa.float32() if layout == ">f4" else pa.float64()
            return fixed(columns.real(array, kind).astype(layout))
        return fixed(columns.whole(plan, array).astype(layout))

    return cells


def _boolean(plan: Plan, array: pa.Array) -> Cells:
    return columns.flags(array)[:, None]


def _millis(plan: Plan, array: pa.Array) -> Cells:
    return fixed((columns.whole(plan, array) // 1000).astype(">i8"))


def _instant(plan: Plan, array: pa.Array) -> Cells:
    seconds, micros = np.divmod(columns.whole(plan, array), 1_000_000)
    return np.hstack([fixed(seconds.astype(">i8")), fixed((micros * 1000).astype(">i4"))])


def _time_of_day(plan: Plan, array: pa.Array) -> Cells:
    return fixed((columns.whole(plan, array) * 1000).astype(">i8"))


def _local_moment(plan: Plan, array: pa.Array) -> Cells:
    days, micros = np.divmod(columns.whole(plan, array), DAY_US)
    return np.hstack([fixed(days.astype(">i8")), fixed((micros * 1000).astype(">i8"))])


def _is_moment(kind: pa.DataType) -> bool:
    return bool(kinds.is_timestamp(kind)) and kind.tz is not None


def _is_local(kind: pa.DataType) -> bool:
    return bool(kinds.is_timestamp(kind)) and kind.tz is None


def _up_to(bits: int) -> Callable[[pa.DataType], bool]:
    return lambda kind: bool(kinds.is_signed_integer(kind)) and kind.bit_width <= bits


def _is_real(kind: pa.DataType) -> bool:
    return bool(kinds.is_float32(kind) or kinds.is_float64(kind))


_TABLE: dict[
    SchemaType, tuple[Callable[[pa.DataType], bool], Callable[[Plan, pa.Array], Cells]]
] = {
    SchemaType.BOOLEAN: (kinds.is_boolean, _boolean),
    SchemaType.INT8: (_up_to(8), _numbers(">i1")),
    SchemaType.INT16: (_up_to(16), _numbers(">i2")),
    SchemaType.INT32: (_up_to(32), _numbers(">i4")),
    SchemaType.INT64: (_up_to(64), _numbers(">i8")),
    SchemaType.FLOAT: (kinds.is_float32, _numbers(">f4")),
    SchemaType.DOUBLE: (_is_real, _numbers(">f8")),
    SchemaType.DATE: (_is_moment, _millis),
    SchemaType.TIMESTAMP: (_is_moment, _millis),
    SchemaType.TIME: (is_time_of_day, _millis),
    SchemaType.INSTANT: (_is_moment, _instant),
    SchemaType.LOCAL_DATE: (kinds.is_date32, _numbers(">i8")),
    SchemaType.LOCAL_TIME: (is_time_of_day, _time_of_day),
    SchemaType.LOCAL_DATE_TIME: (_is_local, _local_moment),
}
"""Type of a schema -> a check of the column's type, and the encoder."""


def check_single(info: SchemaInfo, kind: pa.DataType, column: str) -> None:
    """Raises SchemaMismatch if a column can't be written with that schema."""
    if info.type in (SchemaType.BYTES, SchemaType.NONE):
        fits = is_bytes(kind) or is_text(kind)
    elif info.type is SchemaType.STRING:
        fits = is_text(kind)
    elif info.type in _TABLE:
        fits = bool(_TABLE[info.type][0](kind))
    else:
        raise SchemaMismatch(
            "the topic's schema", f"is of type {info.type.name}, which can't be written"
        )
    if not fits:
        raise SchemaMismatch(
            f"column {column}", f"is {kind}, but the schema is {info.type.name}; cast it"
        )


def single_rows(info: SchemaInfo, column: str, array: pa.Array) -> pa.Array:
    """The payload of each row, as large_binary; nulls have none."""
    every = all_of(len(array))
    if info.type in (SchemaType.BYTES, SchemaType.NONE, SchemaType.STRING):
        return columns.texts(array, every)
    end = DAY_US if info.type in (SchemaType.TIME, SchemaType.LOCAL_TIME) else 0
    cells: Cells = _TABLE[info.type][1](Plan("long", column, end=end), array)
    rows, width = cells.shape
    offsets: Whole = np.arange(rows + 1, dtype=np.int64) * width
    return binary(offsets, np.ascontiguousarray(cells).reshape(-1))
