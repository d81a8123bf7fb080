"""Checkpoints (spec BK-03): seal the write caches, flush them, move the marks; in this order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import trio

from geminga_bookie.storage.health import JOURNAL, LEDGERS, Part
from geminga_bookie.storage.journal_format import JournalPosition
from geminga_bookie.storage.ledger_directory import LedgerDirectory, Sealed
from geminga_bookie.storage.startup import Storage

RETRY_S = 1.0
"""Pause after a failed flush; it doubles after each further failure."""
RETRY_TIMES_MAX = 8

Failures = dict[Part, OSError]


class Checkpointer:
    """One task. `seal`, for the loop, swaps the halves at once, so that the add that filled one can
    continue.

    A directory whose flush fails keeps its sealed half, and the others continue. Until it succeeds,
    the marks don't move.
    """

    def __init__(
        self,
        storage: Storage,
        interval_s: float,
        on_flushed: Callable[[Mapping[Part, OSError]], None],
        on_unlocked: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._interval_s = interval_s
        self._on_flushed = on_flushed
        self._on_unlocked = on_unlocked
        self._sealed: dict[LedgerDirectory, Sealed] = {}
        self._positions: list[JournalPosition] | None = None
        self._is_due = False
        self._wake = trio.Event()
        self._done = trio.Event()
        self._lock = trio.Lock()
        self.checkpoints = 0

    def seal(self) -> bool:
        """Swap the halves and schedule their flush; False if the last ones are not flushed yet.

        If all halves are swapped, the marks will be the present positions of the journals, as
        entries before these were in the caches.
        """
        storage = self._storage
        free = [store for store in storage.stores if store not in self._sealed]
        if self._is_due or self._lock.locked() or not free:
            return False
        whole = not self._sealed
        self._positions = [journal.position for journal in storage.journals] if whole else None
        records = storage.table.take_dirty(free)
        for store in free:
            self._sealed[store] = store.swap(records.get(store, []))
        self._is_due = True
        self._wake.set()
        return True

    async def run(self) -> None:
        """Flush when a half is full, and every `interval_s`; retry failures."""
        times = 0
        while True:
            if not self._is_due and not times:
                with trio.move_on_after(self._interval_s):
                    await self._wake.wait()
            if not self._is_due and not self.seal() and not self._sealed:
                await trio.sleep(RETRY_S)
                continue
            if not await self._flush_sealed():
                times = 0
                # What came during the flush may have been too much for one half, with nothing
                # behind it that would notice.
                if any(store.is_full for store in self._storage.stores):
                    self.seal()
                continue
            times = min(max(1, 2 * times), RETRY_TIMES_MAX)
            with trio.move_on_after(RETRY_S * times):
                await self._wake.wait()

    async def _flush_sealed(self) -> Failures:
        """Flush the sealed halves, and move the marks; returns failures, to be retried."""
        self._wake = trio.Event()
        async with self._lock:
            failures = await self._storage.workers.run(self._flush)
            for store in list(self._sealed):
                if Part(LEDGERS, store.number) not in failures:
                    store.flushed()
                    del self._sealed[store]
            self._is_due = False
            if not failures:
                self.checkpoints += 1
                self._tell_done()
        self._storage.table.trim()
        self._on_flushed(failures)
        self._on_unlocked()
        return failures

    def _tell_done(self) -> None:
        self._done.set()
        self._done = trio.Event()

    def _flush(self) -> Failures:
        failures: Failures = {}
        for store, sealed in self._sealed.items():
            try:
                store.flush(sealed)
            except OSError as error:
                failures[Part(LEDGERS, store.number)] = error
        if failures or self._positions is None:
            return failures
        for number, (journal, position) in enumerate(
            zip(self._storage.journals, self._positions, strict=True)
        ):
            try:
                journal.set_mark(position)
            except OSError as error:
                failures[Part(JOURNAL, number)] = error
        return failures

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """In the block no half is sealed or flushed. A sealed one may wait for its flush, which on
        a full disk takes long."""
        try:
            async with self._lock:
                yield
        finally:
            if not self._sealed:
                self._tell_done()
            # Wake adds that found the halves locked.
            self._on_unlocked()

    async def checkpoint(self) -> None:
        """Return when all earlier adds are in entry logs and index; needs a running `run`."""
        while self._sealed or not self.seal():
            await self._done.wait()
        await self._done.wait()

    async def finish(self) -> None:
        """The last checkpoint, after the journals have stopped. Raises OSError."""
        if self._sealed:
            self._raise(await self._flush_sealed())
        self.seal()
        self._raise(await self._flush_sealed())

    def _raise(self, failures: Failures) -> None:
        for error in failures.values():
            raise error
