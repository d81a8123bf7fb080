"""The entry cache of a broker: the tails of its logs, bounded in bytes (spec BR-03).

A log's cache holds one run of consecutive appended entries per ledger. The oldest are evicted
first: after the slowest active cursor acknowledged them, or if all logs together exceed the bound
(then from the largest cache first).
"""

from __future__ import annotations

from time import perf_counter

from geminga_broker.log.entry import LogEntry, total_size
from geminga_broker.metrics.rates import Rates
from geminga_protocol.ids import Position
from geminga_runtime.metrics.distribution import Distribution

ENTRY_OVERHEAD_BYTES = 400
"""Memory of an entry beside its data: packet header, views, position."""

_KEPT_SHARE = 0.9
"""One eviction goes down to this share of the bound, so that not every append evicts."""


class _Run:
    """Consecutive entries of one ledger, from entry id `first` on."""

    __slots__ = ("entries", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self.entries: list[LogEntry] = []


class LogCache:
    """Entries of one log."""

    __slots__ = ("_owner", "_runs", "hits", "misses", "publishes", "size_bytes")

    def __init__(self, owner: EntryCache) -> None:
        self._owner = owner
        self._runs: dict[int, _Run] = {}
        self.size_bytes = 0
        self.publishes = owner.publishes
        """See `EntryCache.publishes`."""
        self.hits = owner.hits.add
        self.misses = owner.misses.add

    def add(self, ledger_id: int, first: int, entries: list[LogEntry], data_bytes: int) -> None:
        """Add appended entries, `data_bytes` in all. After a gap, earlier ones are dropped."""
        run = self._runs.get(ledger_id)
        if run is None:
            run = self._runs[ledger_id] = _Run(first)
        elif run.first + len(run.entries) != first:
            self._take(run, len(run.entries))
            run.first = first
        run.entries += entries
        self._owner.inserted += len(entries)
        self._count(data_bytes + len(entries) * ENTRY_OVERHEAD_BYTES)
        self._owner.shrink()

    def get(self, ledger_id: int, first: int, last: int) -> list[LogEntry]:
        """Entries first..last, or fewer if not all are there; empty if the first is not."""
        run = self._runs.get(ledger_id)
        if run is None or first < run.first:
            return []
        return run.entries[first - run.first : last - run.first + 1]

    def evict_upto(self, position: Position) -> None:
        """Drop entries up to the position, inclusive."""
        ledger_id, entry_id = position
        for key in [key for key in self._runs if key <= ledger_id]:
            run = self._runs[key]
            count = len(run.entries) if key < ledger_id else entry_id + 1 - run.first
            self._take(run, min(max(count, 0), len(run.entries)))
            if key < ledger_id:
                del self._runs[key]

    def evict_bytes(self, size_bytes: int) -> None:
        """Drop the oldest entries, at least `size_bytes` of them."""
        target = self.size_bytes - size_bytes
        for key in sorted(self._runs):
            run = self._runs[key]
            left = self.size_bytes - target
            count = 0
            for entry in run.entries:
                if left <= 0:
                    break
                left -= entry.size + ENTRY_OVERHEAD_BYTES
                count += 1
            self._take(run, count)
            if run.entries:
                return
            del self._runs[key]

    def truncate(self, ledger_id: int, first: int) -> None:
        """Drop entries of the ledger from `first` on: they were not written."""
        run = self._runs.get(ledger_id)
        if run is not None:
            keep = min(max(0, first - run.first), len(run.entries))
            self._owner.evicted += len(run.entries) - keep
            self._count(-_weight(run.entries[keep:]))
            del run.entries[keep:]

    def clear(self) -> None:
        """Drop everything."""
        self._owner.evicted += sum(len(run.entries) for run in self._runs.values())
        self._runs.clear()
        self._count(-self.size_bytes)
        self._owner.forget(self)

    def _take(self, run: _Run, count: int) -> None:
        if count:
            self._owner.evicted += count
            self._count(-_weight(run.entries[:count]))
            del run.entries[:count]
            run.first += count

    def _count(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._owner.size_bytes += size_bytes


class EntryCache:
    """The caches of all logs of a broker."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self.inserted = self.evicted = 0
        """Entries since the start; what is left is cached."""
        self.evictions = 0
        """How often the bound was exceeded."""
        self.hits = Rates(perf_counter())
        """Entries and bytes that were read from it, by times of `perf_counter`."""
        self.misses = Rates(perf_counter())
        """Entries and bytes that were read from bookies instead."""
        self.publishes = Distribution()
        """Time from an append to its result, of all logs, s."""
        self._logs: dict[LogCache, None] = {}

    def resize(self, bytes_max: int) -> None:
        """Another bound."""
        self.bytes_max = bytes_max
        self.shrink()

    def new_log(self) -> LogCache:
        """The cache of one more log."""
        log = LogCache(self)
        self._logs[log] = None
        return log

    def forget(self, log: LogCache) -> None:
        """Forget a closed log's cache."""
        self._logs.pop(log, None)

    def shrink(self) -> None:
        """Evict until the bound holds, the largest caches first."""
        if self.size_bytes <= self.bytes_max:
            return
        target = int(self.bytes_max * _KEPT_SHARE)
        self.evictions += 1
        for log in sorted(self._logs, key=lambda log: log.size_bytes, reverse=True):
            excess = self.size_bytes - target
            if excess <= 0:
                return
            log.evict_bytes(min(excess, max(log.size_bytes // 2, ENTRY_OVERHEAD_BYTES)))
        if self.size_bytes > self.bytes_max:
            self.shrink()


def _weight(entries: list[LogEntry]) -> int:
    return total_size(entries) + len(entries) * ENTRY_OVERHEAD_BYTES
