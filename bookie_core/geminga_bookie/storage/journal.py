"""The journal: group commit, with one durable write for all waiting requests (spec BK-01, BK-02).

Behaviour follows `org.apache.bookkeeper.bookie.Journal`. The loop puts requests into a queue; a
thread (or its substitute in `Workers`) takes all of them, writes them as one record, syncs, and
notifies the loop once per group.
"""

from __future__ import annotations

import errno
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from geminga_bookie.errors import BookieReadOnly, BookkeeperError, StorageFailed
from geminga_bookie.options import JournalOptions
from geminga_bookie.port import AddDone, Completion, complete
from geminga_bookie.storage.journal_files import JournalFiles, Segment
from geminga_bookie.storage.journal_format import (
    ENTRIES,
    ITEM_BYTES,
    PREDECESSOR,
    RECORD_HEADER_BYTES,
    JournalPosition,
    encode_item,
    encode_record,
    page_round,
)
from geminga_bookie.workers import Workers
from geminga_runtime.observing.slow import SlowOperations

logger = logging.getLogger(__name__)

BARRIER = 0
IDLE_MARK_S = 0.05
"""After this time without a request the end of the file is marked."""


class Request(NamedTuple):
    """One run of entries, or one fact about a ledger, to be made durable.

    A request of kind BARRIER is not written, but its group is synced. A request with an error is
    not written either: it is only completed in order.
    """

    kind: int
    ledger_id: int
    number: int
    """The first entry id, or a LAC."""
    payload: Sequence[bytes] = ()
    size_bytes: int = 0
    done: AddDone | None = None
    error: BookkeeperError | None = None
    at_s: float = 0.0
    """When it was submitted, of `time.perf_counter`; 0: it isn't measured."""


@dataclass(slots=True)
class JournalStatistics:
    """Counters since the start; `sync_s` is the duration of the last durable write."""

    groups: int = 0
    entries: int = 0
    bytes: int = 0
    sync_s: float = 0.0
    queued: int = 0


class GroupOutcome(NamedTuple):
    """The result of a group."""

    completions: list[Completion]
    error: BookkeeperError | None


