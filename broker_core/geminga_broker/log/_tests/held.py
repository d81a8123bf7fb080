"""Storage in memory whose operations complete when a test lets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from geminga_bookie._tests.asked_bookie import Add, AskedBookie
from geminga_bookie.errors import BookkeeperError
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import StoreUnavailable


class HeldStore(SteppedStore):
    """Writes of the node whose path ends with `holds` are done, but return after `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: str | None = None
        self.fails = False
        """Whether held writes then raise an error; a deletion is not done either."""
        self.reached = trio.Event()
        """Set when the first write is held."""
        self._released = trio.Event()

    def release(self) -> None:
        """Complete held writes, and stop holding."""
        self.holds = None
        self._released.set()

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        """See `SteppedStore.step`."""
        if operation == "delete":
            await self._hold(path)
        yield
        if operation == "put":
            await self._hold(path)

    async def _hold(self, path: str) -> None:
        if self.holds is None or not path.endswith(self.holds):
            return
        self.reached.set()
        await self._released.wait()
        if self.fails:
            raise StoreUnavailable("the connection is lost")


class HeldBookie(AskedBookie):
    """While `holding`, adds are neither stored nor completed."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = False
        self._held: list[Add] = []

    def take(self, add: Add) -> None:
        if self.holding:
            self._held.append(add)
        else:
            self.store(add)

    def release(self, error: BookkeeperError | None = None) -> None:
        """Store held adds, or fail them with the error; stop holding."""
        self.holding = False
        held, self._held = self._held, []
        for add in held:
            if error is None:
                self.store(add)
            else:
                add.answer(error)
