"""Decodes JSON with msgspec, with types made for the wanted columns: other fields are skipped, and
wrong types are refused while parsing (spec SP-02, SP-03).
"""

from __future__ import annotations

import datetime
import decimal
import json
import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_pulsar._decode._buffer import Flags
from pyspark_pulsar._decode._match import (
    LeafPlan,
    ListPlan,
    MapPlan,
    MemberPlan,
    OptionalPlan,
    Part,
    Plan,
    RecordPlan,
    only_plan,
)
from pyspark_pulsar._decode._objects import DATED, UNFIT, Builder, Columns, numbered
from pyspark_pulsar._decode._shapes import Kind, Leaf, leaf_type

_Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Real = float | Literal["NaN", "Infinity", "-Infinity"]
_Local = Annotated[datetime.datetime, msgspec.Meta(tz=False)]
_TYPES: dict[Kind, object] = {
    Kind.NULL: None,
    Kind.BOOLEAN: bool,
    Kind.INT: _Int,
    Kind.LONG: _Long,
    Kind.FLOAT: _Real,
    Kind.DOUBLE: _Real,
    Kind.STRING: str,
    Kind.ENUM: str,
    Kind.BYTES: bytes,
    Kind.FIXED: bytes,
    Kind.DECIMAL: decimal.Decimal,
    Kind.DATE: int | datetime.date,
    Kind.TIME_MILLIS: int | datetime.time,
    Kind.TIME_MICROS: int | datetime.time,
    Kind.TIMESTAMP_MILLIS: int | datetime.datetime,
    Kind.TIMESTAMP_MICROS: int | datetime.datetime,
    Kind.LOCAL_TIMESTAMP_MILLIS: int | _Local,
    Kind.LOCAL_TIMESTAMP_MICROS: int | _Local,
    Kind.JSON: msgspec.Raw,
}
"""Dates and times are numbers as in Avro, or ISO 8601; Jackson writes non-finite numbers as
strings.
"""
_NULL = msgspec.Raw(b"null")


class JsonReader:
    """Decodes JSON payloads."""

    def __init__(self, plan: RecordPlan, *, is_single: bool) -> None:
        """With `is_single` the payload is the one field's value rather than an object."""
        self._plan = plan
        self._is_single = is_single
        wanted: object = _type_of(only_plan(plan)) if is_single else _type_of(plan)
        if is_single:
            wanted = _optional(wanted)
        self._decode: Callable[[bytes], object] = msgspec.json.Decoder(wanted).decode

    def columns(self, payloads: Sequence[bytes]) -> Columns:
        """The wanted columns, and the errors of malformed payloads."""
        builder = Builder(_JsonSource())
        decode = self._decode
        rows: list[object] = []
        for number, payload in enumerate(payloads):
            try:
                rows.append(decode(payload))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                rows.append(None)
                builder.notes[number] = f"the JSON doesn't match the schema: {error}"
        owners = np.arange(len(rows))
        if self._is_single:
            return Columns([builder.build(only_plan(self._plan), rows, owners)], builder.notes)
        if not builder.notes:
            return Columns(builder.columns(self._plan, rows, owners), builder.notes)
        column = builder.build(self._plan, rows, owners)
        return Columns(column.flatten(), builder.notes)


def _optional(kind: object) -> object:
    return kind if kind in (None, msgspec.Raw) else kind | None  # type: ignore[operator]


def _type_of(plan: Plan) -> object:
    """The type for msgspec."""
    if isinstance(plan, LeafPlan):
        return _TYPES[plan.leaf.kind]
    if isinstance(plan, OptionalPlan | MemberPlan):
        return _type_of(plan.plan)
    if isinstance(plan, ListPlan):
        return list[_optional(_type_of(plan.item))]  # type: ignore[misc]
    if isinstance(plan, MapPlan):
        return dict[str, _optional(_type_of(plan.value))]  # type: ignore[misc]
    if isinstance(plan, RecordPlan):
        return _struct(plan)
    return None


