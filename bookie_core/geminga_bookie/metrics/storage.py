"""What a bookie's journals and directories count (spec BK-13; Apache's JournalStats and
DbLedgerStorageStats).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from geminga_runtime.metrics.distribution import Outcomes

Waited = tuple[float, int]
"""When a run was submitted, and how many entries it has."""

TOGETHER = 0.05
"""Runs whose waits differ by this share count as one: half of a bucket's width."""


class JournalMetrics:
    """One journal: written by its thread, but for `callback_s`, which is the loop's."""

    def __init__(self) -> None:
        self.adds = Outcomes()
        self.forces = Outcomes()
        self.waits = Outcomes()
        self.syncs = Outcomes()
        self.flushes = Outcomes()
        self.processing = Outcomes()
        self.batch_entries = Outcomes()
        self.batch_bytes = Outcomes()
        self.runs = Outcomes()
        self.creations = Outcomes()
        """Files that were made, by one thread at a time."""
        self.ended_empty = 0
        """Groups that ended because nothing more waited."""
        self.ended_full = 0
        """Groups that ended at a bound of their size."""
        self.ended_late = 0
        """Groups that ended because their time was over."""
        self.is_writing = False
        self.callback_s = 0.0

    def committed(
        self, runs: Iterable[Waited], taken_s: float, done_s: float, *, failed: bool
    ) -> None:
        """A group is durable, or failed: of each run, how long it waited and how long it took.
        Runs come in order of time; those whose waits differ little count together.
        """
        wait = self.waits.succeeded.add
        outcomes = self.adds
        add = (outcomes.failed if failed else outcomes.succeeded).add
        first_s = until_s = -1.0
        entries = 0
        for at_s, count in runs:
            if at_s <= until_s:
                entries += count
                continue
            if entries:
                wait(taken_s - first_s, entries)
                add(done_s - first_s, entries)
            first_s, entries = at_s, count
            until_s = at_s + (taken_s - at_s) * TOGETHER
        if entries:
            wait(taken_s - first_s, entries)
            add(done_s - first_s, entries)


class DirectoryMetrics:
    """One ledger directory. Flushes and collections each have one thread at a time."""

    def __init__(self) -> None:
        self.flushes = Outcomes()
        self.log_flushes = Outcomes()
        self.index_flushes = Outcomes()
        self.flush_bytes = Outcomes()
        self.loads = Outcomes()
        """Reads of entry logs, without the wait for a thread."""
        self.lookups = Outcomes()
        self._lookup_lock = threading.Lock()
        self.ahead_entries = Outcomes()
        self.ahead_bytes = Outcomes()
        self.write_cache_hits = 0
        self.write_cache_misses = 0
        self.read_cache_hits = 0
        self.read_cache_misses = 0
        self.logs = 0
        self.log_bytes = 0
        self.ledgers = 0
        self.minor_compactions = 0
        self.major_compactions = 0
        self.deleted_ledgers = 0
        self.deleted_bytes = 0
        self.compacted_bytes = 0
        self.undeleted_logs = 0
        self.collections = Outcomes()

    def looked_up(self, elapsed_s: float, *, failed: bool) -> None:
        """The index was asked for an entry; by any of the threads that read."""
        with self._lookup_lock:
            self.lookups.add(elapsed_s, failed=failed)

    def found_in_write_cache(self, entries: int) -> None:
        """Entries were read from a write cache. Loop only."""
        self.write_cache_hits += entries

    def found_in_read_cache(self, entries: int) -> None:
        """Entries were read from the read cache. Loop only."""
        self.write_cache_misses += entries
        self.read_cache_hits += entries

    def missed(self) -> None:
        """An entry was in no cache. Loop only."""
        self.write_cache_misses += 1
        self.read_cache_misses += 1


class PoolMetrics:
    """The threads that read entry logs. Loop only."""

    def __init__(self) -> None:
        self.queued = Outcomes()
        self.runs = Outcomes()
        self.rejected = 0


class ThrottleMetrics:
    """Adds that waited for room in the write cache. Loop only."""

    def __init__(self) -> None:
        self.deferred = 0
        self.waits = Outcomes()
