"""Avro schemas that others register for `__change_events`: which of them it is safe to read by.

Whoever may publish to the topic chooses the schema of what he publishes. A schema that contains
itself, or lists of what takes no bytes, lets a message of some bytes take all memory, all time, or
the stack of the decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from geminga_broker.cluster.records import JsonObject

DEPTH_MAX = 64
"""Of schemas within schemas; Apache's has 9."""


class UnsafeSchema(Exception):
    """Nothing is read by this schema."""


def check_schema(schema: object) -> None:
    """Raises UnsafeSchema for a schema that contains itself, one of lists whose items may take no
    bytes, one that is too deep, and what is no schema.
    """
    _Check().least_bytes(schema, "", ())


class _Check:
    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        """The least bytes of a value of each named type."""

    def least_bytes(self, schema: object, space: str, within: tuple[str, ...]) -> int:
        """The least that a value of the schema takes. `within` are the named types around it."""
        if len(within) > DEPTH_MAX:
            raise UnsafeSchema("too deep")
        if isinstance(schema, str):
            return self._of_name(schema, space, within)
        if isinstance(schema, list):
            for each in schema:
                self.least_bytes(each, space, (*within, ""))
            return 1
        if not isinstance(schema, dict):
            raise UnsafeSchema("no Avro schema")
        made = cast(JsonObject, schema)
        kind = made.get("type")
        if kind == "array":
            if self.least_bytes(made.get("items"), space, (*within, "")) == 0:
                raise UnsafeSchema("a list of what takes no bytes")
            return 1
        if kind == "map":
            self.least_bytes(made.get("values"), space, (*within, ""))
            return 1
        if kind in ("record", "enum", "fixed"):
            return self._of_named(made, space, within)
        return self.least_bytes(kind, space, (*within, ""))

    def _of_name(self, name: str, space: str, within: tuple[str, ...]) -> int:
        full = name if "." in name or not space else f"{space}.{name}"
        if full in within or name in within:
            raise UnsafeSchema(f"{name} contains itself")
        for each in (full, name):
            if each in self._known:
                return self._known[each]
        if name not in _PRIMITIVE_BYTES:
            raise UnsafeSchema(f"{name} is not defined")
        return _PRIMITIVE_BYTES[name]

    def _of_named(self, schema: JsonObject, space: str, within: tuple[str, ...]) -> int:
        name = schema.get("name")
        if not isinstance(name, str):
            raise UnsafeSchema("a type without a name")
        own = schema.get("namespace", space)
        space = name.rpartition(".")[0] or (own if isinstance(own, str) else "")
        full = name if "." in name or not space else f"{space}.{name}"
        found = 1
        if schema["type"] == "fixed":
            size = schema.get("size")
            found = size if isinstance(size, int) else 0
        elif schema["type"] == "record":
            fields = schema.get("fields")
            found = sum(
                self.least_bytes(each.get("type"), space, (*within, full))
                for each in (fields if isinstance(fields, list) else [])
                if isinstance(each, Mapping)
            )
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
