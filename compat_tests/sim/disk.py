"""What survives a broker's death: the bookie's disk, and the metadata store.

The bookie is the one on disk, on a disk in memory that loses power (docs/decisions/0021); its
blocking work takes virtual time. A broker sees it, and the metadata store, through a door of its
own life. When it dies the door closes: what was not written is lost, or written though nobody was
told, and nothing it still does has an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

import trio

from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_stores import SimStores
from geminga_bookie._tests.sim_workers import TaskWorkers
from geminga_bookie.errors import BookkeeperError, StorageFailed
from geminga_bookie.host import Host
from geminga_bookie.options import BookieOptions, DiskOptions, GcOptions, JournalOptions
from geminga_bookie.port import AddDone, BookieInfo, BookiePort, LacAnswer
from geminga_runtime.metadata.api import (
    ANY_VERSION,
    MetadataError,
    Node,
    Stat,
    StoreUnavailable,
    Writes,
)
from geminga_runtime.metadata.beneath import SessionBeneath
from geminga_runtime.metadata.memory import MemoryMetadataStore

from .chance import EventLog

ResultT = TypeVar("ResultT")
CAPACITY_BYTES = 64 * 1024 * 1024


class Disk:
    """Lives as long as the run."""

    def __init__(self, rng: Random, log: EventLog) -> None:
        self.rng = rng
        self.log = log
        self.files = SimDisk(rng.random(), capacity_bytes=CAPACITY_BYTES)
        self.files.in_step = lambda operation, path: log.add(f"disk {operation} {path.name}")
        self.metadata = MemoryMetadataStore()
        self.write_s = rng.choice((0.0003, 0.002, 0.02))
        self.slow_until_s = 0.0
        self.options = _options(rng)

    def set_failing(self, share: float) -> None:
        """So many writes and syncs of files fail from now on."""
        self.files.fault = lambda operation, _path: (
            5 if operation in ("write", "sync") and self.rng.random() < share else 0
        )

    def set_full(self, left_bytes: int | None) -> None:
        """There is so much room from now on; None: as much as before."""
        used = self.files.root.size_bytes
        self.files.capacity_bytes = CAPACITY_BYTES if left_bytes is None else used + left_bytes

    def host(self, nursery: trio.Nursery) -> Host:
        """What a bookie of one life stands on."""
        return Host(self.files, SimStores(self.files), TaskWorkers(nursery, self.access_s))

    def access_s(self) -> float:
        """How long one access takes that begins now."""
        slow_s = max(0.0, self.slow_until_s - trio.current_time())
        return slow_s + self.rng.random() * self.write_s

    async def delay(self) -> None:
        """One access."""
        await trio.sleep(self.access_s())


def _options(rng: Random) -> BookieOptions:
    """Small files, so that they roll over, are used again, collected and compacted."""
    return BookieOptions(
        bookie_id="bookie:3181",
        journal_dirs=(Path("/data/journal"),),
        ledger_dirs=(Path("/data/ledgers"),),
        write_cache_bytes=rng.choice((16, 256)) * 1024,
        read_cache_bytes=rng.choice((0, 64)) * 1024,
        flush_interval_s=rng.choice((0.5, 5.0, 60.0)),
        entry_log_bytes_max=rng.choice((4, 64)) * 1024,
        journal=JournalOptions(
            segment_bytes=64 * 1024,
            first_segment_bytes=32 * 1024,
            backups_max=rng.choice((0, 2)),
            ahead_bytes=8 * 1024,
        ),
        gc=GcOptions(
            gc_interval_s=3.0,
            minor_interval_s=10.0,
            minor_threshold=0.6,
            compaction_rate_bytes_s=1 << 50,
            scrub_interval_s=20.0,
        ),
        disk=DiskOptions(check_interval_s=2.0, ballast_bytes=0),
    )


class BookieDoor:
    """The `BookiePort` of one life of a broker."""

    def __init__(self, disk: Disk, bookie: BookiePort, nursery: trio.Nursery) -> None:
        self._disk = disk
        self._bookie = bookie
        self._nursery = nursery
        self.is_closed = False

    @property
    def bookie_id(self) -> str:
        return self._bookie.bookie_id

    def close(self) -> None:
        """The broker dies: it is told nothing any more."""
        self.is_closed = True

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
        if not self.is_closed:
            self._bookie.add(
                ledger_id, master_key, first_entry_id, packets, self._door(done), recovery=recovery
            )

    def _door(self, done: AddDone) -> AddDone:
        """Told only while the broker lives."""

        def through(first: int, count: int, error: BookkeeperError | None) -> None:
            if not self.is_closed:
                done(first, count, error)

        return through

    def _enter(self) -> None:
        if self.is_closed:
            raise StorageFailed("the broker is dead")

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        self._enter()
        return await self._bookie.read(
            ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
        )

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        self._enter()
        return await self._bookie.fence(ledger_id, master_key)

    async def read_lac(self, ledger_id: int) -> LacAnswer:
        self._enter()
        return await self._bookie.read_lac(ledger_id)

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int, packet: bytes) -> None:
        self._enter()
        await self._bookie.write_lac(ledger_id, master_key, lac, packet)

    async def last_entry(self, ledger_id: int) -> bytes:
        self._enter()
        return await self._bookie.last_entry(ledger_id)

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        self._enter()
        return await self._bookie.wait_entry(ledger_id, entry_id, previous_lac)

    async def force(self, ledger_id: int) -> None:
        self._enter()
        await self._bookie.force(ledger_id)

    async def list_entries(self, ledger_id: int) -> list[int]:
        self._enter()
        return await self._bookie.list_entries(ledger_id)

    async def info(self) -> BookieInfo:
        self._enter()
        return await self._bookie.info()


class MetadataDoor(SessionBeneath):
    """The `MetadataStore` session of one life of a broker; does as SQLite's does: a change is seen
    when its commit is synced. Of commits under way when power is lost or the broker is killed, the
    first ones are on the disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._session = disk.metadata.another_session()
        super().__init__(self._session)
        self._commits: list[Callable[[], object]] = []
        self.is_closed = False

    def close(self) -> None:
        """The broker dies."""
        self.is_closed = True
        for commit in self._commits[: self._disk.rng.randint(0, len(self._commits))]:
            try:
                commit()
            except MetadataError:
                continue
        self._session.expire_session()

    async def _enter(self) -> None:
        """Time passes before the access, so that it is done or not when the broker dies."""
        await self._disk.delay()
        self._check_alive()

    def _check_alive(self) -> None:
        if self.is_closed:
            raise StoreUnavailable("the broker is dead")

    async def _commit(self, change: Callable[[], ResultT]) -> ResultT:
        await self._enter()
        self._commits.append(change)
        try:
            await self._disk.delay()
            self._check_alive()
            return change()
        finally:
            self._commits.remove(change)

    async def get(self, path: str) -> Node | None:
        await self._enter()
        return await self._session.get(path)

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        session = self._session
        request = session.put_request(path, value, expected_version, epoch, sequential)

        def change() -> tuple[str, Stat]:
            session.check_epoch(epoch)
            made, stat = session.put_now(request)
            self._disk.log.add(f"put {made} {stat.version}")
            return made, stat

        return await self._commit(change)

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        def change() -> tuple[int, Sequence[int]]:
            number, versions = self._session.put_numbered_now(at, writes)
            self._disk.log.add(f"put {number} {versions}")
            return number, versions

        return await self._commit(change)

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        def change() -> None:
            self._session.delete_now(path, expected_version)
            self._disk.log.add(f"delete {path}")

        await self._commit(change)

    async def exists(self, path: str) -> bool:
        await self._enter()
        return await self._session.exists(path)

    async def children(self, path: str) -> Sequence[str]:
        await self._enter()
        return await self._session.children(path)
