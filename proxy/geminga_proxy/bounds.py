"""What clients' requests may hold in a proxy together (spec PX-07). Pure."""

from __future__ import annotations

SMALL_BYTES = 4 * 1024
"""Requests up to this size are bounded by their number (`maxConcurrentLookupRequests`)."""
REQUEST_BYTES_MAX = 64 * 1024
"""Of a request that holds no schema: names and patterns are shorter."""
HELD_BYTES_MAX = 32 * 1024 * 1024
"""Of larger requests, and unfinished ones, of all clients. While it waits for a broker a request
takes about four times its size.
"""


KEPT_BYTES_MAX = 128 * 1024 * 1024
"""Of request bodies over HTTP, of all clients; beyond it they can't be sent to another broker."""


class HeldBytes:
    """Bytes of large requests that are under way."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Whether there is room for so much more; then it is counted until `give`."""
        if self.bytes + size > self.bytes_max:
            return False
        self.bytes += size
        return True

    def give(self, size: int) -> None:
        """So much is gone."""
        self.bytes -= size


class Unfinished:
    """What of a client's unfinished frame is counted."""

    def __init__(self, held: HeldBytes) -> None:
        self._held = held
        self._bytes = 0
        self.since_s: float | None = None
        """Since when it has been large."""

    def becomes(self, size: int, now_s: float) -> bool:
        """Whether there is room for it at that size."""
        size = 0 if size <= SMALL_BYTES else size
        if size <= self._bytes:
            self._held.give(self._bytes - size)
        elif not self._held.take(size - self._bytes):
            return False
        self._bytes = size
        if not size:
            self.since_s = None
        elif self.since_s is None:
            self.since_s = now_s
        return True
