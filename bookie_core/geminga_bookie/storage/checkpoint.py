"""Checkpoints (spec BK-03): seal the write caches, flush them, then move the journals' marks. In
this order, always."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from geminga_bookie.storage.journal_format import JournalPosition
from geminga_bookie.storage.opening import Storage
from geminga_bookie.storage.store import LedgerStore, Sealed

RETRY_S = 1.0
"""How long after a failed flush the next attempt comes; after each further one twice as long."""
RETRY_TIMES_MAX = 8


class Checkpointer:
    """One task. `seal` is for the loop: it swaps the halves at once, so that the add that filled
    one goes on."""

    def __init__(
        self,
        storage: Storage,
        interval_s: float,
        on_flushed: Callable[[], None],
        on_failure: Callable[[OSError], None],
        on_unlocked: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._interval_s = interval_s
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._on_unlocked = on_unlocked
        self._sealed: list[tuple[LedgerStore, Sealed]] = []
        self._positions: list[JournalPosition] = []
        self._wake = trio.Event()
        self._done = trio.Event()
        self._lock = trio.Lock()
        self.checkpoints = 0

    def seal(self) -> bool:
        """Swap all halves and have them flushed; False if the last ones are not in their place yet.

        The marks will be the journals' positions of now: what is behind them was in the caches
        before.
        """
        if self._sealed or self._lock.locked():
            return False
        storage = self._storage
        self._positions = [journal.position for journal in storage.journals]
        records = storage.table.take_dirty()
        self._sealed = [
            (store, store.swap(records.get(number, [])))
            for number, store in enumerate(storage.stores)
        ]
        self._wake.set()
        return True

    async def run(self) -> None:
        """Flush whenever a half is full, and every `interval_s`; after a failure try again until it
        works."""
        times = 1
        while True:
            if not self._sealed:
                with trio.move_on_after(self._interval_s):
                    await self._wake.wait()
            if not self._sealed and not self.seal():
                await trio.sleep(RETRY_S)
                continue
            try:
                await self.flush_sealed()
            except OSError as error:
                self._on_failure(error)
                await trio.sleep(RETRY_S * times)
                times = min(2 * times, RETRY_TIMES_MAX)
            else:
                times = 1

    async def flush_sealed(self) -> None:
        """Bring what is sealed to its place and move the marks. Raises OSError, after which it can
        be repeated."""
        self._wake = trio.Event()
        async with self._lock:
            await trio.to_thread.run_sync(self._flush)
            for store, _ in self._sealed:
                store.flushed()
            self._sealed = []
            self.checkpoints += 1
            self._tell_done()
        self._storage.table.trim()
        self._on_flushed()
        self._on_unlocked()

    def _tell_done(self) -> None:
        self._done.set()
        self._done = trio.Event()

    def _flush(self) -> None:
        for store, sealed in self._sealed:
            store.flush(sealed)
        for journal, position in zip(self._storage.journals, self._positions, strict=True):
            journal.set_mark(position)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No half is sealed while this is open, and none is being flushed. One that is sealed may
        wait for its flush: on a full disk it waits for long."""
        try:
            async with self._lock:
                yield
        finally:
            if not self._sealed:
                self._tell_done()
            # Adds that found the halves locked wait for this.
            self._on_unlocked()

    async def checkpoint(self) -> None:
        """All that was added before is in entry logs and index when this returns. For while `run`
        runs."""
        while not self.seal():
            await self._done.wait()
        await self._done.wait()

    async def finish(self) -> None:
        """The last checkpoint, after the journals have stopped. Raises OSError."""
        if self._sealed:
            await self.flush_sealed()
        self.seal()
        await self.flush_sealed()
