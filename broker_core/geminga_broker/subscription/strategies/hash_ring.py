"""The owners of Key_Shared hashes: pure (spec BR-31).

AUTO_SPLIT follows ConsistentHashingStickyKeyConsumerSelector with ConsumerNameIndexTracker, or
HashRangeAutoSplitStickyKeyConsumerSelector; STICKY follows
HashRangeExclusiveStickyKeyConsumerSelector.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import itemgetter
from typing import Generic, TypeAlias

from geminga_broker.subscription.state import M
from geminga_protocol.keys import KEY_SLOTS, key_slot

RING_POINTS = 100
"""Points of a consumer on the ring (subscriptionKeySharedConsistentHashingReplicaPoints)."""

PAGE_SLOTS = 256
"""Slots whose owners are looked up at once."""

Ranges = list[tuple[int, int]]
"""First and last hash of each range, ascending."""


class CannotAssign(Exception):
    """The consumer can get no hashes; the text goes to the client."""


class HashRing(Generic[M]):
    """AUTO_SPLIT: consumers share the hashes about evenly; a join or leave moves few hashes."""

    first_slot = 1
    mode = "AUTO_SPLIT"

    def __init__(self, points: int = RING_POINTS) -> None:
        self._points_per_consumer = points
        self._points: list[int] = []
        self._at: dict[int, list[M]] = {}
        self._pages: dict[int, list[M]] = {}
        """Owners of the slots of each page that was looked up."""
        self._own: dict[M, list[int]] = {}
        # Consumers with the same name get distinct numbers, each the lowest free one.
        self._numbers: dict[str, dict[int, M]] = {}

    def add(self, consumer: M, ranges: tuple[tuple[int, int], ...]) -> None:
        """Take part. `ranges` are of no meaning here."""
        self._pages.clear()
        same = self._numbers.setdefault(consumer.name, {})
        number = next(n for n in range(len(same) + 1) if n not in same)
        same[number] = consumer
        own = self._own[consumer] = self._points_of(consumer.name, number)
        for point in own:
            here = self._at.get(point)
            if here is None:
                insort(self._points, point)
                self._at[point] = [consumer]
            else:
                # The first consumer keeps a point that several have.
                here.append(consumer)

    def remove(self, consumer: M) -> None:
        """Leave."""
        self._pages.clear()
        same = self._numbers[consumer.name]
        del same[next(n for n, other in same.items() if other is consumer)]
        if not same:
            del self._numbers[consumer.name]
        for point in self._own.pop(consumer):
            here = self._at[point]
            here.remove(consumer)
            if not here:
                del self._at[point]
                del self._points[bisect_left(self._points, point)]

    def owner(self, slot: int) -> M | None:
        """The consumer that gets entries of this hash."""
        page = self._pages.get(slot // PAGE_SLOTS)
        if page is None:
            if not self._points:
                return None
            page = self._pages[slot // PAGE_SLOTS] = self._page(slot - slot % PAGE_SLOTS)
        return page[slot % PAGE_SLOTS]

    def _page(self, first: int) -> list[M]:
        points = self._points
        page: list[M] = []
        at = bisect_left(points, first)
        while len(page) < PAGE_SLOTS:
            # Slots after the last point belong to the first one.
            end = points[at] if at < len(points) else KEY_SLOTS
            owner = self._at[points[at] if at < len(points) else points[0]][0]
            page += [owner] * (min(end, first + PAGE_SLOTS - 1) - first - len(page) + 1)
            at += 1
        return page

    def ranges(self, consumer: M) -> Ranges:
        """Hashes of a consumer, in time proportional to its own points."""
        points = self._points
        owned: Ranges = []
        for point in self._own[consumer]:
            if self._at[point][0] is not consumer:
                continue
            at = bisect_left(points, point)
            first = points[at - 1] + 1 if at else self.first_slot
            if owned and owned[-1][1] == first - 1:
                first = owned.pop()[0]
            owned.append((first, point))
        if owned and self._at[points[0]][0] is consumer and points[-1] < KEY_SLOTS - 1:
            first = points[-1] + 1
            if owned[-1][1] == first - 1:
                first = owned.pop()[0]
            owned.append((first, KEY_SLOTS - 1))
        return owned

    def _points_of(self, name: str, number: int) -> list[int]:
        keys = (f"{name}\0{number}\0{n}".encode() for n in range(self._points_per_consumer))
        return sorted({key_slot(key, self.first_slot) for key in keys})


class SplitRanges(Generic[M]):
    """AUTO_SPLIT without consistent hashing: one range each. A new consumer takes the lower half of
    the largest range; the range of one that leaves goes to the next.
    """

    first_slot = 0
    mode = "AUTO_SPLIT"

    def __init__(self) -> None:
        # A range begins where the one before ended. As in Apache the last end is one more than any
        # hash, which shows in the statistics.
        self._ends: list[int] = []
        self._consumers: list[M] = []

    def add(self, consumer: M, ranges: tuple[tuple[int, int], ...]) -> None:
        """Take part. `ranges` are of no meaning here. Raises CannotAssign if no range is left that
        could be split.
        """
        ends = self._ends
        if not ends:
            ends.append(KEY_SLOTS)
            self._consumers.append(consumer)
            return
        starts = [0, *ends[:-1]]
        sizes = [end - start for start, end in zip(starts, ends, strict=True)]
        size = max(sizes)
        if size <= 1:
            text = f"No more range can assigned to new consumer, assigned consumers {len(ends)}"
            raise CannotAssign(text)
        at = sizes.index(size)
        ends.insert(at, ends[at] - size // 2)
        self._consumers.insert(at, consumer)

    def remove(self, consumer: M) -> None:
        """Leave; the last range is joined to the one before it, any other to the one after it."""
        at = next(n for n, other in enumerate(self._consumers) if other is consumer)
        del self._consumers[at]
        del self._ends[at if at < len(self._ends) - 1 else at - 1]

    def owner(self, slot: int) -> M | None:
        """The consumer that gets entries of this hash."""
        return self._consumers[bisect_left(self._ends, slot)] if self._ends else None

    def ranges(self, consumer: M) -> Ranges:
        """The one range of a consumer."""
        at = next(n for n, other in enumerate(self._consumers) if other is consumer)
        return [(self._ends[at - 1] + 1 if at else 0, self._ends[at])]


class StickyRanges(Generic[M]):
    """STICKY: each consumer names its hashes; entries of other hashes wait."""

    first_slot = 0
    mode = "STICKY"

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[tuple[int, M]] = []
        self._given: dict[M, Ranges] = {}

    def add(self, consumer: M, ranges: tuple[tuple[int, int], ...]) -> None:
        """Take part. Raises CannotAssign for invalid ranges, and for those of other consumers."""
        if not ranges:
            raise CannotAssign("Ranges for KeyShared policy must not be empty.")
        ordered = sorted(ranges)
        before: tuple[int, int] | None = None
        for start, end in ordered:
            if start > end:
                text = f"Fixed hash range start > end for range: [{start},{end}]"
                raise CannotAssign(text)
            if start < 0 or end >= KEY_SLOTS:
                raise CannotAssign(f"Range [{start},{end}] is not within [0,{KEY_SLOTS - 1}]")
            if before is not None and start <= before[1]:
                raise CannotAssign(
                    f"Consumer's own ranges conflict: [{before[0]},{before[1]}] overlaps with "
                    f"[{start},{end}]"
                )
            before = (start, end)
            at = bisect_left(self._starts, end + 1)
            if at and self._ends[at - 1][0] >= start:
                raise CannotAssign(f"Range conflict with consumer {self._ends[at - 1][1].name}")
        # Sort once: thousands of single insertions would each move all later ranges.
        taken = [(start, (end, consumer)) for start, end in ordered]
        pairs = sorted([*zip(self._starts, self._ends, strict=True), *taken], key=itemgetter(0))
        self._starts = [start for start, _ in pairs]
        self._ends = [end for _, end in pairs]
        self._given[consumer] = ordered

    def remove(self, consumer: M) -> None:
        """Leave."""
        self._given.pop(consumer, None)
        kept = [
            (start, end)
            for start, end in zip(self._starts, self._ends, strict=True)
            if end[1] is not consumer
        ]
        self._starts = [start for start, _ in kept]
        self._ends = [end for _, end in kept]

    def owner(self, slot: int) -> M | None:
        """The consumer of this hash, or None."""
        at = bisect_left(self._starts, slot + 1) - 1
        if at < 0 or self._ends[at][0] < slot:
            return None
        return self._ends[at][1]

    def gaps(self, at_most: int) -> Ranges:
        """The first hashes that nobody has."""
        found: Ranges = []
        free = 0
        for first, (last, _) in zip(self._starts, self._ends, strict=True):
            if first > free:
                found.append((free, first - 1))
                if len(found) == at_most:
                    return found
            free = last + 1
        if free < KEY_SLOTS:
            found.append((free, KEY_SLOTS - 1))
        return found

    def ranges(self, consumer: M) -> Ranges:
        """Hashes of a consumer, in order."""
        return self._given.get(consumer, [])


Selector: TypeAlias = HashRing[M] | SplitRanges[M] | StickyRanges[M]
"""Owners of hashes. A join moves the consumer's `ranges` after it, a leave its `ranges` before it.
"""
