"""The limit of unacknowledged messages of all subscriptions of a broker together (spec BR-32;
Apache's `BrokerService.addUnAckedMessages`).

While the broker has more than it may, subscriptions with more than a share of that are paused, each
until it has less than half its share, all until the broker has less than half of its limit. Only
Shared and Key_Shared count: the others track nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class BrokerUnackedLimit:
    """Counts by subscription. Everything is synchronous."""

    def __init__(self, messages_max: int, share: float) -> None:
        self.total = 0
        self.full = False
        self._max = messages_max
        self._share_max = int(messages_max * share)
        self._counts: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self._paused: dict[Hashable, None] = {}

    def pauses(self, subscription: Hashable) -> bool:
        """Whether it must not be sent anything now."""
        return subscription in self._paused

    def count(self, subscription: Hashable, unacked: int, wake: Callable[[], None]) -> None:
        """It has so many now; `wake` is called when it may go on after a pause."""
        before, _ = self._counts.pop(subscription, (0, wake))
        if unacked:
            self._counts[subscription] = (unacked, wake)
        self.total += unacked - before
        if not self.full and self.total > self._max:
            self.full = True
            for each, (messages, _) in self._counts.items():
                if messages > self._share_max:
                    self._paused[each] = None
        elif self.full and self.total < self._max / 2:
            self.full = False
            paused, self._paused = self._paused, {}
            for each in paused:
                if (known := self._counts.get(each)) is not None:
                    known[1]()
            if subscription in paused:
                wake()
        if self.full and unacked > self._share_max:
            self._paused[subscription] = None
        elif subscription in self._paused and unacked < self._share_max / 2:
            del self._paused[subscription]
            wake()
