"""Python types as Avro types (spec SDK-41): the schema, and the conversion of values for an Avro
writer and back. Each type is analysed once.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from geminga._options.checks import one
from geminga.errors import InvalidValueError

Json = Any
"""A part of an Avro schema: a text, a list or a dict."""
Change = Callable[[Any], Any]

SIGNATURES_MAX = 256
"""Bound of cached valid combinations of a record's value types."""


@dataclass(frozen=True)
class Plan:
    """How one type is written and read. `kinds` are the valid types of values; `out` and `back`
    convert a value, None if unchanged.
    """

    schema: Json
    kinds: tuple[type, ...]
    out: Change | None = None
    back: Change | None = None
    name: str = ""
    """Full name of a named Avro type."""
    is_exact: bool = True
    """Whether JSON can be written from the unconverted Python value."""

    def fits(self, value: object) -> bool:
        """Whether a value has a valid type. A bool is not a number here."""
        kind = type(value)
        return kind in self.kinds or (kind is not bool and isinstance(value, self.kinds))


def wrong(path: str, plan: Plan, value: object) -> InvalidValueError:
    """The error for a value of a wrong type."""
    wanted = " or ".join("None" if k is type(None) else k.__name__ for k in plan.kinds)
    return InvalidValueError(f"{path} must be {wanted}, not {value!r}")


def leaf(schema: Json, *kinds: type, back: Change | None = None) -> Plan:
    """A plan of a type without parts."""
    return Plan(schema, kinds, None, back)


def whole(bits: int) -> Change:
    """Checks the size of a whole number."""
    end = 1 << bits - 1

    def out(value: int) -> int:
        if not -end <= value < end:
            # One of thousands of digits can't even be shown.
            told = value if value.bit_length() <= 256 else f"a number of {value.bit_length()} bits"
            raise InvalidValueError(f"{told} is not a whole number of {bits} bits")
        return value

    return out


def int32() -> Plan:
    """A whole number with a check of its size."""
    return Plan("int", (int,), whole(32))


def enum_plan(kind: type[Enum], name: str, schema: Json) -> Plan:
    """Enums are written by name, as in Java; the official Python client's JSON has their values."""
    exact = all(each.name == each.value for each in kind)
    members = {**kind._value2member_map_, **kind.__members__}
    return Plan(
        schema, (kind,), operator.attrgetter("name"), members.__getitem__, name, is_exact=exact
    )


def array_plan(item: Plan, made: type, schema: Json) -> Plan:
    """Lists and similar types."""
    change_out, change_back = item.out, item.back
    allowed = frozenset(item.kinds)

    def out(values: Any) -> Any:
        if not allowed.issuperset(map(type, values)):
            for value in values:
                if not item.fits(value):
                    raise wrong("an item", item, value)
        if change_out is None:
            return values if made is list else list(values)
        return [change_out(value) for value in values]

    def back_all(values: Any) -> Any:
        return made([change_back(value) for value in values]) if change_back else made(values)

    back = None if change_back is None and made is list else back_all
    kinds = (list, tuple) if made is list else (made,)
    return Plan(schema, kinds, out, back, is_exact=item.is_exact)


def map_plan(item: Plan, schema: Json) -> Plan:
    """Dicts with texts as keys."""
    change_out, change_back = item.out, item.back
    allowed = frozenset(item.kinds)
    texts = frozenset({str})

    def out(values: Any) -> Any:
        if not texts.issuperset(map(type, values)):
            raise InvalidValueError(f"keys must be texts, not {values!r}")
        if not allowed.issuperset(map(type, values.values())):
            for key, value in values.items():
                if not item.fits(value):
                    raise wrong(f"[{key!r}]", item, value)
        if change_out is None:
            return values
        return {key: change_out(value) for key, value in values.items()}

    def back_all(values: Any) -> Any:
        return {key: change_back(value) for key, value in values.items()} if change_back else values

    back = None if change_back is None else back_all
    return Plan(schema, (dict, Mapping), out, back, is_exact=item.is_exact)


def union_plan(branches: list[Plan]) -> Plan:
    """One of several types; None is null."""
    schema = [each.schema for each in branches]
    kinds = tuple(kind for each in branches for kind in each.kinds)
    real = [each for each in branches if each.schema != "null"]
    exact = all(each.is_exact for each in branches)
    if len(real) == 1:
        return Plan(schema, kinds, _or_none(real[0].out), _or_none(real[0].back), is_exact=exact)
    named = {each.name: each for each in real if each.name}

    def out(value: Any) -> Any:
        for each in real:
            if each.fits(value):
                changed = value if each.out is None else each.out(value)
                return (each.name, changed) if each.name else changed
        return value

    def back(value: Any) -> Any:
        if type(value) is tuple:
            each = named[value[0]]
            return value[1] if each.back is None else each.back(value[1])
        return value

    return Plan(schema, kinds, out, back, is_exact=exact and not named)


