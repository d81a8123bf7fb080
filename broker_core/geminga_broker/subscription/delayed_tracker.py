"""Delayed entries of a subscription, millions of them (pure; spec BR-34; Apache's
BucketDelayedDeliveryTracker).

New entries go to a small heap. A full heap becomes a *run*: columns sorted by time, 24 bytes an
entry. Once a run is saved as a snapshot only its next entries stay in memory; the rest is loaded
when those are taken. The next due entry is the smallest of the heap's and the runs' first ones. A
bitmap for each ledger has the tracked positions: an entry that is reread (after a restart, or when
consumers return) is not tracked twice, and long ranges of tracked entries need not be reread.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from pyroaring import BitMap

from geminga_broker.log.api import Entry
from geminga_protocol.ids import Position

RUN_ENTRIES = 8192
"""Entries of a run: sorting them takes some milliseconds, a snapshot of them 200 KB."""

HEAP_ENTRY_BYTES = 200
RUN_ENTRY_BYTES = 24
"""Memory of an entry in the heap: a tuple with its numbers."""

WINDOW_ENTRIES = 1024
"""Entries of a saved run that stay in memory."""

_HEADER = struct.Struct("<4sHHI")
_MAGIC = b"GDLY"
_VERSION = 1


class BadSnapshot(Exception):
    """Not a snapshot of a run."""


class Columns(NamedTuple):
    """Entries of a run as columns, ascending by (time, position)."""

    due_ms: array[int]
    ledgers: array[int]
    entries: array[int]
    hashes: array[int]

    def part(self, start: int, stop: int) -> Columns:
        """A copy of these entries."""
        return Columns(*(column[start:stop] for column in self))

    def encode(self, kind: int) -> bytes:
        """A snapshot, as in docs/DATA_FILES.md."""
        columns = [column.tobytes() for column in self]
        return b"".join((_HEADER.pack(_MAGIC, _VERSION, kind, len(self.due_ms)), *columns))


def decode(data: bytes | memoryview) -> tuple[int, Columns]:
    """Kind and entries of a snapshot. Raises BadSnapshot."""
    if len(data) < _HEADER.size:
        raise BadSnapshot("it is too short")
    magic, version, kind, count = _HEADER.unpack_from(data)
    columns = Columns(array("q"), array("q"), array("I"), array("i"))
    if magic != _MAGIC or version != _VERSION:
        raise BadSnapshot("it begins with something else")
    if len(data) != _HEADER.size + count * sum(column.itemsize for column in columns):
        raise BadSnapshot("its size is wrong")
    offset = _HEADER.size
    for column in columns:
        end = offset + count * column.itemsize
        column.frombytes(data[offset:end])
        offset = end
    return kind, columns


class Run:
    """Entries ascending by time; `place` is its snapshot's, None without one."""

    __slots__ = ("_start", "columns", "count", "first", "last", "place")

    def __init__(self, columns: Columns, place: tuple[int, int] | None = None) -> None:
        self.count = len(columns.due_ms)
        self.last: tuple[int, int] = max(zip(columns.ledgers, columns.entries, strict=True))
        """Its highest position."""
        self.first = 0
        """Index of the next entry, the number of those taken."""
        self.place = place
        self._start = 0
        self.columns = columns
        """The entries in memory: all of them until the run is saved."""
        if place is not None:
            self.saved(place)

    @property
    def resident(self) -> int:
        """The number of entries in memory."""
        return len(self.columns.due_ms)

    @property
    def is_missing(self) -> bool:
        """Whether the next entry has to be loaded first."""
        return self.first >= self._start + self.resident

    def saved(self, place: tuple[int, int]) -> None:
        """The run has a snapshot now: keep only the next entries."""
        self.place = place
        self._keep(self.columns, self._start)

    def loaded(self, columns: Columns) -> None:
        """The snapshot's entries."""
        self._keep(columns, 0)

    def _keep(self, columns: Columns, start: int) -> None:
        first = self.first - start
        self.columns = columns.part(first, first + WINDOW_ENTRIES)
        self._start = self.first

    def due_ms(self) -> int:
        """When the next entry is due. Only if it isn't missing."""
        return self.columns.due_ms[self.first - self._start]

    def take(self) -> tuple[Position, int]:
        """Remove and return the next entry."""
        index = self.first - self._start
        self.first += 1
        _, ledgers, entries, hashes = self.columns
        return Position(ledgers[index], entries[index]), hashes[index]


