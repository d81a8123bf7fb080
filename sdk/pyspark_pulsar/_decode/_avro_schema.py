"""Avro definitions as shapes, and shapes as plain definitions for fastavro. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark_pulsar._decode._shapes import (
    DECIMAL_DIGITS_MAX,
    Array,
    Field,
    Kind,
    Leaf,
    Map,
    Record,
    Shape,
    Union,
    dotted,
    smallest,
)
from pyspark_pulsar.errors import SchemaMismatch

_PRIMITIVES = {
    kind.value: Leaf(kind)
    for kind in (
        Kind.NULL,
        Kind.BOOLEAN,
        Kind.INT,
        Kind.LONG,
        Kind.FLOAT,
        Kind.DOUBLE,
        Kind.STRING,
        Kind.BYTES,
    )
}
_LOGICAL = {
    ("int", "date"): Kind.DATE,
    ("int", "time-millis"): Kind.TIME_MILLIS,
    ("long", "time-micros"): Kind.TIME_MICROS,
    ("long", "timestamp-millis"): Kind.TIMESTAMP_MILLIS,
    ("long", "timestamp-micros"): Kind.TIMESTAMP_MICROS,
    ("long", "local-timestamp-millis"): Kind.LOCAL_TIMESTAMP_MILLIS,
    ("long", "local-timestamp-micros"): Kind.LOCAL_TIMESTAMP_MICROS,
}
"""Logical types that change a column; others are ignored, as Avro's specification says."""


def avro_shape(definition: bytes | str, *, is_json: bool = False) -> Shape:
    """The shape of an Avro definition. With `is_json` values are JSON, where the branch of a union
    can't be known: such values are kept as texts.

    Raises SchemaMismatch.
    """
    try:
        parsed: object = json.loads(definition)
        return _Parser(is_json=is_json).shape(parsed, "", "schema")
    except (ValueError, RecursionError) as error:
        raise SchemaMismatch(
            "schema", f"the topic's schema definition is not JSON: {error}"
        ) from error


