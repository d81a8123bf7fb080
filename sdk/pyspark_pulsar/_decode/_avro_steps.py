"""Steps that decode records and unions of all payloads, and the steps of a whole schema (spec
SP-02, SP-03).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyspark_pulsar._decode import _buffer as faults
from pyspark_pulsar._decode._buffer import Cursor, Longs
from pyspark_pulsar._decode._leaves import spread, union_column
from pyspark_pulsar._decode._list_steps import ListStep, MapStep
from pyspark_pulsar._decode._match import (
    LeafPlan,
    ListPlan,
    MapPlan,
    MemberPlan,
    OptionalPlan,
    Plan,
    RecordPlan,
    UnionPlan,
)
from pyspark_pulsar._decode._objects import filling
from pyspark_pulsar._decode._shapes import Array, Kind, Leaf, Map, Record, Shape, leaf_type
from pyspark_pulsar._decode._steps import Step, leaf_step

DEPTH_MAX = 64
"""Maximum depth of skipped recursive records; Avro's readers are limited by the stack only."""
_KEY = leaf_step(LeafPlan(Leaf(Kind.STRING), pa.string()))


class RecordStep:
    """Records: the wanted fields, in order."""

    def __init__(self, plan: RecordPlan, parts: Sequence[tuple[Step, int]]) -> None:
        """A part is a step and its slot, -1 if it isn't wanted."""
        self._type = plan.type
        self._parts = parts
        self._fills = [(each.slot, filling(each)) for each in plan.fills]

    def columns(self, at: Cursor) -> list[pa.Array]:
        """The wanted fields."""
        made: list[pa.Array] = [None] * self._type.num_fields
        for step, slot in self._parts:
            if slot < 0:
                step.skip(at)
            else:
                made[slot] = step.read(at)
        for slot, value in self._fills:
            made[slot] = pa.repeat(value, len(at))
        return made

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        return pa.StructArray.from_arrays(self.columns(at), fields=list(self._type))

    def skip(self, at: Cursor) -> None:
        """Skip the values."""
        for step, _ in self._parts:
            step.skip(at)

    def wrong_part(self, at: Cursor) -> int | None:
        """The first malformed field of one payload; None if only its end is wrong."""
        for number, (step, slot) in enumerate(self._parts):
            if slot < 0:
                step.skip(at)
            else:
                step.read(at)
            at.note(at.pos > at.end, faults.NOT_WHOLE)
            if at.fault[0]:
                return number
        return None


class OptionalStep:
    """Nullable values."""

    def __init__(self, plan: OptionalPlan | None, step: Step, real_at: int, null_at: int) -> None:
        self._type = None if plan is None else plan.type
        self._step = step
        self._real_at = real_at
        self._null_at = null_at

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        index = self._there(at)
        if len(index) == len(at):
            return self._step.read(at)
        if not len(index):
            return pa.nulls(len(at), self._type)
        some = at.some(index)
        found = self._step.read(some)
        at.put(index, some)
        return spread(found, index, len(at))

    def skip(self, at: Cursor) -> None:
        """Skip the values."""
        index = self._there(at)
        if len(index):
            some = at.some(index)
            self._step.skip(some)
            at.put(index, some)

    def _there(self, at: Cursor) -> Longs:
        branch = at.longs()
        there = branch == self._real_at
        at.note(~there & ((branch != self._null_at) | (branch < 0)), faults.NO_BRANCH)
        return np.flatnonzero(there)


