"""Decodes Avro's binary form for a look at messages: bounded, as writers choose schema and bytes.

A value of no bytes (null, an empty record) could stand in an array a billion times; so the number
of values is bounded, not only that of bytes. (fastavro has no such bound.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

VALUES_MAX = 10_000
DEPTH_MAX = 64


class BadAvro(Exception):
    """The bytes don't follow the schema, or are more than a page can show."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._values = 0
        self._named: dict[str, object] = {}

    @property
    def is_empty(self) -> bool:
        return self._at >= len(self._data)

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise BadAvro("it ends too early")
        found = self._data[self._at : self._at + count]
        self._at += count
        return found

    def long(self) -> int:
        shift = found = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > 63:
                raise BadAvro("a number is too long")

    def value(self, schema: object, depth: int = 0) -> object:
        self._values += 1
        if self._values > VALUES_MAX or depth > DEPTH_MAX:
            raise BadAvro("it has too many values to be shown")
        if isinstance(schema, list):
            index = self.long()
            if not 0 <= index < len(schema):
                raise BadAvro("it names no branch of a union")
            return self.value(schema[index], depth + 1)
        if isinstance(schema, Mapping):
            kind = schema.get("type")
            if isinstance(kind, Mapping | list):
                return self.value(kind, depth + 1)
            if isinstance(name := schema.get("name"), str):
                self._named[name] = schema
                if isinstance(space := schema.get("namespace"), str):
                    self._named[f"{space}.{name}"] = schema
            return self._complex(str(kind), schema, depth)
        return self._plain(str(schema), depth)

    def _plain(self, kind: str, depth: int) -> object:
        match kind:
            case "null":
                return None
            case "boolean":
                return self.take(1) != b"\0"
            case "int" | "long":
                return self.long()
            case "float":
                return struct.unpack("<f", self.take(4))[0]
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "bytes":
                return self.take(self.long()).hex()
            case "string":
                return self.take(self.long()).decode("utf-8", "replace")
        if kind in self._named:
            return self.value(self._named[kind], depth + 1)
        raise BadAvro(f"its schema has an unknown type {kind[:60]!r}")

    def _complex(self, kind: str, schema: Mapping[str, object], depth: int) -> object:
        match kind:
            case "record":
                return {
                    str(field.get("name")): self.value(field.get("type"), depth + 1)
                    for field in _objects(schema.get("fields"))
                }
            case "enum":
                symbols, index = schema.get("symbols"), self.long()
                if not isinstance(symbols, list) or not 0 <= index < len(symbols):
                    raise BadAvro("it names no symbol of an enum")
                return symbols[index]
            case "array":
                return [self.value(schema.get("items"), depth + 1) for _ in self._items()]
            case "map":
                return {
                    str(self._plain("string", depth)): self.value(schema.get("values"), depth + 1)
                    for _ in self._items()
                }
            case "fixed":
                length = schema.get("size")
                return self.take(length if isinstance(length, int) else -1).hex()
        return self._plain(kind, depth)

    def _items(self) -> Iterator[None]:
        """One for each item of an array or map, which the caller reads: blocks of them, each with
        its count, and its bytes if the count is negative.
        """
        while count := self.long():
            if count < 0:
                count = -count
                self.long()
            for _ in range(count):
                yield


def decoded(data: bytes, schema: object) -> object:
    """The value. Raises BadAvro."""
    reader = _Reader(data)
    value = reader.value(schema)
    if not reader.is_empty:
        raise BadAvro("bytes are left over")
    return value


def _objects(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
