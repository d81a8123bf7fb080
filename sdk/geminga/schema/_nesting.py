"""Checks Avro payloads that fastavro's C code would trust too much: it recurses without bound in
recursive schemas (which ends the process), and creates any number of zero-byte items that an array
announces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from geminga_protocol.avro_schema import AvroSchemaError, AvroType, parse_avro

NESTING_MAX = 1000
"""Bound of nested records, unions, arrays and maps."""
EMPTY_ITEMS_MAX = 10_000
"""Bound of an array's zero-byte items."""

_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LONGS = ("int", "long", "enum")


def guard_of(definition: str) -> Callable[[bytes], None] | None:
    """A check of a schema's payloads, which raises ValueError for one that must not be read; None
    if no check is needed.
    """
    try:
        root = parse_avro(definition).root
    except AvroSchemaError:
        return None  # fastavro reports the error, or reads it in its own way
    if not _needs_guard(root):
        return None
    return lambda data: _Walk(data).through(root)


def _needs_guard(root: AvroType) -> bool:
    """Whether the schema is recursive, or has arrays of zero-byte items."""
    above: list[AvroType] = []

    def look(found: AvroType) -> bool:
        if any(found is each for each in above):
            return True
        if found.kind == "array" and found.items is not None and _may_be_empty(found.items, ()):
            return True
        above.append(found)
        try:
            return any(look(each) for each in _inner(found))
        finally:
            above.pop()

    return look(root)


def _inner(found: AvroType) -> list[AvroType]:
    own = [] if found.items is None else [found.items]
    return [*own, *found.branches, *(each.type for each in found.fields.values())]


def _may_be_empty(found: AvroType, above: tuple[AvroType, ...]) -> bool:
    """Whether a value may have zero bytes."""
    if found.kind == "record":
        if any(found is each for each in above):
            return True
        return all(_may_be_empty(each.type, (*above, found)) for each in found.fields.values())
    return found.kind == "null" or (found.kind == "fixed" and found.size == 0)


@dataclass(slots=True)
class _Blocks:
    """An array or map during the walk."""

    items: AvroType
    has_keys: bool
    left: int = 0
    seen: int = 0


class _Walk:
    """A walk through a payload, without recursion. Raises ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def through(self, root: AvroType) -> None:
        """Walk to the end of the value."""
        to_do: list[tuple[AvroType | _Blocks, int]] = [(root, 0)]
        while to_do:
            found, level = to_do.pop()
            if level > NESTING_MAX:
                raise ValueError(f"it is nested deeper than {NESTING_MAX} levels")
            if isinstance(found, _Blocks):
                if self._next_item(found):
                    to_do += [(found, level), (found.items, level + 1)]
            elif found.kind == "record":
                parts = [(each.type, level + 1) for each in found.fields.values()]
                to_do += reversed(parts)
            elif found.kind == "union":
                to_do.append((self._branch(found), level + 1))
            elif found.items is not None:
                to_do.append((_Blocks(found.items, found.kind == "map"), level))
            else:
                self._skip_plain(found)

    def _next_item(self, blocks: _Blocks) -> bool:
        if not blocks.left:
            count = self._long()
            if count < 0:
                count = -count
                self._long()  # size of the block, for skipping it; untrusted
            if not count:
                return False
            blocks.left = count
            blocks.seen += count
            if blocks.seen > max(EMPTY_ITEMS_MAX, len(self._data)):
                raise ValueError(f"an array or map announces {blocks.seen} items")
        blocks.left -= 1
        if blocks.has_keys:
            self._skip(self._long())
        return True

    def _branch(self, union: AvroType) -> AvroType:
        index = self._long()
        if not 0 <= index < len(union.branches):
            raise ValueError(f"it names branch {index} of a union of {len(union.branches)}")
        return union.branches[index]

    def _skip_plain(self, found: AvroType) -> None:
        if found.kind in _LONGS:
            self._long()
        elif found.kind == "fixed":
            self._skip(found.size)
        elif found.kind in _WIDTHS:
            self._skip(_WIDTHS[found.kind])
        else:
            self._skip(self._long())

    def _skip(self, size: int) -> None:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError(f"it ends within a value of {size} bytes")
        self._at += size

    def _long(self) -> int:
        found = shift = 0
        while True:
            if self._at >= len(self._data) or shift > 63:
                raise ValueError("it ends within a number")
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