class _Parser:
    """Parses one definition."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self._named: dict[str, Shape] = {}

    def shape(self, part: object, space: str, path: str) -> Shape:
        if isinstance(part, str):
            return self._by_name(part, space, path)
        if isinstance(part, list):
            return self._union(part, space, path)
        if not isinstance(part, Mapping) or "type" not in part:
            raise SchemaMismatch(path, f"{part!r} is not an Avro type")
        kind: object = part["type"]
        if kind == "array":
            return Array(self._inner(part.get("items"), space, path))
        if kind == "map":
            return Map(self.shape(part.get("values"), space, f"{path}[]"))
        if kind in ("record", "error", "enum", "fixed"):
            return self._declared(part, space, path)
        if not isinstance(kind, str):
            return self.shape(kind, space, path)
        found = self._by_name(kind, space, path)
        return self._logical(part, kind, found)

    def _inner(self, part: object, space: str, path: str) -> Shape:
        item = self.shape(part, space, f"{path}[]")
        # A few bytes could claim any number of such items. An unfinished record counts as
        # non-empty.
        if not smallest(item) and not (isinstance(item, Record) and not item.fields):
            raise SchemaMismatch(path, "its items have no bytes, so it can't be read")
        return item

    def _by_name(self, name: str, space: str, path: str) -> Shape:
        primitive = _PRIMITIVES.get(name)
        if primitive is not None:
            return primitive
        found = self._named.get(_full(name, space)) or self._named.get(name)
        if found is None:
            raise SchemaMismatch(path, f"{name!r} is not an Avro type")
        return found

    def _logical(self, part: Mapping[str, object], kind: str, plain: Shape) -> Shape:
        name = part.get("logicalType")
        if not isinstance(name, str):
            return plain
        if name == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(part, plain)
        logical = _LOGICAL.get((kind, name))
        return plain if logical is None else Leaf(logical)

    def _union(self, parts: list[object], space: str, path: str) -> Shape:
        made = Union(tuple(self.shape(each, space, path) for each in parts))
        if not self._is_json or len(made.real) < 2:
            return made
        for wide, narrow in ((Kind.LONG, Kind.INT), (Kind.DOUBLE, Kind.FLOAT)):
            if set(made.real) == {Leaf(wide), Leaf(narrow)}:
                return Leaf(wide)
        return Leaf(Kind.JSON)

    def _declared(self, part: Mapping[str, object], space: str, path: str) -> Shape:
        name = part.get("name")
        if not isinstance(name, str):
            raise SchemaMismatch(path, "a named type has no name")
        own = part.get("namespace")
        full = _full(name, own if isinstance(own, str) else space)
        if part["type"] == "enum":
            symbols = part.get("symbols")
            if not isinstance(symbols, list):
                raise SchemaMismatch(path, f"the enum {full} has no symbols")
            self._named[full] = Leaf(Kind.ENUM, symbols=tuple(map(str, symbols)))
        elif part["type"] == "fixed":
            size = part.get("size")
            if not isinstance(size, int) or size < 0:
                raise SchemaMismatch(path, f"the fixed {full} has no size")
            plain = Leaf(Kind.FIXED, size=size)
            self._named[full] = self._logical(part, "fixed", plain)
        else:
            record = Record(full)
            self._named[full] = record
            record.fields.extend(self._fields(part, full.rpartition(".")[0], path))
        return self._named[full]

    def _fields(self, part: Mapping[str, object], space: str, path: str) -> list[Field]:
        fields = part.get("fields")
        if not isinstance(fields, list):
            raise SchemaMismatch(path, f"the record {part['name']} has no fields")
        made: list[Field] = []
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise SchemaMismatch(path, f"the record {part['name']} has a field without a name")
            name = each["name"]
            aliases = each.get("aliases") or ()
            made.append(
                Field(
                    name,
                    self.shape(
                        each.get("type"), space, dotted("" if path == "schema" else path, name)
                    ),
                    "default" in each,
                    each.get("default"),
                    tuple(map(str, aliases)),
                )
            )
        return made


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _decimal(part: Mapping[str, object], plain: Shape) -> Shape:
    """Decimals too large for Spark stay bytes."""
    precision, scale = part.get("precision"), part.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return plain
    if not 0 < precision <= DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
        return plain
    size = plain.size if isinstance(plain, Leaf) else None
    return Leaf(Kind.DECIMAL, size=size, precision=precision, scale=scale)


_PLAIN = {
    Kind.ENUM: "int",
    Kind.DECIMAL: "bytes",
    Kind.DATE: "int",
    Kind.TIME_MILLIS: "int",
    Kind.TIME_MICROS: "long",
    Kind.TIMESTAMP_MILLIS: "long",
    Kind.TIMESTAMP_MICROS: "long",
    Kind.LOCAL_TIMESTAMP_MILLIS: "long",
    Kind.LOCAL_TIMESTAMP_MICROS: "long",
}
INNER = "v"
"""The field of a branch's record."""


def branch_name(number: int) -> str:
    """The name of the record that represents a branch of a union."""
    return f"b{number}_"


def branch_of(name: str) -> int:
    """The branch that a record represents."""
    return int(name[1:].partition("_")[0])


def plain_definition(shape: Record) -> dict[str, object]:
    """A definition for the same bytes without names and logical types: enums are numbers, and each
    branch of a union is a record of one field, so that values show their branch.
    """
    made = _Plain().of(shape)
    assert isinstance(made, dict)
    return made


class _Plain:
    def __init__(self) -> None:
        self._records: dict[Record, str] = {}
        self._count = 0

    def of(self, shape: Shape) -> object:
        if isinstance(shape, Leaf):
            if shape.size is not None:
                return {"type": "fixed", "name": self._name("f"), "size": shape.size}
            return _PLAIN.get(shape.kind, shape.kind.value)
        if isinstance(shape, Array):
            return {"type": "array", "items": self.of(shape.item)}
        if isinstance(shape, Map):
            return {"type": "map", "values": self.of(shape.value)}
        if isinstance(shape, Union):
            several = len(shape.real) > 1
            return [
                self._branch(n, b) if several else self.of(b) for n, b in enumerate(shape.branches)
            ]
        if shape in self._records:
            return self._records[shape]
        name = self._records[shape] = self._name("r")
        fields = [
            {"name": f"f{n}", "type": self.of(each.shape)} for n, each in enumerate(shape.fields)
        ]
        return {"type": "record", "name": name, "fields": fields}

    def _branch(self, number: int, shape: Shape) -> object:
        if isinstance(shape, Leaf) and shape.kind is Kind.NULL:
            return "null"
        fields = [{"name": INNER, "type": self.of(shape)}]
        return {"type": "record", "name": self._name(branch_name(number)), "fields": fields}

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"
