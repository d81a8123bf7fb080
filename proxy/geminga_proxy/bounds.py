"""Bounds on the memory of requests, for all clients together (spec PX-07). Pure."""

from __future__ import annotations

from collections import Counter

SMALL_BYTES = 4 * 1024
"""Requests up to this size are bounded by their number only (`maxConcurrentLookupRequests`)."""
REQUEST_BYTES_MAX = 64 * 1024
"""Size of a request without a schema: names and patterns are shorter."""
HELD_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of larger requests and of unfinished ones, of all clients. A request that waits for a
broker takes about four times its size.
"""
KEPT_BYTES_MAX = 128 * 1024 * 1024
"""Bytes of request bodies over HTTP that are kept for another broker, of all clients."""


class HeldBytes:
    """Bytes in use, with a bound."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Count `size` bytes until `give`. False, and nothing counted, if above the bound."""
        if self.bytes + size > self.bytes_max:
            return False
        self.bytes += size
        return True

    def give(self, size: int) -> None:
        """Free `size` bytes."""
        self.bytes -= size


class Unfinished:
    """The part of one client's unfinished frame that is counted."""

    def __init__(self, held: HeldBytes) -> None:
        self._held = held
        self._bytes = 0
        self.since_s: float | None = None
        """When the frame became large enough to count."""

    def becomes(self, size: int, now_s: float) -> bool:
        """Replace the counted size by `size` bytes; False if they exceed the bound."""
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


class RequestBudget:
    """Requests of all clients that wait for a broker."""

    def __init__(
        self,
        requests_max: int,
        held: HeldBytes,
        passed_on: Counter[str] | None = None,
        rejected: Counter[str] | None = None,
    ) -> None:
        """`passed_on` and `rejected` count requests by kind."""
        self._requests_max = requests_max
        self.held = held
        self.passed_on = Counter() if passed_on is None else passed_on
        self.rejected = Counter() if rejected is None else rejected
        self.waiting = 0

    @property
    def is_full(self) -> bool:
        """Whether no more requests may wait."""
        return self.waiting >= self._requests_max

    def take(self, kind: str, held_bytes: int) -> bool:
        """Count a request until `give`; False if its bytes exceed the bound."""
        if held_bytes and not self.held.take(held_bytes):
            return False
        self.passed_on[kind] += 1
        self.waiting += 1
        return True

    def give(self, held_bytes: int) -> None:
        """A request no longer waits."""
        self.held.give(held_bytes)
        self.waiting -= 1
