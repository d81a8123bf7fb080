"""A bound of requests under way, by number and bytes."""

from __future__ import annotations

import trio


class Room:
    """Bounds requests under way by number and bytes; callers wait in turn."""

    def __init__(self, requests_max: int, bytes_max: int) -> None:
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self.requests = 0
        self.bytes = 0
        self._turn = trio.Lock()
        self._released = trio.Event()

    async def acquire(self, size_bytes: int) -> None:
        """Wait for room. A request larger than all of it waits until it is alone."""
        async with self._turn:
            while self.requests and (
                self.requests == self._requests_max or self.bytes + size_bytes > self._bytes_max
            ):
                self._released = trio.Event()
                await self._released.wait()
            self.requests += 1
            self.bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Give room back."""
        self.requests -= 1
        self.bytes -= size_bytes
        self._released.set()
