"""Garbage collection (spec BK-06): deleted ledgers, then logs without live data, then sparse logs.

Behaviour follows `ScanAndCompareGarbageCollector` and `GarbageCollectorThread`: what is held is
listed before metadata
is read, so that a ledger made meanwhile is never taken for garbage.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import trio

from geminga_bookie.options import GcOptions, LiveLedgers
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.compaction import CompactionStopped, compact_log
from geminga_bookie.storage.entry_log import ledger_map
from geminga_bookie.storage.opening import Storage
from geminga_bookie.storage.scrub import DamagedEntry, scrub_log
from geminga_bookie.storage.store import LedgerStore
from geminga_runtime.metadata.api import MetadataError

logger = logging.getLogger(__name__)


class GcReport(NamedTuple):
    """What one round did."""

    ledgers_deleted: list[int]
    logs_removed: int
    logs_compacted: int


def plan_logs(
    maps: dict[int, dict[int, int]], live: Callable[[int], bool], threshold: float
) -> tuple[list[int], list[int]]:
    """Of logs with their ledgers' bytes: those to remove, and those to compact, sparsest first."""
    removable: list[int] = []
    sparse: list[tuple[float, int]] = []
    for log_id, sizes in maps.items():
        total = sum(sizes.values())
        kept = sum(size for ledger_id, size in sizes.items() if live(ledger_id))
        if kept == 0:
            removable.append(log_id)
        elif kept < total * threshold:
            sparse.append((kept / total, log_id))
    return removable, [log_id for _, log_id in sorted(sparse)]


class GarbageCollector:
    """One task. Index deletions hold the checkpointer's lock, so that no flush brings a ledger
    back."""

    def __init__(
        self,
        storage: Storage,
        checkpointer: Checkpointer,
        options: GcOptions,
        on_deleted: Callable[[int], None],
    ) -> None:
        self._storage = storage
        self._checkpointer = checkpointer
        self._options = options
        self._on_deleted = on_deleted
        self._maps: dict[tuple[LedgerStore, int], dict[int, int]] = {}
        self._stopping = threading.Event()

    async def run(self, live_ledgers: LiveLedgers) -> None:
        """Collect for ever; compaction when its interval has passed."""
        minor = major = scrubbed = trio.current_time()
        while True:
            await trio.sleep(self._options.gc_interval_s)
            now = trio.current_time()
            threshold = 0.0
            if now - minor >= self._options.minor_interval_s:
                threshold, minor = self._options.minor_threshold, now
            if now - major >= self._options.major_interval_s:
                threshold, major = self._options.major_threshold, now
            try:
                await self.collect(live_ledgers, threshold)
                if now - scrubbed >= self._options.scrub_interval_s:
                    await trio.to_thread.run_sync(self.scrub)
                    scrubbed = now
            except Exception as error:  # metadata away, a failed disk, a defect: later again
                expected = isinstance(error, OSError | MetadataError)
                logger.error("garbage collection failed: %s", error, exc_info=not expected)

    async def collect(self, live_ledgers: LiveLedgers, threshold: float = 0.0) -> GcReport:
        """One round; logs with a smaller share of live bytes than `threshold` are compacted. Raises
        OSError."""
        old_logs = [(store, store.logs.finished_ids()) for store in self._storage.stores]
        garbage = set(self._storage.table.states)
        garbage |= set(await trio.to_thread.run_sync(self._held))
        async for ledger_id in live_ledgers():
            garbage.discard(ledger_id)
        deleted = sorted(garbage)
        if deleted:
            async with self._checkpointer.paused():
                for ledger_id in deleted:
                    self._storage.table.forget(ledger_id)
                    self._storage.table.store_of(ledger_id).forget(ledger_id)
                    self._on_deleted(ledger_id)
                await trio.to_thread.run_sync(self._delete, deleted)
        removed = compacted = 0
        for store, log_ids in old_logs:
            counts = await trio.to_thread.run_sync(self._collect_logs, store, log_ids, threshold)
            removed += counts[0]
            compacted += counts[1]
        return GcReport(deleted, removed, compacted)

    def _held(self) -> list[int]:
        return [
            record.ledger_id for store in self._storage.stores for record in store.index.ledgers()
        ]

    def _delete(self, ledger_ids: list[int]) -> None:
        by_store: dict[LedgerStore, list[int]] = {}
        for ledger_id in ledger_ids:
            by_store.setdefault(self._storage.table.store_of(ledger_id), []).append(ledger_id)
        for store, ids in by_store.items():
            store.index.delete_ledgers(ids)

    def _collect_logs(
        self, store: LedgerStore, log_ids: list[int], threshold: float
    ) -> tuple[int, int]:
        maps: dict[int, dict[int, int]] = {}
        for log_id in log_ids:
            known = self._maps.get((store, log_id))
            if known is None:
                with store.logs.reading(log_id) as file:
                    known = self._maps[store, log_id] = ledger_map(file)
            maps[log_id] = known
        held = {record.ledger_id for record in store.index.ledgers()}
        states = self._storage.table.states

        def live(ledger_id: int) -> bool:
            return ledger_id in held or ledger_id in states

        removable, sparse = plan_logs(maps, live, threshold)
        for log_id in removable:
            store.logs.remove(log_id)
            del self._maps[store, log_id]
        for number, log_id in enumerate(sparse):
            try:
                compact_log(store.logs, store.index, log_id, self._throttle())
            except CompactionStopped:
                return len(removable), number
            del self._maps[store, log_id]
        return len(removable), len(sparse)

    def scrub(self) -> list[DamagedEntry]:
        """Check every entry that lies in a log; answers the damaged ones. Blocks. Raises
        OSError."""
        damaged: list[DamagedEntry] = []
        throttle = self._throttle()
        with contextlib.suppress(CompactionStopped):
            for store in self._storage.stores:
                for log_id in store.logs.ids():
                    damaged += scrub_log(store.logs, log_id, throttle)
        return damaged

    def stop(self) -> None:
        """Have a running compaction or scrub give up; what a compaction wrote is thrown away."""
        self._stopping.set()

    def _throttle(self) -> Callable[[int], None]:
        started, copied = time.monotonic(), 0

        def throttle(size: int) -> None:
            nonlocal copied
            copied += size
            ahead_s = copied / self._options.compaction_rate_bytes_s - (time.monotonic() - started)
            if self._stopping.wait(max(0.0, ahead_s)) or self._stopping.is_set():
                raise CompactionStopped

        return throttle
