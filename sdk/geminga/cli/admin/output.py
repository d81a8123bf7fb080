"""What commands print: texts and JSON as pulsar-admin prints them, or aligned tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

FORMATS = ("auto", "json", "table")
"""As pulsar-admin, always JSON, or a table."""


def rendered(value: object, form: str) -> str:
    """The text for a value; empty for None."""
    if value is None:
        return "null" if form == "json" else ""
    if form == "table":
        return "\n".join(table(value))
    if form == "json" or not _is_plain(value):
        return pretty(value)
    items = value if isinstance(value, list) else [value]
    return "\n".join(item if isinstance(item, str) else pretty(item) for item in items)


def _is_plain(value: object) -> bool:
    """Whether it is one text, or a list whose items stand on lines of their own."""
    return isinstance(value, str | list)


def pretty(value: object, indent: str = "") -> str:
    """JSON as Jackson's default printer writes it: members on lines, items of a list on one."""
    if isinstance(value, Mapping):
        if not value:
            return "{ }"
        inner = indent + "  "
        members = (
            f"{inner}{json.dumps(key)} : {pretty(each, inner)}" for key, each in value.items()
        )
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(value, list | tuple):
        if not value:
            return "[ ]"
        return "[ " + ", ".join(pretty(each, indent) for each in value) + " ]"
    return json.dumps(value, ensure_ascii=False)


def table(value: object) -> list[str]:
    """Lines of a table: a row for each item of a list, or member of an object."""
    if isinstance(value, Mapping):
        if value and all(isinstance(each, Mapping) for each in value.values()):
            return aligned(_rows([{"name": name, **each} for name, each in value.items()]))
        return aligned([[str(key), _cell(each)] for key, each in value.items()])
    if isinstance(value, list):
        if value and all(isinstance(each, Mapping) for each in value):
            return aligned(_rows(value))
        return [_cell(each) for each in value]
    return [_cell(value)]


def _rows(items: Sequence[Mapping[str, object]]) -> list[list[str]]:
    """A head of all members' names, and a row for each item."""
    names = list(dict.fromkeys(name for item in items for name in item))
    head = [name.upper() for name in names]
    return [head, *([_cell(item.get(name)) for name in names] for item in items)]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows with columns of one width each; the last one ends where it ends."""
    if not rows:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows]  # fmt: skip
