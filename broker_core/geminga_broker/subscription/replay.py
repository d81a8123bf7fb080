"""Entries that are to be sent again, by position (spec BR-33), or wait for their hash (BR-31)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Generic, TypeVar

from sortedcontainers import SortedSet

from geminga_broker.log.api import Cursor, Entry
from geminga_protocol.ids import Position

NO_HASH = -1

REPLAY_READ_ENTRIES = 20
"""Entries that are read again at once; after each such read the bound of bytes is looked at."""

C = TypeVar("C")


async def read_some(
    cursor: Cursor, positions: Sequence[Position], bytes_max: int
) -> tuple[Sequence[Position], list[Entry]]:
    """Read entries again until they are about as many bytes: the positions that were asked for, and
    those of their entries that are not acknowledged. Raises LogReadFailed.
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
    """Positions to be read again, ascending. Bounded by what was sent and not acknowledged."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: SortedSet[Position] = SortedSet()

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, position: Position) -> bool:
        return position in self._positions

    def add(self, position: Position, key_hash: int = NO_HASH) -> None:
        """Send this entry again. Adding it twice is adding it once."""
        self._positions.add(position)

    def discard(self, position: Position) -> bool:
        """It was acknowledged, or is being sent. Returns whether it was among them."""
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
    """Positions to be read, each with its Key_Shared hash, indexed by who may have them.

    `claimant` says who may get entries of a hash, None if nobody may at the moment; when its answer
    changes, `offer` (one hash) or `claims_changed` (any) must be called. Bounded by what was sent
    and not acknowledged, plus Key_Shared's look-ahead.
    """

    __slots__ = ("_claimant", "_hashes", "_heaps", "_lines", "_stale")

    def __init__(self, claimant: Callable[[int], C | None]) -> None:
        self._claimant = claimant
        self._hashes: dict[Position, int] = {}
        self._lines: dict[int, list[Position]] = {}
        """Positions of a hash, ascending."""
        self._heaps: dict[C, list[tuple[Position, int]]] = {}
        """First position of each hash with the hash, for who may have it; also items that don't
        hold any more, which are told apart when they come up."""
        self._stale = False

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, position: Position) -> bool:
        return position in self._hashes

    @property
    def hashes(self) -> Container[int]:
        """Those of which an entry waits."""
        return self._lines

    def add(self, position: Position, key_hash: int) -> None:
        """Send this entry when its hash may go. Adding it twice is adding it once."""
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
        """It was acknowledged, or is being sent. Returns whether it was among them."""
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
        """Those were acknowledged from outside."""
        for position in [each for each in self._hashes if gone(each)]:
            self.discard(position)

    def offer(self, key_hash: int) -> None:
        """Who may get entries of that hash may have changed, or which is the first of them."""
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
        """Consumers came or went; no reference to one that went is kept."""
        self._heaps.clear()
        self._stale = True

    def claimants(self) -> list[C]:
        """Who may get something of what waits, permits left aside; who was served last is last."""
        if self._stale:
            self._index()
        return [claimant for claimant, heap in self._heaps.items() if heap]

    def first_for(self, claimant: C, entries_max: int) -> list[tuple[Position, int]]:
        """What that consumer should get next, with the hashes; those of a hash in order, hashes by
        their first position. Everything stays queued.
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
