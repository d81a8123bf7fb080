"""A producer's counters (spec SDK-11; ProducerStats and ProducerStatsRecorderImpl of the Java
client).

Totals are always counted, per entry. Rates and latencies are of the last whole interval of the
client's `stats_interval_s`, and cost nothing if it is 0.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields

import trio

from geminga._connection.background import Background

logger = logging.getLogger("geminga")

_SLOTS = 128
"""Each power of two of latencies has half of these slots: percentiles are within 1.6 %."""


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """A producer's counters, over all partitions. Bytes are those of payloads, before compression.

    Names with `num_` and `send_` are of the last whole interval of `stats_interval_s`; 0 before the
    end of the first one. A latency is the time from queueing a message (of a batch: the first one)
    to its receipt; messages whose receipts arrive in one read count as their oldest.
    """

    num_msgs_sent: int = 0
    """Queued messages."""
    num_bytes_sent: int = 0
    num_send_failed: int = 0
    num_acks_received: int = 0
    """Messages with a receipt."""
    send_msgs_rate: float = 0.0
    """Messages a second."""
    send_bytes_rate: float = 0.0
    send_latency_50pct_ms: float = 0.0
    send_latency_75pct_ms: float = 0.0
    send_latency_95pct_ms: float = 0.0
    send_latency_99pct_ms: float = 0.0
    send_latency_999pct_ms: float = 0.0
    send_latency_max_ms: float = 0.0
    total_msgs_sent: int = 0
    """Since the producer's creation: acknowledged, failed and pending messages."""
    total_bytes_sent: int = 0
    total_send_failed: int = 0
    total_acks_received: int = 0
    total_entries_acknowledged: int = 0
    """Batches, single messages and chunks."""
    pending_queue_size: int = 0
    """Messages without a receipt."""
    pending_bytes: int = 0
    partitions_connected: int = 0
    partition_stats: Mapping[str, ProducerStatistics] = field(default_factory=dict)
    """Those of each partition, by full name; empty for an unpartitioned topic."""


@dataclass(frozen=True, slots=True)
class Interval:
    """One whole interval of a partition; `slots` are counts of latencies by `_slot`."""

    length_s: float = 0.0
    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    acknowledged: int = 0
    slots: Mapping[int, int] = field(default_factory=dict)
    latency_max_s: float = 0.0


_IDLE = Interval()
_SUMMED = [
    *(each.name for each in fields(ProducerStatistics) if each.name.startswith("total_")),
    *("pending_queue_size", "pending_bytes", "partitions_connected"),
]


