"""Counters that compute rates on request, without a timer (spec OP-04)."""

from __future__ import annotations

import datetime

WINDOW_S = 1.0
"""Minimal time of a rate; until then the last rate is returned again."""


class Rates:
    """Messages and bytes, total and per second. Times are seconds of a monotonic clock."""

    __slots__ = ("_bytes_before", "_messages_before", "_rates", "_since_s", "bytes", "messages")

    def __init__(self, now_s: float) -> None:
        self.messages = 0
        self.bytes = 0
        self._messages_before = 0
        self._bytes_before = 0
        self._since_s = now_s
        self._rates = (0.0, 0.0)

    def add(self, messages: int, size_bytes: int) -> None:
        """Count a run."""
        self.messages += messages
        self.bytes += size_bytes

    def per_second(self, now_s: float) -> tuple[float, float]:
        """(messages, bytes) per second since the last window began."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= WINDOW_S:
            self._rates = (
                (self.messages - self._messages_before) / elapsed_s,
                (self.bytes - self._bytes_before) / elapsed_s,
            )
            self._messages_before = self.messages
            self._bytes_before = self.bytes
            self._since_s = now_s
        return self._rates


def utc_now() -> str:
    """The time in the form of Apache's stats: ISO 8601, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
