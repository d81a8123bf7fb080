"""Payloads as text for a page, by the topic's schema (pure). Not more than a page can show."""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

from geminga_broker.console import avro

SHOWN_BYTES_MAX = 16 * 1024
"""Of a payload; more is cut off. Larger ones are not decoded."""
DECODED_BYTES_MAX = 64 * 1024
HEX_BYTES_MAX = 1024

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


def shown(data: bytes, kind: str, definition: str) -> Shown:
    """The payload by a schema's type and definition; without a schema as text or as bytes."""
    if not data:
        return Shown("", "empty")
    if len(data) > DECODED_BYTES_MAX:
        return _plain(data, f"only the first part of {len(data)} bytes is shown, not decoded")
    try:
        found = _by_schema(data, kind, definition)
    except (avro.BadAvro, ValueError, struct.error, RecursionError) as error:
        return _plain(data, f"not decoded as {kind}: {error}")
    return _plain(data) if found is None else _cut(Shown(found, kind))


def _by_schema(data: bytes, kind: str, definition: str) -> str | None:
    """None for a schema that says nothing about bytes. Raises BadAvro, ValueError, struct.error."""
    if kind == "STRING":
        return data.decode()
    if kind == "JSON":
        return _json(json.loads(data))
    if kind == "AVRO":
        return _json(avro.decoded(data, json.loads(definition)))
    if form := _NUMBERS.get(kind):
        return str(struct.unpack(form, data)[0])
    return None


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


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
            return Shown(_json(json.loads(text)), "JSON text", note)
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
    note = found.note or "only the first part is shown"
    return Shown(found.text[:SHOWN_BYTES_MAX], found.form, note)
