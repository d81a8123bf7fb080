"""What auditor and worker count, under Apache's names (spec BK-26; Apache's ReplicationStats,
AuditorStats and PrometheusMetricsProvider).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

AUDITOR = "auditor"
WORKER = "replication_worker"

COUNTERS = (
    f"{AUDITOR}_NUM_LEDGERS_CHECKED",
    f"{AUDITOR}_NUM_BOOKIE_AUDITS_DELAYED",
    f"{AUDITOR}_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED",
    f"{WORKER}_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",
    f"{WORKER}_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER",
    f"{WORKER}_NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED",
    f"{WORKER}_NUM_ENTRIES_READ",
    f"{WORKER}_NUM_ENTRIES_WRITTEN",
    f"{WORKER}_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION",
)
GAUGES = (
    f"{AUDITOR}_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY",
    f"{AUDITOR}_NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY",
    f"{AUDITOR}_NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD",
)
SUMMARIES = (
    f"{AUDITOR}_NUM_UNDER_REPLICATED_LEDGERS",
    f"{AUDITOR}_AUDIT_BOOKIES_TIME",
    f"{AUDITOR}_CHECK_ALL_LEDGERS_TIME",
    f"{AUDITOR}_PLACEMENT_POLICY_CHECK_TIME",
    f"{WORKER}_rereplicate",
    f"{WORKER}_NUM_BYTES_READ",
    f"{WORKER}_NUM_BYTES_WRITTEN",
    f"{WORKER}_READ_DATA_LATENCY",
    f"{WORKER}_WRITE_DATA_LATENCY",
)
"""Of each event's value; times are in milliseconds. Apache's have quantiles too."""


@dataclass(slots=True)
class _Summary:
    count: int = 0
    total: float = 0.0


def _summaries() -> dict[tuple[str, bool], _Summary]:
    return {(name, success): _Summary() for name in SUMMARIES for success in (True, False)}


@dataclass(slots=True)
class RecoveryStats:
    """Of one process, since its start."""

    values: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTERS + GAUGES, 0))
    """Of counters and gauges, by name."""
    _by_name: dict[tuple[str, bool], _Summary] = field(default_factory=_summaries)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self.values[name] += amount

    def observe(self, name: str, value: float, *, success: bool = True, count: int = 1) -> None:
        """An event of a summary, or several, of which `value` is the sum."""
        summary = self._by_name[name, success]
        summary.count += count
        summary.total += value

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """An event that takes as long as the block; one that raises or is cancelled has failed."""
        began, success = trio.current_time(), False
        try:
            yield
            success = True
        finally:
            self.observe(name, (trio.current_time() - began) * 1000, success=success)

    def text(self) -> str:
        """For Prometheus."""
        lines: list[str] = []
        for kind, names in (("counter", COUNTERS), ("gauge", GAUGES)):
            for name in names:
                lines += [f"# TYPE {name} {kind}", f"{name} {self.values[name]}"]
        for name in SUMMARIES:
            lines.append(f"# TYPE {name} summary")
            for success in (False, True):
                summary = self._by_name[name, success]
                label = f'{{success="{str(success).lower()}"}}'
                lines += [
                    f"{name}_count{label} {summary.count}",
                    f"{name}_sum{label} {summary.total}",
                ]
        return "\n".join(lines) + "\n"
