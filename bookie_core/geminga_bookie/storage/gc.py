"""Garbage collection (spec BK-06): deleted ledgers, then logs without live data, then sparse logs.

Behaviour follows `ScanAndCompareGarbageCollector` and `GarbageCollectorThread`: the held ledgers
are listed before metadata is read, so that a ledger created meanwhile never counts as garbage. A
log is removed if metadata has none of its ledgers: a ledger's absence in the index doesn't mean
that it was deleted.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import trio

from geminga_bookie.options import GcOptions, LedgerExists, LiveLedgers
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.disk import replace_file
from geminga_bookie.storage.entry_logs.compaction import (
    CompactionStopped,
    CompactionUnfinished,
    LogDamaged,
    compact_log,
)
from geminga_bookie.storage.entry_logs.index_rebuild import let_go, order_rebuild
from geminga_bookie.storage.entry_logs.scrub import DamagedEntry, scrub_log
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.ledger_maps import UNREADABLE, LedgerMaps
from geminga_bookie.storage.location_index import IndexFailed, unsound_mark
from geminga_bookie.storage.startup import Storage
from geminga_runtime.ballast import is_full
from geminga_runtime.metadata.api import MetadataError

logger = logging.getLogger(__name__)


class GcReport(NamedTuple):
    """The results of one round."""

    ledgers_deleted: list[int]
    logs_removed: int
    logs_compacted: int


class LogUse(NamedTuple):
    """Bytes of all ledgers in a log, and of those that live."""

    total: int
    live: int


def plan_logs(logs: Mapping[int, LogUse], threshold: float) -> tuple[list[int], list[int]]:
    """The logs to remove, and those to compact, sparsest first."""
    removable = [log_id for log_id, use in logs.items() if not use.live]
    sparse = sorted(
        (use.live / use.total, log_id)
        for log_id, use in logs.items()
        if 0 < use.live < use.total * threshold
    )
    return removable, [log_id for _, log_id in sparse]


@contextlib.contextmanager
def _logged(work: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # no metadata, a failed disk, a defect: retried later
        expected = isinstance(error, OSError | MetadataError)
        logger.error("%s failed: %s", work, error, exc_info=not expected)


class GarbageCollector:
    """One task. Deletes from the index under the checkpointer's lock, which excludes flushes."""

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
        self.maps = LedgerMaps()
        self._gone: set[int] = set()
        """Ledgers in entry logs that were asked for and don't exist: ids come once only."""
        self._left = {(store, log_id) for store in storage.stores for log_id in store.undecided}
        """Logs that are not compacted before the next start."""
        self._incomplete = {store for store in storage.stores if store.lacks_something}
        """Where nothing is compacted."""
        self._to_order: set[LedgerDirectory] = set()
        """Whose index the next start isn't told yet to rebuild."""
        self._unsound: set[LedgerDirectory] = set()
        """Whose index the next start puts aside."""
        self._stopping = threading.Event()
        self.stop = self._stopping.set
        """Stop a running compaction or scrub; a compaction's draft is removed."""

    async def run(
        self, live_ledgers: LiveLedgers, ledger_exists: LedgerExists | None = None
    ) -> None:
        """Collect repeatedly; compact when the compaction's interval has passed."""
        minor = major = scrubbed = trio.current_time()
        while True:
            await trio.sleep(self._options.gc_interval_s)
            now = trio.current_time()
            threshold = 0.0
            is_major = False
            if now - minor >= self._options.minor_interval_s:
                threshold, minor = self._options.minor_threshold, now
            if now - major >= self._options.major_interval_s:
                threshold, major = self._options.major_threshold, now
                is_major = True
            with _logged("garbage collection"):
                await self._measured(live_ledgers, threshold, ledger_exists, is_major)
            if now - scrubbed >= self._options.scrub_interval_s:
                with _logged("the check of entry logs"):
                    await self._storage.workers.run(self.scrub)
                    scrubbed = now

    async def _measured(
        self,
        live_ledgers: LiveLedgers,
        threshold: float,
        ledger_exists: LedgerExists | None,
        is_major: bool,
    ) -> None:
        began_s, failed = time.perf_counter(), True
        try:
            await self.collect(live_ledgers, threshold, ledger_exists)
            failed = False
        finally:
            for store in self._storage.stores:
                metrics = store.metrics
                metrics.collections.add(time.perf_counter() - began_s, failed=failed)
                if threshold and not failed:
                    metrics.major_compactions += is_major
                    metrics.minor_compactions += not is_major

    async def collect(
        self,
        live_ledgers: LiveLedgers,
        threshold: float = 0.0,
        ledger_exists: LedgerExists | None = None,
    ) -> GcReport:
        """One round; logs with a share of live bytes below `threshold` are compacted. What
        `live_ledgers` doesn't name and `ledger_exists` says is there, is kept.

        On a full disk, writing the deletions to the index may fail: logs with only deleted ledgers
        are removed nevertheless, and the next round retries. Raises OSError.
        """
        await self._storage.workers.run(self.check_damage)
        try:
            return await self._round(live_ledgers, threshold, ledger_exists)
        finally:
            with trio.CancelScope(shield=True):  # a process that ends forgets what it met
                await self._storage.workers.run(self.check_damage)

    async def _round(
        self, live_ledgers: LiveLedgers, threshold: float, ledger_exists: LedgerExists | None
    ) -> GcReport:
        old_logs = [(store, store.logs.finished_ids()) for store in self._storage.stores]
        stored = await self._storage.workers.run(self._stored, old_logs)
        states = list(self._storage.table.states.values())
        held, failures = await self._storage.workers.run(self._held)
        for state in states:
            if state.store not in failures:
                held.setdefault(state.ledger_id, state.store)
        known: set[int] = set()
        async for ledger_id in live_ledgers():
            if ledger_id in held or ledger_id in stored:
                known.add(ledger_id)
        if ledger_exists is not None:
            self._gone &= stored
            for ledger_id in sorted((held.keys() | stored) - known - self._gone):
                if await ledger_exists(ledger_id):
                    logger.warning("ledger %d is not in the list of ledgers, but exists", ledger_id)
                    known.add(ledger_id)
                elif ledger_id in stored:
                    self._gone.add(ledger_id)
        deleted = held.keys() - known
        left_out = set(failures)
        if deleted:
            failures |= await self._forget({ledger_id: held[ledger_id] for ledger_id in deleted})
        removed = compacted = 0
        for store, log_ids in old_logs:
            if store in left_out:
                continue
            # An index that still has the deleted ledgers would have them copied.
            sparser_than = 0.0 if store in failures else threshold
            try:
                counts = await self._storage.workers.run(
                    self._collect_logs, store, log_ids, sparser_than, known, deleted
                )
            except OSError as error:  # the other directories' disks may be well
                let_go(error)
                failures.setdefault(store, error)
                continue
            removed += counts[0]
            compacted += counts[1]
        for failure in failures.values():
            raise failure
        return GcReport(sorted(deleted), removed, compacted)

    async def _forget(self, garbage: dict[int, LedgerDirectory]) -> dict[LedgerDirectory, OSError]:
        """Drop deleted ledgers from memory and index; returns the errors of indexes that still have
        them.
        """
        async with self._checkpointer.paused():
            self._storage.table.drop(garbage)
            for store in garbage.values():
                store.metrics.deleted_ledgers += 1
            for ledger_id, store in garbage.items():
                store.forget(ledger_id)
                self._on_deleted(ledger_id)
            failures = await self._storage.workers.run(self._delete, garbage)
            self._storage.table.deleted(
                [ledger_id for ledger_id, store in garbage.items() if store not in failures]
            )
        return failures

    def _held(self) -> tuple[dict[int, LedgerDirectory], dict[LedgerDirectory, OSError]]:
        """All ledgers of the directories whose indexes tell theirs, and the errors of the others:
        nothing is collected there."""
        held: dict[int, LedgerDirectory] = {}
        failures: dict[LedgerDirectory, OSError] = {}
        for store in self._storage.stores:
            try:
                held |= {record.ledger_id: store for record in store.index.ledgers()}
            except OSError as error:
                let_go(error)  # or the index can't be opened again after a full disk
                failures[store] = error
        return held, failures

    def _stored(self, logs: list[tuple[LedgerDirectory, list[int]]]) -> set[int]:
        """Ledgers with blocks in the logs, regardless of the index."""
        self.maps.begin()
        stored: set[int] = set()
        for store, log_ids in logs:
            for log_id in log_ids:
                stored.update(self.maps.of(store, log_id).ids)
        return stored

    def _delete(self, garbage: dict[int, LedgerDirectory]) -> dict[LedgerDirectory, OSError]:
        failures: dict[LedgerDirectory, OSError] = {}
        for store in self._storage.stores:
            ids = [ledger_id for ledger_id, holder in garbage.items() if holder is store]
            try:
                if ids:
                    store.index.delete_ledgers(ids)
            except OSError as error:
                failures[store] = error
        return failures

    def _collect_logs(
        self,
        store: LedgerDirectory,
        log_ids: list[int],
        threshold: float,
        known: set[int],
        deleted: set[int],
    ) -> tuple[int, int]:
        held = {record.ledger_id for record in store.index.ledgers()}
        held.update(self._storage.table.states)
        held -= deleted
        unknown = known - held
        held |= known
        missed: set[int] = set()
        logs: dict[int, LogUse] = {}
        for log_id in log_ids:
            found = self.maps.of(store, log_id)
            live = found.live(held.__contains__)
            if not found.is_known and (held or found is UNREADABLE):  # it may have more in it
                live = max(1, found.total)
            logs[log_id] = LogUse(max(live, found.total), live)
            if unknown:
                missed |= unknown.intersection(found.ids)
        self._check_index(store, sorted(missed))
        removable, sparse = plan_logs(logs, threshold)
        metrics = store.metrics
        metrics.ledgers = len(held)
        metrics.logs = len(logs) - len(removable)
        metrics.log_bytes = sum(use.total for use in logs.values())
        failure: OSError | None = None
        for log_id in removable:
            try:
                store.logs.remove(log_id)
            except OSError as error:  # of this log, perhaps
                metrics.undeleted_logs += 1
                failure = failure or error
                continue
            self.maps.forget(store, log_id)
            metrics.deleted_bytes += logs[log_id].total
            metrics.log_bytes -= logs[log_id].total
        compacted = 0
        if store in self._incomplete:  # compaction keeps only blocks in the index
            sparse = []
        for log_id in sparse:
            if (store, log_id) in self._left:
                continue
            try:
                kept = self._compact(store, log_id)
            except CompactionStopped:
                break
            if kept is not None:
                self.maps.forget(store, log_id)
                metrics.compacted_bytes += max(0, logs[log_id].total - kept)
                compacted += 1
        if failure is not None:
            raise failure
        return len(removable), compacted

    def _compact(self, store: LedgerDirectory, log_id: int) -> int | None:
        """The moved bytes; None if the log can't be read. Raises CompactionStopped, OSError."""
        try:
            return compact_log(store.logs, store.index, log_id, self._throttle())
        except LogDamaged as damage:
            logger.error("blocks can't be read, the log is kept as it is: %s", damage)
            self._left.add((store, log_id))
        except CompactionUnfinished as stop:
            # Again and again would leave one more copy each time. The next start tells which of
            # both the index names.
            self._left |= {(store, log_id), (store, stop.copy_id)}
            raise stop.error from stop
        except OSError as error:
            if isinstance(error, IndexFailed) or is_full(error):
                raise
            logger.error("an entry log can't be compacted now: %s", error)
        return None

    def check_damage(self) -> None:
        """Let the next start make anew an index that was found to be damaged, and rebuild one that
        was found to lack something. What fails is tried again by the next round, or at the end.
        Logged once. Blocks."""
        for store in self._storage.stores:
            if store in self._to_order and not store.index.is_damaged:
                with _logged("the order to rebuild an index"):
                    order_rebuild(self._storage.disk, store.index.directory)
                    self._to_order.discard(store)
            if not store.index.is_damaged or store in self._unsound:
                continue
            self._incomplete.add(store)
            mark = unsound_mark(store.index.directory)
            try:
                replace_file(self._storage.disk, mark, b"")
            except OSError as error:
                logger.error("%s: its index is damaged, and can't be marked: %s", mark, error)
                continue
            self._unsound.add(store)
            self._to_order.discard(store)
            logger.error(
                "%s: its index is damaged, some entries can't be read, and no log is compacted; "
                "restart the bookie to rebuild the index",
                store.logs.directory,
            )

    def _check_index(self, store: LedgerDirectory, missed: Sequence[int]) -> None:
        """If a ledger of the metadata is in a log but not in the index, let the next start rebuild
        the index, by `check_damage`. Logged once."""
        if missed and store not in self._incomplete:
            self._incomplete.add(store)
            self._to_order.add(store)
            logger.error(
                "%s: the index misses ledger %s, which the entry logs hold (%d ledgers in all): "
                "nothing is collected of them; restart the bookie to rebuild the index",
                store.logs.directory,
                missed[0],
                len(missed),
            )

    def scrub(self) -> list[DamagedEntry]:
        """Check every entry of every log that is complete; returns the damaged ones. Blocks."""
        damaged: list[DamagedEntry] = []
        throttle = self._throttle()
        with contextlib.suppress(CompactionStopped):
            for store in self._storage.stores:
                for log_id in store.logs.finished_ids():
                    try:
                        damaged += scrub_log(store.logs, store.index, log_id, throttle)
                    except OSError as error:
                        logger.error("%s can't be checked: %s", store.logs.path(log_id), error)
        return damaged

    def _throttle(self) -> Callable[[int], None]:
        started, copied = time.monotonic(), 0

        def throttle(size: int) -> None:
            nonlocal copied
            copied += size
            ahead_s = copied / self._options.compaction_rate_bytes_s - (time.monotonic() - started)
            if self._stopping.wait(max(0.0, ahead_s)) or self._stopping.is_set():
                raise CompactionStopped

        return throttle
