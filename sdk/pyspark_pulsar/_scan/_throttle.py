"""Limits how fast a task reads, so that queries don't slow producers down (spec SP-08). Pure."""

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
