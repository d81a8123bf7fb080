"""Which consumer owns which Key_Shared hash: pure (spec BR-31).

AUTO_SPLIT follows ConsistentHashingStickyKeyConsumerSelector and ConsumerNameIndexTracker, STICKY
HashRangeExclusiveStickyKeyConsumerSelector.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Generic, Protocol, TypeVar

from geminga_protocol.keys import KEY_SLOTS, key_slot

RING_POINTS = 100
"""Places of a consumer on the ring (subscriptionKeySharedConsistentHashingReplicaPoints)."""


class Named(Protocol):
    """What a ring knows of a consumer."""

    name: str


C = TypeVar("C", bound=Named)


class Overlap(Exception):
    """Ranges that others have, or that are none."""


class HashRing(Generic[C]):
    """AUTO_SPLIT: consumers share the hashes about evenly; one that comes or goes moves few."""

    first_slot = 1
    mode = "AUTO_SPLIT"

    def __init__(self) -> None:
        self._points: list[int] = []
        self._at: dict[int, list[C]] = {}
        self._cache: dict[int, C | None] = {}
        # Consumers of one name are told apart by the lowest number that is free among them.
        self._numbers: dict[str, dict[int, C]] = {}

    def add(self, consumer: C, ranges: tuple[tuple[int, int], ...]) -> None:
        """Take part. `ranges` are of no meaning here."""
        self._cache.clear()
        same = self._numbers.setdefault(consumer.name, {})
        number = next(n for n in range(len(same) + 1) if n not in same)
        same[number] = consumer
        for point in self._points_of(consumer, number):
            here = self._at.get(point)
            if here is None:
                insort(self._points, point)
                self._at[point] = [consumer]
            else:
                # Who came first keeps a point that two hit.
                here.append(consumer)

    def remove(self, consumer: C) -> None:
        """Leave."""
        self._cache.clear()
        same = self._numbers[consumer.name]
        number = next(n for n, other in same.items() if other is consumer)
        del same[number]
        if not same:
            del self._numbers[consumer.name]
        for point in self._points_of(consumer, number):
            here = self._at[point]
            here.remove(consumer)
            if not here:
                del self._at[point]
                del self._points[bisect_left(self._points, point)]

    def owner(self, slot: int) -> C | None:
        """Who gets entries of this hash."""
        if slot in self._cache:
            return self._cache[slot]
        found: C | None = None
        if self._points:
            at = bisect_left(self._points, slot)
            found = self._at[self._points[at if at < len(self._points) else 0]][0]
        self._cache[slot] = found
        return found

    def ranges(self, consumer: C) -> list[tuple[int, int]]:
        """Hashes of a consumer, for stats."""
        owned: list[tuple[int, int]] = []
        start = 0
        for point in self._points:
            if self.owner(point) is consumer:
                owned.append((start, point))
            start = point + 1
        if self._points and start < KEY_SLOTS and self.owner(KEY_SLOTS - 1) is consumer:
            owned.append((start, KEY_SLOTS - 1))
        return owned

    @staticmethod
    def _points_of(consumer: C, number: int) -> set[int]:
        return {
            key_slot(f"{consumer.name}\0{number}\0{point}".encode(), HashRing.first_slot)
            for point in range(RING_POINTS)
        }


class StickyRanges(Generic[C]):
    """STICKY: each consumer says which hashes it takes; the rest waits."""

    first_slot = 0
    mode = "STICKY"

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[tuple[int, C]] = []

    def add(self, consumer: C, ranges: tuple[tuple[int, int], ...]) -> None:
        """Raises Overlap, and then nothing is changed."""
        if not ranges:
            raise Overlap("Ranges for KeyShared policy must not be empty.")
        ordered = sorted(ranges)
        previous = -1
        for start, end in ordered:
            if start < 0 or end < start or end >= KEY_SLOTS:
                raise Overlap(f"Range [{start}, {end}] is not within [0, {KEY_SLOTS - 1}]")
            if start <= previous:
                raise Overlap(f"Range [{start}, {end}] overlaps another one of this consumer")
            previous = end
            at = bisect_left(self._starts, end + 1)
            if at and self._ends[at - 1][0] >= start:
                other = (self._starts[at - 1], self._ends[at - 1][0])
                raise Overlap(
                    f"Range conflict with consumer {self._ends[at - 1][1].name}: "
                    f"[{start}, {end}] and [{other[0]}, {other[1]}]"
                )
        for start, end in ordered:
            at = bisect_left(self._starts, start)
            self._starts.insert(at, start)
            self._ends.insert(at, (end, consumer))

    def remove(self, consumer: C) -> None:
        """Leave."""
        kept = [
            (start, end)
            for start, end in zip(self._starts, self._ends, strict=True)
            if end[1] is not consumer
        ]
        self._starts = [start for start, _ in kept]
        self._ends = [end for _, end in kept]

    def owner(self, slot: int) -> C | None:
        """Who takes this hash, None if nobody does."""
        at = bisect_left(self._starts, slot + 1) - 1
        if at < 0 or self._ends[at][0] < slot:
            return None
        return self._ends[at][1]

    def ranges(self, consumer: C) -> list[tuple[int, int]]:
        """Hashes of a consumer, for stats."""
        pairs = zip(self._starts, self._ends, strict=True)
        return [(start, end) for start, (end, owner) in pairs if owner is consumer]
