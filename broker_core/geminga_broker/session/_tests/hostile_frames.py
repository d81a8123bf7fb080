"""Frames with one field as large as it can be, for every field of every command (PR-16)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from geminga_protocol.encode import varint
from geminga_protocol.frames import FRAME_PADDING_BYTES, MAX_MESSAGE_SIZE_DEFAULT, SUBMESSAGE
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

LARGEST = MAX_MESSAGE_SIZE_DEFAULT + FRAME_PADDING_BYTES - 8
"""Bytes of a command without payload."""

Values = Mapping[str, object]
"""What fields of these names have: text, or a number."""

_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_FIXED64 = (FieldDescriptor.TYPE_DOUBLE,)
_DEPTH_MAX = 3
_TEXT_FILLINGS = (b"/", b"\xf0\x9f\x98\x80")
_DATA_FILLINGS = (b"x", b"[", b'{"type":"record","fields":[')


class Case(NamedTuple):
    """A field of a command, or of a message in it, and its values."""

    kind: int
    fields: tuple[FieldDescriptor, ...]
    filling: bytes
    values: Values

    @property
    def path(self) -> str:
        """For reading."""
        names = ".".join(field.name for field in self.fields)
        return f"{SUBMESSAGE[self.kind]}.{names}:{self.filling[:3].hex()}"

    def frame(self, size: int) -> bytes:
        """A frame with a command of about, but at most, that size."""
        overhead = len(self._head(0)) + 5 * (len(self.fields) + 1)
        count = max(size - overhead, 0) // len(self.filling)
        head, filled = self._head(count), self.filling * count
        command_bytes = len(head) + len(filled)
        assert command_bytes <= max(size, overhead)
        return b"".join((struct.pack(">II", command_bytes + 4, command_bytes), head, filled))

    def _head(self, count: int) -> bytes:
        """All of a command that stands before so many fillings, which are its end."""
        last = self.fields[-1]
        filled_bytes = len(self.filling) * count
        inner = b"" if last.is_repeated else _begun(last.number, filled_bytes)
        for field in reversed(self.fields):
            message = cast(Descriptor, field.containing_type)
            if field is not last:
                inner = _begun(field.number, len(inner) + filled_bytes) + inner
            inner = _others(message, field.name, self.values) + inner
        kind = b"\x08" + varint(self.kind)
        return kind + _begun(self.kind, len(inner) + filled_bytes) + inner


def cases(values: Values) -> Iterator[Case]:
    """All texts, bytes and lists of all commands."""
    for kind, name in SUBMESSAGE.items():
        body = BaseCommand.DESCRIPTOR.fields_by_name[name].message_type
        yield from _cases_in(kind, (), cast(Descriptor, body), values)


def _cases_in(
    kind: int, outer: tuple[FieldDescriptor, ...], message: Descriptor, values: Values
) -> Iterator[Case]:
    for field in message.fields:
        fields = (*outer, field)
        nested = cast("Descriptor | None", field.message_type)
        if field.is_repeated:
            for filling in _entries(field, values):
                yield Case(kind, fields, filling, values)
        elif nested is not None and len(fields) < _DEPTH_MAX:
            yield from _cases_in(kind, fields, nested, values)
        elif field.type == FieldDescriptor.TYPE_STRING:
            yield from (Case(kind, fields, filling, values) for filling in _TEXT_FILLINGS)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            yield from (Case(kind, fields, filling, values) for filling in _DATA_FILLINGS)


def _entries(field: FieldDescriptor, values: Values) -> Iterator[bytes]:
    """An entry of a list: one that lacks all, the smallest, and one with something in it."""
    nested = cast("Descriptor | None", field.message_type)
    if nested is None:
        yield _value(field, {})
        return
    yield _delimited(field.number, b"")
    yield _delimited(field.number, _others(nested, "", {}))
    full = b"".join(_value(each, values) for each in nested.fields if each.message_type is None)
    yield _delimited(field.number, full)


def _others(message: Descriptor, without: str, values: Values) -> bytes:
    """A message's other required fields, and its fields with given values."""
    return b"".join(
        _value(field, values)
        for field in message.fields
        if field.name != without and (field.is_required or field.name in values)
    )


def _value(field: FieldDescriptor, values: Values) -> bytes:
    given = values.get(field.name)
    nested = cast("Descriptor | None", field.message_type)
    if nested is not None:
        return _delimited(field.number, _others(nested, "", values))
    if field.type in _TEXTS:
        return _delimited(field.number, given.encode() if isinstance(given, str) else b"")
    if field.type in _FIXED64:
        return varint(field.number << 3 | 1) + bytes(8)
    return varint(field.number << 3) + varint(given if isinstance(given, int) else 0)


def _delimited(number: int, data: bytes) -> bytes:
    return _begun(number, len(data)) + data


def _begun(number: int, size: int) -> bytes:
    return varint(number << 3 | 2) + varint(size)
