"""A bound of bytes per second (spec BK-26)."""

from __future__ import annotations

import trio


class Pace:
    """Lets so many bytes a second pass on average; all if not positive."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def spend(self, count: int) -> None:
        """Wait until earlier bytes have had their time."""
        if self._bytes_per_s <= 0:
            return
        now = trio.current_time()
        at = max(now, self._free_at)
        self._free_at = at + count / self._bytes_per_s
        if at > now:
            await trio.sleep_until(at)
