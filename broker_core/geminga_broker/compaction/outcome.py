"""Results of a topic's compactions, for `/compaction`, `/stats` and the metrics (spec BR-50;
Apache's `LongRunningProcessStatus`, `CompactionRecord`).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum

import trio

from geminga_broker.metrics.log_meter import LATENCY_BOUNDS_S
from geminga_broker.topic.stats import CompactionStats
from geminga_runtime.clock import wall_clock_ms


class Status(Enum):
    """State of the last run since the topic was loaded (`LongRunningProcessStatus.Status`)."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass
class Outcome:
    """The last run's result, and sums over all runs since the topic was loaded."""

    status: Status = Status.NOT_RUN
    last_error: str = ""
    stats: CompactionStats = field(default_factory=CompactionStats)
    removed_total: int = 0
    """Removed messages of all runs."""
    successes: int = 0
    failures: int = 0
    read_bytes: int = 0
    """Bytes read in both passes of the last run."""
    written_entries: int = 0
    """Entries that the last run kept."""
    written_bytes: int = 0
    write_latency: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    """Entries of all runs by the time of their write, in buckets."""
    write_us: float = 0.0
    """The sum of these times."""
    _began_s: float = 0.0
    _removed: int = 0

    def began(self) -> None:
        """A run begins."""
        self.status, self.last_error = Status.RUNNING, ""
        self._began_s, self._removed = trio.current_time(), 0
        self.read_bytes = self.written_entries = self.written_bytes = 0

    def removed(self, messages: int) -> None:
        """The first pass has found messages to remove."""
        self._removed = messages
        self.removed_total += messages

    def written(self, size_bytes: int) -> None:
        """The second pass kept an entry."""
        self.written_entries += 1
        self.written_bytes += size_bytes

    def stored(self, entries: int, took_s: float) -> None:
        """Entries that were kept are durable."""
        self.write_latency[bisect_left(LATENCY_BOUNDS_S, took_s)] += entries
        self.write_us += took_s * 1e6 * entries

    @property
    def throughput(self) -> tuple[float, float]:
        """Bytes read and written per second of the last run."""
        took_s = self.stats.last_compaction_duration_time_in_mills / 1000
        if not took_s:
            return 0.0, 0.0
        return self.read_bytes / took_s, self.written_bytes / took_s

    def succeeded(self) -> None:
        """The run's result is stored."""
        self.status = Status.SUCCESS
        self.successes += 1
        self.stats.last_compaction_succeed_timestamp = wall_clock_ms()
        self._end()

    def failed(self, text: str) -> None:
        """The run failed; the old result stays."""
        self.status, self.last_error = Status.ERROR, text
        self.failures += 1
        self.stats.last_compaction_failed_timestamp = wall_clock_ms()
        self._end()

    def _end(self) -> None:
        took_s = trio.current_time() - self._began_s
        self.stats.last_compaction_removed_event_count = self._removed
        self.stats.last_compaction_duration_time_in_mills = round(took_s * 1000)
