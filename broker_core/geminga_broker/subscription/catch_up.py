"""How readers of old entries share the loop with what comes in now (pure; spec BR-40).

Entries that are read from ledgers cost the loop much more than those of the cache: their digests
are checked, and a consumer that is far behind takes as many as it is sent. While something is
published, such rounds are short, and all of them together get a share of the time, less of it when
time is scarce: a publish, or a tail reader, waits for one short round at most. While nothing is
published they go at full speed.
"""

from __future__ import annotations

SHARE_MAX = 0.2
SHARE_MIN = 0.05
"""Part of the loop's time that catching up gets beside tail work."""

FOLLOW = 1.5
"""What comes in counts so much: whatever the share, old entries are read faster than new ones are
added, or a backlog would never end.
"""

WINDOW_S = 0.1
"""What comes in is averaged over at least so long."""

LATE_S = 0.0012
"""A pause that ends later than this finds the loop, or the machine, with more work than time."""

SHARE_UP = 0.002
SHARE_DOWN = 0.7
"""How the share follows: a little more after each pause that ended in time, much less after one
that didn't.
"""

BUSY_S = 0.05
"""So long after an append there is tail work."""

ROUND_ENTRIES = 20
ROUND_BYTES = 128 * 1024
"""Most that a round beside tail work reads: some 0.3 ms of work."""

ENTRY_S = 15e-6
BYTE_S = 3e-9
"""What a fetched entry, and each byte of it, costs until the client has it. Measured on one
machine; on another the share is a little more or less.
"""

BURST_S = 0.002
"""So much of the time that was not used may be made up: sleeps are longer than asked for."""


class CatchUp:
    """Paces all pumps of a broker that catch up. Times are a monotonic clock's, seconds."""

    def __init__(self) -> None:
        self.share = SHARE_MAX
        self._inflow_s = 0.0  # what entries came in, as the time that it takes to read them later
        self._seen_s = 0.0
        self._known_s = 0.0
        self._since_s = 0.0
        self._inflow = 0.0  # the same per second
        self._busy_until_s = 0.0
        self._free_at_s = 0.0

    def appended(self, entries: int, size_bytes: int) -> None:
        """Something was published; told once a run."""
        self._inflow_s += entries * ENTRY_S + size_bytes * BYTE_S

    def busy(self, now_s: float) -> bool:
        """Whether there is tail work."""
        if self._inflow_s != self._seen_s:
            self._seen_s = self._inflow_s
            self._busy_until_s = now_s + BUSY_S
        if now_s - self._since_s >= WINDOW_S:
            self._inflow = (self._inflow_s - self._known_s) / (now_s - self._since_s)
            self._known_s = self._inflow_s
            self._since_s = now_s
        return now_s < self._busy_until_s

    def pause_s(self, entries: int, size_bytes: int, now_s: float) -> float:
        """How long a pump that has just sent so much from ledgers must leave the loop to others."""
        if not self.busy(now_s):
            self._free_at_s = now_s
            return 0.0
        cost_s = entries * ENTRY_S + size_bytes * BYTE_S
        began_s = max(self._free_at_s, now_s - cost_s - BURST_S)
        share = min(1.0, max(self.share, FOLLOW * self._inflow))
        self._free_at_s = began_s + cost_s / share
        return max(0.0, self._free_at_s - now_s)

    def paused(self, late_s: float) -> None:
        """A pause ended so much later than it should have."""
        if late_s > LATE_S:
            self.share = max(SHARE_MIN, self.share * SHARE_DOWN)
        else:
            self.share = min(SHARE_MAX, self.share + SHARE_UP)
