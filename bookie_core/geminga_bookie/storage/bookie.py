"""The bookie on disk, as a `BookiePort` for its own process (spec BK-01 to BK-07, BK-10, BK-12)."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import NamedTuple

import trio

from geminga_bookie.errors import (
    BookkeeperError,
    DigestMismatch,
    LedgerFenced,
    NoSuchEntry,
    StorageFailed,
    TooManyRequests,
    UnknownLedgerState,
)
from geminga_bookie.lac import LacWaiters, packet_lac
from geminga_bookie.options import BookieOptions
from geminga_bookie.port import (
    AddDone,
    BookieInfo,
    LacAnswer,
    check_add,
    check_lac,
    check_ledger,
    check_read,
)
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.gc import GarbageCollector
from geminga_bookie.storage.health import JOURNAL, Part
from geminga_bookie.storage.journal import BARRIER, JournalStatistics, Request
from geminga_bookie.storage.journal_format import ENTRIES, EXPLICIT_LAC, FENCE
from geminga_bookie.storage.ledger_loading import LedgerLoader
from geminga_bookie.storage.ledger_table import LedgerRuntime
from geminga_bookie.storage.reader import Reader
from geminga_bookie.storage.startup import Storage
from geminga_bookie.storage.write_cache import Throttle
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


class _Add(NamedTuple):
    """The arguments of `InProcessBookie.add`, and the packets' size."""

    ledger_id: int
    master_key: bytes
    first: int
    packets: Sequence[bytes]
    size_bytes: int
    done: AddDone
    recovery: bool


