"""Which of a producer's numbered messages were confirmed, and which came: what was lost, what came
again, what came out of order. Memory is bounded by what is under way.
"""

from __future__ import annotations

from collections import Counter, deque

_KEPT_MAX = 200_000
"""So many numbers that came are remembered behind what is settled."""


class Track:
    """The numbers of one producer on one subscription, from 0 on."""

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._confirmed: deque[tuple[float, int]] = deque()
        self._came: set[int] = set()
        self._settled = -1
        self._newest: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        """`confirmed`, `failed`, `received`, `again`, `disordered`, `lost`."""

    @property
    def is_drained(self) -> bool:
        """Whether all that was confirmed has come."""
        return all(number in self._came for _, number in self._confirmed)

    def confirm(self, number: int, now_s: float) -> None:
        """The number's receipt came."""
        self.counts["confirmed"] += 1
        self._confirmed.append((now_s, number))

    def fail(self) -> None:
        """A number was not confirmed: it may come, or not."""
        self.counts["failed"] += 1

    def come(self, number: int, key: str = "") -> int | None:
        """A message was received; order is looked at among those of a key: returns the newest one
        of the key, if this one should have come before it.
        """
        if number <= self._settled or number in self._came:
            self.counts["again"] += 1
            return None
        self._came.add(number)
        self.counts["received"] += 1
        newest = self._newest.get(key, -1)
        self._newest[key] = max(number, newest)
        if not self._in_order or number > newest:
            return None
        self.counts["disordered"] += 1
        return newest

    def settle(self, now_s: float, patience_s: float) -> list[int]:
        """Forget what was confirmed so long ago; returns the numbers of it that have not come."""
        lost = []
        while self._confirmed and now_s - self._confirmed[0][0] >= patience_s:
            _, number = self._confirmed.popleft()
            if number in self._came:
                self._came.discard(number)
            else:
                lost.append(number)
            self._settled = max(self._settled, number)
        self.counts["lost"] += len(lost)
        if len(self._came) > _KEPT_MAX:  # what came though it was never confirmed
            self._came = {number for number in self._came if number > self._settled}
        return lost
