"""Converts Python objects of a reader of single payloads to Arrow columns (spec SP-02)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa

from pyspark_pulsar._decode._avro_schema import INNER, branch_name, branch_of
from pyspark_pulsar._decode._buffer import REASONS, Flags, Longs
from pyspark_pulsar._decode._leaves import decimal_of, of_numbers, spread, union_column, widened
from pyspark_pulsar._decode._match import (
    Fill,
    LeafPlan,
    ListPlan,
    MapPlan,
    MemberPlan,
    OptionalPlan,
    Part,
    Plan,
    RecordPlan,
    UnionPlan,
    match,
)
from pyspark_pulsar._decode._shapes import (
    Array,
    Kind,
    Leaf,
    Map,
    Record,
    Shape,
    Union,
    is_null,
    leaf_type,
)
from pyspark_pulsar.errors import SchemaMismatch

UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError, KeyError)
"""Errors of Arrow and Python for values that can't be converted."""


class Columns(NamedTuple):
    """The wanted columns of some payloads, and the errors of malformed ones, whose values are
    undefined.
    """

    arrays: list[pa.Array]
    notes: dict[int, str]


class Source(Protocol):
    """The representation of values as Python objects."""

    def field(self, number: int, part: Part) -> Callable[[object], object]:
        """A function that gets a field from a record."""

    def branch(self, value: object) -> tuple[int, object]:
        """The branch of a value of a union, and the value itself."""

    def leaves(self, leaf: Leaf, values: list[object]) -> tuple[pa.Array, Flags | None]:
        """Primitive values in the leaf's Arrow type, and which are out of range. May raise any of
        UNFIT.
        """


