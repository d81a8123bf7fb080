"""Prepares an Avro schema for a look at messages (pure): once, so that nothing of it is looked up
for each value, and malformed parts are refused before bytes are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from geminga_broker.console.json_text import quoted

DEFINITION_CHARACTERS_MAX = 256 * 1024
TYPES_MAX = 10_000
"""Of a schema, each use of one counted."""
DEPTH_MAX = 64


class BadAvro(Exception):
    """A schema that can't be used; or bytes that don't follow it, or are too many values."""


class Plain(Enum):
    """Types that need no more said."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"


@dataclass(slots=True)
class Record:
    """Its fields in order: each name as JSON, with the colon."""

    fields: list[tuple[str, Node]] = field(default_factory=list)


@dataclass(slots=True)
class Symbols:
    """An enum: its symbols as JSON."""

    texts: list[str]


@dataclass(slots=True)
class Fixed:
    """So many bytes."""

    size: int


@dataclass(slots=True)
class Items:
    """An array, or a map, whose items have names."""

    item: Node
    is_map: bool


@dataclass(slots=True)
class Branches:
    """A union; none of its branches is one."""

    nodes: list[Node]


Node = Plain | Record | Symbols | Fixed | Items | Branches

_PLAIN: Mapping[str, Plain] = {each.value: each for each in Plain}


def prepared(definition: str) -> Node:
    """The schema of a definition. Raises BadAvro; ValueError and RecursionError for no JSON."""
    if len(definition) > DEFINITION_CHARACTERS_MAX:
        raise BadAvro("its schema is too long")
    return _Preparing().node(json.loads(definition), "", 0)


class _Preparing:
    def __init__(self) -> None:
        self._named: dict[str, Node] = {}
        self._types = 0

    def node(self, schema: object, space: str, depth: int) -> Node:
        """Of a part of the schema; `space` is the namespace around it."""
        self._types += 1
        if self._types > TYPES_MAX or depth > DEPTH_MAX:
            raise BadAvro("its schema has too many types")
        if isinstance(schema, str):
            return self._known(schema, space)
        if isinstance(schema, list):
            nodes = [self.node(each, space, depth + 1) for each in schema]
            if any(isinstance(each, Branches) for each in nodes):
                raise BadAvro("its schema has a union within a union")
            return Branches(nodes)
        if not isinstance(schema, Mapping):
            raise BadAvro("its schema has a type without a name")
        match schema.get("type"):
            case "array":
                return Items(self.node(schema.get("items"), space, depth + 1), is_map=False)
            case "map":
                return Items(self.node(schema.get("values"), space, depth + 1), is_map=True)
            case "record":
                return self._record(schema, space, depth)
            case "enum":
                texts = [quoted(each) for each in _texts(schema.get("symbols"))]
                return self._name(schema, space, Symbols(texts))[0]
            case "fixed":
                size = schema.get("size")
                if not isinstance(size, int) or size < 0:
                    raise BadAvro("its schema has a fixed type without a size")
                return self._name(schema, space, Fixed(size))[0]
            case kind:
                return self.node(kind, space, depth + 1)

    def _known(self, kind: str, space: str) -> Node:
        found = _PLAIN.get(kind) or self._named.get(_full(kind, space)) or self._named.get(kind)
        if found is None:
            raise BadAvro(f"its schema has an unknown type {kind[:60]!r}")
        return found

    def _record(self, schema: Mapping[str, object], space: str, depth: int) -> Node:
        record = Record()
        node, space = self._name(schema, space, record)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(each, Mapping) for each in fields):
            raise BadAvro("its schema has a record without fields")
        names = _texts([each.get("name") for each in fields])
        if len(set(names)) < len(names):
            raise BadAvro("its schema has a field twice")
        for name, each in zip(names, fields, strict=True):
            made = self.node(each.get("type"), space, depth + 1)
            record.fields.append((f"{quoted(name)}: ", made))
        return node

    def _name(self, schema: Mapping[str, object], space: str, node: Node) -> tuple[Node, str]:
        """The node, known by its name from now on, also to itself; and its namespace."""
        name, given = schema.get("name"), schema.get("namespace")
        if not isinstance(name, str):
            raise BadAvro("its schema has a type without a name")
        full = _full(name, given if isinstance(given, str) else space)
        if full in self._named:
            raise BadAvro(f"its schema has two types {full[:60]!r}")
        self._named[full] = node
        return node, full.rpartition(".")[0]


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _texts(value: object) -> list[str]:
    """Names. Raises BadAvro for anything else."""
    texts = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(texts) < len(value):
        raise BadAvro("its schema has names that are no strings")
    return texts
