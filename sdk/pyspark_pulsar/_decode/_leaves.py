"""Converts numbers and bytes to Arrow columns of dates, times and decimals (spec SP-02). Pure."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_pulsar._decode._buffer import Buffer, Flags, Longs
from pyspark_pulsar._decode._shapes import LOCAL_MOMENT, MOMENT, TIME, Kind, Leaf, leaf_type

DAY_MS = 86_400_000
DAY_US = 1000 * DAY_MS
DAY_NS = 1000 * DAY_US
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
DAY_MIN = 1 - _EPOCH_DAY
DAY_MAX = datetime.date.max.toordinal() - _EPOCH_DAY
"""Days since 1970 of the years 1 to 9999, Spark's range."""
MS_MIN, MS_MAX = DAY_MIN * DAY_MS, (DAY_MAX + 1) * DAY_MS - 1
US_MIN, US_MAX = DAY_MIN * DAY_US, (DAY_MAX + 1) * DAY_US - 1
_RANGES: dict[Kind, tuple[int, int, int]] = {
    Kind.DATE: (DAY_MIN, DAY_MAX, 1),
    Kind.TIME_MILLIS: (0, DAY_MS - 1, 1000),
    Kind.TIME_MICROS: (0, DAY_US - 1, 1),
    Kind.TIMESTAMP_MILLIS: (MS_MIN, MS_MAX, 1000),
    Kind.TIMESTAMP_MICROS: (US_MIN, US_MAX, 1),
    Kind.LOCAL_TIMESTAMP_MILLIS: (MS_MIN, MS_MAX, 1000),
    Kind.LOCAL_TIMESTAMP_MICROS: (US_MIN, US_MAX, 1),
}
"""The range of numbers, and their unit in microseconds."""


def of_numbers(leaf: Leaf, values: Longs) -> tuple[pa.Array, Flags | None]:
    """Avro's numbers in the leaf's Arrow type, and which are out of range."""
    known = _RANGES.get(leaf.kind)
    if known is None:
        return _array(values, leaf_type(leaf)), None
    least, most, factor = known
    wrong = (values < least) | (values > most)
    is_wrong = wrong.any()
    if is_wrong:
        values = np.where(wrong, 0, values)
    if factor != 1:
        values = values * factor
    return _array(values, leaf_type(leaf)), wrong if is_wrong else None


def _array(values: Longs, made: pa.DataType) -> pa.Array:
    if made in (MOMENT, LOCAL_MOMENT):
        return pa.array(values).view(made)
    if pa.types.is_date32(made):
        return pa.array(values.astype(np.int32)).view(made)
    if pa.types.is_int32(made):
        return pa.array(values.astype(np.int32))
    return pa.array(values)


def of_decimals(
    leaf: Leaf, buffer: Buffer, start: Longs, stop: Longs
) -> tuple[pa.Array, Flags | None]:
    """Big-endian numbers of any length in those spans, and which have too many digits."""
    count = len(start)
    size = stop - start
    sign = np.where((size > 0) & (buffer.bytes[start] >= 0x80), 0xFF, 0).astype(np.uint8)
    little = np.empty((count, 16), np.uint8)
    longest = int(size.max(initial=0))
    for place in range(16):
        if place >= longest:
            little[:, place] = sign
            continue
        at = buffer.bytes[np.maximum(stop - 1 - place, 0)]
        little[:, place] = np.where(place < size, at, sign)
    wrong = np.zeros(count, bool)
    if longest > 16:
        wrong |= _has_more(buffer, start, stop, sign, little)
    made = pa.Array.from_buffers(
        pa.decimal128(38, leaf.scale), count, [None, pa.py_buffer(little.tobytes())]
    )
    limit = pa.scalar(
        decimal.Decimal(10 ** min(leaf.precision, 37)).scaleb(-leaf.scale),
        pa.decimal128(38, leaf.scale),
    )
    if leaf.precision < 38:
        small = pc.and_(pc.less(made, limit), pc.greater(made, pc.negate(limit)))
        wrong |= ~small.to_numpy(zero_copy_only=False)
    else:
        wrong |= _beyond_38(little)
    if wrong.any():
        made = pc.if_else(pa.array(wrong), pa.scalar(decimal.Decimal(0), made.type), made)
        return made.cast(leaf_type(leaf)), wrong
    return made.cast(leaf_type(leaf)), None


