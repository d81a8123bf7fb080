"""The bookie on disk, as a `BookiePort` for its own process (spec BK-01 to BK-07, BK-10, BK-12)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import trio

from geminga_bookie.errors import (
    BookkeeperError,
    LedgerFenced,
    NoSuchEntry,
    StorageFailed,
    TooManyRequests,
    UnknownLedgerState,
)
from geminga_bookie.lac import LacWaiters, packet_lac
from geminga_bookie.options import BookieOptions
from geminga_bookie.port import AddDone, check_add, check_lac, check_read
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.gc import GarbageCollector
from geminga_bookie.storage.health import Health
from geminga_bookie.storage.journal import BARRIER, JournalStatistics
from geminga_bookie.storage.journal_format import ENTRIES, EXPLICIT_LAC, FENCE
from geminga_bookie.storage.ledger_table import LedgerState
from geminga_bookie.storage.opening import Storage
from geminga_bookie.storage.reader import Reader
from geminga_bookie.storage.throttle import Throttle
from geminga_runtime.ballast import is_full

logger = logging.getLogger(__name__)


class BookieStatistics(NamedTuple):
    """For metrics and tests."""

    journals: list[JournalStatistics]
    write_cache_bytes: int
    read_cache_bytes: int
    throttled_adds: int
    rejected_adds: int
    checkpoints: int
    read_only: str
    """Why the bookie takes no writes; empty if it does."""


class InProcessBookie:
    """Made by `open_bookie`. All methods are for the loop.

    `add` costs by run: a few dict look-ups, one list extension, one queue put.
    """

    def __init__(self, options: BookieOptions, storage: Storage, health: Health) -> None:
        self._bookie_id = options.bookie_id
        self._storage = storage
        self._table = storage.table
        self._states = storage.table.states
        self._waiters = LacWaiters()
        self._failed = trio.Event()
        self._flush_error = ""
        self.health = health
        self.throttle = Throttle(options.write_cache_bytes, options.throttle_max_s)
        self.checkpointer = Checkpointer(
            storage,
            options.flush_interval_s,
            self._flushed,
            self._flush_failed,
            self.throttle.release,
        )
        self.gc = GarbageCollector(storage, self.checkpointer, options.gc, self._waiters.wake)
        self.reader = Reader(storage.table, options)

    @property
    def bookie_id(self) -> str:
        """Its id in ledger metadata."""
        return self._bookie_id

    @property
    def instance_id(self) -> str:
        """What its cookies carry."""
        return self._storage.directories.instance_id

    @property
    def storage(self) -> Storage:
        """Its parts, for the one that opened it."""
        return self._storage

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
        """See `BookiePort.add`. The packets are kept as they are; the caller must not change the
        sequence."""
        size = sum(map(len, packets))
        if self.throttle or not self._insert(
            ledger_id, master_key, first_entry_id, packets, size, done, recovery
        ):

            def held(error: TooManyRequests | None) -> bool:
                if error is not None:
                    self._refuse(ledger_id, first_entry_id, packets, done, error)
                    return True
                return self._insert(
                    ledger_id, master_key, first_entry_id, packets, size, done, recovery
                )

            if not self.throttle.hold(size, held):
                error = TooManyRequests("too many adds wait for room in the write cache")
                self._refuse(ledger_id, first_entry_id, packets, done, error)

    def _insert(
        self,
        ledger_id: int,
        master_key: bytes,
        first: int,
        packets: Sequence[bytes],
        size: int,
        done: AddDone,
        recovery: bool,
    ) -> bool:
        """Into cache and journal; False if there is no room. A refused add counts as in."""
        error = self.health.error
        state = self._states.get(ledger_id)
        try:
            check_add(ledger_id, first, len(packets), size)
            if state is None or state.master_key != master_key:
                state = self._table.open(ledger_id, master_key, fresh=first == 0 and not recovery)
        except BookkeeperError as refusal:
            self._refuse(ledger_id, first, packets, done, refusal)
            return True
        if recovery:
            error = None  # without them a ledger can't be closed, and so not be read (BK-10)
        elif state.fenced:
            error = LedgerFenced(f"ledger {ledger_id}")
        if error is not None:
            self._refuse(ledger_id, first, packets, done, error)
            return True
        store = state.store
        if store.active.size_bytes >= store.half_bytes and not self.checkpointer.seal():
            return False
        store.active.put(ledger_id, first, packets, size)
        state.submit((ENTRIES, ledger_id, first, packets, size, done, None))
        if packets:
            lac = packet_lac(packets[-1])
            if lac > state.lac:
                state.lac = lac
                if not state.dirty:
                    self._table.touch(state)
                if ledger_id in self._waiters:
                    self._waiters.wake(ledger_id)
        return True

    def _refuse(
        self,
        ledger_id: int,
        first: int,
        packets: Sequence[bytes],
        done: AddDone,
        error: BookkeeperError,
    ) -> None:
        """Through the journal's queue, so that the answer comes behind those of earlier adds."""
        journals = self._storage.journals
        submit = journals[ledger_id % len(journals)].submit
        submit((ENTRIES, ledger_id, first, packets, 0, done, error))

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        """See `BookiePort.read`. What is in a cache is answered without suspending."""
        store = self._table.store_of(ledger_id)
        found = store.cached(ledger_id, first_entry_id, entries_max, bytes_max)
        if found is not None:
            self.reader.served(store, ledger_id, first_entry_id + len(found))
            return found
        check_read(ledger_id, first_entry_id)
        state = self._table.known(ledger_id)
        try:
            return await self.reader.read(store, ledger_id, first_entry_id, entries_max, bytes_max)
        except NoSuchEntry:
            if state.limbo:
                raise UnknownLedgerState(
                    f"entry {ledger_id}:{first_entry_id}: the journal was damaged"
                ) from None
            raise

    async def _journaled(self, state: LedgerState, kind: int, number: int) -> None:
        """Return when a request is durable; raise its error."""
        outcome: list[BookkeeperError | None] = []
        passed = trio.Event()

        def done(_first: int, _count: int, error: BookkeeperError | None) -> None:
            outcome.append(error)
            passed.set()

        state.submit((kind, state.ledger_id, number, (), 0, done, None))
        await passed.wait()
        if outcome[0] is not None:
            raise outcome[0]

    async def fence(self, ledger_id: int, master_key: bytes) -> int:
        """See `BookiePort.fence`. Adds are refused from this moment on, even if the journal then
        fails."""
        state = self._table.open(ledger_id, master_key)
        if not state.fenced:
            state.fenced = True
            self._table.touch(state)
        await self._journaled(state, FENCE, 0)
        return state.best_lac

    async def read_lac(self, ledger_id: int) -> int:
        """See `BookiePort.read_lac`; never suspends."""
        return self._table.known(ledger_id).best_lac

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int) -> None:
        """See `BookiePort.write_lac`."""
        check_lac(lac)
        state = self._table.open(ledger_id, master_key)
        if lac > state.explicit_lac:
            state.explicit_lac = lac
            self._table.touch(state)
        await self._journaled(state, EXPLICIT_LAC, lac)
        self._waiters.wake(ledger_id)

    async def wait_lac(self, ledger_id: int, previous_lac: int) -> int:
        """See `BookiePort.wait_lac`."""
        while (lac := self._table.known(ledger_id).best_lac) <= previous_lac:
            await self._waiters.park(ledger_id)
        return lac

    async def force(self, ledger_id: int) -> None:
        """See `BookiePort.force`; with an unsynced journal this is what syncs."""
        await self._journaled(self._table.known(ledger_id), BARRIER, 0)

    async def list_entries(self, ledger_id: int) -> list[int]:
        """See `BookiePort.list_entries`."""
        self._table.known(ledger_id)
        store = self._table.store_of(ledger_id)
        ids = set(store.active.entry_ids(ledger_id))
        if store.sealed is not None:
            ids.update(store.sealed.cache.entry_ids(ledger_id))

        def stored() -> None:
            for location in store.index.locations(ledger_id):
                ids.update(range(location.first, location.first + location.entries))

        try:
            await trio.to_thread.run_sync(stored)
        except OSError as error:
            raise StorageFailed(f"ledger {ledger_id}: {error}") from error
        return sorted(ids)

    def _flushed(self) -> None:
        self._flush_error = ""
        self.health.set("flush", "")

    def _flush_failed(self, error: OSError) -> None:
        text = f"flush failed: {error}"
        if text != self._flush_error and not is_full(error):
            logger.error("%s; it is tried until it works", text)
        self._flush_error = text
        self.health.set("flush", text)

    def journal_failed(self, error: BookkeeperError) -> None:
        """A group was not written: no writes until one is."""
        self.health.set("journal", str(error))
        self._failed.set()

    async def run_health(self, interval_s: float, retry_s: float) -> None:
        """Look at the disks now and then; after a failed journal write, try whether it works
        again."""
        while True:
            full = await trio.to_thread.run_sync(self.health.full)
            self.health.set("disk", full)
            if self.health.failed and not full:
                await self._try_journals()
            with trio.move_on_after(interval_s):
                await self._failed.wait()
            self._failed = trio.Event()
            if self.health.failed:
                await trio.sleep(retry_s)
                self._failed.set()

    async def _try_journals(self) -> None:
        passed = 0

        def done(_first: int, _count: int, error: BookkeeperError | None) -> None:
            nonlocal passed
            passed += error is None
            if passed == len(self._storage.journals):
                self.health.set("journal", "")

        for journal in self._storage.journals:
            journal.submit((BARRIER, -1, -1, (), 0, done, None))
        await trio.lowlevel.checkpoint()

    def statistics(self) -> BookieStatistics:
        """Counters of this moment."""
        stores = self._storage.stores
        return BookieStatistics(
            [journal.statistics() for journal in self._storage.journals],
            sum(store.active.size_bytes for store in stores)
            + sum(store.sealed.cache.size_bytes for store in stores if store.sealed),
            sum(store.read_cache.size_bytes for store in stores),
            len(self.throttle),
            self.throttle.rejected,
            self.checkpointer.checkpoints,
            "" if self.health.error is None else str(self.health.error),
        )
