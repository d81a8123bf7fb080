"""Adds that wait for room in the write cache (spec BK-03): in order, bounded, then rejected."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from geminga_bookie.errors import TooManyRequests

PendingAdd = Callable[[TooManyRequests | None], bool]
"""Tries the add again and says whether it went in; given an error, it fails the add."""


class Throttle:
    """Loop only. While it defers anything, later adds queue behind: order must hold."""

    def __init__(self, bytes_max: int, wait_max_s: float) -> None:
        self._bytes_max = bytes_max
        self._wait_max_s = wait_max_s
        self._pending: deque[tuple[float, int, PendingAdd]] = deque()
        self._bytes = 0
        self._filled = trio.Event()
        self.rejected = 0

    def __len__(self) -> int:
        return len(self._pending)

    def defer(self, size_bytes: int, add: PendingAdd) -> bool:
        """Keep an add for later; False if the bound is reached."""
        if self._pending and self._bytes + size_bytes > self._bytes_max:
            self.rejected += 1
            return False
        self._pending.append((trio.current_time() + self._wait_max_s, size_bytes, add))
        self._bytes += size_bytes
        self._filled.set()
        return True

    def release(self) -> None:
        """Room was made: adds go in, in order, until one doesn't."""
        while self._pending and self._pending[0][2](None):
            self._bytes -= self._pending.popleft()[1]

    async def run(self) -> None:
        """Reject what has waited for too long."""
        while True:
            if not self._pending:
                self._filled = trio.Event()
                await self._filled.wait()
            await trio.sleep_until(self._pending[0][0] if self._pending else 0.0)
            while self._pending and self._pending[0][0] <= trio.current_time():
                _, size_bytes, add = self._pending.popleft()
                self._bytes -= size_bytes
                self.rejected += 1
                add(TooManyRequests("the write cache is full and its flush takes too long"))
