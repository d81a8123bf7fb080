"""What a bookie's server counts of requests (spec BK-13; Apache's RequestStats). Loop only."""

from __future__ import annotations

from geminga_bookie.errors import BookkeeperError, TooManyRequests
from geminga_runtime.metrics.distribution import Outcomes

ASIDE = (
    "READ_LAC",
    "WRITE_LAC",
    "FORCE_LEDGER",
    "GET_BOOKIE_INFO",
    "GET_LIST_OF_ENTRIES_OF_LEDGER",
    "READ_ENTRY_FENCE",
    "READ_ENTRY_LONG_POLL",
)
"""Requests beside adds and reads, by the names of their metrics."""

TOGETHER = 0.05
"""Runs whose times differ by this share count as one: half of a bucket's width."""


class ServerMetrics:
    """Requests of all connections. Times are in seconds, from the read of the socket that brought
    the request to the answer that is queued for it.
    """

    def __init__(self) -> None:
        self.adds = Outcomes()
        self.recovery_adds = Outcomes()
        self.reads = Outcomes()
        self.stored_reads = Outcomes()
        """Without the wait for a turn among the connection's reads."""
        self.aside = {name: Outcomes() for name in ASIDE}
        self.add_bytes = Outcomes()
        self.read_bytes = Outcomes()
        self.bytes_written = 0
        self.bytes_read = 0
        self.adds_begun = 0
        self._began_s = self._ended_s = self._until_s = -1.0
        self._count = self._size = 0
        self.reads_in_progress = 0
        self.adds_rejected = 0
        self.reads_rejected = 0
        self.blocked = 0
        """Connections from which nothing is read, because too much of them is not answered."""
        self.blocked_waits = Outcomes()
        self.last_entry_missing = 0

    def added(
        self,
        began_s: float,
        ended_s: float,
        count: int,
        size: int,
        error: BookkeeperError | None,
        *,
        recovery: bool,
    ) -> None:
        """Some adds of one run are answered; `size` is of their packets.

        Runs of one read of the socket that are answered together are counted together: where each
        has one entry, that is most of the work.
        """
        if began_s == self._began_s and ended_s <= self._until_s and error is None and not recovery:
            self._count += count
            self._size += size
            return
        self.settle()
        if error is None and not recovery:
            self._began_s, self._ended_s = began_s, ended_s
            self._until_s = ended_s + (ended_s - began_s) * TOGETHER
            self._count, self._size = count, size
            return
        self._add(ended_s - began_s, count, size, failed=error is not None)
        if recovery:
            self.recovery_adds.add(ended_s - began_s, count, failed=error is not None)
        if isinstance(error, TooManyRequests):
            self.adds_rejected += count

    def settle(self) -> None:
        """Count what waits to be counted with others. To be called before a scrape."""
        if self._count:
            self._add(self._ended_s - self._began_s, self._count, self._size, failed=False)
            self._count = self._size = 0
            self._began_s = -1.0

    def _add(self, elapsed_s: float, count: int, size: int, *, failed: bool) -> None:
        self.adds.add(elapsed_s, count, failed=failed)
        self.add_bytes.add(size / count if count else 0, count, failed=failed)
        if not failed:
            self.bytes_written += size

    @property
    def adds_in_progress(self) -> int:
        """Adds that are not answered."""
        answered = self.adds.succeeded.count + self.adds.failed.count + self._count
        return self.adds_begun - answered

    def read(self, elapsed_s: float, stored_s: float, count: int, size: int) -> None:
        """Reads of consecutive entries are answered; `size` is of the packets."""
        self.reads_in_progress -= count
        self.reads.add(elapsed_s, count)
        self.stored_reads.add(stored_s, count)
        self.read_bytes.add(size / count, count)
        self.bytes_read += size

    def read_failed(self, elapsed_s: float, stored_s: float, error: BookkeeperError) -> None:
        """One read failed."""
        self.reads_in_progress -= 1
        self.reads.add(elapsed_s, failed=True)
        self.stored_reads.add(stored_s, failed=True)
        self.read_bytes.add(0, failed=True)
        self.reads_rejected += isinstance(error, TooManyRequests)

    def answered(self, name: str, elapsed_s: float, *, failed: bool) -> None:
        """A request beside adds and plain reads is answered; one without a name isn't counted."""
        if name == "READ_ENTRY":
            self.reads.add(elapsed_s, failed=failed)
        elif name in self.aside:
            self.aside[name].add(elapsed_s, failed=failed)
