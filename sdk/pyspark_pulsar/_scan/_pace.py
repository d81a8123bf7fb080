"""How fast a task reads, so that queries don't slow producers down (spec SP-08), and how many
messages it prefetches to stay within a number of bytes (SP-03). Pure.
"""

from __future__ import annotations

import time
from collections.abc import Callable

BURST_S = 0.25
"""After a pause, this many seconds' worth may be taken at once."""


class Bucket:
    """Computes the pause after each read, so that on average at most `per_s` units a second are
    read.

    The amount is known only afterwards: a large read makes a debt, which the next pause pays.
    """

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._paid_until_s = now_s

    def took(self, amount: float, now_s: float) -> float:
        """Seconds to pause after reading `amount`."""
        begin_s = max(self._paid_until_s, now_s - BURST_S)
        self._paid_until_s = begin_s + amount / self._per_s
        return max(0.0, self._paid_until_s - now_s)


class Throttle:
    """Both limits of a task, messages and bytes a second; None: no limit."""

    def __init__(
        self,
        messages_per_s: float | None,
        bytes_per_s: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        now_s = clock()
        self._messages = None if messages_per_s is None else Bucket(messages_per_s, now_s)
        self._bytes = None if bytes_per_s is None else Bucket(bytes_per_s, now_s)
        self.is_limited = messages_per_s is not None or bytes_per_s is not None
        self.chunk_bytes = float("inf") if bytes_per_s is None else max(1.0, bytes_per_s * BURST_S)
        """Bytes to take at once, so that pauses stay short."""

    def took(self, messages: int, size_bytes: int) -> None:
        """Pause after reading that much, as long as the limits require."""
        now_s = self._clock()
        pause_s = max(
            0.0 if self._messages is None else self._messages.took(messages, now_s),
            0.0 if self._bytes is None else self._bytes.took(size_bytes, now_s),
        )
        if pause_s > 0:
            self._sleep(pause_s)


STEP = 4
"""A queue is replaced when its size is wrong by this factor."""
SHARE = 0.2
"""Weight of the latest entry in the mean size."""


class Prefetch:
    """The queue of one read: at most `queue_max` messages and about `bytes_max` bytes.

    Brokers count messages, not bytes. So a read begins with a queue of one message, and continues
    with a queue sized for messages like the first. When messages get larger, it takes a smaller
    queue.
    """

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
