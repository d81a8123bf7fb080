"""Steps that decode one primitive value of every payload (spec SP-03)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from pyspark_pulsar._decode import _buffer as faults
from pyspark_pulsar._decode._buffer import Cursor
from pyspark_pulsar._decode._leaves import of_decimals, of_numbers, widened
from pyspark_pulsar._decode._match import LeafPlan
from pyspark_pulsar._decode._shapes import Kind, Leaf


class Step(Protocol):
    """Reads or skips one value of each payload."""

    def read(self, at: Cursor) -> pa.Array:
        """The values; those of malformed payloads are undefined, but not null."""

    def skip(self, at: Cursor) -> None:
        """Skip the values."""


class NullStep:
    """Null, which has no bytes."""

    def __init__(self, plan: LeafPlan) -> None:
        self._type = plan.type

    def read(self, at: Cursor) -> pa.Array:
        """Nulls."""
        return pa.nulls(len(at), self._type)

    def skip(self, at: Cursor) -> None:
        """Nothing."""


class NumberStep:
    """Integers, and dates and times encoded as integers."""

    _INTS = (Kind.INT, Kind.DATE, Kind.TIME_MILLIS)

    def __init__(self, plan: LeafPlan) -> None:
        self._leaf = plan.leaf
        self._type = plan.type
        self._is_int = plan.leaf.kind in self._INTS

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        found, wrong = of_numbers(self._leaf, at.ints() if self._is_int else at.longs())
        if wrong is not None:
            at.note(wrong, faults.OUT_OF_RANGE)
        return widened(found, self._type)[0]

    def skip(self, at: Cursor) -> None:
        """Skip the bytes."""
        if self._is_int:
            at.ints()
        else:
            at.longs()


class FixedStep:
    """Floats and booleans, of fixed size."""

    _KINDS = {Kind.BOOLEAN: "u1", Kind.FLOAT: "<f4", Kind.DOUBLE: "<f8"}

    def __init__(self, plan: LeafPlan) -> None:
        self._kind = self._KINDS[plan.leaf.kind]
        self._type = plan.type
        self._is_bool = plan.leaf.kind is Kind.BOOLEAN
        self._size = np.dtype(self._kind).itemsize

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        found = at.fixed(self._kind)
        return widened(pa.array(found != 0 if self._is_bool else found), self._type)[0]

    def skip(self, at: Cursor) -> None:
        """Skip their size."""
        at.pos += self._size


class TextStep:
    """Strings and bytes."""

    def __init__(self, plan: LeafPlan) -> None:
        self._size = plan.leaf.size
        self._type = plan.type

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        found, wrong = widened(at.buffer.texts(*at.spans(self._size)), self._type)
        if wrong is not None:
            at.note(wrong, faults.NO_TEXT)
        return found

    def skip(self, at: Cursor) -> None:
        """Skip the bytes, without checking UTF-8."""
        at.spans(self._size)


class EnumStep:
    """Enums, by name."""

    def __init__(self, plan: LeafPlan) -> None:
        self._symbols = pa.array(plan.leaf.symbols or ("",), pa.string())
        self._count = len(plan.leaf.symbols)
        self._type = plan.type

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        return widened(self._symbols.take(pa.array(self._numbers(at))), self._type)[0]

    def skip(self, at: Cursor) -> None:
        """The symbol is still checked."""
        self._numbers(at)

    def _numbers(self, at: Cursor) -> faults.Longs:
        found = at.longs()
        wrong = (found < 0) | (found >= self._count)
        at.note(wrong, faults.NO_SYMBOL)
        return np.where(wrong, 0, found)


class DecimalStep:
    """Decimals, which are big-endian numbers."""

    def __init__(self, plan: LeafPlan) -> None:
        self._leaf = plan.leaf
        self._type = plan.type

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        found, wrong = of_decimals(self._leaf, at.buffer, *at.spans(self._leaf.size))
        if wrong is not None:
            at.note(wrong, faults.OUT_OF_RANGE)
        return widened(found, self._type)[0]

    def skip(self, at: Cursor) -> None:
        """Skip the bytes."""
        at.spans(self._leaf.size)


_TEXTS = (Kind.STRING, Kind.BYTES, Kind.FIXED)


def leaf_step(plan: LeafPlan) -> Step:
    """The step of a primitive value."""
    leaf: Leaf = plan.leaf
    if leaf.kind is Kind.NULL:
        return NullStep(plan)
    if leaf.kind in FixedStep._KINDS:
        return FixedStep(plan)
    if leaf.kind in _TEXTS:
        return TextStep(plan)
    if leaf.kind is Kind.ENUM:
        return EnumStep(plan)
    return DecimalStep(plan) if leaf.kind is Kind.DECIMAL else NumberStep(plan)
