"""Checks of arguments; an error names the argument."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from geminga.errors import InvalidArgumentError
from geminga_protocol.message_id import MessageId

logger = logging.getLogger("geminga")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def duration(value: float, name: str) -> None:
    """Raises InvalidArgumentError unless it is a number of seconds, 0 or above."""
    kind = value.__class__
    if (kind is float or kind is int) and value >= 0:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidArgumentError(f"{name} must be a number of seconds from 0 on, not {value!r}")


def delay(value: float, name: str) -> None:
    """`duration`, and finite."""
    duration(value, name)
    if value == math.inf:
        raise InvalidArgumentError(f"{name} must not be infinite")


def positive_count(value: int, name: str) -> None:
    """Raises InvalidArgumentError unless it is a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgumentError(f"{name} must be a whole number above 0, not {value!r}")


def positive_size(value: float, name: str) -> None:
    """Raises InvalidArgumentError unless it is a number above 0, or infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidArgumentError(f"{name} must be a number above 0, not {value!r}")


def several(values: object, name: str) -> None:
    """Raises InvalidArgumentError unless it is iterable and not a text."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgumentError(f"{name} must be a sequence, not {values!r}")


def function(value: object, name: str) -> None:
    """Raises InvalidArgumentError unless it is callable."""
    if not callable(value):
        raise InvalidArgumentError(f"{name} must be a function, not {value!r}")


def known_id(value: object, name: str) -> MessageId:
    """The message id. Raises InvalidArgumentError unless it is one, made of whole numbers of 64
    bits.
    """
    if not isinstance(value, MessageId):
        raise InvalidArgumentError(f"{name} must be a Message or MessageId, not {value!r}")
    numbers: tuple[object, ...] = value._key()
    if not all(isinstance(each, int) and -(1 << 63) <= each < 1 << 63 for each in numbers):
        raise InvalidArgumentError(
            f"{name}: ledger, entry, partition and batch index of its id must be whole numbers of "
            f"64 bits, not {', '.join(map(repr, numbers))}"
        )
    return value


def place(to: MessageId | datetime | int) -> MessageId | int:
    """The seek target; a time in ms since 1970. Raises InvalidArgumentError."""
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise InvalidArgumentError(f"to must be a time with its time zone, not {to!r}")
        to = (to - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(to, bool) or not isinstance(to, MessageId | int):
        raise InvalidArgumentError(
            f"to must be a MessageId, a datetime or ms since 1970, not {to!r}"
        )
    if isinstance(to, MessageId):
        return known_id(to, "to")
    if not 0 <= to < 1 << 63:
        raise InvalidArgumentError(f"to must be a time from 0 on, in ms since 1970, not {to!r}")
    return to


def topics_of(values: object) -> list[str]:
    """`texts_of` for topics; tells of a name that looks like a pattern. Raises
    InvalidArgumentError.
    """
    found = texts_of(values, "topic")
    for each in found:
        if ".*" in each:
            logger.warning(
                "topic %r is a name, not a pattern: re.compile(%r) is a pattern", each, each
            )
    return found


def texts_of(values: object, name: str) -> list[str]:
    """The list of one or several texts. Raises InvalidArgumentError."""
    if isinstance(values, str):
        return [values]
    if isinstance(values, bytes) or not isinstance(values, Sequence):
        raise InvalidArgumentError(f"{name} must be a text or several, not {values!r}")
    found: list[str] = []
    for each in values:
        if not isinstance(each, str):
            raise InvalidArgumentError(f"{name} must be a text or several, not {each!r}")
        found.append(each)
    if not found:
        raise InvalidArgumentError(f"{name}: at least one is needed")
    return found
