"""Bookies on disks in memory: started, killed, started again by their supervisor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Protocol

import trio

from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_stores import SimStores
from geminga_bookie._tests.sim_workers import TaskWorkers
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.errors import DataDirError
from geminga_bookie.host import Host
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.options import (
    BookieOptions,
    DiskOptions,
    GcOptions,
    JournalOptions,
    LiveLedgers,
)
from geminga_bookie.port import BookiePort
from geminga_bookie.process.run import open_member
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import MUST_NOT_EXIST, MetadataError
from geminga_runtime.metadata.memory import MemoryMetadataStore

from .keeper import KeeperDoor
from .network import Network

EndDoubts = Callable[[InProcessBookie, KeeperDoor], Awaitable[None]]
JOURNAL = Path("/data/journal")
CAPACITY_BYTES = 16 * 1024 * 1024
RETRY_S = 0.5
"""A bookie that couldn't start is started again after this time."""

LOST_RETRY_S = 30.0
"""One whose disk was lost less often, since that has its price."""


class Resettable(Protocol):
    """A connection."""

    def reset(self) -> None:
        """It is lost."""


class Life:
    """One life of a bookie."""

    def __init__(self, port: BookiePort, nursery: trio.Nursery) -> None:
        self.port = port
        self._nursery = nursery

    def serve(self, work: Callable[[Life], Awaitable[None]]) -> None:
        """Answer a request; it ends with this life."""
        self._nursery.start_soon(work, self)


def options(bookie_id: str, rng: Random) -> BookieOptions:
    """Small files, so that they roll over, are used again, collected and compacted."""
    return BookieOptions(
        bookie_id=bookie_id,
        journal_dirs=(JOURNAL,),
        ledger_dirs=(Path("/data/ledgers"),),
        write_cache_bytes=rng.choice((128, 512)) * 1024,
        read_cache_bytes=rng.choice((0, 64, 64)) * 1024,
        flush_interval_s=rng.choice((1.5, 10.0, 60.0)),
        entry_log_bytes_max=rng.choice((4, 32)) * 1024,
        replicas_elsewhere=True,
        journal=JournalOptions(
            segment_bytes=32 * 1024,
            first_segment_bytes=16 * 1024,
            backups_max=0,
            ahead_bytes=8 * 1024,
        ),
        gc=GcOptions(
            gc_interval_s=rng.choice((7.0, 30.0)),
            minor_interval_s=30.0,
            minor_threshold=0.6,
            compaction_rate_bytes_s=1 << 50,
            scrub_interval_s=float("inf"),
        ),
        disk=DiskOptions(check_interval_s=10.0, ballast_bytes=0),
    )


