"""Plans how a message's schema gives the wanted columns: fields read, widened and filled in (spec
SP-02). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyspark_pulsar._decode._shapes import (
    TIME,
    Array,
    Field,
    Kind,
    Leaf,
    Map,
    Record,
    Shape,
    Union,
    dotted,
    is_null,
    leaf_type,
    spark_name,
)
from pyspark_pulsar.errors import SchemaMismatch


@dataclass(frozen=True)
class LeafPlan:
    """A primitive value, unchanged or widened to `type`."""

    leaf: Leaf
    type: pa.DataType


@dataclass(frozen=True)
class Part:
    """A written field; without a plan it is skipped. `slot` is its index among the wanted ones.
    `default` is its value if JSON omits it.
    """

    name: str
    shape: Shape
    plan: Plan | None = None
    slot: int = -1
    default: object = None


@dataclass(frozen=True)
class Fill:
    """A wanted field that wasn't written: null, or the default in the topic's schema."""

    slot: int
    type: pa.DataType
    latest: Field | None = None


@dataclass(frozen=True)
class RecordPlan:
    """Some fields of a record."""

    type: pa.DataType
    parts: tuple[Part, ...]
    fills: tuple[Fill, ...]


@dataclass(frozen=True)
class ListPlan:
    """A list."""

    type: pa.DataType
    item: Plan


@dataclass(frozen=True)
class MapPlan:
    """A map."""

    type: pa.DataType
    value: Plan


@dataclass(frozen=True)
class OptionalPlan:
    """A union of null and one other type, with their branches; -1 for no null."""

    type: pa.DataType
    plan: Plan
    real_at: int
    null_at: int


@dataclass(frozen=True)
class Branch:
    """A branch of a union. `slot` is its member's index, -1 for null and if all branches have one
    type; without a plan its values don't fit the column.
    """

    shape: Shape
    plan: Plan | None
    slot: int


@dataclass(frozen=True)
class UnionPlan:
    """A union of several types: a struct with one member set, or one type for all."""

    type: pa.DataType
    branches: tuple[Branch, ...]
    members: bool


@dataclass(frozen=True)
class MemberPlan:
    """A value of a field that became a union later: the struct with that member set."""

    type: pa.DataType
    plan: Plan
    slot: int


Plan = LeafPlan | RecordPlan | ListPlan | MapPlan | OptionalPlan | UnionPlan | MemberPlan

_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float32(), pa.float64()),
    pa.int64(): (pa.float32(), pa.float64()),
    pa.float32(): (pa.float64(),),
    pa.string(): (pa.binary(),),
    pa.binary(): (pa.string(),),
}
"""Avro's promotions of a writer's type to a wider reader's type."""


