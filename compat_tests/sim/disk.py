"""What survives a broker's death: entries that the bookie has written, and the metadata store.

A broker sees both through a door of its own life. When it dies the door closes: adds that were not
written are lost, or written though nobody was told, and nothing it still does has an effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from random import Random

import trio

from geminga_bookie.errors import BookkeeperError, StorageFailed
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import AddDone
from geminga_runtime.metadata.api import (
    ANY_VERSION,
    Node,
    Notification,
    SessionEvent,
    Stat,
    StoreUnavailable,
)
from geminga_runtime.metadata.memory import MemoryMetadataStore

from .chance import EventLog


class Disk:
    """Lives as long as the run."""

    def __init__(self, rng: Random, log: EventLog) -> None:
        self.rng = rng
        self.log = log
        self.bookie = MemoryBookie()
        self.metadata = MemoryMetadataStore()
        self.write_s = rng.choice((0.0003, 0.002, 0.02))
        self.failing = 0.0
        """Share of writes that fail."""
        self.slow_until_s = 0.0

    async def delay(self) -> None:
        """One access."""
        await trio.sleep(self.rng.random() * self.write_s)
        if trio.current_time() < self.slow_until_s:
            await trio.sleep_until(self.slow_until_s)


class _Add:
    """Entries that wait to be written."""

    __slots__ = ("done", "first", "key", "ledger_id", "packets", "recovery")

    def __init__(
        self, ledger_id: int, key: bytes, first: int, packets: Sequence[bytes], recovery: bool
    ) -> None:
        self.ledger_id = ledger_id
        self.key = key
        self.first = first
        # Views of a buffer that the caller goes on using would show a bug as other bytes.
        self.packets = [bytes(packet) for packet in packets]
        self.recovery = recovery
        self.done: AddDone


class BookieDoor:
    """The `BookiePort` of one life of a broker. Writes are grouped, and take their time."""

    def __init__(self, disk: Disk, nursery: trio.Nursery) -> None:
        self._disk = disk
        self._nursery = nursery
        self._queue: list[_Add] = []
        self._writes = False
        self.is_closed = False

    @property
    def bookie_id(self) -> str:
        return self._disk.bookie.bookie_id

    def close(self) -> None:
        """The broker dies: of what waits some is on the disk, from the front."""
        self.is_closed = True
        waiting, self._queue = self._queue, []
        if waiting and self._disk.rng.random() < 0.5:
            for add in waiting[: self._disk.rng.randint(0, len(waiting))]:
                self._write(add, _nobody)

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
        if self.is_closed:
            return
        add = _Add(ledger_id, master_key, first_entry_id, packets, recovery)
        add.done = done
        self._queue.append(add)
        if not self._writes:
            self._writes = True
            self._nursery.start_soon(self._run)

    async def _run(self) -> None:
        while self._queue:
            await self._disk.delay()
            group = self._queue[: self._disk.rng.randint(1, len(self._queue) or 1)]
            for add in group:
                self._queue.remove(add)
                error: BookkeeperError | None = None
                if self._disk.rng.random() < self._disk.failing:
                    error = StorageFailed("by the simulation")
                if error is None:
                    self._write(add, self._door(add.done))
                else:
                    add.done(add.first, len(add.packets), error)
        self._writes = False

    def _write(self, add: _Add, done: AddDone) -> None:
        self._disk.log.add(f"disk {add.ledger_id}:{add.first}+{len(add.packets)}")
        self._disk.bookie.add(
            add.ledger_id, add.key, add.first, add.packets, done, recovery=add.recovery
        )

    def _door(self, done: AddDone) -> AddDone:
        """Told only while the broker lives."""

        def through(first: int, count: int, error: BookkeeperError | None) -> None:
            if not self.is_closed:
                done(first, count, error)

        return through

    async def _enter(self) -> None:
        await self._disk.delay()
        if self.is_closed:
            raise StorageFailed("the broker is dead")

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        await self._enter()
        return await self._disk.bookie.read(
            ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
        )

    async def fence(self, ledger_id: int, master_key: bytes) -> int:
        await self._enter()
        return await self._disk.bookie.fence(ledger_id, master_key)

    async def read_lac(self, ledger_id: int) -> int:
        await self._enter()
        return await self._disk.bookie.read_lac(ledger_id)

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int) -> None:
        await self._enter()
        await self._disk.bookie.write_lac(ledger_id, master_key, lac)

    async def wait_lac(self, ledger_id: int, previous_lac: int) -> int:
        await self._enter()
        return await self._disk.bookie.wait_lac(ledger_id, previous_lac)

    async def force(self, ledger_id: int) -> None:
        while self._queue and not self.is_closed:
            await self._disk.delay()
        await self._enter()

    async def list_entries(self, ledger_id: int) -> list[int]:
        await self._enter()
        return await self._disk.bookie.list_entries(ledger_id)


def _nobody(first: int, count: int, error: BookkeeperError | None) -> None:
    """The broker that asked is dead."""


class MetadataDoor:
    """The `MetadataStore` session of one life of a broker."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._session = disk.metadata.another_session()
        self.is_closed = False

    def close(self) -> None:
        """The broker dies."""
        self.is_closed = True
        self._session.expire_session()

    async def _enter(self) -> None:
        """Time passes before the access, so that it is done or not when the broker dies."""
        await self._disk.delay()
        if self.is_closed:
            raise StoreUnavailable("the broker is dead")

    async def get(self, path: str) -> Node | None:
        await self._enter()
        return await self._session.get(path)

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        await self._enter()
        made = await self._session.put(
            path, value, expected_version, ephemeral=ephemeral, sequential=sequential
        )
        self._disk.log.add(f"put {path} {made[1].version}")
        return made

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        await self._enter()
        await self._session.delete(path, expected_version)
        self._disk.log.add(f"delete {path}")

    async def exists(self, path: str) -> bool:
        await self._enter()
        return await self._session.exists(path)

    async def children(self, path: str) -> Sequence[str]:
        await self._enter()
        return await self._session.children(path)

    def watch(
        self, prefix: str, *, events_max: int = 1024
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Notification]]:
        return self._session.watch(prefix, events_max=events_max)

    def session_events(
        self,
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[SessionEvent]]:
        return self._session.session_events()

    async def aclose(self) -> None:
        await self._session.aclose()
