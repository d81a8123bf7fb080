"""Avro's JSON form as its bytes (Avro's specification, "JSON Encoding"; Apache's `JsonDecoder` and
`GenericDatumWriter`). The work is linear in the value, whatever the schema is: no default stands
in for a field that is missing, as in Java. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from geminga_protocol.avro_schema import AvroType

_Write = Callable[["_Out", AvroType, object], None]
_Numbers = dict[AvroType, dict[str, int]]


class NotOfSchema(ValueError):
    """A value that its schema has not; the text says what was wanted."""


class AvroWriter:
    """Writes values of one schema."""

    def __init__(self, root: AvroType) -> None:
        self._root = root
        self._numbers: _Numbers = {}

    def encode(self, value: object) -> bytes:
        """The bytes of a value of JSON. Raises NotOfSchema, and RecursionError for one that is
        nested too deep.
        """
        out = _Out(self._numbers)
        _WRITERS[self._root.kind](out, self._root, value)
        return bytes(out)


class _Out(bytearray):
    """What is written, and the numbers of symbols and branches by name: they may be many, and are
    looked for with each value.
    """

    def __init__(self, numbers: _Numbers) -> None:
        super().__init__()
        self._numbers = numbers

    def number_of(self, kind: AvroType, name: object) -> int | None:
        found = self._numbers.get(kind)
        if found is None:
            names = kind.symbols or [branch.label for branch in kind.branches]
            found = self._numbers[kind] = {each: at for at, each in enumerate(names)}
        return found.get(name) if isinstance(name, str) else None


def _refuse(kind: AvroType, value: object) -> NotOfSchema:
    return NotOfSchema(f"{kind.label} expected, not {_told(value)}")


def _told(value: object) -> str:
    """A value, shortened; large ones aren't printed as a whole."""
    if isinstance(value, dict):
        return f"an object of {len(value)} members"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    return (value if isinstance(value, str) else str(value))[:40]


def _number(out: _Out, value: int) -> None:
    """A varint of the zigzag form, of 64 bits."""
    left = (value << 1) ^ (value >> 63)
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)


def _null(_out: _Out, kind: AvroType, value: object) -> None:
    if value is not None:
        raise _refuse(kind, value)


def _boolean(out: _Out, kind: AvroType, value: object) -> None:
    if not isinstance(value, bool):
        raise _refuse(kind, value)
    out.append(value)


def _integer(bits: int, out: _Out, kind: AvroType, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(kind, value)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise _refuse(kind, value)
    _number(out, int(value))


def _real(layout: str, out: _Out, kind: AvroType, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(kind, value)
    try:
        out += struct.pack(layout, value)
    except (OverflowError, struct.error):
        raise _refuse(kind, value) from None


def _string(out: _Out, kind: AvroType, value: object) -> None:
    if not isinstance(value, str):
        raise _refuse(kind, value)
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise NotOfSchema("a text that is no Unicode") from None
    _number(out, len(data))
    out += data


def _latin(kind: AvroType, value: object) -> bytes:
    """Bytes, of which each is a character."""
    if not isinstance(value, str):
        raise _refuse(kind, value)
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise _refuse(kind, value) from None


def _bytes(out: _Out, kind: AvroType, value: object) -> None:
    data = _latin(kind, value)
    _number(out, len(data))
    out += data


def _fixed(out: _Out, kind: AvroType, value: object) -> None:
    data = _latin(kind, value)
    if len(data) != kind.size:
        raise NotOfSchema(f"{kind.label} has {kind.size} bytes, not {len(data)}")
    out += data


def _enum(out: _Out, kind: AvroType, value: object) -> None:
    number = out.number_of(kind, value)
    if number is None:
        raise _refuse(kind, value)
    _number(out, number)


def _array(out: _Out, kind: AvroType, value: object) -> None:
    if not isinstance(value, list):
        raise _refuse(kind, value)
    assert kind.items is not None
    write = _WRITERS[kind.items.kind]
    if value:
        _number(out, len(value))
    for each in value:
        write(out, kind.items, each)
    _number(out, 0)


def _map(out: _Out, kind: AvroType, value: object) -> None:
    if not isinstance(value, dict):
        raise _refuse(kind, value)
    assert kind.items is not None
    write = _WRITERS[kind.items.kind]
    if value:
        _number(out, len(value))
    for name, each in value.items():
        _string(out, kind, name)
        write(out, kind.items, each)
    _number(out, 0)


def _union(out: _Out, kind: AvroType, value: object) -> None:
    """`null`, or an object whose one name is that of its branch."""
    if value is None:
        label, inner = "null", value
    elif isinstance(value, dict) and len(value) == 1:
        [(label, inner)] = value.items()
    else:
        # Apache's brokers want this form too, whatever the console shows.
        example = next((each.label for each in kind.branches if each.label != "null"), "null")
        form = f'{{"{example[:40]}": ...}}'
        raise NotOfSchema(f"a union's value goes with its type, {form}, not {_told(value)}")
    number = out.number_of(kind, label)
    if number is None:
        raise NotOfSchema(f"no type of the union is called {str(label)[:40]}")
    branch = kind.branches[number]
    _number(out, number)
    _WRITERS[branch.kind](out, branch, inner)


def _record(out: _Out, kind: AvroType, value: object) -> None:
    if not isinstance(value, dict):
        raise _refuse(kind, value)
    # Before the fields are gone through: their number isn't bounded by the value's size.
    if len(value) != len(kind.fields):
        _tell_fields(kind, value)
    for name, each in kind.fields.items():
        if name not in value:
            raise NotOfSchema(f"{kind.label} lacks the field {name[:80]}")
        _WRITERS[each.type.kind](out, each.type, value[name])


def _tell_fields(kind: AvroType, value: dict[str, object]) -> None:
    unknown = next((name for name in value if name not in kind.fields), None)
    if unknown is not None:
        raise NotOfSchema(f"{kind.label} has no field {unknown[:80]}")
    lacks = next(name for name in kind.fields if name not in value)
    raise NotOfSchema(f"{kind.label} lacks the field {lacks[:80]}")


_WRITERS: dict[str, _Write] = {
    "null": _null,
    "boolean": _boolean,
    "int": partial(_integer, 32),
    "long": partial(_integer, 64),
    "float": partial(_real, "<f"),
    "double": partial(_real, "<d"),
    "bytes": _bytes,
    "string": _string,
    "fixed": _fixed,
    "enum": _enum,
    "array": _array,
    "map": _map,
    "union": _union,
    "record": _record,
}