class InProcessBookie:
    """Made by `open_bookie`. All methods are for the loop.

    `add` costs by run: a few dict look-ups, one list extension, one queue put.
    """

    def __init__(self, options: BookieOptions, storage: Storage) -> None:
        self.bookie_id = options.bookie_id
        self.storage = storage
        """Its parts, for the one that opened it."""
        self._table = storage.table
        self._states = storage.table.states
        self._waiters = storage.table.pinned = LacWaiters()
        self._failed = trio.Event()
        self._journal_errors: dict[Part, str] = {}
        self._syncs_journal = options.journal.sync_data
        self._flush_errors: dict[Part, str] = {}
        self.health = storage.health
        self.write_cache_bytes_max = options.write_cache_bytes
        self.throttle = Throttle(
            options.write_cache_bytes, options.throttle_max_s, options.waiting_adds_max
        )
        self.loader = LedgerLoader(
            storage.table, storage.workers, self.throttle, options.write_cache_bytes
        )
        self.checkpointer = Checkpointer(
            storage,
            options.flush_interval_s,
            self._flushed,
            self.throttle.release,
        )
        self.gc = GarbageCollector(storage, self.checkpointer, options.gc, self._waiters.wake)
        self.reader = Reader(storage.table, storage.workers, options)

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
        """See `BookiePort.add`. The packets are kept: the caller must not change the sequence."""
        size = sum(map(len, packets))
        add = _Add(ledger_id, master_key, first_entry_id, packets, size, done, recovery)
        if not self.throttle and self._insert(add):
            return
        if not self.throttle.defer(size, partial(self._retry, add), len(packets)):
            self._refuse(add, TooManyRequests("too many adds wait for room in the write cache"))

    def _retry(self, add: _Add, error: BookkeeperError | None) -> bool:
        """See `PendingAdd`."""
        if error is None:
            return self._insert(add)
        self._refuse(add, error)
        return True

    def _load(self, add: _Add) -> None:
        """Retry an add once its ledger's record was read."""
        ledger_id = add.ledger_id
        if not self.loader.defer(ledger_id, add.size_bytes, partial(self._retry, add)):
            refused = add._replace(packets=[b""] * len(add.packets))
            error = TooManyRequests("too many adds wait for their ledgers' records")
            self.loader.defer(ledger_id, 0, lambda _: self._retry(refused, error), always=True)

    def _insert(self, add: _Add) -> bool:
        """Into cache and journal; False if there is no room. A refused add counts as in, and so
        does one that waits for its ledger's record."""
        ledger_id, master_key, first, packets, size, done, recovery = add
        state = self._states.get(ledger_id)
        if self.loader.is_waited_for(ledger_id, state):
            self._load(add)
            return True
        try:
            check_add(ledger_id, first, len(packets), size)
            if state is None or state.master_key != master_key:
                state = self._table.open(ledger_id, master_key, fresh=first == 0 and not recovery)
        except BookkeeperError as wrong:
            self._refuse(add, wrong)
            return True
        health = self.health
        refusal = health.error or health.refusals.of(state.journal, state.store.number)
        error = refusal
        if recovery:
            error = None  # without them a ledger can't be closed, and so not be read (BK-10)
        elif state.fenced:
            error = LedgerFenced(f"ledger {ledger_id}")
        if error is not None:
            self._refuse(add, error)
            return True
        store = state.store
        if store.is_full:
            sealed = self.checkpointer.seal()
            if not sealed or store.is_full:
                if refusal is None:
                    return False
                # Its flush waits for room: adds to the other directories must not wait behind.
                self._refuse(add, refusal)
                return True
        store.active.put(ledger_id, first, packets, size)
        state.submit(Request(ENTRIES, ledger_id, first, packets, size, done, None, perf_counter()))
        if packets:
            lac = packet_lac(packets[-1])
            if lac > state.lac:
                state.lac = lac
                if ledger_id in self._waiters:
                    self._waiters.wake(ledger_id)
        return True

    def _refuse(self, add: _Add, error: BookkeeperError) -> None:
        """Through the journal's queue, so that the answer comes behind those of earlier adds."""
        ledger_id = add.ledger_id
        state = self._states.get(ledger_id)
        journals = self.storage.journals
        submit = state.submit if state is not None else journals[ledger_id % len(journals)].submit
        submit(Request(ENTRIES, ledger_id, add.first, add.packets, 0, add.done, error))

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        """See `BookiePort.read`. What is in a cache is answered without suspending."""
        state = self._states.get(ledger_id)
        if state is None:
            state = await self.loader.known(ledger_id)
        store = state.store
        found = store.counted(ledger_id, first_entry_id, entries_max, bytes_max)
        if found is not None:
            self.reader.served(store, ledger_id, first_entry_id + len(found))
            return found
        check_read(ledger_id, first_entry_id)
        try:
            return await self.reader.read(store, ledger_id, first_entry_id, entries_max, bytes_max)
        except NoSuchEntry as error:
            raise await self.reader.why_absent(state, first_entry_id, error) from None

    async def _journaled(
        self, state: LedgerRuntime, kind: int, number: int, payload: Sequence[bytes] = ()
    ) -> None:
        """Return when a request is durable; raise its error."""
        outcome: list[BookkeeperError | None] = []
        passed = trio.Event()

        def done(_first: int, _count: int, error: BookkeeperError | None) -> None:
            outcome.append(error)
            passed.set()

        size = sum(map(len, payload))
        state.submit(Request(kind, state.ledger_id, number, payload, size, done))
        await passed.wait()
        if outcome[0] is not None:
            raise outcome[0]

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        """See `BookiePort.fence`. Adds are refused at once, even if the journal then fails."""
        state = await self.loader.open(ledger_id, master_key)
        if not state.fenced:
            state.fenced = True
            self._touch(state)
        await self._journaled(state, FENCE, 0)
        return await self._lac_answer(state)

    def _touch(self, state: LedgerRuntime) -> None:
        self._table.touch(state)
        if state.store.is_full:
            self.checkpointer.seal()

    async def read_lac(self, ledger_id: int) -> LacAnswer:
        """See `BookiePort.read_lac`."""
        return await self._lac_answer(await self.loader.known(ledger_id))

    async def _lac_answer(self, state: LedgerRuntime) -> LacAnswer:
        packet: bytes | None = None
        # Of a last entry that is damaged nothing is told here: who reads it is told.
        with suppress(NoSuchEntry, UnknownLedgerState, DigestMismatch):
            packet = await self.last_entry(state.ledger_id)
            state.lac = max(state.lac, packet_lac(packet))
        return LacAnswer(packet, state.explicit_packet or None)

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int, packet: bytes) -> None:
        """See `BookiePort.write_lac`."""
        check_ledger(ledger_id, master_key)
        check_lac(ledger_id, lac, packet)
        state = await self.loader.open(ledger_id, master_key)
        if state.explicit(packet):
            self._touch(state)
        await self._journaled(state, EXPLICIT_LAC, lac, [packet])
        self._waiters.wake(ledger_id)

    async def last_entry(self, ledger_id: int) -> bytes:
        """See `BookiePort.last_entry`."""
        state = await self.loader.known(ledger_id)
        last = await self.reader.last_entry(state.store, ledger_id)
        if last < 0:
            if state.limbo and self.reader.has_copies_elsewhere:
                raise UnknownLedgerState(f"ledger {ledger_id}: what was stored was damaged")
            raise NoSuchEntry(f"ledger {ledger_id} is empty")
        [packet] = await self.read(ledger_id, last, entries_max=1, bytes_max=1)
        return packet

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        """See `BookiePort.wait_entry`."""
        check_read(ledger_id, entry_id)
        asked: LedgerRuntime | None = None
        while (state := await self.loader.known(ledger_id)).lac <= previous_lac:
            if state is asked:
                await self._waiters.park(ledger_id)
                continue
            # A state that was loaded since knows of no entries yet.
            asked = state
            await self._lac_answer(state)
            if state.lac > previous_lac:
                break
        lac, packet = state.lac, None
        if entry_id <= lac:
            with suppress(NoSuchEntry):
                [packet] = await self.read(ledger_id, entry_id, entries_max=1, bytes_max=1)
        return packet, lac

    async def force(self, ledger_id: int) -> None:
        """See `BookiePort.force`; with an unsynced journal this is what syncs."""
        state, began_s = await self.loader.known(ledger_id), perf_counter()
        forces = self.storage.journals[state.journal].metrics.forces
        try:
            await self._journaled(state, BARRIER, 0)
        except BookkeeperError:
            forces.add(perf_counter() - began_s, failed=True)
            raise
        forces.add(perf_counter() - began_s)

    async def list_entries(self, ledger_id: int) -> list[int]:
        """See `BookiePort.list_entries`."""
        store = (await self.loader.known(ledger_id)).store
        ids = set(store.active.entry_ids(ledger_id))
        if store.sealed is not None:
            ids.update(store.sealed.cache.entry_ids(ledger_id))

        def stored() -> None:
            for location in store.index.locations(ledger_id):
                ids.update(range(location.first, location.first + location.entries))

        try:
            await self.storage.workers.run(stored)
        except OSError as error:
            raise StorageFailed(f"ledger {ledger_id}: {error}") from error
        return sorted(ids)

    async def info(self) -> BookieInfo:
        """See `BookiePort.info`."""
        try:
            room = await self.storage.workers.run(self.health.room)
        except OSError as error:
            raise StorageFailed(f"disk usage unknown: {error}") from error
        refusal = self.health.error
        return room if refusal is None else room._replace(read_only=str(refusal))

    def _flushed(self, failures: Mapping[Part, OSError]) -> None:
        texts = {part: f"flush failed: {error}" for part, error in failures.items()}
        for part, error in failures.items():
            if texts[part] != self._flush_errors.get(part) and not is_full(error):
                logger.error("%s; retrying until it succeeds", texts[part])
        self._flush_errors = texts
        self.health.set("flush", texts)

    def journal_failed(self, number: int, error: BookkeeperError) -> None:
        """A group was not written: no writes by this journal until one is."""
        self._journal_errors[Part(JOURNAL, number)] = str(error)
        self.health.set("journal", self._journal_errors)
        self._failed.set()
        if not self._syncs_journal:
            # What was acknowledged and not synced is in the caches only.
            self.checkpointer.seal()

    async def run_health(self, interval_s: float, retry_s: float) -> None:
        """Check the disks at intervals; after a failed journal write, try it again."""
        while True:
            full = await self.storage.workers.run(self.health.full)
            self.health.set("disk", full)
            await self._try_journals(full)
            with trio.move_on_after(interval_s):
                await self._failed.wait()
            self._failed = trio.Event()
            if self.health.failed:
                await trio.sleep(retry_s)
                self._failed.set()

    async def _try_journals(self, full: Container[Part]) -> None:
        """Have each journal that failed, and has room, write again."""
        for part in [part for part in self._journal_errors if part not in full]:

            def done(
                _first: int, _count: int, error: BookkeeperError | None, part: Part = part
            ) -> None:
                if error is None:
                    self._journal_errors.pop(part, None)
                    self.health.set("journal", self._journal_errors)

            self.storage.journals[part.number].submit(Request(BARRIER, -1, -1, done=done))
        await trio.lowlevel.checkpoint()

    def statistics(self) -> BookieStatistics:
        """Counters of this moment."""
        stores = self.storage.stores
        return BookieStatistics(
            [journal.statistics() for journal in self.storage.journals],
            sum(store.active.size_bytes for store in stores)
            + sum(store.sealed.cache.size_bytes for store in stores if store.sealed),
            sum(store.read_cache.size_bytes for store in stores),
            len(self.throttle),
            self.throttle.rejected,
            self.checkpointer.checkpoints,
            "" if self.health.error is None else str(self.health.error),
        )
