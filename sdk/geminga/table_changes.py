"""Iterating over the changes of a table view (spec SDK-28)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

import trio

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=bytes)
else:
    from typing import TypeVar

    R = TypeVar("R")


class TableChanges(Generic[R]):
    """The changes of a `TableView` as they occur; created by `TableView.changes`.

    If changes of one key occur faster than the program takes them, only the latest is kept: it
    holds each key at most once.
    """

    def __init__(self, listening: set[TableChanges[R]], is_over: Callable[[], bool]) -> None:
        self._listening = listening
        self._waiting: dict[str, R | None] = {}
        self._lot = trio.lowlevel.ParkingLot()
        listening.add(self)
        # Read last: another thread may create this while the view ends.
        self._ended = is_over()

    def _put(self, key: str, value: R | None) -> None:
        self._waiting.pop(key, None)
        self._waiting[key] = value
        self._lot.unpark()

    def _end(self) -> None:
        self._ended = True
        self._listening.discard(self)
        self._lot.unpark_all()

    def close(self) -> None:
        """Collect no more changes. Idempotent."""
        self._waiting.clear()
        self._end()

    async def next_change(self) -> tuple[str, R | None] | None:
        """The next change; None after the last."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._ended:
                return None
            await self._lot.park()
        key = next(iter(self._waiting))
        return key, self._waiting.pop(key)

    def __aiter__(self) -> TableChanges[R]:
        return self

    async def __anext__(self) -> tuple[str, R | None]:
        """The next change; the iteration ends when the view is closed."""
        change = await self.next_change()
        if change is None:
            raise StopAsyncIteration
        return change
