"""Entries that wait to be resent (spec BR-33), or for their hash (BR-31), by position."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Generic, TypeVar

from sortedcontainers import SortedSet

from geminga_broker.log.api import Entry, EntryCursor
from geminga_protocol.ids import Position

NO_HASH = -1

REPLAY_READ_ENTRIES = 20
"""Entries of one read; the bound in bytes is checked after each read."""

C = TypeVar("C")


async def read_some(
    cursor: EntryCursor, positions: Sequence[Position], bytes_max: int
) -> tuple[Sequence[Position], list[Entry]]:
    """Reread entries up to about that many bytes. Returns the positions that were read, and their
    unacknowledged entries. Raises LogReadFailed.
    """
    entries: list[Entry] = []
    size = upto = 0
    while upto < len(positions) and size < bytes_max:
        few = await cursor.read_at(positions[upto : upto + REPLAY_READ_ENTRIES])
        upto += REPLAY_READ_ENTRIES
        entries += few
        size += sum([entry.size for entry in few])
    return positions[:upto], entries


class ReplayQueue:
    """Positions to reread, ascending. Bounded by the unacknowledged entries."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: SortedSet[Position] = SortedSet()

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, position: Position) -> bool:
        return position in self._positions

    def add(self, position: Position, key_hash: int = NO_HASH) -> None:
        """Queue an entry; idempotent."""
        self._positions.add(position)

    def discard(self, position: Position) -> bool:
        """Take out an entry that is acknowledged or being sent; returns whether it was queued."""
        if position not in self._positions:
            return False
        self._positions.remove(position)
        return True

    def first(self, entries_max: int) -> list[Position]:
        """The lowest positions."""
        return list(islice(self._positions, entries_max))

    def clear(self) -> None:
        """Forget all."""
        self._positions.clear()


class KeyedReplayQueue(Generic[C]):
    """Positions to reread, each with its Key_Shared hash, indexed by the consumer that may get
    them.

    `claimant` returns the consumer that may get entries of a hash now, or None. When its result
    changes, `offer` (one hash) or `claims_changed` (any) must be called. Bounded by the
    unacknowledged entries, plus Key_Shared's look-ahead.
    """

    __slots__ = ("_claimant", "_hashes", "_heaps", "_lines", "_stale")

    def __init__(self, claimant: Callable[[int], C | None]) -> None:
        self._claimant = claimant
        self._hashes: dict[Position, int] = {}
        self._lines: dict[int, list[Position]] = {}
        """Positions of a hash, ascending."""
        self._heaps: dict[C, list[tuple[Position, int]]] = {}
        """By claimant: the first position of each hash, with the hash; also outdated items, which
        are dropped when they are found."""
        self._stale = False

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, position: Position) -> bool:
        return position in self._hashes

    @property
    def hashes(self) -> Container[int]:
        """Hashes with waiting entries."""
        return self._lines

    def add(self, position: Position, key_hash: int) -> None:
        """Queue an entry; idempotent."""
        if position in self._hashes:
            return
        self._hashes[position] = key_hash
        line = self._lines.get(key_hash)
        if line is None:
            self._lines[key_hash] = [position]
            self.offer(key_hash)
        elif position > line[-1]:
            line.append(position)
        else:
            at = bisect_left(line, position)
            line.insert(at, position)
            if not at:
                self.offer(key_hash)

    def discard(self, position: Position) -> bool:
        """Take out an entry that is acknowledged or being sent; returns whether it was queued."""
        key_hash = self._hashes.pop(position, None)
        if key_hash is None:
            return False
        line = self._lines[key_hash]
        at = bisect_left(line, position)
        del line[at]
        if not line:
            del self._lines[key_hash]
        elif not at:
            self.offer(key_hash)
        return True

    def discard_where(self, gone: Callable[[Position], bool]) -> None:
        """Drop entries that an admin operation or a seek acknowledged."""
        for position in [each for each in self._hashes if gone(each)]:
            self.discard(position)

    def offer(self, key_hash: int) -> None:
        """The claimant of a hash, or its first entry, may have changed."""
        line = self._lines.get(key_hash)
        if line is None or self._stale:
            return
        claimant = self._claimant(key_hash)
        if claimant is None:
            return
        heap = self._heaps.setdefault(claimant, [])
        heappush(heap, (line[0], key_hash))
        if len(heap) > 2 * len(self._lines) + 64:
            self._stale = True

    def claims_changed(self) -> None:
        """Consumers joined or left; drops all references to those that left."""
        self._heaps.clear()
        self._stale = True

    def claimants(self) -> list[C]:
        """Consumers that may get waiting entries, whatever their permits; last served, last."""
        if self._stale:
            self._index()
        return [claimant for claimant, heap in self._heaps.items() if heap]

    def first_for(self, claimant: C, entries_max: int) -> list[tuple[Position, int]]:
        """The next entries for a consumer, with their hashes: each hash's entries in order, hashes
        by their first position. All stay queued.
        """
        heap = self._heaps.pop(claimant, [])
        found: list[tuple[Position, int]] = []
        heads: list[tuple[Position, int]] = []
        while heap and len(found) < entries_max:
            head = heappop(heap)
            position, key_hash = head
            line = self._lines.get(key_hash)
            if line is None or line[0] != position or (heads and heads[-1] == head):
                continue
            if self._claimant(key_hash) is not claimant:
                continue
            heads.append(head)
            found += [(each, key_hash) for each in line[: entries_max - len(found)]]
        for head in heads:
            heappush(heap, head)
        if heap:
            self._heaps[claimant] = heap
        return found

    def clear(self) -> None:
        """Forget all."""
        self._hashes.clear()
        self._lines.clear()
        self._heaps.clear()
        self._stale = False

    def _index(self) -> None:
        self._stale = False
        heaps: dict[C, list[tuple[Position, int]]] = {c: [] for c in self._heaps}
        for key_hash, line in self._lines.items():
            claimant = self._claimant(key_hash)
            if claimant is not None:
                heaps.setdefault(claimant, []).append((line[0], key_hash))
        self._heaps = {claimant: heap for claimant, heap in heaps.items() if heap}
        for heap in self._heaps.values():
            heapify(heap)
