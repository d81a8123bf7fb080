"""The limit of unacknowledged messages of all subscriptions of a broker together (spec BR-32;
Apache's `BrokerService.addUnAckedMessages`).

While the broker is above its limit, subscriptions above a share of the limit are paused: each until
it is below half of that share, all of them until the broker is below half of the limit. Only Shared
and Key_Shared count: the others track no entries.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class BrokerUnackedLimit:
    """Counts unacknowledged messages by subscription. Synchronous."""

    def __init__(self, messages_max: int, share: float) -> None:
        self.total = 0
        self.full = False
        self._max = messages_max
        self._share_max = int(messages_max * share)
        self._counts: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self._paused: dict[Hashable, None] = {}

    def pauses(self, subscription: Hashable) -> bool:
        """Whether the subscription is paused."""
        return subscription in self._paused

    def count(self, subscription: Hashable, unacked: int, wake: Callable[[], None]) -> None:
        """Set the subscription's count; `wake` is called at the end of a pause."""
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
