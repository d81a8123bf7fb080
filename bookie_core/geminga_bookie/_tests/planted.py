"""Mistakes put into running functions, to see that a test finds them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType


@contextmanager
def planted(function: Callable[..., object], old: str, new: str) -> Iterator[None]:
    """Run `function` with a piece of its source replaced, wherever it was imported to. The piece
    must stand there once: a mistake that can't be made any more is to be looked at."""
    assert isinstance(function, FunctionType)
    source = inspect.getsource(function)
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {function}"
    made: dict[str, FunctionType] = {}
    changed = textwrap.dedent(source.replace(old, new))
    exec(compile(changed, "planted", "exec"), function.__globals__, made)
    code = function.__code__
    function.__code__ = made[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = code