class UnionStep:
    """Unions: one column for all branches, or a struct with one member set."""

    def __init__(
        self, made: pa.DataType, branches: Sequence[tuple[Step, bool, int]], *, members: bool
    ) -> None:
        """A branch is a step, whether its values fit the column, and its member's slot."""
        self._type = made
        self._branches = branches
        self._members = members

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        count = len(at)
        found: list[tuple[Longs, int, pa.Array]] = []
        for index, (step, has_room, slot), some in self._each(at):
            if has_room and (slot >= 0 or not self._members):
                found.append((index, slot, step.read(some)))
            else:
                step.skip(some)
            if not has_room:
                some.note(np.ones(len(some), bool), faults.NO_ROOM)
            at.put(index, some)
        return union_column(found, self._type, count, members=self._members)

    def skip(self, at: Cursor) -> None:
        """Skip the values."""
        for index, (step, _, _), some in self._each(at):
            step.skip(some)
            at.put(index, some)

    def _each(self, at: Cursor) -> list[tuple[Longs, tuple[Step, bool, int], Cursor]]:
        branch = at.longs()
        at.note((branch < 0) | (branch >= len(self._branches)), faults.NO_BRANCH)
        made: list[tuple[Longs, tuple[Step, bool, int], Cursor]] = []
        for number, each in enumerate(self._branches):
            index = np.flatnonzero(branch == number)
            if len(index):
                made.append((index, each, at.some(index)))
        return made


class MemberStep:
    """Values of a field that became a union later."""

    def __init__(self, plan: MemberPlan, step: Step) -> None:
        self._type = plan.type
        self._slot = plan.slot
        self._step = step
        self.skip = step.skip

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        columns = [pa.nulls(len(at), each.type) for each in self._type]
        columns[self._slot] = self._step.read(at)
        return pa.StructArray.from_arrays(columns, fields=list(self._type))


def reading(plan: Plan) -> Step:
    """The step of a plan."""
    if isinstance(plan, LeafPlan):
        return leaf_step(plan)
    if isinstance(plan, RecordPlan):
        return record_step(plan)
    if isinstance(plan, ListPlan):
        return ListStep(plan.type, reading(plan.item))
    if isinstance(plan, MapPlan):
        return MapStep(plan.type, _KEY, reading(plan.value))
    if isinstance(plan, OptionalPlan):
        return OptionalStep(plan, reading(plan.plan), plan.real_at, plan.null_at)
    if isinstance(plan, MemberPlan):
        return MemberStep(plan, reading(plan.plan))
    return _union_step(plan)


def _union_step(plan: UnionPlan) -> UnionStep:
    branches = [
        (passing(b.shape) if b.plan is None else reading(b.plan), b.plan is not None, b.slot)
        for b in plan.branches
    ]
    return UnionStep(plan.type, branches, members=plan.members)


def record_step(plan: RecordPlan) -> RecordStep:
    """The step of a record, which has `columns`."""
    parts = [
        (passing(each.shape) if each.plan is None else reading(each.plan), each.slot)
        for each in plan.parts
    ]
    return RecordStep(plan, parts)


class WithinStep:
    """A recursive record to skip: its steps are created as deep as payloads go."""

    def __init__(self, shape: Record, depth: int) -> None:
        self._shape = shape
        self._depth = depth
        self._step: Step | None = None

    def read(self, at: Cursor) -> pa.Array:
        """Never called: no column can hold it."""
        self.skip(at)
        return pa.nulls(len(at))

    def skip(self, at: Cursor) -> None:
        """Skip the values."""
        if self._depth >= DEPTH_MAX:
            at.note(np.ones(len(at), bool), faults.TOO_DEEP)
            return
        if self._step is None:
            self._step = passing(self._shape, (), self._depth + 1)
        self._step.skip(at)


def passing(shape: Shape, around: tuple[Record, ...] = (), depth: int = 0) -> Step:
    """The step that skips an unwanted value."""
    if isinstance(shape, Leaf):
        return leaf_step(LeafPlan(shape, leaf_type(shape)))
    if isinstance(shape, Array):
        return ListStep(pa.null(), passing(shape.item, around, depth))
    if isinstance(shape, Map):
        return MapStep(pa.null(), _KEY, passing(shape.value, around, depth))
    if isinstance(shape, Record):
        if shape in around:
            return WithinStep(shape, depth)
        within = (*around, shape)
        parts = [(passing(each.shape, within, depth), -1) for each in shape.fields]
        return RecordStep(RecordPlan(pa.struct([]), (), ()), parts)
    branches = [(passing(each, around, depth), False, -1) for each in shape.branches]
    return UnionStep(pa.null(), branches, members=False)
