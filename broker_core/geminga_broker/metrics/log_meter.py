"""What one log counts for `/metrics` (spec OP-05; Apache's ManagedLedgerMBeanImpl, StatsBuckets).

Everything is counted once for a run of entries: an append, its result, a read. All is of the loop.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from time import perf_counter

from geminga_runtime.metrics.distribution import Distribution

LATENCY_BOUNDS_MS = (0.5, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 1000.0)
SIZE_BOUNDS = (128, 512, 1024, 2048, 4096, 16_384, 102_400, 1 << 20)
"""Bytes of entries."""

LATENCY_BOUNDS_S = tuple(bound / 1000 for bound in LATENCY_BOUNDS_MS)
_LATENCIES = len(LATENCY_BOUNDS_MS) + 1
_SIZES = len(SIZE_BOUNDS) + 1
_US = 1e6
"""Apache sums latencies in microseconds."""

# Places in the list of all figures.
_LEDGER = _LATENCIES + 1
_ENTRY_SIZES = 2 * _LEDGER
_SWITCHES = _ENTRY_SIZES + _SIZES + 1
_COUNTERS = _SWITCHES + _LATENCIES
FIGURES = _COUNTERS + 6
_NOTHING: Sequence[float] = (0,) * FIGURES


class Window:
    """Figures of some time, of one log or of several together."""

    __slots__ = ("figures", "rates")

    def __init__(self) -> None:
        self.figures = _NOTHING
        """Counted in that time."""
        self.rates = _NOTHING
        """The same, per second."""

    def add(self, other: Window) -> None:
        """Add another log's."""
        if not other.is_idle:
            self.figures = list(map(sum, zip(self.figures, other.figures, strict=True)))
            self.rates = list(map(sum, zip(self.rates, other.rates, strict=True)))

    @property
    def is_idle(self) -> bool:
        """Whether nothing was counted."""
        return self.figures is _NOTHING

    @property
    def write_latency(self) -> Sequence[float]:
        """Entries by the time from the append to its result; behind the buckets the sum, in us."""
        return self.figures[:_LEDGER]

    @property
    def ledger_latency(self) -> Sequence[float]:
        """As `write_latency`, without the wait for a ledger."""
        return self.figures[_LEDGER:_ENTRY_SIZES]

    @property
    def entry_sizes(self) -> Sequence[float]:
        """Entries by size; behind the buckets the sum, in bytes."""
        return self.figures[_ENTRY_SIZES:_SWITCHES]

    @property
    def write_rates(self) -> Sequence[float]:
        """Buckets of `write_latency`, per second; behind them the sum."""
        return self.rates[:_LEDGER]

    @property
    def ledger_rates(self) -> Sequence[float]:
        """Buckets of `ledger_latency`, per second; behind them the sum."""
        return self.rates[_LEDGER:_ENTRY_SIZES]

    @property
    def size_rates(self) -> Sequence[float]:
        """Buckets of `entry_sizes`, per second; behind them the sum."""
        return self.rates[_ENTRY_SIZES:_SWITCHES]

    @property
    def switch_rates(self) -> Sequence[float]:
        """Roll-overs to the next ledger by their time, per second."""
        return self.rates[_SWITCHES:_COUNTERS]

    @property
    def written_entries(self) -> float:
        """Entries that were stored."""
        return sum(self.figures[:_LATENCIES])

    @property
    def write_failures(self) -> float:
        """Entries that were not stored."""
        return self.figures[_COUNTERS]

    @property
    def read_entries(self) -> float:
        """Entries that were read."""
        return self.figures[_COUNTERS + 1]

    @property
    def read_failures(self) -> float:
        """Reads that failed."""
        return self.figures[_COUNTERS + 4]

    @property
    def write_rate(self) -> float:
        """Entries stored per second."""
        return sum(self.rates[:_LATENCIES])

    @property
    def write_bytes_rate(self) -> float:
        """Bytes appended per second."""
        return self.rates[_SWITCHES - 1]

    @property
    def read_rate(self) -> float:
        """Entries read per second."""
        return self.rates[_COUNTERS + 1]

    @property
    def read_bytes_rate(self) -> float:
        """Bytes read per second."""
        return self.rates[_COUNTERS + 2]

    @property
    def miss_rate(self) -> float:
        """Entries read from bookies per second."""
        return self.rates[_COUNTERS + 3]

    @property
    def mark_delete_rate(self) -> float:
        """Moves of cursors' mark-delete positions per second."""
        return self.rates[_COUNTERS + 5]


_IDLE = Window()