def widens(have: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are values of the other."""
    if have.equals(wanted) or pa.types.is_null(have):
        return True
    if pa.types.is_decimal128(have) and pa.types.is_decimal128(wanted):
        whole = wanted.precision - wanted.scale >= have.precision - have.scale
        return bool(whole and wanted.scale >= have.scale)
    return wanted in _WIDER.get(have, ())


def match_fields(
    shape: Record,
    wanted: Sequence[pa.Field],
    *,
    latest: Shape | None = None,
    strict: bool = False,
) -> RecordPlan:
    """The plan for records as columns; as `match`."""
    return _Matcher(strict=strict).record(shape, wanted, pa.struct(list(wanted)), "", _only(latest))


def match(
    shape: Shape,
    wanted: pa.DataType,
    path: str,
    *,
    latest: Shape | None = None,
    strict: bool = False,
) -> Plan:
    """How values of a shape become the wanted type. `latest` is the topic's newest schema, which
    has defaults and aliases. `strict` wants every field to be there.

    Raises SchemaMismatch, naming the field.
    """
    return _Matcher(strict=strict).match(shape, wanted, path, latest)


class _Matcher:
    def __init__(self, *, strict: bool) -> None:
        self._strict = strict

    def match(self, shape: Shape, wanted: pa.DataType, path: str, latest: Shape | None) -> Plan:
        if isinstance(shape, Union):
            return self._union(shape, wanted, path, latest)
        if isinstance(shape, Leaf):
            is_time = shape.kind in (Kind.TIME_MILLIS, Kind.TIME_MICROS)
            if widens(leaf_type(shape), wanted) or (is_time and wanted.equals(TIME)):
                return LeafPlan(shape, wanted)
        elif isinstance(shape, Record) and pa.types.is_struct(wanted):
            if not _is_members(wanted) or any(each.name == "member0" for each in shape.fields):
                return self.record(shape, list(wanted), wanted, path, _only(latest))
        elif isinstance(shape, Array) and pa.types.is_list(wanted):
            inner = _only(latest)
            below = inner.item if isinstance(inner, Array) else None
            return ListPlan(wanted, self.match(shape.item, wanted.value_type, f"{path}[]", below))
        elif isinstance(shape, Map) and pa.types.is_map(wanted) and wanted.key_type == pa.string():
            inner = _only(latest)
            below = inner.value if isinstance(inner, Map) else None
            return MapPlan(wanted, self.match(shape.value, wanted.item_type, f"{path}[]", below))
        if _is_members(wanted):
            return self._member(shape, wanted, path)
        raise SchemaMismatch(
            path,
            f"is {_told(shape)} in the topic's schema, which can't be read as {spark_name(wanted)}",
        )

    def record(
        self,
        shape: Record,
        wanted: Sequence[pa.Field],
        made: pa.DataType,
        path: str,
        latest: Shape | None,
    ) -> RecordPlan:
        """The wanted fields of a record."""
        newest = latest if isinstance(latest, Record) else None
        plans: dict[int, Part] = {}
        fills: list[Fill] = []
        for slot, column in enumerate(wanted):
            where = dotted(path, column.name)
            known = None if newest is None else _find(newest, (column.name,))
            names = (column.name,) if known is None else (column.name, known.name, *known.aliases)
            found = _find(shape, names)
            if found is None:
                if self._strict:
                    raise SchemaMismatch(
                        where,
                        "is not in the topic's schema, whose fields are "
                        + ", ".join(each.name for each in shape.fields),
                    )
                fills.append(Fill(slot, column.type, known))
                continue
            below = None if known is None else known.shape
            plan = self.match(found.shape, column.type, where, below)
            default = found.default if known is None else known.default
            plans[_place(shape, found)] = Part(found.name, found.shape, plan, slot, default)
        parts = (plans.get(n) or Part(each.name, each.shape) for n, each in enumerate(shape.fields))
        return RecordPlan(made, tuple(parts), tuple(fills))

    def _union(self, union: Union, wanted: pa.DataType, path: str, latest: Shape | None) -> Plan:
        real = union.real
        if len(real) == 1 and len(union.branches) <= 2:
            plan = self.match(real[0], wanted, path, latest)
            at = [is_null(each) for each in union.branches]
            return OptionalPlan(wanted, plan, at.index(False), at.index(True) if any(at) else -1)
        if not _is_members(wanted):
            branches = tuple(
                Branch(each, self._maybe(each, wanted, path), -1) for each in union.branches
            )
            fitting = [b.plan is not None for b in branches if not is_null(b.shape)]
            if real and not (all(fitting) if self._strict else any(fitting)):
                told = spark_name(wanted)
                raise SchemaMismatch(
                    path, f"not all types of the topic's union can be read as {told}"
                )
            return UnionPlan(wanted, branches, members=False)
        return self._members(union, wanted, path)

    def _members(self, union: Union, wanted: pa.DataType, path: str) -> UnionPlan:
        """Assign each branch to the first free member of its type, else to a wider one."""
        free = dict(enumerate(wanted))
        placed: dict[int, Branch] = {}
        for is_exact in (True, False):
            for number, each in enumerate(union.branches):
                if number in placed or is_null(each):
                    continue
                for slot, member in free.items():
                    plan = self._maybe(each, member.type, path)
                    if plan is not None and (not is_exact or _is_same(plan)):
                        placed[number] = Branch(each, plan, slot)
                        del free[slot]
                        break
        if self._strict and len(placed) < len(union.real):
            told = spark_name(wanted)
            raise SchemaMismatch(path, f"not all types of the topic's union are in {told}")
        # For null no member is set.
        branches = (
            placed.get(n) or Branch(b, LeafPlan(b, pa.null()) if is_null(b) else None, -1)
            for n, b in enumerate(union.branches)
        )
        return UnionPlan(wanted, tuple(branches), members=True)

    def _member(self, shape: Shape, wanted: pa.DataType, path: str) -> MemberPlan:
        for is_exact in (True, False):
            for slot, member in enumerate(wanted):
                plan = self._maybe(shape, member.type, path)
                if plan is not None and (not is_exact or _is_same(plan)):
                    return MemberPlan(wanted, plan, slot)
        raise SchemaMismatch(
            path,
            f"is {_told(shape)} in the topic's schema, no member of {spark_name(wanted)}",
        )

    def _maybe(self, shape: Shape, wanted: pa.DataType, path: str) -> Plan | None:
        try:
            return self.match(shape, wanted, path, None)
        except SchemaMismatch:
            return None


def _is_same(plan: Plan) -> bool:
    """Whether nothing is widened at this level."""
    return not isinstance(plan, LeafPlan) or plan.type.equals(leaf_type(plan.leaf))


def _is_members(wanted: pa.DataType) -> bool:
    """Whether the type is a struct that represents a union."""
    return (
        pa.types.is_struct(wanted)
        and wanted.num_fields > 0
        and all(each.name == f"member{number}" for number, each in enumerate(wanted))
    )


def _only(shape: Shape | None) -> Shape | None:
    """The one type beside null."""
    if isinstance(shape, Union):
        return shape.real[0] if len(shape.real) == 1 else None
    return shape


def _find(record: Record, names: tuple[str, ...]) -> Field | None:
    """The first field with one of these names; else one that differs in case."""
    exact = {each.name: each for each in record.fields}
    for name in names:
        if name in exact:
            return exact[name]
    lower = {each.name.lower(): each for each in record.fields}
    return lower.get(names[0].lower())


def _place(record: Record, field: Field) -> int:
    return next(n for n, each in enumerate(record.fields) if each is field)


def _told(shape: Shape) -> str:
    """A short description of a shape."""
    if isinstance(shape, Leaf):
        return shape.kind.value
    return type(shape).__name__.lower()


def only_plan(plan: RecordPlan) -> Plan:
    """The plan of the only column of a value without fields."""
    found = plan.parts[0].plan
    assert found is not None
    return found
