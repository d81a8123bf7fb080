"""Series of storage: histograms of topics and namespaces, managed ledgers, their cursors and their
cache (spec OP-05; Apache's ManagedLedgerMetrics, ManagedCursorMetrics, ManagedLedgerCacheMetrics).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from time import perf_counter
from typing import Protocol

from geminga_broker.log.api import ManagedLedger
from geminga_broker.log.cache import EntryCache
from geminga_broker.log.cursor import LogCursor
from geminga_broker.metrics.exposition import Exposition, Row, Table
from geminga_broker.metrics.log_meter import LATENCY_BOUNDS_MS, SIZE_BOUNDS, Window
from geminga_broker.metrics.pace import Pace
from geminga_runtime.metrics.labels import labels, with_label

LATENCIES = [
    *("le_0_5", "le_1", "le_5", "le_10", "le_20", "le_50", "le_100", "le_200", "le_1000"),
    "overflow",
]
_SIZES = [
    *("le_128", "le_512", "le_1_kb", "le_2_kb", "le_4_kb", "le_16_kb", "le_100_kb", "le_1_mb"),
    "le_overflow",
]
CURSORS_A_UNIT = 4
"""Cursors whose lines are a unit of a turn's work."""

Pairs = Sequence[tuple[str, str]]


class Histograms:
    """Adds the buckets of storage to a page: how many entries each has, not those below it."""

    def __init__(self, text: Exposition) -> None:
        rates = [f"pulsar_storage_{name}_rate" for name in ("write", "read", "read_cache_misses")]
        buckets = [
            f"{name}_{end}"
            for name, ends in (
                ("pulsar_storage_write_latency", LATENCIES),
                ("pulsar_storage_ledger_write_latency", LATENCIES),
                ("pulsar_entry_size", _SIZES),
            )
            for end in [*ends, "sum", "count"]
        ]
        self._table = Table(text, [*rates, *buckets])

    def add(self, window: Window, label_text: str) -> None:
        """Rates and buckets of a topic, or of a namespace without topic level."""
        self._table.add(label_text, _IDLE if window.is_idle else _histograms(window))


def _histograms(window: Window) -> Row:
    found: list[float] = [window.write_rate, window.read_rate, window.miss_rate]
    for figures in (window.write_latency, window.ledger_latency, window.entry_sizes):
        found += figures
        found.append(sum(figures[:-1]))
    return found


_IDLE = _histograms(Window())


class LogTotals(Protocol):
    """What a namespace's managed ledgers are asked for beside their meters."""

    window: Window
    backlog: int
    stored_bytes: int


_ML_BUCKETS = {
    "AddEntryLatencyBuckets": LATENCY_BOUNDS_MS,
    "LedgerAddEntryLatencyBuckets": LATENCY_BOUNDS_MS,
    "LedgerSwitchLatencyBuckets": LATENCY_BOUNDS_MS,
    "EntrySizeBuckets": SIZE_BOUNDS,
}


def add_managed_ledgers(text: Exposition, pairs: Pairs, totals: LogTotals, copies: int) -> None:
    """`pulsar_ml_...` of a namespace. With `copies` each byte is written."""
    window = totals.window
    where = labels(pairs)
    for name, value in (
        ("AddEntryBytesRate", window.write_bytes_rate),
        ("AddEntryWithReplicasBytesRate", window.write_bytes_rate * copies),
        ("AddEntryErrors", window.write_failures),
        ("AddEntryMessagesRate", window.write_rate),
        ("AddEntrySucceed", window.written_entries),
        ("NumberOfMessagesInBacklog", totals.backlog),
        ("ReadEntriesBytesRate", window.read_bytes_rate),
        ("ReadEntriesErrors", window.read_failures),
        ("ReadEntriesRate", window.read_rate),
        ("ReadEntriesOpsCacheMissesRate", window.miss_rate),
        ("ReadEntriesSucceeded", window.read_entries),
        ("StoredMessagesSize", totals.stored_bytes),
        ("MarkDeleteRate", window.mark_delete_rate),
    ):
        text.add(f"pulsar_ml_{name}", where, float(value))
    for (name, bounds), rates in zip(
        _ML_BUCKETS.items(),
        (window.write_rates, window.ledger_rates, window.switch_rates, window.size_rates),
        strict=True,
    ):
        for (low, high), rate in zip(pairwise((0, *bounds)), rates, strict=False):
            # Apache's name for a bucket, as for the others, is that of a quantile.
            quantile = ("quantile", f"{float(low)}_{float(high)}")
            text.add(f"pulsar_ml_{name}", labels([*pairs, quantile]), rate)
        text.add(f"pulsar_ml_{name}_OVERFLOW", where, rates[len(bounds)])


class Cursors:
    """Adds `pulsar_ml_cursor_...` of each durable cursor of a log to a page."""

    def __init__(self, text: Exposition, copies: int, pace: Pace) -> None:
        self._text = text
        self._copies = copies
        self._pace = pace

    @cached_property
    def _table(self) -> Table:
        names = (
            *("nonContiguousDeletedMessagesRange", "persistLedgerSucceed", "persistLedgerErrors"),
            *("persistZookeeperSucceed", "persistZookeeperErrors"),
            *("writeLedgerSize", "writeLedgerLogicalSize"),
        )
        return Table(self._text, [f"pulsar_ml_cursor_{name}" for name in names])

    async def add(self, where: str, log: ManagedLedger) -> None:
        """All of a log."""
        for number, (name, cursor) in enumerate([*log.cursors.items()], 1):
            if number % CURSORS_A_UNIT == 0:
                await self._pace.spend()
            if not isinstance(cursor, LogCursor) or (meter := cursor.meter) is None:
                continue
            one = with_label(with_label(where, "ledger_name", log.name), "cursor_name", name)
            written = meter.written_bytes
            self._table.add(
                one,
                (
                    *(cursor.state.holes, meter.ledger_writes, meter.ledger_failures),
                    *(meter.node_writes, meter.node_failures, written * self._copies, written),
                ),
            )


def cache_figures(cache: EntryCache, logs: int) -> Iterator[tuple[str, float]]:
    """`pulsar_ml_...` of the broker's entry cache."""
    now_s = perf_counter()
    hits, hit_bytes = cache.hits.per_second(now_s)
    misses, missed_bytes = cache.misses.per_second(now_s)
    yield "count", logs
    yield "cache_used_size", cache.size_bytes
    yield "cache_inserted_entries_total", cache.inserted
    yield "cache_evicted_entries_total", cache.evicted
    yield "cache_entries", cache.inserted - cache.evicted
    yield "cache_evictions", cache.evictions
    yield "cache_hits_rate", hits
    yield "cache_misses_rate", misses
    yield "cache_hits_throughput", hit_bytes
    yield "cache_misses_throughput", missed_bytes


QuotaCounts = Mapping[str, int]
"""Evictions by kind of quota."""


def add_evictions(text: Exposition, metric: str, pairs: Pairs, counts: QuotaCounts) -> None:
    """Evictions from backlogs, by the kind of quota that was exceeded."""
    for name, count in counts.items():
        text.add(metric, labels([*pairs, ("quota_type", name)]), count)
