"""Avro schemas: parsing as strict as Java's `Schema.Parser` 1.11 (spec BR-51, SDK-41)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED = frozenset(("record", "enum", "fixed"))
DEPTH_MAX = 100
"""Bound of a schema's nesting, before Python's recursion limit."""
PARSED_MAX = 1024
"""Cached schemas."""
KEPT_CHARS_MAX = 16 * 1024
"""Longer texts are not cached: a parsed schema takes many times the memory of its text."""

_RESERVED = {
    "record": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "enum": {"type", "name", "namespace", "doc", "symbols", "default", "aliases"},
    "fixed": {"type", "name", "namespace", "doc", "size", "aliases"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_FIELD_RESERVED = {"name", "type", "doc", "default", "order", "aliases"}
_ORDERS = ("ascending", "descending", "ignore")


class AvroSchemaError(ValueError):
    """The text is no Avro schema; the message says why."""


class _Nothing:
    """Stands for "no default", as null is a default."""


NOTHING = _Nothing()


@dataclass(eq=False, slots=True)
class AvroField:
    """A record's field. `default` is NOTHING if there is none."""

    name: str
    type: AvroType
    default: object
    order: str
    aliases: frozenset[str]
    props: object


@dataclass(eq=False, slots=True)
class AvroType:
    """A type; `kind` decides which attributes are used. Recursive types refer to
    themselves.
    """

    kind: str
    name: str = ""
    fields: dict[str, AvroField] = field(default_factory=dict)
    symbols: tuple[str, ...] = ()
    size: int = 0
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    aliases: frozenset[str] = frozenset()
    props: object = ()

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def label(self) -> str:
        """What must be unique in a union: its full name, or its kind."""
        return self.name if self.kind in NAMED else self.kind


@dataclass(frozen=True, eq=False, slots=True)
class AvroSchema:
    """A parsed schema. Two schemas are equal (Java's `Schema.equals`) if their `canonical` is."""

    root: AvroType
    canonical: object
    source: object


def parse_avro(text: str) -> AvroSchema:
    """The schema of a JSON text. Raises AvroSchemaError."""
    return _kept(text) if len(text) <= KEPT_CHARS_MAX else _parse(text)


@lru_cache(PARSED_MAX)
def _kept(text: str) -> AvroSchema:
    return _parse(text)


def _parse(text: str) -> AvroSchema:
    try:
        source: object = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError(f"no JSON: {error}") from None
    try:
        root = _Parser().type_of(source, "", 0)
        return AvroSchema(root, _canonical(root, set()), source)
    except RecursionError:  # by nested JSON that isn't a type
        raise AvroSchemaError("nested too deep") from None


def pretty(source: object, indent: str = "") -> str:
    """A schema's JSON as Java prints it in messages."""
    deeper = indent + "  "
    if isinstance(source, dict):
        if not source:
            return "{ }"
        members = (f"{deeper}{json.dumps(k)} : {pretty(v, deeper)}" for k, v in source.items())
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(source, list):
        return f"[ {', '.join(pretty(each, indent) for each in source)} ]" if source else "[ ]"
    return json.dumps(source, ensure_ascii=False)


def _refuse_constant(name: str) -> object:
    raise AvroSchemaError(f"{name} is no JSON")


