"""Calls that open an object: `await` them, or `async with`, which closes it at its end."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, NoReturn, ParamSpec, Self, TypeVar

import trio

from geminga._connection.background import close_at_end
from geminga.errors import InvalidArgumentError


class Block(ABC):
    """An object that is closed at the end of its block."""

    @abstractmethod
    async def aclose(self) -> None:
        """Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await close_at_end(self.aclose)  # noqa: ASYNC102 - shielded there


P = ParamSpec("P")
C = TypeVar("C", bound=AbstractAsyncContextManager[Any])


class Opening(Coroutine[Any, Any, C], Generic[C]):
    """A call that has not begun yet: `await` it, or enter it."""

    __slots__ = ("_call", "_opened")

    def __init__(self, call: Coroutine[Any, Any, C]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, Any, C]:
        return self._call.__await__()

    def send(self, value: Any) -> Any:
        """As of a coroutine: event loops treat it as one."""
        return self._call.send(value)

    def throw(self, *error: Any) -> Any:
        """As of a coroutine."""
        return self._call.throw(*error)

    def close(self) -> None:
        """As of a coroutine."""
        self._call.close()

    async def __aenter__(self) -> C:
        self._opened = await self._call
        return self._opened

    async def __aexit__(self, *error: Any) -> None:
        await self._opened.__aexit__(*error)  # noqa: ASYNC102 - theirs


def opening(function: Callable[P, Coroutine[Any, Any, C]]) -> Callable[P, Opening[C]]:
    """Make a coroutine function return an `Opening`."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Opening[C]:
        return Opening(function(*args, **kwargs))

    return call


class Connecting(AbstractAsyncContextManager[C]):
    """What `connect` returns: enter it by `async with`, or `await` it for a client that lasts until
    its `aclose`.
    """

    def __init__(
        self,
        entered: Callable[[], AbstractAsyncContextManager[C]],
        awaited: Callable[[], Coroutine[Any, Any, C]],
    ) -> None:
        self._enter = entered
        self._await = awaited

    def __await__(self) -> Generator[Any, Any, C]:
        return self._await().__await__()

    # Protected, as what they enter: a Ctrl-C that comes within must not skip its end.
    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> C:
        self._entered = self._enter()
        return await self._entered.__aenter__()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._entered.__aexit__(*error)  # noqa: ASYNC102 - not ours

    def __enter__(self) -> NoReturn:
        raise InvalidArgumentError(
            "use `async with` here, or geminga.blocking.connect without an event loop"
        )

    def __exit__(self, *error: object) -> None:
        """Never called."""
