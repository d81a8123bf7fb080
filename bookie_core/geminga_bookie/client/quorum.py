"""Which entries go to which bookie of an ensemble, and which of them an ack quorum has (spec BK-20;
Apache's RoundRobinDistributionSchedule). Pure.

Entry e goes to the bookies at the places e mod E to e mod E + WQ - 1. So what one bookie gets are
runs of WQ entries, with gaps of E - WQ between; without gaps if E is WQ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Quorums(NamedTuple):
    """Sizes of a ledger: ensemble, write quorum, ack quorum."""

    ensemble: int
    write: int
    ack: int

    def next_of(self, place: int, entry_id: int) -> int:
        """The first entry from `entry_id` on that the bookie at that place gets."""
        ahead = (place - entry_id) % self.ensemble
        return entry_id + max(0, ahead - self.write + 1)

    def runs(self, place: int, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Of the entries from `first` to before `end`, those that the bookie at that place gets, in
        as few runs as possible.
        """
        if self.ensemble == self.write:
            if first < end:
                yield first, end
            return
        at = self.next_of(place, first)
        while at < end:
            run_end = min(end, at + (place - at) % self.ensemble + 1)
            yield at, run_end
            at = self.next_of(place, run_end)

    def confirmed_end(self, acked_to: Sequence[int], at: int) -> int:
        """The first entry from `at` on that no ack quorum has, if each bookie has all of its own
        entries before `acked_to`. Costs O(E), whatever the number of entries.
        """
        if self.ensemble == self.write:
            return max(at, sorted(acked_to)[-self.ack])
        ends: list[int] = []
        for place in range(self.ensemble):
            members = [acked_to[(place + n) % self.ensemble] for n in range(self.write)]
            end = max(at, sorted(members)[-self.ack])
            ends.append(end + (place - end) % self.ensemble)
        return min(ends)


class Acked:
    """What one bookie of an ensemble has acknowledged. Runs may come in any order."""

    __slots__ = ("_beyond", "_is_striped", "_place", "_quorums", "to")

    def __init__(self, quorums: Quorums, place: int, first: int) -> None:
        self._quorums = quorums
        self._place = place
        self._is_striped = quorums.write < quorums.ensemble
        self._beyond: dict[int, int] = {}
        self.to = quorums.next_of(place, first)
        """It has all of its entries before this one, which is its next."""

    def add(self, first: int, end: int) -> bool:
        """A run was acknowledged; returns whether `to` moved."""
        if first != self.to:
            if first > self.to:
                self._beyond[first] = max(end, self._beyond.get(first, end))
            return False
        if not self._is_striped and not self._beyond:
            self.to = end
            return True
        while end:
            self.to = self._quorums.next_of(self._place, end)
            end = self._beyond.pop(self.to, 0)
        return True
