"""Checks of arguments' types, with the official client's error: ValueError."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

from geminga.pulsar._listening import Lane

P = ParamSpec("P")
T = TypeVar("T")

Kinds = Mapping[str, tuple[type, bool]]
"""By name of an argument: its type, and whether it may be None."""


class Closable(Protocol):
    """What `close` closes once."""

    _is_closed: bool


@contextmanager
def closing_of(each: Closable, lanes: Iterable[Lane | None] = ()) -> Iterator[None]:
    """It is closed, and its listeners' lanes are over, unless the block raises."""
    each._is_closed = True
    over = [lane for lane in lanes if lane is not None]
    for lane in over:
        lane.end()
    try:
        yield
    except BaseException:
        each._is_closed = False
        for lane in over:
            lane.begin_again()
        raise


def staying(function: Callable[P, T]) -> Callable[P, T]:
    """For a program's function that is called in the client's own thread: there `sys.exit()` would
    end the client, not the program. It counts as an error.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception:
            raise
        except BaseException as error:  # noqa: ASYNC103 - it goes on as an ordinary error
            raise RuntimeError(f"{function!r} raised {error!r}") from error

    return call


def check_type(kind: type, value: object, name: str) -> None:
    """Raises ValueError unless it is of that type."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be of type {kind.__name__}, not {type(value).__name__}")


def check_type_or_none(kind: type, value: object, name: str) -> None:
    """`check_type`, None allowed."""
    if value is not None:
        check_type(kind, value, name)


def check_function(value: object, name: str) -> None:
    """Raises TypeError unless it can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, not {type(value).__name__}")


def check_all(kinds: Kinds, given: Mapping[str, object]) -> None:
    """Check each argument in `kinds`, in that order. Raises ValueError."""
    for name, (kind, may_be_none) in kinds.items():
        if given[name] is not None or not may_be_none:
            check_type(kind, given[name], name)


def check_texts(given: Mapping[object, object] | None, name: str) -> None:
    """Raises TypeError unless keys and values are texts."""
    for key, value in (given or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"{name} must be texts, not {key!r}: {value!r}")
