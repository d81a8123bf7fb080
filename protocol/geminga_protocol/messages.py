"""Small helpers around protobuf's own typing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar, cast

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


def missing_fields(message: Message) -> str:
    """Names of the required fields that are not set, for an error's text."""
    return ", ".join(cast(_Checked, message).FindInitializationErrors())


def unknown_varint(message: Message, number: int) -> int | None:
    """The first unknown field of that number, None if there is none (or it is no varint)."""
    for field in cast(Iterable[_UnknownField], UnknownFieldSet(message)):
        if field.field_number == number and isinstance(field.data, int) and not field.wire_type:
            return field.data
    return None
