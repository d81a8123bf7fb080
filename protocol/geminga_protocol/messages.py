"""Small helpers around protobuf's own typing, and what is wrong with a command that it could parse
(spec PR-16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple, Protocol, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from geminga_protocol.buffers import Buffer

M = TypeVar("M", bound=Message)


class _UnknownField(Protocol):
    field_number: int
    wire_type: int
    data: object


class _Checked(Protocol):
    def FindInitializationErrors(self) -> list[str]: ...


def parser(kind: type[M]) -> Callable[[Buffer], M]:
    """The message's parser. It raises DecodeError, but not for required fields that are missing.

    At run time it takes any buffer, though its stub says bytes only.
    """
    return cast(Callable[[Buffer], M], kind.FromString)


_NAMED_MAX = 10


def missing_fields(message: Message) -> str:
    """Names of up to ten missing required fields, for an error's text. It takes time in proportion
    to the message's size.
    """
    names = cast(_Checked, message).FindInitializationErrors()
    return ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")


def unknown_varint(message: Message, number: int) -> int | None:
    """The first unknown field of that number, None if there is none, or it is no varint."""
    for field in cast(Iterable[_UnknownField], UnknownFieldSet(message)):
        if field.field_number == number and isinstance(field.data, int) and not field.wire_type:
            return field.data
    return None


class _TextField(NamedTuple):
    name: str
    repeated: bool
    nested: Descriptor | None


@cache
def text_fields(descriptor: Descriptor) -> tuple[_TextField, ...]:
    """The fields that are text, or messages with text in them. Recursive messages (message ids) are
    searched once; none of them has text.
    """
    found = []
    for field in descriptor.fields:
        nested = field.message_type
        if field.type == FieldDescriptor.TYPE_STRING:
            found.append(_TextField(field.name, field.is_repeated, None))
        elif nested is not None and nested is not descriptor and text_fields(nested):
            found.append(_TextField(field.name, field.is_repeated, nested))
    return tuple(found)


def has_bad_text(message: Message) -> bool:
    """Whether a text field isn't UTF-8; proto2 then returns bytes instead of a str."""
    for field in text_fields(cast(Descriptor, message.DESCRIPTOR)):
        value = getattr(message, field.name)
        if field.repeated:
            for each in value:
                if has_bad_text(each) if field.nested is not None else isinstance(each, bytes):
                    return True
        elif field.nested is not None:
            if message.HasField(field.name) and has_bad_text(value):
                return True
        elif isinstance(value, bytes):
            return True
    return False


def text_entries(message: Message) -> int:
    """The length of the longest list of texts, or of messages with text in them."""
    longest = 0
    for field in text_fields(cast(Descriptor, message.DESCRIPTOR)):
        if field.repeated:
            longest = max(longest, len(getattr(message, field.name)))
        elif field.nested is not None and message.HasField(field.name):
            longest = max(longest, text_entries(getattr(message, field.name)))
    return longest


def text(value: str | bytes) -> str:
    """A text field of an unchecked message; invalid UTF-8 is replaced as in Java."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


_NAMED_BYTES_MAX = 4096
"""The error text names missing fields only of smaller commands."""
_ID_LISTS = {"ack": "message_id", "redeliverUnacknowledgedMessages": "message_ids"}
"""Lists of message ids, by the name of the command's field of BaseCommand."""
_ID_BYTES_MIN = 6
"""Bytes of a message id in a list: tag and length, and a ledger and an entry of one byte each."""


def fault(name: str, body: Message, size: int, entries_max: int | None) -> str | None:
    """The error in a command's body of `size` bytes, or None; `name` is that of BaseCommand's field
    for it. With `entries_max`, no list of texts may have more entries.
    """
    if entries_max is not None and text_entries(body) > entries_max:
        return f"{name} has a list of more than {entries_max} entries"
    # Cheaper than protobuf's check of each id: this many can't be complete in so few bytes.
    if name in _ID_LISTS and len(getattr(body, _ID_LISTS[name])) * _ID_BYTES_MIN > size:
        return f"{name} has message ids without ledger or entry"
    if not body.IsInitialized():
        return lacking(name, body, size)
    if has_bad_text(body):
        return f"{name} has text that is not UTF-8"
    return None


def lacking(name: str, body: Message, size: int) -> str:
    """The error of a command without required fields."""
    fields = missing_fields(body) if size < _NAMED_BYTES_MAX else "not named here"
    return f"{name} lacks required fields: {fields}"