class DelayedTracker:
    """Waiting entries, as a set of (time, position, hash) with unique positions. In memory are
    about `entries_max` entries, and a window of each saved run.
    """

    def __init__(self, entries_max: int = 1 << 62, *, restored: bool = True) -> None:
        self.restored = restored
        """Whether all earlier snapshots are restored."""
        self._entries_max = entries_max
        self.unsaved: list[Run] = []
        """Runs without a snapshot."""
        self.finished = False
        """Whether a run ended, so that a snapshot may be unneeded."""
        self._heap: list[tuple[int, Position, int]] = []
        self._runs: list[tuple[int, int, Run]] = []
        self._missing: list[Run] = []
        self._bitmaps: dict[int, BitMap] = {}
        self.tracked_in = self._bitmaps.get
        """The tracked entries of a ledger, None without any. Don't change the bitmap."""
        self._last: tuple[int, int] = (-1, -1)
        self._count = 0
        self._made = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, position: Position) -> bool:
        if position > self._last:
            return False
        bitmap = self._bitmaps.get(position[0])
        return bitmap is not None and position[1] in bitmap

    def clear(self) -> None:
        """Forget all; no snapshot is needed."""
        self._bitmaps.clear()
        self._count = 0
        self._drop_runs(lambda run: True)
        self._last = (-1, -1)
        self.finished = True

    @property
    def idle(self) -> bool:
        """Whether there is nothing to restore, save or collect."""
        return self.restored and not self.unsaved and not self._count

    @property
    def full(self) -> bool:
        """Whether to stop reading until runs are saved."""
        return len(self.unsaved) * RUN_ENTRIES >= self._entries_max

    @property
    def resident(self) -> int:
        """Entries in memory."""
        runs = sum(run.resident for _, _, run in self._runs)
        return len(self._heap) + runs + sum(run.resident for run in self._missing)

    @property
    def size_bytes(self) -> int:
        """The approximate memory of all this."""
        heap = len(self._heap)
        bitmaps = sum(bitmap_bytes(bitmap) for bitmap in self._bitmaps.values())
        return heap * HEAP_ENTRY_BYTES + (self.resident - heap) * RUN_ENTRY_BYTES + bitmaps

    @property
    def next_due_ms(self) -> int | None:
        """Wall clock time of the next entry, 0 if it must be loaded first, None without entries."""
        if self._missing:
            return 0
        found = [queue[0][0] for queue in (self._heap, self._runs) if queue]
        return min(found) if found else None

    @property
    def missing(self) -> Run | None:
        """A run that must be loaded before any entry can be taken."""
        return self._missing[0] if self._missing else None

    def untracked(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries without tracked ones, which were read before."""
        if self._count and entries and entries[0].position <= self._last:
            return [entry for entry in entries if entry.position not in self]
        return entries

    def add(self, due_ms: int, position: Position, key_hash: int) -> None:
        """Track an entry until `due_ms`, unless it is tracked already."""
        if position in self:
            return
        heappush(self._heap, (due_ms, position, key_hash))
        self._track(position)
        if len(self._heap) >= RUN_ENTRIES:
            self._seal()

    def restore(
        self, place: tuple[int, int], columns: Columns, deleted: Callable[[Position], bool]
    ) -> bool:
        """Restore a snapshot without deleted entries; returns whether any entry is left."""
        run = Run(columns, place)
        new = 0
        for ledger_id, entry_id in zip(columns.ledgers, columns.entries, strict=True):
            position = Position(ledger_id, entry_id)
            if position not in self and not deleted(position):
                self._track(position)
                new += 1
        if new:
            self._queue(run)
        return new > 0

    def loaded(self, run: Run, columns: Columns) -> None:
        """The entries of a run that was `missing`, unless it was forgotten meanwhile."""
        if run in self._missing:
            self._missing.remove(run)
            run.loaded(columns)
            self._queue(run)

    def pop_due(self, now_ms: int, entries_max: int) -> list[tuple[Position, int]]:
        """Due entries, earliest first, with their hashes; stops at a run that is `missing`."""
        due: list[tuple[Position, int]] = []
        heap, runs = self._heap, self._runs
        while len(due) < entries_max and not self._missing:
            if heap and (not runs or heap[0][0] <= runs[0][0]):
                if heap[0][0] > now_ms:
                    break
                _, position, key_hash = heappop(heap)
            elif runs and runs[0][0] <= now_ms:
                position, key_hash = self._take_from_run()
            else:
                break
            if self._forget(position):
                due.append((position, key_hash))
        return due

    def discard(self, position: Position) -> None:
        """Forget an entry; its memory is freed when it is due."""
        if position <= self._last and self._forget(position) and not self._count:
            self._drop_runs(lambda run: True)

    def discard_upto(self, mark_delete: Position) -> None:
        """Forget all entries up to `mark_delete`, and the runs without later ones."""
        ledger_id, entry_id = mark_delete
        for key in [key for key in self._bitmaps if key <= ledger_id]:
            bitmap = self._bitmaps[key]
            before = len(bitmap)
            if key < ledger_id:
                bitmap.clear()
            else:
                bitmap.remove_range(0, entry_id + 1)
            self._count -= before - len(bitmap)
            if not bitmap:
                del self._bitmaps[key]
        self._heap = [row for row in self._heap if row[1] > mark_delete]
        heapify(self._heap)
        self._drop_runs(lambda run: not self._count or run.last <= mark_delete)

    def _drop_runs(self, unneeded: Callable[[Run], bool]) -> None:
        """Forget runs; and everything in memory once no entry is tracked."""
        if not self._count:
            self._heap = []
        before = len(self._runs) + len(self._missing)
        self._runs = [queued for queued in self._runs if not unneeded(queued[2])]
        heapify(self._runs)
        self._missing = [run for run in self._missing if not unneeded(run)]
        self.unsaved = [run for run in self.unsaved if not unneeded(run)]
        if len(self._runs) + len(self._missing) < before:
            self.finished = True

    def places(self) -> set[tuple[int, int]]:
        """Snapshots that are still needed."""
        runs = [run for _, _, run in self._runs] + self._missing
        return {run.place for run in runs if run.place is not None}

    def _take_from_run(self) -> tuple[Position, int]:
        _, number, run = self._runs[0]
        taken = run.take()
        if not run.is_missing:
            heapreplace(self._runs, (run.due_ms(), number, run))
            return taken
        heappop(self._runs)
        if run.first < run.count:
            self._missing.append(run)
        else:
            self.finished = True
            if run in self.unsaved:
                self.unsaved.remove(run)
        return taken

    def _queue(self, run: Run) -> None:
        self._made += 1
        heappush(self._runs, (run.due_ms(), self._made, run))

    def _seal(self) -> None:
        """Turn the heap into a run."""
        rows = sorted(self._heap)
        self._heap = []
        run = Run(
            Columns(
                array("q", [row[0] for row in rows]),
                array("q", [row[1][0] for row in rows]),
                array("I", [row[1][1] for row in rows]),
                array("i", [row[2] for row in rows]),
            )
        )
        self.unsaved.append(run)
        self._queue(run)

    def _track(self, position: Position) -> None:
        bitmap = self._bitmaps.get(position[0])
        if bitmap is None:
            bitmap = self._bitmaps[position[0]] = BitMap()
        bitmap.add(position[1])
        self._count += 1
        if position > self._last:
            self._last = position

    def _forget(self, position: Position) -> bool:
        """Returns whether it was tracked: snapshots may hold untracked entries."""
        bitmap = self._bitmaps.get(position[0])
        if bitmap is None or position[1] not in bitmap:
            return False
        bitmap.remove(position[1])
        if not bitmap:
            del self._bitmaps[position[0]]
        self._count -= 1
        return True


def bitmap_bytes(bitmap: BitMap) -> int:
    """Memory of its containers."""
    counts = bitmap.get_statistics()
    return (
        counts["n_bytes_array_containers"]
        + counts["n_bytes_run_containers"]
        + counts["n_bytes_bitset_containers"]
    )
