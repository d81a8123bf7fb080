"""How many messages a reader fetches ahead, so that it holds about so many bytes (SP-03). Pure.

Brokers count messages, not bytes. So a read begins with a queue of one entry, and goes on with one
for messages like those it met. When they get larger it takes a smaller one.
"""

from __future__ import annotations

STEP = 4
"""A queue is changed when it is off by that factor."""
SHARE = 0.2
"""How much the latest entry counts in the mean size."""


class Prefetch:
    """The queue of one read: at most `queue_max` messages and about `bytes_max` bytes."""

    def __init__(self, queue_max: int, bytes_max: int) -> None:
        self._queue_max = queue_max
        self._bytes_max = bytes_max
        self._mean_bytes = 0.0
        self._is_first = True
        self.queue_size = 1
        """For a reader that is opened now."""

    def took(self, messages: int, size_bytes: int, *, more: bool) -> bool:
        """An entry was taken, and a lot `more` is to come; answers whether to go on with another
        reader. Queues grow once and then only shrink, so that this stays rare.
        """
        latest = max(1.0, size_bytes / max(1, messages))
        grows = self._is_first and more
        if not self._mean_bytes:
            self._mean_bytes = latest
        self._mean_bytes += SHARE * (latest - self._mean_bytes)
        fitting = max(1, min(self._queue_max, int(self._bytes_max / self._mean_bytes)))
        if not (grows and fitting > messages) and fitting * STEP > self.queue_size:
            return False
        self._is_first = False
        self.queue_size = fitting
        return True
