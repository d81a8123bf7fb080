"""Decodes payloads of primitive schemas, all at once (spec SP-02, SP-03). All are big-endian, as in
`geminga.schema`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from geminga.schema import SchemaType
from pyspark_pulsar._decode._buffer import REASONS, Flags
from pyspark_pulsar._decode._leaves import (
    DAY_MAX,
    DAY_MIN,
    DAY_MS,
    DAY_NS,
    DAY_US,
    MS_MAX,
    MS_MIN,
    US_MAX,
    US_MIN,
    widened,
)
from pyspark_pulsar._decode._objects import Columns
from pyspark_pulsar._decode._shapes import LOCAL_MOMENT, MOMENT

_LAYOUTS: dict[SchemaType, tuple[pa.DataType, list[tuple[str, str]]]] = {
    SchemaType.BOOLEAN: (pa.bool_(), [("a", "u1")]),
    SchemaType.INT8: (pa.int8(), [("a", "i1")]),
    SchemaType.INT16: (pa.int16(), [("a", ">i2")]),
    SchemaType.INT32: (pa.int32(), [("a", ">i4")]),
    SchemaType.INT64: (pa.int64(), [("a", ">i8")]),
    SchemaType.FLOAT: (pa.float32(), [("a", ">f4")]),
    SchemaType.DOUBLE: (pa.float64(), [("a", ">f8")]),
    SchemaType.DATE: (MOMENT, [("a", ">i8")]),
    SchemaType.TIME: (pa.int64(), [("a", ">i8")]),
    SchemaType.TIMESTAMP: (MOMENT, [("a", ">i8")]),
    SchemaType.INSTANT: (MOMENT, [("a", ">i8"), ("b", ">i4")]),
    SchemaType.LOCAL_DATE: (pa.date32(), [("a", ">i8")]),
    SchemaType.LOCAL_TIME: (pa.int64(), [("a", ">i8")]),
    SchemaType.LOCAL_DATE_TIME: (LOCAL_MOMENT, [("a", ">i8"), ("b", ">i8")]),
}
TIMES = (SchemaType.TIME, SchemaType.LOCAL_TIME)
_VARYING = {
    SchemaType.STRING: pa.string(),
    SchemaType.BYTES: pa.binary(),
    SchemaType.NONE: pa.binary(),
    SchemaType.PROTOBUF: pa.binary(),
}
"""PROTOBUF's messages can't be decoded: the schema doesn't have their field numbers."""


def primitive_type(kind: SchemaType) -> pa.DataType | None:
    """The Arrow type of a primitive schema, None for others."""
    if kind in _LAYOUTS:
        return _LAYOUTS[kind][0]
    return _VARYING.get(kind)


def varies(kind: SchemaType) -> bool:
    """Whether its values have a variable size."""
    return kind in _VARYING


class VaryingReader:
    """Decodes strings or bytes."""

    def __init__(self, kind: SchemaType, wanted: pa.DataType) -> None:
        self._is_text = kind is SchemaType.STRING
        self._wanted = wanted

    def columns(self, payloads: Sequence[bytes]) -> Columns:
        """The column, and the errors of malformed payloads."""
        plain = pa.array(payloads, pa.binary())
        found, wrong = widened(plain, pa.string() if self._is_text else self._wanted)
        rows = () if wrong is None else np.flatnonzero(wrong)
        return Columns([found.cast(self._wanted)], {int(row): REASONS[4] for row in rows})


class FixedReader:
    """Decodes values of fixed size."""

    def __init__(self, kind: SchemaType, wanted: pa.DataType) -> None:
        self._kind = kind
        self._type, layout = _LAYOUTS[kind]
        self._layout = np.dtype(layout)
        self._wanted = wanted

    def columns(self, payloads: Sequence[bytes]) -> Columns:
        """The column, and the errors of malformed payloads."""
        size = self._layout.itemsize
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        odd = np.flatnonzero(lengths != size)
        notes = {
            int(row): f"{self._kind.name}: {lengths[row]} bytes instead of {size}" for row in odd
        }
        if len(odd):
            nothing = bytes(size)
            payloads = [each if len(each) == size else nothing for each in payloads]
        values = np.frombuffer(b"".join(payloads), self._layout)
        found, wrong = self._values(values)
        if wrong is not None:
            for row in np.flatnonzero(wrong):
                notes[int(row)] = f"{self._kind.name}: {REASONS[7]}"
            found = np.where(wrong, 0, found)
        array = pa.array(np.ascontiguousarray(found, found.dtype.newbyteorder("=")))
        if self._type in (MOMENT, LOCAL_MOMENT) or pa.types.is_date32(self._type):
            array = array.view(self._type)
        return Columns([widened(array, self._wanted)[0]], notes)

    def _values(self, values: np.ndarray) -> tuple[np.ndarray, Flags | None]:
        """The column's numbers, and which are out of range."""
        first = values["a"]
        if self._kind is SchemaType.BOOLEAN:
            return first != 0, None
        if self._kind in (SchemaType.DATE, SchemaType.TIMESTAMP):
            return _within(first, MS_MIN, MS_MAX, 1000)
        if self._kind is SchemaType.TIME:
            return first % DAY_MS * 1000, None
        if self._kind is SchemaType.LOCAL_DATE:
            days, wrong = _within(first, DAY_MIN, DAY_MAX, 1)
            return days.astype(np.int32), wrong
        if self._kind is SchemaType.LOCAL_TIME:
            return _within(first, 0, DAY_NS - 1, 1, 1000)
        if self._kind is SchemaType.INSTANT:
            seconds, wrong = _within(first, US_MIN // 1_000_000, US_MAX // 1_000_000, 1_000_000)
            micros, late = _within(seconds + values["b"] // 1000, US_MIN, US_MAX, 1)
            return micros, _either(wrong, late)
        if self._kind is SchemaType.LOCAL_DATE_TIME:
            days, wrong = _within(first, DAY_MIN, DAY_MAX, DAY_US)
            micros, late = _within(values["b"], 0, DAY_NS - 1, 1, 1000)
            return days + micros, _either(wrong, late)
        return first, None


def _within(
    values: np.ndarray, least: int, most: int, factor: int, divisor: int = 1
) -> tuple[np.ndarray, Flags | None]:
    """The numbers multiplied and divided, and which were out of range: those are 0."""
    plain = values.astype(np.int64)
    wrong: Flags = (plain < least) | (plain > most)
    if not wrong.any():
        return plain * factor // divisor, None
    return np.where(wrong, 0, plain) * factor // divisor, wrong


def _either(one: Flags | None, other: Flags | None) -> Flags | None:
    if one is None or other is None:
        return other if one is None else one
    either: Flags = one | other
    return either