class CursorMeter:
    """Writes of one durable cursor (Apache's ManagedCursorMXBeanImpl)."""

    __slots__ = (
        "ledger_failures",
        "ledger_writes",
        "node_failures",
        "node_writes",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.ledger_writes = 0
        self.ledger_failures = 0
        self.node_writes = 0
        self.node_failures = 0
        self.written_bytes = 0
        """To its ledger, one copy."""

    def wrote(self, state: Sequence[tuple[bytes]], error: Exception | None) -> None:
        """A write of entries to its ledger has ended."""
        if error is None:
            self.ledger_writes += 1
            self.written_bytes += sum([len(entry) for (entry,) in state])
        else:
            self.ledger_failures += 1


class LogMeter:
    """Counts of one log since it was opened, and of the last window."""

    __slots__ = (
        "_began_s",
        "_group",
        "_group_s",
        "_high",
        "_last",
        "_ledger",
        "_ledger_s",
        "_low",
        "_oldest_s",
        "_publishes",
        "_seen",
        "_size",
        "_sizes",
        "_switches",
        "_waited_s",
        "_waits",
        "_write",
        "_write_s",
        "appended_bytes",
        "copies",
        "mark_deletes",
        "missed_entries",
        "read_bytes",
        "read_entries",
        "read_failures",
        "write_failures",
    )  # fmt: skip

    def __init__(self, publishes: Distribution | None = None) -> None:
        """`publishes` has the latencies of all logs together."""
        self._publishes = publishes or Distribution()
        self._write = [0] * _LATENCIES
        self._write_s = 0.0
        self._ledger = [0] * _LATENCIES
        self._ledger_s = 0.0
        self._sizes = [0] * _SIZES
        self._switches = [0] * _LATENCIES
        self._group, self._group_s, self._waited_s = 0, 0.0, 0.0
        self._waits: deque[tuple[int, float]] = deque()
        """Of entries that were given to the ledger after a wait, and have no result yet: how many,
        and how long each has waited."""
        self._oldest_s = 0.0
        self._size, self._low, self._high = 0, 0.0, 0.0
        """The bucket of the last run's entries, and its bounds."""
        self.copies = 1
        """Bookies that each entry is written to."""
        self.appended_bytes = 0
        self.write_failures = 0
        self.read_entries = 0
        self.read_bytes = 0
        self.missed_entries = 0
        """Of the entries read those that came from bookies."""
        self.read_failures = 0
        self.mark_deletes = 0
        self._began_s = perf_counter()
        self._seen = _NOTHING
        self._last: Window | None = None

    def appended(self, entries: int, size_bytes: int) -> None:
        """A run is appended; each of its entries counts at the mean size."""
        if not self._low * entries < size_bytes <= self._high * entries:
            self._size = bisect_left(SIZE_BOUNDS, size_bytes / (entries or 1))
            bounds = (0, *SIZE_BOUNDS, math.inf)
            self._low, self._high = bounds[self._size], bounds[self._size + 1]
        self._sizes[self._size] += entries
        self.appended_bytes += size_bytes

    def stored(self, entries: int, added_s: float) -> None:
        """Entries are durable that were given to the ledger at that time of `perf_counter`. They
        are counted when all of their group commit are known.
        """
        if not self._group:
            self._oldest_s = added_s
        self._group += entries
        self._group_s += added_s * entries
        while self._waits and entries:
            waiting, waited_s = self._waits.popleft()
            if waiting > entries:
                self._waits.appendleft((waiting - entries, waited_s))
            counted = min(waiting, entries)
            self._waited_s += waited_s * counted
            entries -= counted

    def failed(self, entries: int) -> None:
        """Entries were not stored, nor will be those behind them."""
        self.write_failures += entries
        self._waits.clear()

    def waited(self, entries: int, took_s: float) -> None:
        """Entries waited so long for a ledger, and are given to it now. Results come in order."""
        self._waits.append((entries, took_s))

    def committed(self) -> tuple[int, float]:
        """A group commit has ended: each of its entries counts at their mean time. Returns their
        number, and the time of the oldest.
        """
        entries = self._group
        if not entries:
            return 0, 0.0
        now_s = perf_counter()
        spent_s = now_s * entries - self._group_s
        bucket = bisect_left(LATENCY_BOUNDS_S, spent_s / entries)
        self._ledger[bucket] += entries
        self._ledger_s += spent_s
        if self._waited_s:
            spent_s += self._waited_s
            bucket = bisect_left(LATENCY_BOUNDS_S, spent_s / entries)
        self._write[bucket] += entries
        self._write_s += spent_s
        self._publishes.add(spent_s / entries, entries)
        self._group, self._group_s, self._waited_s = 0, 0.0, 0.0
        return entries, now_s - self._oldest_s

    def switched(self, took_s: float) -> None:
        """The log has rolled over to another ledger."""
        self._switches[bisect_left(LATENCY_BOUNDS_S, took_s)] += 1

    def read(self, entries: int, size_bytes: int) -> None:
        """Entries were read."""
        self.read_entries += entries
        self.read_bytes += size_bytes

    def window(self, now_s: float, period_s: float) -> Window:
        """Figures of the last whole period, or of the time since the last scrape if that is
        longer; before the first one is whole, of the time since the log was opened.
        """
        elapsed_s = now_s - self._began_s
        if self._last is not None and elapsed_s < period_s:
            return self._last
        found = _IDLE
        figures = self._figures()
        if figures != self._seen:
            found = Window()
            found.figures = [now - seen for now, seen in zip(figures, self._seen, strict=True)]
            if elapsed_s > 0:
                found.rates = [count / elapsed_s for count in found.figures]
        if elapsed_s >= period_s:
            self._began_s, self._seen, self._last = now_s, figures, found
        return found

    def _figures(self) -> Sequence[float]:
        return (
            *self._write,
            self._write_s * _US,
            *self._ledger,
            self._ledger_s * _US,
            *self._sizes,
            self.appended_bytes,
            *self._switches,
            self.write_failures,
            self.read_entries,
            self.read_bytes,
            self.missed_entries,
            self.read_failures,
            self.mark_deletes,
        )