class Builder:
    """Builds the columns of some rows; `notes` has the errors of malformed rows."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.notes: dict[int, str] = {}

    def columns(self, plan: RecordPlan, values: Sequence[object], owners: Longs) -> list[pa.Array]:
        """The wanted fields of records, none of them None. `owners` are the rows of the values."""
        made: list[pa.Array] = [None] * plan.type.num_fields
        for number, part in enumerate(plan.parts):
            if part.plan is not None:
                get = self._source.field(number, part)
                made[part.slot] = self.build(part.plan, list(map(get, values)), owners)
        for fill in plan.fills:
            made[fill.slot] = pa.repeat(filling(fill), len(values))
        return made

    @staticmethod
    def placed(array: pa.Array, good: Sequence[int], count: int) -> pa.Array:
        """The values of valid rows, at their indexes among all."""
        return array if len(good) == count else spread(array, np.array(good, np.int64), count)

    def build(self, plan: Plan, values: list[object], owners: Longs) -> pa.Array:
        """The column of some values; None is null."""
        if isinstance(plan, LeafPlan):
            return self._leaf(plan, values, owners)
        if isinstance(plan, OptionalPlan):
            return self.build(plan.plan, values, owners)
        if None in values and not isinstance(plan, LeafPlan):
            index = np.array([n for n, v in enumerate(values) if v is not None], np.int64)
            there = [v for v in values if v is not None]
            return spread(self.build(plan, there, owners[index]), index, len(values))
        if isinstance(plan, RecordPlan):
            if not plan.type.num_fields:
                return pa.array([{}] * len(values), plan.type)
            columns = self.columns(plan, values, owners)
            return pa.StructArray.from_arrays(columns, fields=list(plan.type))
        if isinstance(plan, ListPlan):
            return self._list(plan, values, owners)
        if isinstance(plan, MapPlan):
            return self._map(plan, values, owners)
        if isinstance(plan, MemberPlan):
            columns = [pa.nulls(len(values), each.type) for each in plan.type]
            columns[plan.slot] = self.build(plan.plan, values, owners)
            return pa.StructArray.from_arrays(columns, fields=list(plan.type))
        return self._union(plan, values, owners)

    def _leaf(self, plan: LeafPlan, values: list[object], owners: Longs) -> pa.Array:
        try:
            found, wrong = self._source.leaves(plan.leaf, values)
            made, unfit = widened(found, plan.type)
        except UNFIT:
            return self._one_by_one(plan, values, owners)
        for flags in (wrong, unfit):
            if flags is not None:
                for row in owners[np.flatnonzero(flags)]:
                    self.notes.setdefault(int(row), f"{plan.leaf.kind.value}: {REASONS[7]}")
        return made

    def _one_by_one(self, plan: LeafPlan, values: list[object], owners: Longs) -> pa.Array:
        pieces: list[pa.Array] = []
        for value, row in zip(values, owners, strict=True):
            try:
                found, wrong = self._source.leaves(plan.leaf, [value])
                made, unfit = widened(found, plan.type)
                if wrong is None and unfit is None:
                    pieces.append(made)
                    continue
                reason: object = REASONS[7]
            except UNFIT as error:
                reason = error
            self.notes.setdefault(int(row), f"{plan.leaf.kind.value}: {reason}")
            pieces.append(pa.nulls(1, plan.type))
        return pa.concat_arrays(pieces)

    def _list(self, plan: ListPlan, values: list[object], owners: Longs) -> pa.Array:
        lists: list[list[object]] = values  # type: ignore[assignment]
        offsets, below = _offsets(list(map(len, lists)), owners)
        items = self.build(plan.item, list(chain.from_iterable(lists)), below)
        return pa.ListArray.from_arrays(offsets, items, type=plan.type)

    def _map(self, plan: MapPlan, values: list[object], owners: Longs) -> pa.Array:
        maps: list[dict[str, object]] = values  # type: ignore[assignment]
        offsets, below = _offsets(list(map(len, maps)), owners)
        keys = pa.array(list(map(_text, chain.from_iterable(maps))), pa.string())
        items = list(chain.from_iterable(each.values() for each in maps))
        return pa.MapArray.from_arrays(
            offsets, keys, self.build(plan.value, items, below), type=plan.type
        )

    def _union(self, plan: UnionPlan, values: list[object], owners: Longs) -> pa.Array:
        tagged = [self._source.branch(each) for each in values]
        found: list[tuple[Longs, int, pa.Array]] = []
        for number, branch in enumerate(plan.branches):
            index = np.array([n for n, (tag, _) in enumerate(tagged) if tag == number], np.int64)
            if not len(index):
                continue
            if branch.plan is None:
                for row in owners[index]:
                    self.notes.setdefault(int(row), REASONS[8])
                continue
            some = [tagged[n][1] for n in index]
            found.append((index, branch.slot, self.build(branch.plan, some, owners[index])))
        return union_column(found, plan.type, len(values), members=plan.members)


def _offsets(sizes: list[int], owners: Longs) -> tuple[pa.Array, Longs]:
    counts = np.array(sizes, np.int64)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets), np.repeat(owners, counts)


def _text(key: object) -> str:
    return key if isinstance(key, str) else str(key)


class AvroSource:
    """Values as read by fastavro with a plain definition."""

    def field(self, number: int, part: Part) -> Callable[[object], object]:
        """Records are dicts of numbered fields."""
        name = f"f{number}"
        return lambda value: value[name]  # type: ignore[index]

    def branch(self, value: object) -> tuple[int, object]:
        """Branches are pairs of a numbered name and a record of one field."""
        name, inner = cast("tuple[str, dict[str, object]]", value)
        return branch_of(name), inner[INNER]

    def leaves(self, leaf: Leaf, values: list[object]) -> tuple[pa.Array, Flags | None]:
        """Numbers, strings and bytes."""
        if leaf.kind is Kind.ENUM:
            named = [None if v is None else leaf.symbols[_place(v)] for v in values]
            return pa.array(named, pa.string()), None
        if leaf.kind is Kind.DECIMAL:
            numbers = [None if v is None else decimal_of(leaf, v) for v in values]  # type: ignore[arg-type]
            return pa.array(numbers, leaf_type(leaf)), None
        return numbered(leaf, values)


def _place(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"the enum has no symbol {value!r}")
    return value


def numbered(leaf: Leaf, values: list[object]) -> tuple[pa.Array, Flags | None]:
    """Values for Arrow; dates and times as numbers."""
    if leaf.kind in DATED:
        plain = pa.array(values, pa.int64())
        known = plain.fill_null(0) if plain.null_count else plain
        made, wrong = of_numbers(leaf, known.to_numpy())
        if plain.null_count:
            made = spread_nulls(made, plain)
        return made, wrong
    return pa.array(values, leaf_type(leaf)), None


DATED = frozenset(
    {
        Kind.DATE,
        Kind.TIME_MILLIS,
        Kind.TIME_MICROS,
        Kind.TIMESTAMP_MILLIS,
        Kind.TIMESTAMP_MICROS,
        Kind.LOCAL_TIMESTAMP_MILLIS,
        Kind.LOCAL_TIMESTAMP_MICROS,
    }
)


def spread_nulls(made: pa.Array, like: pa.Array) -> pa.Array:
    """The array with the nulls of the other array."""
    mask = like.is_null().to_numpy(zero_copy_only=False)
    return made.take(pa.array(np.arange(len(made)), mask=mask))


def filling(fill: Fill) -> pa.Scalar:
    """The value of a field that wasn't written: its default in the topic's schema, or null."""
    if fill.latest is None or not fill.latest.has_default:
        return pa.scalar(None, fill.type)
    shape = fill.latest.shape
    builder = Builder(AvroSource())
    try:
        plan = match(shape, fill.type, fill.latest.name)
        raw = _raw(shape, fill.latest.default)
        made = builder.build(plan, [raw], np.zeros(1, np.int64))
    except (*UNFIT, SchemaMismatch, IndexError, AttributeError):
        return pa.scalar(None, fill.type)
    return pa.scalar(None, fill.type) if builder.notes else made[0]


def _raw(shape: Shape, default: object) -> object:
    """A default in fastavro's representation."""
    if isinstance(shape, Union):
        if default is None:
            return None
        # The default is of the first branch, except null.
        number, first = next((n, b) for n, b in enumerate(shape.branches) if not is_null(b))
        found = _raw(first, default)
        return (branch_name(number), {INNER: found}) if len(shape.real) > 1 else found
    if isinstance(shape, Record):
        given: dict[str, object] = default  # type: ignore[assignment]
        return {
            f"f{n}": _raw(each.shape, given.get(each.name, each.default))
            for n, each in enumerate(shape.fields)
        }
    if isinstance(shape, Array):
        return [_raw(shape.item, each) for each in default]  # type: ignore[attr-defined]
    if isinstance(shape, Map):
        return {k: _raw(shape.value, v) for k, v in default.items()}  # type: ignore[attr-defined]
    if shape.kind is Kind.ENUM:
        return shape.symbols.index(str(default))
    if isinstance(default, str) and shape.kind in (Kind.BYTES, Kind.FIXED, Kind.DECIMAL):
        return default.encode("latin-1")
    return default
