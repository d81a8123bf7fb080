"""Adds that wait for room in the write cache (spec BK-03): in order, for a time, up to a bound;
then rejected."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from geminga_bookie.errors import TooManyRequests

Held = Callable[[TooManyRequests | None], bool]
"""Tries the add again and says whether it went in; given an error, it fails the add."""


class Throttle:
    """Loop only. While it holds anything, every later add has to queue behind, so that order
    holds."""

    def __init__(self, bytes_max: int, wait_max_s: float) -> None:
        self._bytes_max = bytes_max
        self._wait_max_s = wait_max_s
        self._held: deque[tuple[float, int, Held]] = deque()
        self._bytes = 0
        self._filled = trio.Event()
        self.rejected = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, size_bytes: int, held: Held) -> bool:
        """Keep an add for later; False if the bound is reached."""
        if self._held and self._bytes + size_bytes > self._bytes_max:
            self.rejected += 1
            return False
        self._held.append((trio.current_time() + self._wait_max_s, size_bytes, held))
        self._bytes += size_bytes
        self._filled.set()
        return True

    def release(self) -> None:
        """Room was made: adds go in, in order, until one doesn't."""
        while self._held and self._held[0][2](None):
            self._bytes -= self._held.popleft()[1]

    async def run(self) -> None:
        """Reject what has waited for too long."""
        while True:
            if not self._held:
                self._filled = trio.Event()
                await self._filled.wait()
            await trio.sleep_until(self._held[0][0] if self._held else 0.0)
            while self._held and self._held[0][0] <= trio.current_time():
                _, size_bytes, held = self._held.popleft()
                self._bytes -= size_bytes
                self.rejected += 1
                held(TooManyRequests("the write cache is full and its flush takes too long"))
