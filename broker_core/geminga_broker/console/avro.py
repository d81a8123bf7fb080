"""Avro's binary form as JSON text, for a look at messages: bounded, as writers choose schema and
bytes.

A value of no bytes (null, an empty record) could stand in an array a billion times; so the number
of values is bounded, not only that of bytes. (fastavro has no such bound.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from geminga_broker.console.avro_schema import (
    DEPTH_MAX,
    BadAvro,
    Branches,
    Fixed,
    Items,
    Node,
    Plain,
    Record,
    Symbols,
)
from geminga_broker.console.json_text import JsonText

VALUES_MAX = 4_000
"""A page has room for fewer: each takes at least five characters, and 16 KiB are shown."""


class _Reader:
    def __init__(self, data: bytes, out: JsonText) -> None:
        self._data = data
        self._at = 0
        self._values = 0
        self._out = out

    @property
    def is_empty(self) -> bool:
        return self._at >= len(self._data)

    def value(self, node: Node, depth: int = 0) -> None:
        self._values += 1
        if self._values > VALUES_MAX or depth > DEPTH_MAX:
            raise BadAvro("it has too many values to be shown")
        if isinstance(node, Branches):
            node = node.nodes[self._index(len(node.nodes), "branch of a union")]
        match node:
            case Record():
                self._out.begin("{")
                for name, inner in node.fields:
                    self._out.item()
                    self._out.write(name)
                    self.value(inner, depth + 1)
                self._out.end("}")
            case Items():
                self._out.begin("{" if node.is_map else "[")
                for _ in self._items():
                    self._out.item()
                    if node.is_map:
                        self._out.string(self._string())
                        self._out.write(": ")
                    self.value(node.item, depth + 1)
                self._out.end("}" if node.is_map else "]")
            case Symbols():
                self._out.write(node.texts[self._index(len(node.texts), "symbol of an enum")])
            case Fixed():
                self._out.string(self._take(node.size).hex())
            case Plain():
                self._out.value(self._plain(node))

    def _plain(self, kind: Plain) -> object:
        match kind:
            case Plain.NULL:
                return None
            case Plain.BOOLEAN:
                return self._take(1) != b"\0"
            case Plain.INT | Plain.LONG:
                return self._long()
            case Plain.FLOAT:
                return struct.unpack("<f", self._take(4))[0]
            case Plain.DOUBLE:
                return struct.unpack("<d", self._take(8))[0]
            case Plain.BYTES:
                return self._take(self._long()).hex()
            case Plain.STRING:
                return self._string()

    def _items(self) -> Iterator[None]:
        """One for each item of an array or map, which the caller reads: blocks of them, each with
        its count, and its bytes if the count is negative.
        """
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            for _ in range(count):
                yield

    def _index(self, count: int, what: str) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise BadAvro(f"it names no {what}")
        return index

    def _string(self) -> str:
        return self._take(self._long()).decode("utf-8", "replace")

    def _long(self) -> int:
        shift = found = 0
        while True:
            byte = self._take(1)[0]
            found |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > 63:
                raise BadAvro("a number is too long")

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise BadAvro("it ends too early")
        found = self._data[self._at : self._at + count]
        self._at += count
        return found


def write(data: bytes, node: Node, out: JsonText) -> None:
    """The value as text. Raises BadAvro, and Enough with the first part written."""
    reader = _Reader(data, out)
    reader.value(node)
    if not reader.is_empty:
        raise BadAvro("bytes are left over")
