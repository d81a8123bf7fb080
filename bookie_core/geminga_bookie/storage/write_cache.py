"""The write cache (spec BK-03): runs of entries that are not in an entry log yet, by ledger; and
adds that wait for room in it (BK-10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import trio

from geminga_bookie.errors import BookkeeperError, TooManyRequests
from geminga_bookie.metrics.storage import ThrottleMetrics


class CachedRun:
    """Consecutive entries of one ledger; the packets are not copied."""

    __slots__ = ("first", "packets")

    def __init__(self, first: int, packets: list[bytes]) -> None:
        self.first = first
        self.packets = packets


class WriteCache:
    """One half, filled by the loop only. Once sealed, only `drop` changes it."""

    def __init__(self) -> None:
        self._ledgers: dict[int, list[CachedRun]] = {}
        self.size_bytes = 0
        self.record_bytes = 0
        """Memory of changed ledger records that are flushed with it."""

    def put(self, ledger_id: int, first: int, packets: Sequence[bytes], size_bytes: int) -> None:
        """Add a run. The cost is per run, not per entry."""
        self.size_bytes += size_bytes
        runs = self._ledgers.get(ledger_id)
        if runs is None:
            self._ledgers[ledger_id] = [CachedRun(first, list(packets))]
            return
        last = runs[-1]
        if last.first + len(last.packets) == first:
            last.packets.extend(packets)
        else:
            runs.append(CachedRun(first, list(packets)))

    def get(
        self, ledger_id: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> list[bytes] | None:
        """Packets from that entry on within one run, at least one; None if it isn't here.

        Of overlapping runs, the newest counts.
        """
        runs = self._ledgers.get(ledger_id)
        if runs is None:
            return None
        for run in reversed(runs):
            index = entry_id - run.first
            if 0 <= index < len(run.packets):
                return take_bounded(run.packets, index, entries_max, bytes_max)
        return None

    def __iter__(self) -> Iterator[int]:
        """Ids of the ledgers with entries here."""
        return iter(self._ledgers)

    def runs(self, ledger_id: int) -> list[tuple[int, int]]:
        """A ledger's runs, unordered: each from its first entry to before the second number."""
        return [
            (run.first, run.first + len(run.packets)) for run in self._ledgers.get(ledger_id, ())
        ]

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """A ledger's entry ids, unordered, perhaps with duplicates."""
        for first, end in self.runs(ledger_id):
            yield from range(first, end)

    def last_entry(self, ledger_id: int) -> int:
        """A ledger's highest entry id; -1 if there is none."""
        runs = self._ledgers.get(ledger_id, ())
        return max((run.first + len(run.packets) - 1 for run in runs), default=-1)

    def drop(self, ledger_id: int) -> None:
        """Forget a deleted ledger."""
        for run in self._ledgers.pop(ledger_id, ()):
            self.size_bytes -= sum(map(len, run.packets))

    def sorted_runs(self) -> Iterator[tuple[int, CachedRun]]:
        """All runs by ledger and first entry; equal ones from old to new."""
        for ledger_id in sorted(self._ledgers):
            for run in sorted(self._ledgers[ledger_id], key=_first_of):
                yield ledger_id, run

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._ledgers

    def __len__(self) -> int:
        return len(self._ledgers)


def _first_of(run: CachedRun) -> int:
    return run.first


def take_bounded(
    packets: Sequence[bytes], index: int, entries_max: int, bytes_max: int
) -> list[bytes]:
    """A slice from `index` on: at least one packet, then up to the bounds."""
    found = list(packets[index : index + max(1, entries_max)])
    size = 0
    for count, length in enumerate(map(len, found)):
        size += length
        if size > bytes_max:
            return found[: max(1, count)]
    return found


PendingAdd = Callable[[BookkeeperError | None], bool]
"""Retries the add, and returns whether it succeeded; with an error, fails the add."""


class Throttle:
    """Loop only. While it defers an add, later ones queue behind it: order must hold."""

    def __init__(self, bytes_max: int, wait_max_s: float, entries_max: int | None = None) -> None:
        self._bytes_max = bytes_max
        self._entries_max = entries_max
        self._entries = 0
        self._wait_max_s = wait_max_s
        self._pending: deque[tuple[float, int, int, PendingAdd]] = deque()
        self._bytes = 0
        self._filled = trio.Event()
        self.rejected = 0
        self.metrics = ThrottleMetrics()

    def __len__(self) -> int:
        return len(self._pending)

    def defer(self, size_bytes: int, add: PendingAdd, entries: int = 1) -> bool:
        """Defer an add; False if a bound is reached."""
        over = self._bytes + size_bytes > self._bytes_max
        if self._entries_max is not None:
            over |= self._entries + entries > self._entries_max
        if self._pending and over:
            self.rejected += 1
            return False
        self.metrics.deferred += 1
        self._pending.append((trio.current_time() + self._wait_max_s, size_bytes, entries, add))
        self._bytes += size_bytes
        self._entries += entries
        self._filled.set()
        return True

    def defer_first(self, adds: Sequence[tuple[int, PendingAdd]]) -> None:
        """Defer adds, given with their sizes, before all others: they came earlier. Only their
        bytes count, as they did where they waited until now.
        """
        deadline = trio.current_time() + self._wait_max_s
        for size_bytes, add in reversed(adds):
            self._pending.appendleft((deadline, size_bytes, 0, add))
            self._bytes += size_bytes
        self._filled.set()

    def release(self) -> None:
        """There is room: retry adds in order, until one fails."""
        while self._pending and self._pending[0][3](None):
            deadline, size_bytes, entries, _ = self._pending.popleft()
            self._bytes -= size_bytes
            self._entries -= entries
            self.metrics.waits.add(trio.current_time() - deadline + self._wait_max_s)

    async def run(self) -> None:
        """Reject adds that have waited too long."""
        while True:
            if not self._pending:
                self._filled = trio.Event()
                await self._filled.wait()
            await trio.sleep_until(self._pending[0][0] if self._pending else 0.0)
            while self._pending and self._pending[0][0] <= trio.current_time():
                _, size_bytes, entries, add = self._pending.popleft()
                self._bytes -= size_bytes
                self._entries -= entries
                self.rejected += 1
                self.metrics.waits.add(self._wait_max_s, failed=True)
                add(TooManyRequests("the write cache is full and its flush takes too long"))
