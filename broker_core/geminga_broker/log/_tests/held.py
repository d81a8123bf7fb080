"""Storage in memory whose operations complete when a test lets them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.memory import MemoryBookie
from geminga_runtime.metadata.api import Node, Stat, StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore

AddDone = Callable[[int, int, BookkeeperError | None], None]


class SteppedStore(MemoryMetadataStore):
    """A store whose calls are steps; a subclass may put code around each."""

    @asynccontextmanager
    async def step(self, operation: str, path: str) -> AsyncIterator[None]:
        """Surrounds a "get", "put" or "delete"."""
        yield

    async def get(self, path: str) -> Node | None:
        async with self.step("get", path):
            return await super().get(path)

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        async with self.step("put", path):
            return await super().put(
                path, value, expected_version, epoch=epoch, sequential=sequential
            )

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        async with self.step("delete", path):
            await super().delete(path, expected_version)


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
    async def step(self, operation: str, path: str) -> AsyncIterator[None]:
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


class HeldBookie(MemoryBookie):
    """While `holding`, adds are neither stored nor completed."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = False
        self._held: list[tuple[Callable[[], None], Callable[[BookkeeperError], None]]] = []

    def add(
        self,
        ledger_id: int,
        master_key: bytes,
        first_entry_id: int,
        packets: Sequence[bytes],
        done: AddDone,
        *,
        recovery: bool = False,
    ) -> None:
        store = partial(
            super().add, ledger_id, master_key, first_entry_id, packets, done, recovery=recovery
        )
        if self.holding:
            self._held.append((store, partial(done, first_entry_id, len(packets))))
        else:
            store()

    def release(self, error: BookkeeperError | None = None) -> None:
        """Store held adds, or fail them with the error; stop holding."""
        self.holding = False
        held, self._held = self._held, []
        for store, refuse in held:
            if error is None:
                store()
            else:
                refuse(error)