class _Parser:
    """Collects types by full name."""

    def __init__(self) -> None:
        self._names: dict[str, AvroType] = {}

    def type_of(self, source: object, space: str, depth: int) -> AvroType:
        """The type that a JSON value defines, within a namespace."""
        if depth > DEPTH_MAX:
            raise AvroSchemaError(f"nested deeper than {DEPTH_MAX}")
        if isinstance(source, str):
            found = self._named(source, space)
            if found is None:
                raise AvroSchemaError(f"Undefined name: {source!r}")
            return found
        if isinstance(source, list):
            return self._union(source, space, depth)
        if not isinstance(source, dict):
            raise AvroSchemaError(f"Schema not yet supported: {source!r}")
        kind = source.get("type")
        if not isinstance(kind, str):
            raise AvroSchemaError(f"No type: {_short(source)}")
        if kind in NAMED or kind == "error":
            return self._definition(source, "record" if kind == "error" else kind, space, depth)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in source:
                raise AvroSchemaError(f"{kind} has no {key} type: {_short(source)}")
            items = self.type_of(source[key], space, depth + 1)
            return AvroType(kind, items=items, props=_props(source, kind))
        found = self._named(kind, space)
        if found is None:
            raise AvroSchemaError(f"Type not supported: {_short(kind)}")
        if found.kind in PRIMITIVES:
            return AvroType(found.kind, props=_freeze_rest(source, {"type"}))
        return found

    def _named(self, name: str, space: str) -> AvroType | None:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not space else f"{space}.{name}"
        found = self._names.get(full)
        if found is None and "." not in name:
            found = self._names.get(name)
        return found

    def _union(self, source: list[object], space: str, depth: int) -> AvroType:
        branches = tuple(self.type_of(each, space, depth + 1) for each in source)
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise AvroSchemaError("Nested union")
            if branch.label in seen:
                raise AvroSchemaError(f"Duplicate in union: {branch.label}")
            seen.add(branch.label)
        return AvroType("union", branches=branches)

    def _definition(
        self, source: Mapping[str, object], kind: str, space: str, depth: int
    ) -> AvroType:
        name = _text(source, "name")
        if name is None:
            raise AvroSchemaError(f"No name in schema: {_short(source)}")
        inner, dot, local = name.rpartition(".")
        if not dot:
            given = _text(source, "namespace")
            inner = space if given is None else given
        _check_name(local)
        full = f"{inner}.{local}" if inner else local
        if full in PRIMITIVES:
            raise AvroSchemaError(f"Schemas may not be named after primitives: {full}")
        if full in self._names:
            raise AvroSchemaError(f"Can't redefine: {full}")
        found = AvroType(kind, full, props=_props(source, kind))
        found.aliases = frozenset(
            each if "." in each or not inner else f"{inner}.{each}" for each in _aliases(source)
        )
        self._names[full] = found
        if kind == "record":
            self._fill_record(found, source, inner, depth)
        elif kind == "enum":
            _fill_enum(found, source)
        else:
            size = source.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise AvroSchemaError(f"Invalid or no size: {_short(source)}")
            found.size = size
        return found

    def _fill_record(
        self, record: AvroType, source: Mapping[str, object], space: str, depth: int
    ) -> None:
        fields = source.get("fields")
        if not isinstance(fields, list):
            raise AvroSchemaError(f"Record has no fields: {_short(source)}")
        for each in fields:
            name = _text(each, "name") if isinstance(each, dict) else None
            if name is None:
                raise AvroSchemaError(f"No field name: {_short(each)}")
            if each.get("type") is None:
                raise AvroSchemaError(f"No field type: {_short(each)}")
            _check_name(name)
            if name in record.fields:
                raise AvroSchemaError(f"Duplicate field {name} in record {record.name}")
            kind = self.type_of(each["type"], space, depth + 1)
            order = (_text(each, "order") or "ascending").lower()
            if order not in _ORDERS:
                raise AvroSchemaError(f"Unknown order of field {name}: {order}")
            default = _default(each.get("default", NOTHING), kind)
            record.fields[name] = AvroField(
                name,
                kind,
                default,
                order,
                frozenset(_aliases(each)),
                _freeze_rest(each, _FIELD_RESERVED),
            )


def _fill_enum(enum: AvroType, source: Mapping[str, object]) -> None:
    symbols = source.get("symbols")
    if not isinstance(symbols, list):
        raise AvroSchemaError(f"Enum has no symbols: {_short(source)}")
    for symbol in symbols:
        if not isinstance(symbol, str):
            raise AvroSchemaError(f"No symbol: {_short(symbol)}")
        _check_name(symbol)
    if len(set(symbols)) < len(symbols):
        raise AvroSchemaError(f"Duplicate enum symbol in {enum.name}")
    default = _text(source, "default")
    if default is not None and default not in symbols:
        raise AvroSchemaError(f"The Enum Default: {default} is not in the enum symbol set")
    enum.symbols = tuple(symbols)


def _default(value: object, kind: AvroType) -> object:
    """A field's default; Java also takes a text for a floating-point number."""
    if kind.kind in ("float", "double") and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise AvroSchemaError(f"{value!r} is no number") from None
    return value


def _check_name(name: str) -> None:
    if not name:
        raise AvroSchemaError("Empty name")
    if not (name[0].isalpha() or name[0] == "_"):
        raise AvroSchemaError(f"Illegal initial character: {name}")
    if not all(char.isalpha() or char.isdecimal() or char == "_" for char in name):
        raise AvroSchemaError(f"Illegal character in: {name}")


def _text(source: Mapping[str, object], key: str) -> str | None:
    value = source.get(key)
    if value is None or isinstance(value, str):
        return value
    # As Jackson's asText.
    return json.dumps(value) if isinstance(value, bool | int | float) else ""


def _aliases(source: Mapping[str, object]) -> list[str]:
    aliases = source.get("aliases")
    if aliases is None:
        return []
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise AvroSchemaError(f"aliases not an array of names: {_short(source)}")
    return cast("list[str]", aliases)


def _props(source: Mapping[str, object], kind: str) -> object:
    return _freeze_rest(source, _RESERVED[kind])


def _freeze_rest(source: Mapping[str, object], reserved: set[str]) -> object:
    return _freeze({key: value for key, value in source.items() if key not in reserved})


def _freeze(value: object) -> object:
    """A JSON value that can be compared and hashed; numbers keep their type, as in Java."""
    if isinstance(value, dict):
        return frozenset((key, _freeze(each)) for key, each in value.items())
    if isinstance(value, list):
        return tuple(_freeze(each) for each in value)
    return type(value).__name__, value if value is not NOTHING else None


def _canonical(found: AvroType, seen: set[str]) -> object:
    if found.kind in NAMED:
        if found.name in seen:
            return found.name
        seen.add(found.name)
    fields = tuple(
        (each.name, _canonical(each.type, seen), _freeze(each.default), each.order, each.props)
        for each in found.fields.values()
    )
    inner = () if found.items is None else _canonical(found.items, seen)
    branches = tuple(_canonical(each, seen) for each in found.branches)
    symbols, size = found.symbols, found.size
    return found.kind, found.name, fields, symbols, size, inner, branches, found.props


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 200 else f"{text[:200]}..."
