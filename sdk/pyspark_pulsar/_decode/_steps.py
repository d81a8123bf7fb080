"""Steps that read one value without parts of every payload (spec SP-03)."""

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
    """Reads or passes over one value of each payload."""

    def read(self, at: Cursor) -> pa.Array:
        """The values; those of payloads that are wrong may be anything but null."""

    def skip(self, at: Cursor) -> None:
        """Only go on behind them."""


class NullStep:
    """What takes no bytes."""

    def __init__(self, plan: LeafPlan) -> None:
        self._type = plan.type

    def read(self, at: Cursor) -> pa.Array:
        """Nulls."""
        return pa.nulls(len(at), self._type)

    def skip(self, at: Cursor) -> None:
        """Nothing."""


class NumberStep:
    """Whole numbers, and dates and times that are written as these."""

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
        """Only the bytes are looked at."""
        if self._is_int:
            at.ints()
        else:
            at.longs()


class FixedStep:
    """Real numbers and bools, which have a size."""

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
        """Go on by their size."""
        at.pos += self._size


class TextStep:
    """Texts and bytes."""

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
        """Go on behind the bytes; whether they are text isn't looked at."""
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
        """The symbol has to be there all the same."""
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
        """Go on behind the bytes."""
        at.spans(self._leaf.size)


_TEXTS = (Kind.STRING, Kind.BYTES, Kind.FIXED)


def leaf_step(plan: LeafPlan) -> Step:
    """The step of a value without parts."""
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
