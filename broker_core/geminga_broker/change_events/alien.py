"""Avro schemas that others register for `__change_events`: which of them it is safe to read by.

Whoever may publish to the topic chooses the schema of what he publishes. A schema that contains
itself, or lists of what takes no bytes, lets a message of some bytes take all memory, all time, or
the stack of the decoder; one of wide records a thousand times its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from geminga_broker.cluster.records import JsonObject

DEPTH_MAX = 64
"""Of schemas within schemas; Apache's has 9."""

WIDTH_MAX = 10_000
"""Values of a message without its lists and maps; Apache's has some hundred."""


class UnsafeSchema(Exception):
    """Nothing is read by this schema."""


class Size(NamedTuple):
    """Of what a schema describes: the least bytes, and the most values, lists and maps empty."""

    least_bytes: int
    values: int


def values_per_byte(schema: object) -> int:
    """The most values that a byte of a message's lists and maps can become. Raises UnsafeSchema for
    a schema that contains itself, one of lists whose items may take no bytes, one that is too deep
    or too wide, and what is no schema.
    """
    check = _Check()
    check.size_of(schema, "", ())
    return check.values_per_byte


class _Check:
    def __init__(self) -> None:
        self._known: dict[str, Size] = {}
        self.values_per_byte = 1

    def size_of(self, schema: object, space: str, within: tuple[str, ...]) -> Size:
        """The size of a value of the schema. `within` are the named types around it."""
        if len(within) > DEPTH_MAX:
            raise UnsafeSchema("too deep")
        if isinstance(schema, str):
            return self._of_name(schema, space, within)
        if isinstance(schema, list):
            branches = [self.size_of(each, space, (*within, "")) for each in schema]
            return Size(1, max((each.values for each in branches), default=1))
        if not isinstance(schema, dict):
            raise UnsafeSchema("no Avro schema")
        made = cast(JsonObject, schema)
        kind = made.get("type")
        if kind == "array":
            return self._of_items(self.size_of(made.get("items"), space, (*within, "")))
        if kind == "map":
            value = self.size_of(made.get("values"), space, (*within, ""))
            return self._of_items(Size(1 + value.least_bytes, 1 + value.values))
        if kind in ("record", "enum", "fixed"):
            return self._of_named(made, space, within)
        return self.size_of(kind, space, (*within, ""))

    def _of_items(self, item: Size) -> Size:
        if item.least_bytes == 0:
            raise UnsafeSchema("a list of what takes no bytes")
        ratio = -(-item.values // item.least_bytes)
        self.values_per_byte = max(self.values_per_byte, ratio)
        return Size(1, 1)

    def _of_name(self, name: str, space: str, within: tuple[str, ...]) -> Size:
        full = name if "." in name or not space else f"{space}.{name}"
        if full in within or name in within:
            raise UnsafeSchema(f"{name} contains itself")
        for each in (full, name):
            if each in self._known:
                return self._known[each]
        if name not in _PRIMITIVE_BYTES:
            raise UnsafeSchema(f"{name} is not defined")
        return Size(_PRIMITIVE_BYTES[name], 1)

    def _of_named(self, schema: JsonObject, space: str, within: tuple[str, ...]) -> Size:
        name = schema.get("name")
        if not isinstance(name, str):
            raise UnsafeSchema("a type without a name")
        own = schema.get("namespace", space)
        space = name.rpartition(".")[0] or (own if isinstance(own, str) else "")
        full = name if "." in name or not space else f"{space}.{name}"
        found = Size(1, 1)
        if schema["type"] == "fixed":
            size = schema.get("size")
            found = Size(max(size, 0) if isinstance(size, int) else 0, 1)
        elif schema["type"] == "record":
            fields = schema.get("fields")
            sizes = [
                self.size_of(each.get("type"), space, (*within, full))
                for each in (fields if isinstance(fields, list) else [])
                if isinstance(each, Mapping)
            ]
            values = 1 + sum(each.values for each in sizes)
            if values > WIDTH_MAX:
                raise UnsafeSchema("too wide")
            found = Size(sum(each.least_bytes for each in sizes), values)
        self._known[full] = found
        return found


_PRIMITIVE_BYTES = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}