def _struct(plan: RecordPlan) -> object:
    fields: list[tuple[str, object, object]] = []
    names: dict[str, str] = {}
    for number, part in enumerate(plan.parts):
        if part.plan is not None:
            kind = _optional(_type_of(part.plan))
            names[f"f{number}"] = part.name
            fields.append((f"f{number}", kind, _default(part, kind)))
    return msgspec.defstruct("Row", fields, rename=names, gc=False, eq=False)


def _default(part: Part, kind: object) -> object:
    """The value of a missing field."""
    default = part.default
    is_raw = kind is msgspec.Raw
    if default is None:
        return _NULL if is_raw else None
    text = json.dumps(default).encode()
    try:
        msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None
    return msgspec.field(default_factory=lambda: msgspec.json.decode(text, type=kind))


class _JsonSource:
    """Values as msgspec reads them with these types."""

    def field(self, number: int, part: Part) -> Callable[[object], object]:
        """Objects are structs of numbered fields."""
        return operator.attrgetter(f"f{number}")

    def branch(self, value: object) -> tuple[int, object]:
        """Unions of several are kept as text: only null gets here."""
        return 0, value

    def leaves(self, leaf: Leaf, values: list[object]) -> tuple[pa.Array, Flags | None]:
        """Values for Arrow, converted where JSON has another form."""
        if leaf.kind is Kind.JSON:
            return pa.array(list(map(_json_text, values)), pa.string()), None
        if leaf.kind in (Kind.FLOAT, Kind.DOUBLE):
            try:
                return pa.array(values, leaf_type(leaf)), None
            except UNFIT:
                numbers = [float(v) if isinstance(v, str) else v for v in values]
                return pa.array(numbers, leaf_type(leaf)), None
        if leaf.kind in DATED:
            return _dated(leaf, values)
        return numbered(leaf, values)


def _dated(leaf: Leaf, values: list[object]) -> tuple[pa.Array, Flags | None]:
    """Dates and times: numbers, or parsed ISO 8601; mostly all have the same form."""
    try:
        return numbered(leaf, values)
    except UNFIT:
        pass
    if leaf.kind not in _TIMES and len(set(map(type, values)) - {type(None)}) == 1:
        return pa.array(values, leaf_type(leaf)), None
    exact = Leaf(_MICROS.get(leaf.kind, leaf.kind))
    return numbered(exact, [None if v is None else _number(leaf.kind, v) for v in values])


def _json_text(value: object) -> str | None:
    text = bytes(value) if isinstance(value, msgspec.Raw) else b"null"
    return None if text.strip() == b"null" else text.decode()


_EPOCH = datetime.datetime(1970, 1, 1)
_MIDNIGHT = datetime.datetime.min
_MICROS = {
    Kind.TIME_MILLIS: Kind.TIME_MICROS,
    Kind.TIMESTAMP_MILLIS: Kind.TIMESTAMP_MICROS,
    Kind.LOCAL_TIMESTAMP_MILLIS: Kind.LOCAL_TIMESTAMP_MICROS,
}
_TIMES = (Kind.TIME_MILLIS, Kind.TIME_MICROS)
_MICRO = datetime.timedelta(microseconds=1)


def _number(kind: Kind, value: object) -> int:
    """A date in days, a time in microseconds."""
    if isinstance(value, datetime.datetime):
        zone = value.utcoffset()
        plain = value.replace(tzinfo=None) - (zone or datetime.timedelta())
        return (plain - _EPOCH) // _MICRO
    if isinstance(value, datetime.time):
        moment = datetime.datetime.combine(_MIDNIGHT, value.replace(tzinfo=None))
        return (moment - _MIDNIGHT) // _MICRO
    if isinstance(value, datetime.date):
        return (datetime.datetime.combine(value, datetime.time()) - _EPOCH).days
    if isinstance(value, int):
        return value * 1000 if kind in _MICROS else value
    raise TypeError(f"{value!r} is not a number")