class BookieProcess:
    """One bookie's machine: its disk outlives its lives."""

    def __init__(
        self,
        bookie_id: str,
        tree: MemoryMetadataStore,
        network: Network,
        rng: Random,
        session_s: float,
    ) -> None:
        self.bookie_id = bookie_id
        self.files = SimDisk(rng.random(), capacity_bytes=CAPACITY_BYTES)
        self.life: Life | None = None
        self.refuses = True
        """Whether connections are refused while it is away, rather than never answered."""
        self.wires: list[Resettable] = []
        self.is_lost = False
        """Its disk was lost: it must not start again under its id."""
        self.came_back = False
        """It did."""
        self.slow_until_s = 0.0
        self.down_s = 0.0
        self.store: KeeperDoor | None = None
        self.has_served = False
        self.acknowledged: dict[int, set[int]] = {}
        """Entries of each ledger that some client was told are stored."""
        self.heals_begun = 0
        self._end_doubts: EndDoubts | None = None
        self._in_doubt = False
        self._options = options(bookie_id, rng)
        self._write_s = rng.choice((0.0003, 0.002, 0.02))
        self._tree = tree
        self._network = network
        self._rng = rng
        self._session_s = session_s
        self._with_power = True
        self._stop = trio.Event()
        self._nursery: trio.Nursery | None = None
        """Of the life that goes on."""

    def heals(self, end_doubts: EndDoubts) -> None:
        """Others heal it after the loss of its disk; and after a kill, if its journal isn't synced,
        which half of them don't do."""
        self._end_doubts = end_doubts
        journal = replace(self._options.journal, sync_data=self._rng.random() < 0.5)
        self._options = replace(self._options, journal=journal, heals_lost_disks=True)

    @property
    def can_heal(self) -> bool:
        """Whether others heal it."""
        return self._end_doubts is not None

    @property
    def is_hurt(self) -> bool:
        """Whether it may lack what it acknowledged, now or soon."""
        return self._in_doubt or self.files.crash_at >= 0

    def has_no_doubts(self) -> None:
        """The others have told."""
        self._in_doubt = False

    # ---- faults ----

    def kill(self, *, power: bool, steps: int, down_s: float) -> None:
        """The process is gone, at once or in so many steps of its disk; with `power` also all that
        was not synced."""
        if self._nursery is None:
            return
        self.down_s, self._with_power = down_s, not power
        self.refuses = not power
        if steps:
            self.files.crashed = self._die
            self.files.crash_at = self.files.steps + steps
        else:
            self._die()

    def stop(self, down_s: float) -> None:
        """An orderly stop."""
        self.down_s, self.refuses = down_s, True
        self._stop.set()

    def lose_disk(self, down_s: float) -> None:
        """The disk is gone, and an empty one in its place."""
        self.is_lost = self._end_doubts is None
        self._in_doubt = True
        has_journal = self.files.find(JOURNAL) is not None
        self.kill(power=True, steps=0, down_s=down_s)
        self.files.stop()
        if self.can_heal and has_journal and self._rng.random() < 0.6:
            # That of the journal only.
            parent = self.files.directory(JOURNAL.parent)
            parent.change(JOURNAL.name, None, None)
            parent.flush()
            return
        self.files = SimDisk(self._rng.random(), capacity_bytes=CAPACITY_BYTES)

    def set_failing(self, share: float) -> None:
        """So many writes and syncs of files fail from now on."""
        self.files.fault = lambda operation, _path: (
            5 if operation in ("write", "sync") and self._rng.random() < share else 0
        )

    def set_full(self, left_bytes: int | None) -> None:
        """There is so much room from now on; None: as much as before."""
        used = self.files.root.size_bytes
        self.files.capacity_bytes = CAPACITY_BYTES if left_bytes is None else used + left_bytes

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.files.crash_at = -1
        self.files.fault = lambda _operation, _path: 0
        self.set_full(None)
        self.slow_until_s = self.down_s = 0.0

    def _die(self) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery is None:
            return
        self.life = None
        self._in_doubt = True
        self._network.log.add(f"{self.bookie_id} dies")
        self.files.stop()
        if self.store is not None:
            self.store.close()
        if self.refuses:
            self._lose_connections()
        nursery.cancel_scope.cancel()

    def _lose_connections(self) -> None:
        for wire in self.wires:
            wire.reset()

    # ---- lives ----

    async def living(self) -> Life:
        """The life that goes on, once there is one."""
        while (life := self.life) is None:  # noqa: ASYNC110 - only the last checks wait for one
            await trio.sleep(0.5)
        return life

    def _access_s(self) -> float:
        slow_s = max(0.0, self.slow_until_s - trio.current_time())
        return slow_s + self._rng.random() * self._write_s

    async def run(self) -> None:
        """Its supervisor: one life after the other."""
        while True:
            files = self.files
            await self._live()
            if files is self.files and files.is_off:
                if self._with_power:
                    files.start_after_kill()
                else:
                    files.start_after_power_loss()
            self._with_power = True
            retry_s = LOST_RETRY_S if self.is_lost else RETRY_S
            await trio.sleep(max(self.down_s, retry_s * self._rng.random()))

    async def _live(self) -> None:
        door = KeeperDoor(self.bookie_id, self._tree, self._network, self._session_s)
        self.store = door
        self._stop = trio.Event()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            host = Host(self.files, SimStores(self.files), TaskWorkers(nursery, self._access_s))
            ledgers = LedgerMetadataStore(door).ids
            try:
                async with self._opened(ledgers, door, host) as bookie:
                    assert isinstance(bookie, InProcessBookie)
                    if self._end_doubts is not None:
                        nursery.start_soon(self._end_doubts, bookie, door)
                    await self._serve(bookie, door, nursery)
            except* (DataDirError, MetadataError, OSError) as errors:
                name = type(errors.exceptions[0]).__name__
                self._network.log.add(f"{self.bookie_id} can't start: {name}")
            nursery.cancel_scope.cancel()
        self._nursery = None
        door.close()

    def _opened(
        self, ledgers: LiveLedgers, door: KeeperDoor, host: Host
    ) -> AbstractAsyncContextManager[BookiePort]:
        if self._end_doubts is not None:
            return open_member(door, self._options, host)
        return open_bookie(self._options, ledgers, metadata=door, host=host)

    async def _serve(self, bookie: BookiePort, door: KeeperDoor, nursery: trio.Nursery) -> None:
        self.came_back = self.came_back or self.is_lost
        self.has_served = True
        self._network.log.add(f"{self.bookie_id} serves")
        self.life = Life(bookie, nursery)
        self.refuses = True
        nursery.start_soon(self._register, door)
        try:
            await self._stop.wait()
        finally:
            self.life = None
        self._lose_connections()
        self._network.log.add(f"{self.bookie_id} stops")

    async def _register(self, door: KeeperDoor) -> None:
        path = f"{paths.available()}/{self.bookie_id}"
        while True:
            epoch = door.session.epoch
            try:
                node = await door.get(path)
                if node is not None and not node.stat.created_by_self:
                    await door.delete(path)
                if node is None or not node.stat.created_by_self:
                    await door.put(path, b"", MUST_NOT_EXIST, epoch=epoch)
            except MetadataError:
                await trio.sleep(0.2)
                continue
            await door.wait_change(epoch)


def replaced(bookie: BookieProcess, bookie_id: str) -> BookieProcess:
    """A new machine in place of one whose disk was lost."""
    return BookieProcess(bookie_id, bookie._tree, bookie._network, bookie._rng, bookie._session_s)
