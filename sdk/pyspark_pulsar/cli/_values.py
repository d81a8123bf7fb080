"""Values of results as plain data and as text. Pure, but for PySpark's types."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Sequence
from decimal import Decimal

from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    TimestampType,
)

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""What JSON has."""
_CELL_MAX = 200
"""Characters of a value that the table form shows."""


def plain(value: object, kind: DataType) -> Plain:
    """A collected value for JSON: bytes as text if they are UTF-8, else base64; decimals and
    non-finite floats as text; times in ISO 8601 (with `Z` for timestamps).
    """
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray():
            return _text_of(bytes(value))
        case datetime.datetime():
            return value.isoformat() + ("Z" if isinstance(kind, TimestampType) else "")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case Decimal() | datetime.timedelta():
            return str(value)
    if isinstance(kind, StructType) and isinstance(value, Sequence):
        return {
            field.name: plain(each, field.dataType)
            for field, each in zip(kind.fields, value, strict=True)
        }
    if isinstance(kind, ArrayType) and isinstance(value, Sequence):
        return [plain(each, kind.elementType) for each in value]
    if isinstance(kind, MapType) and isinstance(value, dict):
        return {
            _key(plain(key, kind.keyType)): plain(each, kind.valueType)
            for key, each in value.items()
        }
    return str(value)


def cell(value: object, kind: DataType) -> str:
    """The value as one line of text: records, lists and maps as JSON, null as `NULL`."""
    found = plain(value, kind)
    if isinstance(found, str):
        return found
    return "NULL" if found is None else json.dumps(found, ensure_ascii=False)


def shown(value: object, kind: DataType) -> str:
    """The text for a table: without control characters, and shortened."""
    text = "".join(
        each if each.isprintable() else repr(each)[1:-1] for each in cell(value, kind)[:_CELL_MAX]
    )
    return text if len(text) < _CELL_MAX else text[: _CELL_MAX - 1] + "…"


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, columns as wide as their longest value."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = [names, ["-" * width for width in widths], *rows]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _key(value: Plain) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
