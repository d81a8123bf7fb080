"""Checks of options; an error names the option."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from geminga.errors import InvalidArgumentError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Made = TypeVar("Made", bound="DataclassInstance")


NAME_BYTES_MAX = 1 << 20
"""Of a name, and of properties. They go in a command, and mostly in a node of a metadata store:
brokers close the connection at a longer command, again at each try, and ZooKeeper refuses longer
nodes.
"""

COMMAND_BYTES_MAX = NAME_BYTES_MAX + (64 << 10)
"""Of all names and properties of one command; Geminga's brokers take some more (1.25 MiB)."""
PROPERTY_BYTES = 16
"""At most so many are around a property in a command."""

OTHERS = {"subscription_type": "consumer_type"}
"""Names of Java's client that don't look like ours."""


def one(name: str) -> str:
    """The name of a class with its article."""
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"


def make(kind: type[Made], keywords: Mapping[str, object]) -> Made:
    """The options object of a call. Raises InvalidArgumentError, naming the keyword or value."""
    known = {item.name for item in dataclasses.fields(kind)}
    for name in keywords:
        if name not in known:
            raise InvalidArgumentError(f"unknown option {name!r}; {_meant(name, sorted(known))}")
    return kind(**keywords)


def _meant(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches  # costs imports that no right call needs

    word = OTHERS.get(name, name.lower())
    near = get_close_matches(word, known, 1 if word in known else 2)
    near = near or [each for each in known if word in each.split("_") or each.startswith(word)][:3]
    return f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"


def number(options: object, name: str) -> float:
    """The option's value. Raises InvalidArgumentError unless it is a number."""
    value = getattr(options, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidArgumentError(f"{name} must be a number, not {value!r}")
    return value


def positive(options: object, *names: str) -> None:
    """Raises InvalidArgumentError unless all are numbers above 0."""
    for name in names:
        if number(options, name) <= 0:
            raise InvalidArgumentError(f"{name} must be above 0, not {getattr(options, name)!r}")


def not_negative(options: object, *names: str) -> None:
    """Raises InvalidArgumentError unless all are numbers, 0 or above."""
    for name in names:
        if number(options, name) < 0:
            raise InvalidArgumentError(f"{name} must not be negative: {getattr(options, name)!r}")


def whole(options: object, *names: str, least: int = 0, most: float = math.inf) -> None:
    """Raises InvalidArgumentError unless all are whole numbers from `least` to `most`."""
    for name in names:
        if not isinstance(number(options, name), int):
            raise InvalidArgumentError(
                f"{name} must be a whole number, not {getattr(options, name)!r}"
            )
        if number(options, name) < least:
            raise InvalidArgumentError(
                f"{name} must be {least} or more, not {getattr(options, name)!r}"
            )
        if number(options, name) > most:
            raise InvalidArgumentError(
                f"{name} must be {most} or less, not {getattr(options, name)!r}"
            )


def lists_of_texts(options: object, *names: str) -> None:
    """Raises InvalidArgumentError unless all are lists of texts."""
    for name in names:
        value = getattr(options, name)
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        if not listed or not all(isinstance(each, str) and each for each in value):
            raise InvalidArgumentError(f"{name} must be a list of texts, not {value!r}")


def booleans(options: object, *names: str) -> None:
    """Raises InvalidArgumentError unless all are True or False."""
    for name in names:
        if not isinstance(getattr(options, name), bool):
            raise InvalidArgumentError(
                f"{name} must be True or False, not {getattr(options, name)!r}"
            )


def text_or_none(options: object, *names: str) -> None:
    """Raises InvalidArgumentError unless all are nonempty texts that aren't too long, or None."""
    for name in names:
        value = getattr(options, name)
        if value is not None:
            text(value, name)


def text(value: object, name: str) -> None:
    """Raises InvalidArgumentError unless it is a nonempty text that isn't too long."""
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{name} must be a text that isn't empty, not {value!r}")
    fits(name, (value,))


def fits(
    name: str,
    texts: Iterable[str | None],
    properties: Iterable[Mapping[str, str]] = (),
    bytes_max: int = NAME_BYTES_MAX,
) -> None:
    """Raises InvalidArgumentError unless all these have so many bytes at most, each property with
    what goes around it in a command.
    """
    size_bytes = 0
    for each in properties:
        texts = chain(texts, *each.items())
        size_bytes += PROPERTY_BYTES * len(each)
    size_bytes += sum(len((text or "").encode("utf-8", "surrogatepass")) for text in texts)
    if size_bytes > bytes_max:
        raise InvalidArgumentError(
            f"{name} of {size_bytes} bytes: at most {bytes_max} are possible"
        )


def of_kind(options: object, name: str, kind: type[object]) -> None:
    """Raises InvalidArgumentError unless it is of that class, or None."""
    value = getattr(options, name)
    if value is not None and not isinstance(value, kind):
        raise InvalidArgumentError(f"{name} must be {one(kind.__name__)}, not {value!r}")


def of_enum(options: object, name: str, kind: type[enum.Enum]) -> None:
    """Raises InvalidArgumentError, which names the members, unless it is one of the enum."""
    value = getattr(options, name)
    if not isinstance(value, kind):
        members = ", ".join(f"{kind.__name__}.{each}" for each in kind.__members__)
        raise InvalidArgumentError(
            f"{name} must be {one(kind.__name__)}, not {value!r}: one of {members}"
        )


def texts(values: Mapping[str, str], name: str) -> None:
    """Raises InvalidArgumentError unless keys and values are texts."""
    if not isinstance(values, Mapping):
        raise InvalidArgumentError(f"{name} must be a mapping of texts, not {values!r}")
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(f"{name} must be texts, not {key!r}: {value!r}")


def instances(values: object, name: str, kind: type) -> None:
    """Raises InvalidArgumentError unless it is a sequence of objects of that class."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidArgumentError(f"{name} must be a sequence of {kind.__name__}, not {values!r}")
    for each in values:
        if not isinstance(each, kind):
            raise InvalidArgumentError(f"{name} must be {kind.__name__} objects, not {each!r}")
