"""One call for all who ask for the same thing at the same time, or ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import trio

from geminga_runtime.waiters import Promise

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Runs a call in the task of its first caller; others with the same key get its outcome."""

    def __init__(self) -> None:
        self._running: dict[K, Promise[tuple[V] | None]] = {}
        """The outcome in a tuple; None if the call's task was cancelled."""

    def __len__(self) -> int:
        return len(self._running)

    async def run(self, key: K, call: Callable[[], Awaitable[V]]) -> V:
        """The call's value or error. If its first caller is cancelled, the next one calls again."""
        while (running := self._running.get(key)) is not None:
            outcome = await running.wait()
            if outcome is not None:
                return outcome[0]
        promise = self._running[key] = Promise[tuple[V] | None]()
        try:
            value = await call()
        except Exception as error:
            promise.reject(error)
            raise
        except BaseException:
            promise.resolve(None)
            raise
        else:
            promise.resolve((value,))
            return value
        finally:
            del self._running[key]


class Late(Generic[V]):
    """What is made in a thread when it is first asked for: its modules take longer to import than
    others may wait, and a program may never need them.
    """

    def __init__(self, make: Callable[[], V]) -> None:
        """`make` imports what it needs. If it raises, the next one who asks makes it anew."""
        self._make = make
        self._made: tuple[V] | None = None
        self._flight = SingleFlight[None, V]()

    async def get(self) -> V:
        """It. Raises the errors of making it."""
        if self._made is None:
            self._made = (await self._flight.run(None, self._in_thread),)
        return self._made[0]

    async def _in_thread(self) -> V:
        return await trio.to_thread.run_sync(self._make)
