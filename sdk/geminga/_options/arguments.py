"""Checks of arguments, which name the one that is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from geminga.errors import InvalidArgument
from geminga_protocol.message_id import MessageId


def duration(value: float, name: str) -> None:
    """Raises InvalidArgument unless it is a number of seconds from 0 on."""
    kind = value.__class__
    if (kind is float or kind is int) and value >= 0:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidArgument(f"{name} must be a number of seconds from 0 on, not {value!r}")


def delay(value: float, name: str) -> None:
    """The same for one that ends."""
    duration(value, name)
    if value == math.inf:
        raise InvalidArgument(f"{name} must not be infinite")


def positive_count(value: int, name: str) -> None:
    """Raises InvalidArgument unless it is a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} must be a whole number above 0, not {value!r}")


def positive_size(value: float, name: str) -> None:
    """Raises InvalidArgument unless it is a number above 0, which may be infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidArgument(f"{name} must be a number above 0, not {value!r}")


def several(values: object, name: str) -> None:
    """Raises InvalidArgument unless it can be iterated over, and isn't a text."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{name} must be a sequence, not {values!r}")


def function(value: object, name: str) -> None:
    """Raises InvalidArgument unless it can be called."""
    if not callable(value):
        raise InvalidArgument(f"{name} must be a function, not {value!r}")


def place(to: MessageId | int) -> MessageId | int:
    """A place to seek to. Raises InvalidArgument."""
    if isinstance(to, bool) or not isinstance(to, MessageId | int):
        raise InvalidArgument(f"to must be a MessageId or ms since 1970, not {to!r}")
    if isinstance(to, int) and not 0 <= to < 1 << 63:
        raise InvalidArgument(f"to must be a time from 0 on, in ms since 1970, not {to!r}")
    return to


def texts_of(values: object, name: str) -> list[str]:
    """A text, or several, at least one. Raises InvalidArgument."""
    if isinstance(values, str):
        return [values]
    if isinstance(values, bytes) or not isinstance(values, Sequence):
        raise InvalidArgument(f"{name} must be a text or several, not {values!r}")
    found: list[str] = []
    for each in values:
        if not isinstance(each, str):
            raise InvalidArgument(f"{name} must be a text or several, not {each!r}")
        found.append(each)
    if not found:
        raise InvalidArgument(f"{name}: at least one is needed")
    return found
