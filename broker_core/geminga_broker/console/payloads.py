"""Payloads as text for a page, by the topic's schema (pure). Not more than a page can show."""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from geminga_broker.console import avro
from geminga_broker.console.avro_schema import BadAvro, Node, prepared
from geminga_broker.console.json_text import Enough, JsonText

SHOWN_BYTES_MAX = 16 * 1024
"""Of a payload; more is cut off. Larger ones are not decoded."""
DECODED_BYTES_MAX = 64 * 1024
HEX_BYTES_MAX = 1024
CUT = "only the first part is shown"

_NUMBERS: Mapping[str, str] = {
    "INT8": ">b", "INT16": ">h", "INT32": ">i", "INT64": ">q", "FLOAT": ">f", "DOUBLE": ">d",
    "DATE": ">q", "TIME": ">q", "TIMESTAMP": ">q", "BOOLEAN": ">?",
}  # fmt: skip


class Shown(NamedTuple):
    """A payload as text."""

    text: str
    form: str
    """How it was read: AVRO, JSON, text, bytes, ..."""
    note: str = ""
    """Why it wasn't decoded, or that it is cut."""


class Payloads:
    """Those of one schema, whose definition is read once, when the first of them needs it."""

    def __init__(self, kind: str = "NONE", definition: str = "") -> None:
        self._kind = kind
        self._definition = definition
        self._node: Node | BadAvro | None = None

    @property
    def definition_size(self) -> int:
        """Characters of the schema's definition."""
        return len(self._definition)

    def shown(self, data: bytes) -> Shown:
        """A payload by the schema's type and definition; without a schema as text or as bytes."""
        if not data:
            return Shown("", "empty")
        if len(data) > DECODED_BYTES_MAX:
            return _plain(data, f"only the first part of {len(data)} bytes is shown, not decoded")
        try:
            found = self._by_schema(data)
        except (BadAvro, ValueError, struct.error, RecursionError) as error:
            return _plain(data, f"not decoded as {self._kind}: {error}")
        return _plain(data) if found is None else found

    def _by_schema(self, data: bytes) -> Shown | None:
        """None for a schema that says nothing about bytes. Raises BadAvro, ValueError,
        struct.error, RecursionError.
        """
        if self._kind == "STRING":
            return _cut(Shown(data.decode(), self._kind))
        if self._kind == "JSON":
            return _json(json.loads(data), self._kind)
        if self._kind == "AVRO":
            node = self._prepared()
            return _written(lambda out: avro.write(data, node, out), self._kind)
        if form := _NUMBERS.get(self._kind):
            return Shown(str(struct.unpack(form, data)[0]), self._kind)
        return None

    def _prepared(self) -> Node:
        """Raises BadAvro."""
        if self._node is None:
            try:
                self._node = prepared(self._definition)
            except (ValueError, RecursionError):
                self._node = BadAvro("its schema can't be read")
            except BadAvro as error:
                self._node = error
        if isinstance(self._node, BadAvro):
            raise BadAvro(*self._node.args)
        return self._node


def _json(value: object, form: str, note: str = "") -> Shown:
    return _written(lambda out: out.value(value), form, note)


def _written(write: Callable[[JsonText], None], form: str, note: str = "") -> Shown:
    out = JsonText(SHOWN_BYTES_MAX)
    try:
        write(out)
    except Enough:
        return Shown(out.text, form, note or CUT)
    return Shown(out.text, form, note)


def _plain(data: bytes, note: str = "") -> Shown:
    """As text if it is printable, else as bytes."""
    try:
        # A cut may stand within a character, which is then left out.
        reader = codecs.getincrementaldecoder("utf-8")()
        text = reader.decode(data[:SHOWN_BYTES_MAX], final=len(data) <= SHOWN_BYTES_MAX)
    except UnicodeDecodeError:
        return _bytes(data, note)
    if any(not char.isprintable() and char not in "\n\r\t" for char in text):
        return _bytes(data, note)
    if text.lstrip()[:1] in ("{", "[") and len(data) <= SHOWN_BYTES_MAX:
        try:
            return _json(json.loads(text), "JSON text", note)
        except (ValueError, RecursionError):
            pass
    return _cut(Shown(text, "text", note), len(data) > SHOWN_BYTES_MAX)


def _bytes(data: bytes, note: str) -> Shown:
    """Rows of 16 bytes, with their letters."""
    rows = []
    for at in range(0, min(len(data), HEX_BYTES_MAX), 16):
        row = data[at : at + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:06x}  {row.hex(' '):<47}  {letters}")
    if len(data) > HEX_BYTES_MAX and not note:
        note = f"the first {HEX_BYTES_MAX} of {len(data)} bytes"
    return Shown("\n".join(rows), "bytes", note)


def _cut(found: Shown, is_cut: bool = False) -> Shown:
    if len(found.text) <= SHOWN_BYTES_MAX and not is_cut:
        return found
    note = found.note or CUT
    return Shown(found.text[:SHOWN_BYTES_MAX], found.form, note)