class Counts:
    """Counters of one partition's producer."""

    __slots__ = (
        "_began",
        "_latency_max_s",
        "_run_latency_s",
        "_slots",
        "entries",
        "failed",
        "failed_bytes",
        "last",
        "messages",
        "read_at_s",
        "run_messages",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.entries = 0
        self.failed = 0
        self.failed_bytes = 0
        self.last = _IDLE
        self.read_at_s = -1.0
        """Arrival time of the receipts counted in `run_messages`."""
        self.run_messages = 0
        self._run_latency_s = 0.0
        self._slots: defaultdict[int, int] | None = None
        self._latency_max_s = 0.0
        self._began = (0, 0, 0, 0)

    def begin_run(self, read_at_s: float, created_s: float, messages: int) -> None:
        """Count the first of several receipts read at one time, for an entry created then."""
        self._end_run()
        self.read_at_s = read_at_s
        self.run_messages = messages
        self._run_latency_s = read_at_s - created_s

    def _end_run(self) -> None:
        messages = self.run_messages
        if not messages:
            return
        slots = self._slots
        if slots is None:
            slots = self._slots = defaultdict(int)
        latency_s = self._run_latency_s
        mantissa, exponent = math.frexp(latency_s + 1e-9)
        slots[exponent * _SLOTS + int(mantissa * _SLOTS)] += messages
        self._latency_max_s = max(self._latency_max_s, latency_s)
        self.run_messages = 0
        self.read_at_s = -1.0

    def lost(self, messages: int, size_bytes: int) -> None:
        """Count a failed entry."""
        self.failed += messages
        self.failed_bytes += size_bytes

    def roll(self, length_s: float, pending: int, pending_bytes: int) -> None:
        """End the interval, and begin the next one."""
        self._end_run()
        sent = self.messages + self.failed + pending
        sent_bytes = self.size_bytes + self.failed_bytes + pending_bytes
        now = (sent, sent_bytes, self.failed, self.messages)
        if now == self._began:
            self.last = _IDLE
            return
        began = self._began
        self.last = Interval(
            length_s,
            sent - began[0],
            sent_bytes - began[1],
            self.failed - began[2],
            self.messages - began[3],
            self._slots if self._slots is not None else {},
            self._latency_max_s,
        )
        self._began = now
        self._slots = None
        self._latency_max_s = 0.0

    def statistics(self, pending: int, pending_bytes: int, connected: bool) -> ProducerStatistics:
        """The counters of this partition."""
        return _described(
            self.last,
            total_msgs_sent=self.messages + self.failed + pending,
            total_bytes_sent=self.size_bytes + self.failed_bytes + pending_bytes,
            total_send_failed=self.failed,
            total_acks_received=self.messages,
            total_entries_acknowledged=self.entries,
            pending_queue_size=pending,
            pending_bytes=pending_bytes,
            partitions_connected=int(connected),
        )


def summed(
    lasts: Iterable[Interval], partitions: Mapping[str, ProducerStatistics]
) -> ProducerStatistics:
    """A producer's counters, summed over its partitions."""
    slots: defaultdict[int, int] = defaultdict(int)
    length_s = latency_max_s = 0.0
    sent = sent_bytes = failed = acknowledged = 0
    for last in lasts:
        length_s = max(length_s, last.length_s)
        latency_max_s = max(latency_max_s, last.latency_max_s)
        sent += last.sent
        sent_bytes += last.sent_bytes
        failed += last.failed
        acknowledged += last.acknowledged
        for slot, count in last.slots.items():
            slots[slot] += count
    each = partitions.values()
    return _described(
        Interval(length_s, sent, sent_bytes, failed, acknowledged, slots, latency_max_s),
        partitions,
        **{name: sum(getattr(part, name) for part in each) for name in _SUMMED},
    )


def _described(
    last: Interval, partitions: Mapping[str, ProducerStatistics] | None = None, **totals: int
) -> ProducerStatistics:
    latencies = percentiles_ms(last.slots, last.latency_max_s, (50, 75, 95, 99, 99.9))
    return ProducerStatistics(
        num_msgs_sent=last.sent,
        num_bytes_sent=last.sent_bytes,
        num_send_failed=last.failed,
        num_acks_received=last.acknowledged,
        send_msgs_rate=last.sent / last.length_s if last.length_s else 0.0,
        send_bytes_rate=last.sent_bytes / last.length_s if last.length_s else 0.0,
        send_latency_50pct_ms=latencies[0],
        send_latency_75pct_ms=latencies[1],
        send_latency_95pct_ms=latencies[2],
        send_latency_99pct_ms=latencies[3],
        send_latency_999pct_ms=latencies[4],
        send_latency_max_ms=last.latency_max_s * 1000,
        partition_stats=partitions or {},
        **totals,
    )


def percentiles_ms(
    slots: Mapping[int, int], max_s: float, percents: Iterable[float]
) -> list[float]:
    """The latency percentiles in ms, for ascending percents; above the exact ones by at most a
    slot's width.
    """
    found: list[float] = []
    ordered = iter(sorted(slots.items()))
    wanted_of_all = sum(slots.values()) / 100
    seen = 0
    latency_s = 0.0
    for percent in percents:
        while seen < percent * wanted_of_all:
            slot, count = next(ordered)
            seen += count
            exponent, mantissa = divmod(slot, _SLOTS)
            latency_s = min(math.ldexp((mantissa + 1) / _SLOTS, exponent), max_s)
        found.append(latency_s * 1000)
    return found


def log_interval(topic: str, name: str, found: ProducerStatistics) -> None:
    """Log the last interval unless it was idle."""
    if not found.num_msgs_sent and not found.num_acks_received and not found.num_send_failed:
        return
    logger.info(
        "%s: producer %s: %.1f msg/s, %.3f Mbit/s, %d acknowledged, %d failed, %d pending;"
        " latency in ms: med %.3f, 95pct %.3f, 99pct %.3f, 99.9pct %.3f, max %.3f",
        topic,
        name,
        found.send_msgs_rate,
        found.send_bytes_rate * 8e-6,
        found.num_acks_received,
        found.num_send_failed,
        found.pending_queue_size,
        found.send_latency_50pct_ms,
        found.send_latency_95pct_ms,
        found.send_latency_99pct_ms,
        found.send_latency_999pct_ms,
        found.send_latency_max_ms,
    )


class Intervals:
    """Calls callbacks at the end of each interval; one task per client."""

    def __init__(self, length_s: float, nursery: Background) -> None:
        """`length_s=0`: no intervals."""
        self.length_s = length_s
        self._nursery = nursery
        self._callbacks: dict[Callable[[], None], None] = {}
        self._runs = False

    def add(self, callback: Callable[[], None]) -> None:
        """Call it at the end of each interval; it must not raise."""
        if self.length_s:
            self._callbacks[callback] = None
            if not self._runs:
                self._runs = True
                self._nursery.start_soon(self._run)

    def remove(self, callback: Callable[[], None]) -> None:
        """Stop calling it."""
        self._callbacks.pop(callback, None)

    async def _run(self) -> None:
        while True:
            await trio.sleep(self.length_s)
            for callback in list(self._callbacks):
                callback()
