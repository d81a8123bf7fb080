"""Storage in memory that answers when a test lets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.memory import MemoryBookie
from geminga_runtime.metadata.api import Stat, StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore

AddDone = Callable[[int, int, BookkeeperError | None], None]


class HeldStore(MemoryMetadataStore):
    """Writes of the node whose path ends with `holds` are done and not answered until `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: str | None = None
        self.fails = False
        """Whether what is held is answered with a failure then; a deletion is not done either."""
        self.reached = trio.Event()
        """Set when the first is held."""
        self._released = trio.Event()

    def release(self) -> None:
        """Answer, and hold nothing any more."""
        self.holds = None
        self._released.set()

    async def _hold(self) -> None:
        self.reached.set()
        await self._released.wait()
        if self.fails:
            raise StoreUnavailable("the connection is lost")

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        made = await super().put(
            path, value, expected_version, ephemeral=ephemeral, sequential=sequential
        )
        if self.holds is not None and path.endswith(self.holds):
            await self._hold()
        return made

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        if self.holds is not None and path.endswith(self.holds):
            await self._hold()
        await super().delete(path, expected_version)


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