def _has_more(
    buffer: Buffer, start: Longs, stop: Longs, sign: NDArray[np.uint8], little: NDArray[np.uint8]
) -> Flags:
    """Whether bytes before the last sixteen contain more than the sign."""
    wrong = np.zeros(len(start), bool)
    for row in np.flatnonzero(stop - start > 16):
        number = int.from_bytes(buffer.data[start[row] : stop[row]], "big", signed=True)
        wrong[row] = not -(1 << 127) <= number < 1 << 127
        little[row] = sign[row] if wrong[row] else little[row]
    return wrong


def _beyond_38(little: NDArray[np.uint8]) -> Flags:
    """Whether numbers of 128 bits have more than 38 digits."""
    high = np.ascontiguousarray(little[:, 8:]).view("<i8").ravel()
    # 10 ** 38 is a little above 5421010862427522170 of these.
    near = np.flatnonzero((high >= 5421010862427522170) | (high <= -5421010862427522171))
    wrong = np.zeros(len(little), bool)
    for row in near:
        number = int.from_bytes(little[row].tobytes(), "little", signed=True)
        wrong[row] = abs(number) >= 10**38
    return wrong


def decimal_of(leaf: Leaf, data: bytes) -> decimal.Decimal:
    """One number. Raises ValueError for too many digits."""
    number = int.from_bytes(data, "big", signed=True)
    if abs(number) >= 10**leaf.precision:
        raise ValueError(f"{number} has more than {leaf.precision} digits")
    return decimal.Decimal(number).scaleb(-leaf.scale, _EXACT)


_EXACT = decimal.Context(prec=60)


def widened(array: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Flags | None]:
    """An array in a wider type, and which values can't be converted: bytes that aren't UTF-8."""
    if array.type.equals(wanted):
        return array, None
    if wanted.equals(TIME):
        return array.cast(pa.time64("us")).cast(wanted), None
    try:
        return array.cast(wanted, safe=not pa.types.is_floating(wanted)), None
    except pa.ArrowInvalid:
        pass
    wrong = np.fromiter((not _is_text(each) for each in array.to_pylist()), bool, len(array))
    kept = pc.if_else(pa.array(wrong), pa.scalar(b"", pa.binary()), array)
    return kept.cast(wanted), wrong


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def spread(array: pa.Array, index: Longs, count: int) -> pa.Array:
    """A longer array with the values at these indexes, and nulls elsewhere."""
    places = np.zeros(count, np.int64)
    places[index] = np.arange(len(index))
    is_null = np.ones(count, bool)
    is_null[index] = False
    if not len(index):
        return pa.nulls(count, array.type)
    return array.take(pa.array(places, mask=is_null))


def without(array: pa.Array, wrong: Flags) -> pa.Array:
    """The array with nulls in wrong rows."""
    return array.take(pa.array(np.arange(len(array)), mask=wrong))


def union_column(
    found: list[tuple[Longs, int, pa.Array]], made: pa.DataType, count: int, *, members: bool
) -> pa.Array:
    """The column of a union from the values of its branches, each with its rows and its member: a
    struct with one member set, or one column for all.
    """
    if not members:
        if not found:
            return pa.nulls(count, made)
        where = np.concatenate([index for index, _, _ in found])
        return spread(pa.concat_arrays([array for _, _, array in found]), where, count)
    is_set = np.zeros(count, bool)
    columns = [pa.nulls(count, each.type) for each in made]
    for index, slot, array in found:
        columns[slot] = spread(array, index, count)
        is_set[index] = True
    return pa.StructArray.from_arrays(columns, fields=list(made), mask=pa.array(~is_set))