class Journal:
    """One journal directory's writer, a `GroupLoop`. `submit` and `finish` are for the event loop;
    the rest blocks."""

    def __init__(
        self,
        files: JournalFiles,
        options: JournalOptions,
        workers: Workers,
        on_failure: Callable[[BookkeeperError], None],
        end: JournalPosition | None = None,
    ) -> None:
        self._files = files
        self._options = options
        self._on_failure = on_failure
        self.requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._driver = workers.drive("bookie-journal", self)
        self._segment: Segment | None = None
        self._end = end
        """End of the last record on disk, of any file: the next file names it."""
        self._is_end_marked = True
        self._unwritten: dict[tuple[int, int], bytes] = {}
        """Items without a callback of failed groups: they are written with the next group."""
        self._doubtful_to: JournalPosition | None = None
        """Without `sync_data`, after a failed sync: written and acknowledged records up to here may
        not be on disk. Barriers fail until a checkpoint has passed it."""
        self._doubt_lock = threading.Lock()
        self._counts = JournalStatistics()
        self._synced_s = 0.0
        self._slow = SlowOperations(logger)
        self.metrics = files.metrics
        self.position = JournalPosition(0, 0)
        """End of the last record on disk, and so acknowledged. Replaced atomically."""
        self.submit = self._driver.submit
        """Queue a request; its `done` is called in order, in the loop. Clients bound the queue, as
        the broker with `maxMessagePublishBufferSizeInMB`: while this disk hangs, the write caches
        may still be flushed to others."""

    def start(self) -> None:
        """Open the first file and begin. Raises OSError."""
        self._segment = self._files.take(0)
        self.position = JournalPosition(self._segment.journal_id, self._segment.offset)
        self._driver.start()

    def stop(self) -> None:
        """Write queued requests, end, and close the file. Blocks."""
        self._driver.stop()
        self._files.close()
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.mark_end()
            segment.file.close()

    def set_mark(self, mark: JournalPosition) -> None:
        """All entries up to the mark are in entry logs: drop older files. Raises OSError."""
        self._files.set_mark(mark)
        with self._doubt_lock:
            if self._doubtful_to is not None and mark >= self._doubtful_to:
                self._doubtful_to = None

    def statistics(self) -> JournalStatistics:
        """Counters for metrics and tests."""
        return replace(self._counts, queued=self.requests.qsize())

    def commit(self, group: list[Request]) -> GroupOutcome:
        """See `GroupLoop.commit`: one record, one durable write."""
        metrics, taken_s = self.metrics, time.perf_counter()
        synced_s = self._synced_s
        metrics.is_writing = True
        error = self._commit(group)
        metrics.is_writing = False
        done_s, failed = time.perf_counter(), error is not None
        syncing_s = self._synced_s - synced_s
        metrics.processing.add(done_s - taken_s - syncing_s, failed=failed)
        metrics.runs.add(len(group), failed=failed)
        metrics.committed(
            [(each.at_s, len(each.payload)) for each in group if each.at_s],
            taken_s,
            done_s,
            failed=failed,
        )
        return GroupOutcome(_completions(group, error), error)

    def finish(self, outcome: GroupOutcome) -> None:
        """See `GroupLoop.finish`."""
        if outcome.error is not None:
            self._on_failure(outcome.error)
        began_s = time.perf_counter()
        complete(outcome.completions)
        self.metrics.callback_s += time.perf_counter() - began_s

    def gather(self) -> tuple[list[Request], bool]:
        """See `GroupLoop.gather`: all waiting requests, up to the bounds of a group."""
        if self._segment is not None and self._options.drops_cached and self._options.sync_data:
            self._segment.drop_cached()  # now that nobody waits for the last group
        take = self.requests.get
        request = self._first_request()
        group: list[Request] = []
        size = entries = 0
        deadline = time.monotonic() + self._options.group_wait_s
        while request is not None:
            group.append(request)
            size += request.size_bytes
            entries += len(request.payload)
            if size >= self._options.group_bytes_max or entries >= self._options.group_entries_max:
                self.metrics.ended_full += 1
                return group, False
            if not self.requests.qsize():
                wait_s = deadline - time.monotonic() if self._options.group_wait_s else 0.0
                if wait_s <= 0:
                    self._count_end()
                    return group, False
                try:
                    request = self.requests.get(timeout=wait_s)
                except queue.Empty:
                    self._count_end()
                    return group, False
            else:
                request = take()
        return group, True

    def _count_end(self) -> None:
        if self._options.group_wait_s:
            self.metrics.ended_late += 1
        else:
            self.metrics.ended_empty += 1

    def _first_request(self) -> Request | None:
        if not self._is_end_marked:
            try:
                return self.requests.get(timeout=IDLE_MARK_S)
            except queue.Empty:
                self.idle()
        return self.requests.get()

    @property
    def idle_wait_s(self) -> float | None:
        """See `GroupLoop.idle_wait_s`."""
        return None if self._is_end_marked else IDLE_MARK_S

    def idle(self) -> None:
        """See `GroupLoop.idle`: mark the end."""
        self._is_end_marked = True
        if self._segment is not None:
            self._segment.mark_end()

    def _commit(self, group: list[Request]) -> BookkeeperError | None:
        try:
            index, packets, barrier = self._encode(group)
            if barrier and self._doubtful_to is not None:
                self._keep_unwritten(group)
                return StorageFailed("journal: a sync failed, the next checkpoint makes it good")
            if index:
                self._write(index, packets)
            elif barrier and self._segment is None:
                self._segment = self._files.take(0)
            if barrier and not (index and self._options.sync_data):
                self._sync()
        except Exception as error:  # also after a defect the callbacks must run
            where, is_defect = self._files.directory, not isinstance(error, OSError)
            logger.error("%s: journal write failed: %s", where, error, exc_info=is_defect)
            if self._segment is not None:
                # After a failed fdatasync the file's contents are unknown: never write there again.
                self._files.spoil(self._segment.journal_id)
                self._segment.file.close()
                self._segment = None
                if not self._options.sync_data:
                    with self._doubt_lock:
                        self._doubtful_to = self.position
            self._keep_unwritten(group)
            full = isinstance(error, OSError) and error.errno == errno.ENOSPC
            return (BookieReadOnly if full else StorageFailed)(f"journal: {error}")
        if self._segment is not None:
            self.position = JournalPosition(self._segment.journal_id, self._segment.offset)
        self._counts.groups += 1
        return None

    def _encode(self, group: list[Request]) -> tuple[list[bytes], list[bytes], bool]:
        index: list[bytes] = [*self._unwritten.values()]
        packets: list[bytes] = []
        barrier = False
        for request in group:
            if request.error is not None:
                continue
            if request.kind == BARRIER:
                barrier = True
            else:
                index.append(encode_item(*request[:4]))
                if request.kind == ENTRIES:
                    packets += request.payload
        self._counts.entries += len(packets)
        return index, packets, barrier

    def _keep_unwritten(self, group: list[Request]) -> None:
        """A ledger's key must come with its entries, if those of a later group are written."""
        for request in group:
            if request.done is None:
                self._unwritten[request.kind, request.ledger_id] = encode_item(*request[:4])

    def _write(self, index: list[bytes], packets: list[bytes]) -> None:
        body_bytes = sum(map(len, packets))
        needed = page_round(RECORD_HEADER_BYTES + ITEM_BYTES + sum(map(len, index)) + body_bytes)
        segment = self._segment
        if segment is None or not segment.room_for(needed):
            if segment is not None:
                if not self._options.sync_data:
                    segment.file.sync()
                segment.file.close()
                self._segment = None
            segment = self._segment = self._files.take(needed)
        if segment.sequence == 0 and self._end is not None:
            index.insert(0, encode_item(PREDECESSOR, *self._end, ()))
        buffers, size = encode_record(
            segment.journal_id, segment.salt, segment.sequence, b"".join(index), packets, body_bytes
        )
        self._is_end_marked = False
        zeros = memoryview(b"")
        if self._options.sync_data:
            # All earlier records of the file were also written durably.
            zeros = segment.zeros_behind(size)
            started = time.perf_counter()
            segment.file.write_durably([*buffers, zeros], segment.offset)
            self._count_sync(time.perf_counter() - started)
        else:
            started = time.perf_counter()
            segment.file.write(buffers, segment.offset)
            self.metrics.flushes.add(time.perf_counter() - started)
        self.metrics.batch_bytes.add(size)
        self.metrics.batch_entries.add(len(packets))
        segment.advance(size, len(zeros))
        self._end = JournalPosition(segment.journal_id, segment.offset)
        self._unwritten.clear()
        self._counts.bytes += size

    def _sync(self) -> None:
        if self._segment is None:
            return
        started = time.perf_counter()
        self._segment.file.sync()
        self._count_sync(time.perf_counter() - started)

    def _count_sync(self, elapsed_s: float) -> None:
        self._counts.sync_s = elapsed_s
        self._synced_s += elapsed_s
        self.metrics.syncs.add(elapsed_s)
        number = 0 if self._segment is None else self._segment.journal_id
        self._slow.ended(elapsed_s, "a sync of the journal's file %016x", number)


def _completions(group: list[Request], error: BookkeeperError | None) -> list[Completion]:
    """The completions of a group: adjacent runs of one ledger are joined."""
    completions: list[Completion] = []
    last_ledger, last_next = -1, -1
    for _, ledger_id, number, payload, _, done, failed, _ in group:
        if done is None:
            continue
        outcome = failed if failed is not None else error
        count = len(payload)
        if completions and ledger_id == last_ledger and number == last_next:
            previous = completions[-1]
            if previous.error is outcome and previous.done == done:
                completions[-1] = Completion(
                    done, previous.first, previous.entries + count, outcome
                )
                last_next += count
                continue
        completions.append(Completion(done, number, count, outcome))
        last_ledger, last_next = ledger_id, number + count
    return completions
