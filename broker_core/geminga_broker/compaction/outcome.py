"""How a topic's compactions ended: what `/compaction`, `/stats` and the metrics tell (spec BR-50;
Apache's `LongRunningProcessStatus`, `CompactionRecord`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import trio

from geminga_broker.rates import now_ms
from geminga_broker.stats import CompactionStats


class Status(Enum):
    """Of the last run since the topic was loaded (`LongRunningProcessStatus.Status`)."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass
class Outcome:
    """The last run's end and sums over all since the topic was loaded."""

    status: Status = Status.NOT_RUN
    last_error: str = ""
    stats: CompactionStats = field(default_factory=CompactionStats)
    removed_total: int = 0
    """Messages that went, over all runs."""
    successes: int = 0
    failures: int = 0
    read_bytes: int = 0
    """Read in both passes, over all runs."""
    written_bytes: int = 0
    _began_s: float = 0.0
    _removed: int = 0

    def began(self) -> None:
        """A run begins."""
        self.status, self.last_error = Status.RUNNING, ""
        self._began_s, self._removed = trio.current_time(), 0

    def removed(self, messages: int) -> None:
        """What the first pass found to be removed."""
        self._removed = messages
        self.removed_total += messages

    def succeeded(self) -> None:
        """Its result is stored."""
        self.status = Status.SUCCESS
        self.successes += 1
        self.stats.last_compaction_succeed_timestamp = now_ms()
        self._end()

    def failed(self, text: str) -> None:
        """The old result stays."""
        self.status, self.last_error = Status.ERROR, text
        self.failures += 1
        self.stats.last_compaction_failed_timestamp = now_ms()
        self._end()

    def _end(self) -> None:
        took_s = trio.current_time() - self._began_s
        self.stats.last_compaction_removed_event_count = self._removed
        self.stats.last_compaction_duration_time_in_mills = round(took_s * 1000)
