"""Type annotations to Avro plans: dataclasses, msgspec structs, the official client's records
(spec SDK-41; ReflectData of Avro's Java library, with its names of logical types).
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, get_args, get_origin

import msgspec

from geminga.errors import InvalidSchemaError, InvalidValueError
from geminga.schema import _primitives as primitives
from geminga.schema._official import is_official, official_plan
from geminga.schema._plans import (
    Json,
    Plan,
    RecordCodec,
    array_plan,
    enum_plan,
    int32,
    leaf,
    map_plan,
    union_plan,
)


@dataclasses.dataclass(frozen=True)
class Precision:
    """The digits of a decimal, and how many of them are after the point:
    `Annotated[Decimal, Precision(10, 2)]`.
    """

    precision: int
    scale: int = 0


@dataclasses.dataclass(frozen=True)
class Micros:
    """Times to the microsecond instead of the millisecond: `Annotated[datetime, Micros()]`."""


def _logical(kind: str, name: str) -> Json:
    return {"type": kind, "logicalType": name}


def _moment(name: str) -> Plan:
    """A moment: a value without time zone would be considered local time, so it is refused."""

    def out(value: datetime.datetime) -> datetime.datetime:
        if value.tzinfo is None:
            raise InvalidValueError(f"must have a time zone: {value!r}")
        return value

    return Plan(_logical("long", name), (datetime.datetime,), out)


_LEAVES: dict[object, Plan] = {
    bool: leaf("boolean", bool),
    int: leaf("long", int),
    float: leaf("double", float, int),
    str: leaf("string", str),
    bytes: leaf("bytes", bytes),
    type(None): leaf("null", type(None)),
    uuid.UUID: leaf(_logical("string", "uuid"), uuid.UUID),
    datetime.date: leaf(_logical("int", "date"), datetime.date),
    datetime.time: leaf(_logical("int", "time-millis"), datetime.time),
    datetime.datetime: _moment("timestamp-millis"),
}
_MARKED: dict[tuple[object, type], Plan] = {
    (int, primitives.Int32): int32(),
    (int, primitives.Int64): _LEAVES[int],
    (float, primitives.Float): leaf("float", float, int),
    (float, primitives.Double): _LEAVES[float],
    (datetime.time, Micros): leaf(_logical("long", "time-micros"), datetime.time),
    (datetime.datetime, Micros): _moment("timestamp-micros"),
    (datetime.datetime, primitives.LocalDateTime): leaf(
        _logical("long", "local-timestamp-millis"), datetime.datetime
    ),
}
_ARRAYS: dict[object, type] = {list: list, Sequence: list, set: set, frozenset: frozenset}


def _finite(value: float) -> float:
    if value - value != 0:
        raise InvalidValueError(f"JSON has no {value}")
    return value


def _decimal(mark: Precision) -> Plan:
    def out(value: decimal.Decimal) -> decimal.Decimal:
        _, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or exponent < -mark.scale:
            raise InvalidValueError(f"{value} has more than {mark.scale} digits behind the point")
        if len(digits) + exponent + mark.scale > mark.precision:
            raise InvalidValueError(f"{value} has more than {mark.precision} digits")
        return value

    schema = {**_logical("bytes", "decimal"), "precision": mark.precision, "scale": mark.scale}
    return Plan(schema, (decimal.Decimal,), out)


class Planner:
    """Makes the plan of one schema; a named type is defined at its first use."""

    def __init__(self, *, always_allow_null: bool = False, finite: bool = False) -> None:
        """`finite` refuses numbers that JSON doesn't support."""
        self._always_allow_null = always_allow_null
        self._finite = finite
        self._known: dict[type, Plan] = {}
        self.codecs: dict[type, RecordCodec] = {}

    def plan(self, kind: object, where: str, namespace: str) -> Plan:
        """The plan of a type. Raises InvalidSchemaError, naming the field."""
        known = _LEAVES.get(kind) if _is_hashable(kind) else None
        if known is not None:
            return self._checked(known)
        origin = get_origin(kind)
        if origin is typing.Annotated:
            return self._annotated(get_args(kind), where, namespace)
        if origin in (typing.Union, types.UnionType):
            branches = [self.plan(each, where, namespace) for each in get_args(kind)]
            # As in Java, null is first, and so the default.
            branches.sort(key=lambda each: each.schema != "null")
            return union_plan(branches)
        if isinstance(kind, typing.NewType):
            return self.plan(kind.__supertype__, where, namespace)
        container = self._container(kind, origin, where, namespace)
        if container is not None:
            return container
        if isinstance(kind, type):
            return self._named(kind, where, namespace)
        raise InvalidSchemaError(f"{where}: there is no Avro type for {kind!r}")

    def _annotated(self, parts: tuple[Any, ...], where: str, namespace: str) -> Plan:
        kind, *marks = parts
        for mark in marks:
            if kind is decimal.Decimal and isinstance(mark, Precision):
                return _decimal(mark)
            found = _MARKED.get((kind, mark if isinstance(mark, type) else type(mark)))
            if found is not None:
                return self._checked(found)
        return self.plan(kind, where, namespace)

    def _checked(self, known: Plan) -> Plan:
        is_real = self._finite and float in known.kinds
        return dataclasses.replace(known, out=_finite) if is_real else known

    def _container(self, kind: object, origin: object, where: str, namespace: str) -> Plan | None:
        arguments = get_args(kind)
        if origin in _ARRAYS and len(arguments) == 1:
            item = self._inner(arguments[0], where, namespace)
            return array_plan(item, _ARRAYS[origin], {"type": "array", "items": item.schema})
        if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            item = self._inner(arguments[0], where, namespace)
            return array_plan(item, tuple, {"type": "array", "items": item.schema})
        if origin in (dict, Mapping):
            if len(arguments) != 2 or arguments[0] is not str:
                raise InvalidSchemaError(f"{where}: the keys of a map must be str, not {kind!r}")
            item = self._inner(arguments[1], where, namespace)
            return map_plan(item, {"type": "map", "values": item.schema})
        return None

    def _inner(self, kind: object, where: str, namespace: str) -> Plan:
        return self.plan(kind, f"{where}[]", namespace)

    def _named(self, kind: type, where: str, namespace: str) -> Plan:
        known = self._known.get(kind)
        if known is not None:
            # Within its own name space, the short name is enough.
            short = namespace == known.name.rpartition(".")[0]
            return dataclasses.replace(known, schema=kind.__name__ if short else known.name)
        own = getattr(kind, "_avro_namespace", None)
        space = namespace if own is None else own
        name = f"{space}.{kind.__name__}" if space else kind.__name__
        if any(each.name == name for each in self._known.values()):
            raise InvalidSchemaError(f"{where}: two types are called {name}")
        head = {"name": kind.__name__}
        if space != namespace:
            head["namespace"] = space
        if is_official(kind):
            plan = official_plan(kind, name)
        elif issubclass(kind, Enum):
            schema = {"type": "enum", **head, "symbols": [each.name for each in kind]}
            plan = enum_plan(kind, name, schema)
        elif dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct):
            return self._record(kind, name, space, {"type": "record", **head})
        else:
            raise InvalidSchemaError(f"{where}: there is no Avro type for {kind.__name__}")
        self._known[kind] = plan
        return plan

    def _record(self, kind: type, name: str, space: str, schema: dict[str, Any]) -> Plan:
        codec = self.codecs[kind] = RecordCodec(kind, name)
        plan = Plan(schema, (kind,), codec.to_dict, codec.from_dict, name)
        self._known[kind] = plan
        fields = _fields_of(kind)
        hints = typing.get_type_hints(kind, include_extras=True)
        listed = sorted(fields) if getattr(kind, "_sorted_fields", False) else list(fields)
        plans: list[tuple[str, Plan]] = []
        schema["fields"] = []
        for field_name in listed:
            where = f"{kind.__name__}.{field_name}"
            made = self.plan(hints[field_name], where, space)
            default = fields[field_name]
            if self._always_allow_null and _is_reference(made):
                made = union_plan([_LEAVES[type(None)], made])
                default = None if default is msgspec.NODEFAULT else default
            plans.append((field_name, made))
            schema["fields"].append(_field(field_name, made, default))
        by_name = dict(plans)
        codec.begin([(each, by_name[each]) for each in fields])
        exact = codec.is_exact
        self._known[kind] = plan = dataclasses.replace(plan, is_exact=exact)
        return plan


