"""Converts Arrow columns to numbers and bytes, for every encoding; the values of null rows are
undefined.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from pyspark_pulsar._encode._cells import Cells, Mask, Whole
from pyspark_pulsar._encode._plan import Plan
from pyspark_pulsar.errors import SchemaMismatch

_LONG = pa.int64()


def valid(array: pa.Array) -> Mask:
    """Which rows aren't null."""
    found: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def present_in(plan: Plan, array: pa.Array, present: Mask) -> Mask:
    """Which of these rows have a value. Raises SchemaMismatch for a null that isn't allowed."""
    if not array.null_count:
        return present
    found = valid(array) & present
    if plan.null_branch is None and plan.kind != "null" and (found != present).any():
        raise SchemaMismatch(
            f"column {plan.column}", "has a null, which the topic's schema doesn't allow"
        )
    return found


def whole(plan: Plan, array: pa.Array) -> Whole:
    """Integers, dates (as days) and times in the definition's unit. Raises SchemaMismatch for an
    invalid time of day.
    """
    kind = array.type
    if kinds.is_timestamp(kind):
        array = array if kind.unit == "us" else array.cast(pa.timestamp("us", kind.tz))
        array = array.cast(_LONG)
    elif kinds.is_time64(kind):
        ticks = 1000 if kind.unit == "ns" else 1
        array = pc.divide(array.cast(_LONG), ticks)
    elif kinds.is_date32(kind):
        array = array.cast(pa.int32()).cast(_LONG)
    else:
        array = array.cast(_LONG)
    found: Whole = _filled(array, 0).to_numpy(zero_copy_only=False)
    if plan.end and ((found < 0) | (found >= plan.end)).any():
        raise SchemaMismatch(
            f"column {plan.column}", f"must have microseconds of a day, from 0 to {plan.end - 1}"
        )
    return found // plan.divisor if plan.divisor > 1 else found


def real(array: pa.Array, kind: pa.DataType) -> npt.NDArray[np.floating]:
    """Floats and doubles."""
    found: npt.NDArray[np.floating] = _filled(array.cast(kind), 0.0).to_numpy(zero_copy_only=False)
    return found


def flags(array: pa.Array) -> Cells:
    """Booleans, as 0 and 1."""
    filled = _filled(array, False)
    found: Cells = filled.to_numpy(zero_copy_only=False).astype(np.uint8)
    return found


def texts(array: pa.Array, present: Mask) -> pa.Array:
    """Strings and bytes as large_binary; nulls are empty."""
    if kinds.is_string(array.type) or kinds.is_large_string(array.type):
        array = array.cast(pa.large_string())
    found = array.cast(pa.large_binary())
    if not present.all():
        return pc.if_else(pa.array(present), found, pa.scalar(b"", pa.large_binary()))
    return found


def lengths(found: pa.Array) -> Whole:
    """The number of bytes of each row."""
    sizes: Whole = pc.binary_length(found).cast(_LONG).to_numpy(zero_copy_only=False)
    return sizes


def fixed_texts(plan: Plan, array: pa.Array, present: Mask) -> pa.Array:
    """Bytes of one size. Raises SchemaMismatch."""
    found = texts(array, present)
    if (lengths(found)[present] != plan.size).any():
        raise SchemaMismatch(
            f"column {plan.column}",
            f"has a value that isn't of {plan.size} bytes, as the topic's schema has it",
        )
    return found


def symbols(plan: Plan, array: pa.Array, present: Mask) -> Whole:
    """Numbers of an enum's symbols. Raises SchemaMismatch."""
    known = pa.array(plan.symbols, pa.string()).cast(array.type)
    found = pc.index_in(array, value_set=known)
    missing = ~valid(found) & present
    if missing.any():
        value = array[int(np.argmax(missing))].as_py()
        raise SchemaMismatch(
            f"column {plan.column}",
            f"has {value!r}, which isn't one of the enum's symbols {', '.join(plan.symbols)}",
        )
    numbers: Whole = _filled(found.cast(_LONG), 0).to_numpy(zero_copy_only=False)
    return numbers


def decimals(plan: Plan, array: pa.Array) -> Cells:
    """Unscaled decimals, 16 bytes each, highest first."""
    wanted = pa.decimal128(38, plan.scale)
    array = array if array.type == wanted else array.cast(wanted)
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(0, wanted))
    raw = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, 16)
    begin = array.offset
    return raw[begin : begin + len(array), ::-1]


def tidy(array: pa.Array, present: Mask) -> pa.Array:
    """Lists and maps whose null rows have no items."""
    if present.all():
        return array
    rows = pa.array(np.arange(len(array)), mask=~present)
    return array.take(rows)


def span(array: pa.Array) -> tuple[Whole, int, int]:
    """Offsets of the items of each list or map, counted from the first item; and the range of these
    items in the array's items.
    """
    found: Whole = array.offsets.cast(_LONG).to_numpy(zero_copy_only=False)
    begin, end = int(found[0]), int(found[-1])
    return found - begin, begin, end


def _filled(array: pa.Array, value: object) -> pa.Array:
    return pc.fill_null(array, value) if array.null_count else array
