"""How many messages a reader prefetches to stay within a number of bytes (SP-03). Pure.

Brokers count messages, not bytes. So a read begins with a queue of one message, and continues with
a queue sized for messages like the first. When messages get larger, it takes a smaller queue.
"""

from __future__ import annotations

STEP = 4
"""A queue is replaced when its size is wrong by this factor."""
SHARE = 0.2
"""Weight of the latest entry in the mean size."""


class Prefetch:
    """The queue of one read: at most `queue_max` messages and about `bytes_max` bytes."""

    def __init__(self, queue_max: int, bytes_max: int) -> None:
        self._queue_max = queue_max
        self._bytes_max = bytes_max
        self._mean_bytes = 0.0
        self._is_first = True
        self.queue_size = 1
        """For the next reader."""

    def took(self, messages: int, size_bytes: int, *, more: bool) -> bool:
        """Count an entry; `more` says that many follow. Returns whether to continue with a new
        reader. Queues grow once and then only shrink, so that this is rare.
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