def _is_hashable(kind: object) -> bool:
    try:
        hash(kind)
    except TypeError:
        return False
    return True


def _is_reference(plan: Plan) -> bool:
    """Whether Java uses an object for it, not a primitive (ReflectData.AllowNull)."""
    schema = plan.schema
    if isinstance(schema, list):
        return False
    return schema not in ("boolean", "int", "long", "float", "double")


def _fields_of(kind: Any) -> dict[str, object]:
    """Names of the fields with their defaults, or NODEFAULT."""
    found: dict[str, object] = {}
    if issubclass(kind, msgspec.Struct):
        for each in msgspec.structs.fields(kind):
            found[each.name] = _default(each.default, each.default_factory, msgspec.NODEFAULT)
        return found
    for field in dataclasses.fields(kind):
        if field.init:
            found[field.name] = _default(field.default, field.default_factory, dataclasses.MISSING)
    return found


def _default(value: object, factory: object, missing: object) -> object:
    if value is not missing:
        return value
    return factory() if callable(factory) else msgspec.NODEFAULT


def _field(name: str, plan: Plan, default: object) -> dict[str, Any]:
    """A field, with its default if the schema can express it; then its type is first."""
    schema = plan.schema
    field = {"name": name, "type": schema}
    if default is None and isinstance(schema, list) and "null" in schema:
        field["default"] = None
        return field
    if default is msgspec.NODEFAULT or default is None:
        return field
    written = default
    if isinstance(default, Enum):
        written = default.name
    elif isinstance(default, bytes):
        written = default.decode("latin-1")
    elif not isinstance(default, bool | int | float | str) and default not in ([], {}):
        return field
    if isinstance(schema, list):
        field["type"] = sorted(schema, key=lambda each: each == "null")
        if len(schema) > 2:
            return field
    field["default"] = written
    return field
