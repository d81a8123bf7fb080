"""Holders of Key_Shared hashes' entries, and draining hashes (PIP-379): pure.

A hash drains while a consumer other than its owner holds entries of it. Counts follow
DrainingHashesTracker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from geminga_broker.topic.stats import DrainingHashStats
from geminga_protocol.ids import Position

C = TypeVar("C")


class DrainingHashes(Generic[C]):
    """Counts per hash; bounded by the unacknowledged entries. Only one consumer at a time holds
    entries of a hash, unless out-of-order delivery is allowed.
    """

    __slots__ = ("_cleared", "_draining", "_hashes", "_holders", "_more", "get")

    def __init__(self) -> None:
        self._hashes: dict[Position, int] = {}
        self._holders: dict[int, C] = {}
        self._more: dict[int, int] = {}
        """Held entries of a hash beyond the first one; most hashes have one."""
        self._draining: dict[int, int] = {}
        self._cleared: dict[C, int] = {}
        self.get = self._holders.get
        """The consumer that holds entries of a hash, or None."""

    def __len__(self) -> int:
        return len(self._hashes)

    def hold(self, consumer: C, entries: Iterable[tuple[Position, int]]) -> None:
        """Record entries that are sent, with their hashes."""
        hashes, holders, more = self._hashes, self._holders, self._more
        for position, key_hash in entries:
            hashes[position] = key_hash
            if key_hash in holders:
                more[key_hash] = more.get(key_hash, 0) + 1
            holders[key_hash] = consumer

    def hash_of(self, position: Position) -> int:
        """The hash of a held entry."""
        return self._hashes[position]

    def release(self, position: Position) -> int | None:
        """Record that an entry is acknowledged or given back. Returns the hash whose draining this
        ends, or None.
        """
        key_hash = self._hashes.pop(position, None)
        if key_hash is None:
            return None
        more = self._more
        if more and key_hash in more:
            left = more[key_hash] - 1
            if left:
                more[key_hash] = left
            else:
                del more[key_hash]
            return None
        holder = self._holders.pop(key_hash)
        if key_hash not in self._draining:
            return None
        self._clear(key_hash, holder)
        return key_hash

    def blocks(self, key_hash: int) -> None:
        """Record that an entry waits for this hash."""
        if key_hash in self._draining:
            self._draining[key_hash] += 1

    def moved(self, ranges: Iterable[tuple[int, int]], owner: Callable[[int], C | None]) -> None:
        """Hashes in these ranges have a new owner: held ones begin to drain, or stop if they are
        back at their holder.
        """
        for first, last in ranges:
            slots: Iterable[int] = range(first, last + 1)
            if last - first > len(self._holders):
                slots = [slot for slot in self._holders if first <= slot <= last]
            for slot in slots:
                holder = self._holders.get(slot)
                if holder is None:
                    continue
                if owner(slot) is not holder:
                    self._draining.setdefault(slot, 0)
                elif slot in self._draining:
                    self._clear(slot, holder)

    def gone(self, consumer: C) -> None:
        """A consumer left, after its entries were released."""
        self._cleared.pop(consumer, None)

    def clear(self) -> None:
        """Forget all, as no consumer is left."""
        for kept in (self._hashes, self._holders, self._more, self._draining, self._cleared):
            kept.clear()

    @property
    def draining(self) -> int:
        """The number of draining hashes."""
        return len(self._draining)

    def draining_hashes(self) -> dict[C, list[DrainingHashStats]]:
        """Draining hashes, ascending, by the consumer that they wait for."""
        found: dict[C, list[DrainingHashStats]] = {}
        for slot, blocked in sorted(self._draining.items()):
            waits = DrainingHashStats(slot, 1 + self._more.get(slot, 0), blocked)
            found.setdefault(self._holders[slot], []).append(waits)
        return found

    def cleared_by(self, consumer: C) -> int:
        """The number of hashes that finished draining at that consumer since it joined."""
        return self._cleared.get(consumer, 0)

    def _clear(self, key_hash: int, holder: C) -> None:
        del self._draining[key_hash]
        self._cleared[holder] = self._cleared.get(holder, 0) + 1
