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
from geminga.schema._fields import field_definition, fields_of
from geminga.schema._models import (
    ModelCodec,
    avro_name,
    check_mark,
    class_value,
    digits_of,
    fields_of_model,
    has_raw_enums,
    is_model,
)
from geminga.schema._official import is_official, official_plan
from geminga.schema._plans import (
    Json,
    Plan,
    RecordCodec,
    array_plan,
    enum_plan,
    int32,
    json_union_plan,
    leaf,
    map_plan,
    union_plan,
    whole,
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
_TEXTS = frozenset(
    {bytes, uuid.UUID, datetime.date, datetime.time, datetime.datetime, decimal.Decimal}
)
"""Types whose values are texts in JSON."""
_ARRAYS: dict[object, type] = {list: list, Sequence: list, set: set, frozenset: frozenset}


_LONG = whole(64)


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

    def __init__(self, *, always_allow_null: bool = False, json: bool = False) -> None:
        """`json` plans values of JSON: it lacks some numbers, and has times and bytes as texts."""
        self._always_allow_null = always_allow_null
        self._json = json
        self._has_raw_enums = False
        self._known: dict[type, Plan] = {}
        self.codecs: dict[type, RecordCodec] = {}

    def models(self) -> frozenset[str]:
        """Names in Avro, without name space, of the models of pydantic among its types."""
        return frozenset(avro_name(kind) for kind in self.codecs if is_model(kind))

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
            return self._union(branches, where)
        if origin is typing.Literal:
            return self._literal(get_args(kind), where, namespace)
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
            check_mark(mark, where)
        for mark in marks:
            if kind is decimal.Decimal:
                digits = digits_of(mark)
                found = mark if digits is None else Precision(*digits)
                if isinstance(found, Precision):
                    return self._checked(_decimal(found))
            marked = _MARKED.get((kind, mark if isinstance(mark, type) else type(mark)))
            if marked is not None:
                return self._checked(marked)
        return self.plan(kind, where, namespace)

    def _checked(self, known: Plan) -> Plan:
        """The plan of a value without parts, as JSON has it if that is wanted."""
        kind = known.kinds[0]
        if self._json and kind is float:
            return dataclasses.replace(known, out=_finite)
        if self._json and kind is int and known.out is None:
            return dataclasses.replace(known, out=_LONG)  # of Avro's, fastavro looks
        if self._json and kind in _TEXTS:
            return dataclasses.replace(known, back=lambda text: msgspec.convert(text, kind))
        return known

    def _union(self, branches: list[Plan], where: str) -> Plan:
        sorts = [_sort(each.schema) for each in branches]
        for sort in sorts:
            if sorts.count(sort) > 1:
                raise InvalidSchemaError(f"{where}: two types of the union are Avro's {sort}")
        if self._json and len(branches) - sorts.count("null") > 1:
            return json_union_plan(branches, self.codecs)
        return union_plan(branches)

    def _literal(self, values: tuple[object, ...], where: str, namespace: str) -> Plan:
        """Some values of one type, or of several."""
        kinds = dict.fromkeys(map(type, values))
        branches = [self.plan(kind, where, namespace) for kind in kinds]
        branches.sort(key=lambda each: each.schema != "null")
        plan = branches[0] if len(branches) == 1 else self._union(branches, where)
        change_out, change_back = plan.out, plan.back

        def checked(value: Any) -> Any:
            if not any(value == each and type(value) is type(each) for each in values):
                raise InvalidValueError(f"{value!r} is none of {', '.join(map(repr, values))}")
            return value

        def out(value: Any) -> Any:
            return checked(value) if change_out is None else change_out(checked(value))

        def back(value: Any) -> Any:
            return checked(value if change_back is None else change_back(value))

        return dataclasses.replace(plan, out=out, back=back, is_exact=False)

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
        called = avro_name(kind)
        known = self._known.get(kind)
        if known is not None:
            # Within its own name space, the short name is enough.
            short = namespace == known.name.rpartition(".")[0]
            known = dataclasses.replace(known, schema=called if short else known.name)
            return self._enum(kind, known) if issubclass(kind, Enum) else known
        own = class_value(kind, "_avro_namespace")
        space = own if isinstance(own, str) else namespace
        name = f"{space}.{called}" if space else called
        if any(each.name == name for each in self._known.values()):
            raise InvalidSchemaError(f"{where}: two types are called {name}")
        head = {"name": called}
        if space != namespace:
            head["namespace"] = space
        if is_official(kind):
            plan = official_plan(kind, name)
        elif issubclass(kind, Enum):
            schema = {"type": "enum", **head, "symbols": [each.name for each in kind]}
            plan = self._known[kind] = enum_plan(kind, name, schema)
            return self._enum(kind, plan)
        elif dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or is_model(kind):
            return self._record(kind, name, space, {"type": "record", **head})
        else:
            raise InvalidSchemaError(f"{where}: there is no Avro type for {kind.__name__}")
        self._known[kind] = plan
        return plan

    def _enum(self, kind: type[Enum], plan: Plan) -> Plan:
        """In models with `use_enum_values`, values are those of the enum's members."""
        if not self._has_raw_enums:
            return plan
        values = (kind, *{type(each.value) for each in kind})
        return dataclasses.replace(plan, kinds=values, out=lambda value: kind(value).name)

    def _record(self, kind: type, name: str, space: str, schema: dict[str, Any]) -> Plan:
        if is_model(kind):
            codec: RecordCodec = ModelCodec(kind, name)
            specs = fields_of_model(kind)
        else:
            codec, specs = RecordCodec(kind, name), fields_of(kind)
        plan = Plan(schema, (kind,), codec.to_dict, codec.from_dict, name)
        self.codecs[kind], self._known[kind] = codec, plan
        outer, self._has_raw_enums = self._has_raw_enums, has_raw_enums(kind)
        listed = specs
        if class_value(kind, "_sorted_fields"):
            listed = sorted(specs, key=lambda each: each.name)
        plans: dict[str, Plan] = {}
        schema["fields"] = []
        for spec in listed:
            made = self.plan(spec.hint, f"{kind.__name__}.{spec.attribute}", space)
            default = spec.default
            if self._always_allow_null and _is_reference(made):
                made = union_plan([_LEAVES[type(None)], made])
                default = None if default is msgspec.NODEFAULT else default
            plans[spec.name] = made
            schema["fields"].append(field_definition(spec, made, default))
        codec.begin([(spec, plans[spec.name]) for spec in specs])
        self._has_raw_enums = outer
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


def _sort(schema: Any) -> str:
    """By what the types of a union must differ."""
    if isinstance(schema, str):
        return schema
    kind = str(schema["type"])
    if kind not in ("record", "enum", "fixed"):
        return kind
    return f"{schema.get('namespace', '')}.{schema['name']}".strip(".")
