"""The read path after the caches (spec BK-05): threads read ahead, one load per ledger at once."""

from __future__ import annotations

from time import perf_counter

import trio

from geminga_bookie.errors import (
    BookkeeperError,
    EntryLost,
    NoSuchEntry,
    StorageFailed,
    TooManyRequests,
    UnknownLedgerState,
)
from geminga_bookie.metrics.storage import PoolMetrics
from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.ledger_table import LedgerRuntime, LedgerTable
from geminga_bookie.storage.read_cache import CachedBlock
from geminga_bookie.workers import Workers

FIRST_READ_AHEAD_DIVISOR = 8
"""A nonsequential read's read-ahead is the window divided by this."""


class Reader:
    """Loads blocks into the read caches; reads ahead while the caller processes earlier ones."""

    def __init__(self, table: LedgerTable, workers: Workers, options: BookieOptions) -> None:
        self._table = table
        self._workers = workers
        self.has_copies_elsewhere = options.replicas_elsewhere
        self._ahead_bytes = options.read_ahead_bytes
        self._ahead_entries = options.read_ahead_entries
        self._limiter = trio.CapacityLimiter(options.read_threads)
        self.threads = options.read_threads
        self.waiting_max = options.waiting_reads_max
        self.metrics = PoolMetrics()
        self.waiting = 0
        """Reads that wait for a thread, or for what it loads."""
        self._loading: dict[int, trio.Event] = {}
        self._wanted: dict[int, tuple[LedgerDirectory, int]] = {}
        self._wake = trio.Event()

    async def read(
        self,
        store: LedgerDirectory,
        ledger_id: int,
        entry_id: int,
        entries_max: int,
        bytes_max: int,
    ) -> list[bytes]:
        """An uncached entry, and following ones. Raises as `LedgerDirectory.load`, and
        TooManyRequests."""
        if self.waiting >= self.waiting_max:
            self.metrics.rejected += 1
            raise TooManyRequests(f"{self.waiting} reads wait for the disk")
        self.waiting += 1
        try:
            loading = self._loading.get(ledger_id)
            if loading is not None:
                await loading.wait()
                found = store.cached(ledger_id, entry_id, entries_max, bytes_max)
                if found is not None:
                    self.served(store, ledger_id, entry_id + len(found))
                    return found
            sequential = store.read_cache.window_end(ledger_id) == entry_id
            divisor = 1 if sequential else FIRST_READ_AHEAD_DIVISOR
            blocks = await self._load(store, ledger_id, entry_id, divisor)
            for block in blocks:
                index = entry_id - block.first
                if 0 <= index < len(block.packets):
                    found = store.cached(ledger_id, entry_id, entries_max, bytes_max)
                    if found is None:  # larger than the cache
                        found = block.packets[index : index + 1]
                    self.served(store, ledger_id, entry_id + len(found))
                    return found
            raise AssertionError("load returns the entry or raises")
        finally:
            self.waiting -= 1

    async def last_entry(self, store: LedgerDirectory, ledger_id: int) -> int:
        """The highest id of an entry of the ledger, -1 without any. Raises StorageFailed."""
        # The caches first: what is flushed meanwhile is in the index then.
        cached = store.last_cached(ledger_id)
        try:
            stored = await self._workers.run(store.index.last_entry, ledger_id)
        except OSError as error:
            raise StorageFailed(f"ledger {ledger_id}: {error}") from error
        return max(cached, stored)

    async def why_absent(
        self, state: LedgerRuntime, entry_id: int, error: NoSuchEntry
    ) -> BookkeeperError:
        """What to answer for an entry that isn't there: of a ledger in doubt it may have been lost.
        If there is no other copy it is lost where later ones are there, so that nobody takes it for
        the ledger's end. Raises StorageFailed.
        """
        if not state.limbo:
            return error
        text = f"entry {state.ledger_id}:{entry_id}: what was stored was damaged"
        if self.has_copies_elsewhere:
            return UnknownLedgerState(text)
        if entry_id < await self.last_entry(state.store, state.ledger_id):
            return EntryLost(f"{text}, and there is no other copy")
        return error

    async def _load(
        self, store: LedgerDirectory, ledger_id: int, entry_id: int, divisor: int
    ) -> list[CachedBlock]:
        passed = self._loading[ledger_id] = trio.Event()
        ahead_bytes = min(self._ahead_bytes, store.read_cache.window_bytes_max())
        asked_s = perf_counter()
        try:
            blocks, began_s = await self._workers.run(
                _begin,
                store,
                ledger_id,
                entry_id,
                ahead_bytes // divisor,
                self._ahead_entries // divisor,
                limiter=self._limiter,
            )
            self._count(store, blocks, asked_s, began_s)
            if ledger_id in self._table.states:
                store.read_cache.put(ledger_id, blocks)
        except BookkeeperError:
            elapsed_s = perf_counter() - asked_s
            self.metrics.runs.add(elapsed_s, failed=True)
            store.metrics.loads.add(elapsed_s, failed=True)
            raise
        finally:
            passed.set()
            if self._loading.get(ledger_id) is passed:
                del self._loading[ledger_id]
        return blocks

    def _count(
        self, store: LedgerDirectory, blocks: list[CachedBlock], asked_s: float, began_s: float
    ) -> None:
        elapsed_s = perf_counter() - began_s
        self.metrics.queued.add(began_s - asked_s)
        self.metrics.runs.add(elapsed_s)
        store.metrics.loads.add(elapsed_s)
        store.metrics.ahead_entries.add(sum(len(block.packets) for block in blocks))
        store.metrics.ahead_bytes.add(sum(block.size_bytes for block in blocks))

    def served(self, store: LedgerDirectory, ledger_id: int, next_entry_id: int) -> None:
        """Entries before `next_entry_id` were read: in the window's second half, load the next."""
        end = store.read_cache.window_end(ledger_id)
        if end < 0 or ledger_id in self._loading or ledger_id in self._wanted:
            return
        if len(self._loading) + len(self._wanted) >= self.waiting_max:
            return
        if store.read_cache.is_near_end(ledger_id, next_entry_id):
            self._wanted[ledger_id] = (store, end)
            self._wake.set()

    async def run(self) -> None:
        """Load windows ahead of readers."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                wanted, self._wanted = self._wanted, {}
                for ledger_id, (store, entry_id) in wanted.items():
                    if store.cached(ledger_id, entry_id, 1, 1) is None:
                        nursery.start_soon(self._fetch, store, ledger_id, entry_id)

    async def _fetch(self, store: LedgerDirectory, ledger_id: int, entry_id: int) -> None:
        if ledger_id in self._loading:
            return
        try:
            await self._load(store, ledger_id, entry_id, 1)
        except BookkeeperError:
            return  # the end, or damage, which its reader reports


def _begin(
    store: LedgerDirectory, ledger_id: int, entry_id: int, ahead_bytes: int, ahead_entries: int
) -> tuple[list[CachedBlock], float]:
    """In a thread: what `load` returns, and when it began."""
    began_s = perf_counter()
    return store.load(ledger_id, entry_id, ahead_bytes, ahead_entries), began_s
