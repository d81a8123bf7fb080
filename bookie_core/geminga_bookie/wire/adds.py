"""Adds to one bookie that are not answered yet: pure, times come from the caller.

A run is what one call of `add` gave. Its entries have consecutive transaction ids on the wire, so
answers are counted by runs and parts of runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from geminga_bookie.errors import BookkeeperError, RequestTimeout, TooManyRequests
from geminga_bookie.port import AddDone, Completion


class AddLimits(NamedTuple):
    """Bounds of an `AddTable`."""

    unanswered_bytes_max: int
    unanswered_entries_max: int
    queued_bytes_max: int
    queued_entries_max: int


class AddRun:
    """One call of `add`."""

    __slots__ = (
        "answered",
        "bytes",
        "deadline",
        "done",
        "entries",
        "first_entry_id",
        "first_txn",
        "ledger_id",
        "left",
        "master_key",
        "next",
        "packets",
        "recovery",
        "sent_upto",
    )  # fmt: skip

    def __init__(
        self,
        ledger_id: int,
        master_key: bytes,
        first_entry_id: int,
        packets: Sequence[bytes],
        done: AddDone,
        recovery: bool,
        deadline: float,
    ) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        self.first_entry_id = first_entry_id
        self.packets = packets
        self.done = done
        self.recovery = recovery
        self.deadline = deadline
        self.entries = self.left = len(packets)
        self.bytes = sum(map(len, packets))
        self.first_txn = -1
        self.sent_upto = 0
        """Where its requests end in the connection's bytes."""
        self.next = 0
        """Entries before this one are answered."""
        self.answered: bytearray | None = None
        """A byte for each entry, once answers came in another order."""

    def unanswered(self, first: int, stop: int) -> bool:
        """Whether none of its entries `first` to `stop` is answered."""
        if self.answered is None:
            return first >= self.next
        return self.answered.find(1, first, stop) < 0

    def match(self, begin: int, end: int, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Add the transaction ids of those entries `begin` to `end` of the ledger that wait here
        to `found`; returns the other entries.
        """
        first, stop = begin - self.first_entry_id, end - self.first_entry_id
        lower, upper = max(first, 0), min(stop, self.entries)
        if lower >= upper:
            return [(begin, end)]
        if self.unanswered(lower, upper):
            found.append((self.first_txn + lower, upper - lower))
            others = [(first, lower), (upper, stop)]
        elif upper - lower == 1:
            return [(begin, end)]
        else:
            # Some were answered, so an entry was sent twice: one by one.
            others = [(first, lower), (upper, stop)]
            for each in range(lower, upper):
                entry_id = self.first_entry_id + each
                others += [
                    (low - self.first_entry_id, high - self.first_entry_id)
                    for low, high in self.match(entry_id, entry_id + 1, found)
                ]
        return [
            (self.first_entry_id + low, self.first_entry_id + high)
            for low, high in others
            if low < high
        ]

    def answer(self, first: int, count: int, error: BookkeeperError | None) -> list[Completion]:
        """Entries `first` to `first + count` of the run are answered; returns what is new."""
        if self.answered is None:
            if first == self.next:
                self.next += count
                self.left -= count
                return [Completion(self.done, self.first_entry_id + first, count, error)]
            self.answered = bytearray(b"\1" * self.next + bytes(self.entries - self.next))
        found: list[Completion] = []
        stop = first + count
        while (begin := self.answered.find(0, first, stop)) >= 0:
            end = self.answered.find(1, begin, stop)
            end = stop if end < 0 else end
            self.answered[begin:end] = b"\1" * (end - begin)
            self.left -= end - begin
            found.append(Completion(self.done, self.first_entry_id + begin, end - begin, error))
            first = end
        return found

    def fail(self, error: BookkeeperError) -> list[Completion]:
        """All entries that are not answered fail."""
        if self.answered is None and not self.left:
            return []
        first = self.next if self.answered is None else 0
        return self.answer(first, self.entries - first, error)


class _OfLedger:
    """A ledger's runs that were sent, in that order."""

    __slots__ = ("_ascending", "_firsts", "_runs")

    def __init__(self) -> None:
        self._runs: list[AddRun] = []
        self._firsts: list[int] = []
        self._ascending = True
        """Whether each begins behind the one before: no entry was sent twice."""

    def append(self, run: AddRun) -> None:
        if self._runs:
            last = self._runs[-1]
            self._ascending &= last.first_entry_id + last.entries <= run.first_entry_id
        self._runs.append(run)
        self._firsts.append(run.first_entry_id)

    def remove(self, run: AddRun) -> bool:
        """Returns whether it was the only one."""
        at = bisect_left(self._firsts, run.first_entry_id) if self._ascending else 0
        at = self._runs.index(run, at)
        del self._runs[at], self._firsts[at]
        return not self._runs

    def match(self, first_entry_id: int, count: int) -> list[tuple[int, int]]:
        """See `AddTable.txns_of`. A binary search, unless an entry was sent twice."""
        found: list[tuple[int, int]] = []
        parts = [(first_entry_id, first_entry_id + count)]
        at = 0
        if self._ascending:
            at = max(bisect_right(self._firsts, first_entry_id) - 1, 0)
        while at < len(self._runs) and parts:
            run = self._runs[at]
            if self._ascending and run.first_entry_id >= parts[-1][1]:
                break
            left: list[tuple[int, int]] = []
            for begin, end in parts:
                left += run.match(begin, end, found)
            parts = left
            at += 1
        return found


class AddTable:
    """The runs of one bookie: those that wait to be sent, and those that wait for answers."""

    def __init__(self, limits: AddLimits) -> None:
        self._limits = limits
        self._queue: deque[AddRun] = deque()
        self._queued_bytes = 0
        self._queued_entries = 0
        # Sorted by transaction id.
        self._runs: list[AddRun] = []
        self._first_txns: list[int] = []
        self._of_ledger: dict[int, _OfLedger] = {}
        self._sent_bytes = 0
        self._sent_entries = 0

    @property
    def is_empty(self) -> bool:
        """Whether no add waits for anything."""
        return not self._queue and not self._runs

    @property
    def unanswered_bytes(self) -> int:
        """Bytes of runs that were sent."""
        return self._sent_bytes

    @property
    def queued_bytes(self) -> int:
        """Bytes of runs that were not sent."""
        return self._queued_bytes

    def submit(self, run: AddRun) -> BookkeeperError | None:
        """Queue a run; returns why it is refused."""
        limits = self._limits
        if self._queue and (
            self._queued_bytes + run.bytes > limits.queued_bytes_max
            or self._queued_entries + run.entries > limits.queued_entries_max
        ):
            return TooManyRequests(
                f"{self._queued_entries} entries of {self._queued_bytes} bytes wait to be sent"
            )
        self._queue.append(run)
        self._queued_bytes += run.bytes
        self._queued_entries += run.entries
        return None

    def next_to_send(self, txn: int) -> AddRun | None:
        """The next run that may be sent, which gets transaction ids from `txn` on."""
        if not self._queue:
            return None
        run, limits = self._queue[0], self._limits
        if self._runs and (
            self._sent_bytes + run.bytes > limits.unanswered_bytes_max
            or self._sent_entries + run.entries > limits.unanswered_entries_max
        ):
            return None
        self._queue.popleft()
        self._queued_bytes -= run.bytes
        self._queued_entries -= run.entries
        self._sent_bytes += run.bytes
        self._sent_entries += run.entries
        run.first_txn = txn
        self._runs.append(run)
        self._first_txns.append(txn)
        ledger = self._of_ledger.get(run.ledger_id)
        if ledger is None:
            ledger = self._of_ledger[run.ledger_id] = _OfLedger()
        ledger.append(run)
        return run

    def answered(
        self, first_txn: int, count: int, error: BookkeeperError | None = None
    ) -> list[Completion]:
        """Answers to consecutive transaction ids. Those that wait for none are passed over."""
        found: list[Completion] = []
        stop = first_txn + count
        at = max(bisect_right(self._first_txns, first_txn) - 1, 0)
        finished = at
        while at < len(self._runs) and (run := self._runs[at]).first_txn < stop:
            first = max(first_txn - run.first_txn, 0)
            upto = min(stop - run.first_txn, run.entries)
            if first < upto:
                found += run.answer(first, upto - first, error)
            at += 1
            if run.left:
                at -= self._remove(finished, at - 1)
                finished = at
        self._remove(finished, at)
        return found

    def txns_of(self, ledger_id: int, first_entry_id: int, count: int) -> list[tuple[int, int]]:
        """First transaction ids and counts of entries that wait for answers: of an entry that was
        sent twice, those of the earlier one.
        """
        ledger = self._of_ledger.get(ledger_id)
        return [] if ledger is None else ledger.match(first_entry_id, count)

    def _remove(self, begin: int, end: int) -> int:
        """Remove runs that are answered, all at once; returns how many."""
        for run in self._runs[begin:end]:
            self._sent_bytes -= run.bytes
            self._sent_entries -= run.entries
            if self._of_ledger[run.ledger_id].remove(run):
                del self._of_ledger[run.ledger_id]
        del self._runs[begin:end]
        del self._first_txns[begin:end]
        return end - begin

    def holds(self, txn: int) -> bool:
        """Whether the transaction id is one of a run that waits for answers."""
        at = bisect_right(self._first_txns, txn) - 1
        return at >= 0 and txn < self._first_txns[at] + self._runs[at].entries

    def runs_of(self, ledger_id: int) -> list[AddRun]:
        """The ledger's runs, sent or not."""
        return [run for run in (*self._runs, *self._queue) if run.ledger_id == ledger_id]

    @property
    def deadline(self) -> float | None:
        """The earliest one; runs have the same time, so it is that of the oldest."""
        if self._runs:
            return self._runs[0].deadline
        return self._queue[0].deadline if self._queue else None

    def expire(self, now: float) -> tuple[list[Completion], int]:
        """Fail runs whose deadline is over; also returns where the last one's requests end in the
        connection's bytes.
        """
        found: list[Completion] = []
        sent_upto = 0
        late = 0
        for run in self._runs:
            if run.deadline > now:
                break
            late += 1
            sent_upto = max(sent_upto, run.sent_upto)
            found += run.fail(RequestTimeout(f"entries of ledger {run.ledger_id}: no answer"))
        self._remove(0, late)
        while self._queue and self._queue[0].deadline <= now:
            run = self._pop_queued()
            found += run.fail(
                RequestTimeout(f"entries of ledger {run.ledger_id}: not sent in time")
            )
        return found, sent_upto

    def _pop_queued(self) -> AddRun:
        run = self._queue.popleft()
        self._queued_bytes -= run.bytes
        self._queued_entries -= run.entries
        return run

    def fail_all(self, error: BookkeeperError) -> list[Completion]:
        """The connection is lost, or there is none."""
        found: list[Completion] = []
        for run in self._runs:
            found += run.fail(error)
        self._remove(0, len(self._runs))
        while self._queue:
            found += self._pop_queued().fail(error)
        return found