def json_union_plan(branches: list[Plan], codecs: Mapping[type, RecordCodec]) -> Plan:
    """`union_plan` for several types in JSON, which doesn't name the type of a value: it is read as
    the first type that it fits, of records as the one with the most of its fields.
    """
    schema = [each.schema for each in branches]
    kinds = tuple(kind for each in branches for kind in each.kinds)
    real = [each for each in branches if each.schema != "null"]
    exact = all(each.is_exact and not each.name for each in branches)

    def out(value: Any) -> Any:
        for each in real:
            if each.fits(value):
                return value if each.out is None else each.out(value)
        return value

    def known(branch: Plan, value: dict[str, Any]) -> int:
        codec = codecs.get(branch.kinds[0])
        return 0 if codec is None else -len(value.keys() & set(codec.names))

    def back(value: Any) -> Any:
        tried = real
        if isinstance(value, dict):
            tried = sorted(real, key=lambda each: known(each, value))
        for each in tried:
            try:
                # A copy: what is read is changed on the way.
                found = value if each.back is None else each.back(copy.deepcopy(value))
            except Exception:
                continue
            if each.fits(found):
                return found
        return value

    return Plan(schema, kinds, out, back, is_exact=exact)


def _or_none(change: Change | None) -> Change | None:
    if change is None:
        return None
    known = change
    return lambda value: None if value is None else known(value)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field of a class. `name` is its name in Avro, `attribute` that in Python; without a default
    it has NODEFAULT. `aliases` are other names that it may have in what is read.
    """

    name: str
    attribute: str
    hint: object
    default: object = msgspec.NODEFAULT
    aliases: tuple[str, ...] = ()


class RecordCodec:
    """Converts objects of one class to dicts and back."""

    def __init__(self, kind: type, name: str) -> None:
        self.kind = kind
        self.name = name
        self._names: tuple[str, ...] = ()
        self._plans: tuple[Plan, ...] = ()
        self._get: Callable[[Any], tuple[Any, ...]] = lambda value: ()
        self._out: tuple[tuple[str, Change], ...] = ()
        self._back: tuple[tuple[str, Change], ...] = ()
        self._seen: set[tuple[type, ...]] = set()

    def begin(self, fields: list[tuple[FieldSpec, Plan]]) -> None:
        """Set the fields, in the class's order; their types may be this class."""
        self._names = tuple(spec.name for spec, _ in fields)
        self._plans = tuple(plan for _, plan in fields)
        if len(fields) == 1:
            first = operator.attrgetter(self._names[0])
            self._get = lambda value: (first(value),)
        elif fields:
            self._get = operator.attrgetter(*self._names)
        self._out = tuple((spec.name, plan.out) for spec, plan in fields if plan.out is not None)
        self._back = tuple((spec.name, plan.back) for spec, plan in fields if plan.back is not None)

    def to_dict(self, value: Any) -> dict[str, Any]:
        """The dict for an Avro writer. Raises InvalidValueError, naming the field."""
        if not isinstance(value, self.kind):
            raise InvalidValueError(f"the value must be {one(self.kind.__name__)}, not {value!r}")
        try:
            # Nearly always the object has just the fields, in this order.
            made: dict[str, Any] = value.__dict__.copy()
        except AttributeError:
            made = {}
        if tuple(made) != self._names:
            made = dict(zip(self._names, self._get(value), strict=True))
        return self._changed(made)

    def _changed(self, made: dict[str, Any]) -> dict[str, Any]:
        types = tuple(map(type, made.values()))
        if types not in self._seen:
            self._check(tuple(made.values()), types)
        for name, change in self._out:
            try:
                made[name] = change(made[name])
            except InvalidValueError as error:
                raise InvalidValueError(f"{self.kind.__name__}.{name}: {error.args[0]}") from error
        return made

    def _check(self, values: tuple[object, ...], types: tuple[type, ...]) -> None:
        for name, plan, value in zip(self._names, self._plans, values, strict=True):
            if not plan.fits(value):
                raise wrong(f"{self.kind.__name__}.{name}", plan, value)
        if len(self._seen) < SIGNATURES_MAX:
            self._seen.add(types)

    def from_dict(self, read: dict[str, Any]) -> Any:
        """The object for an Avro reader's dict, which is modified."""
        for name, change in self._back:
            read[name] = change(read[name])
        return self.kind(**read)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields' names in Avro."""
        return self._names

    @property
    def is_exact(self) -> bool:
        """Whether JSON can be written from the unconverted object."""
        return all(plan.is_exact for plan in self._plans)
