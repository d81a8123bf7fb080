"""Sharing the loop between readers of old entries and new messages (pure; spec BR-40).

Entries from ledgers cost the loop much more than entries from the cache: their digests are checked,
and a consumer that is far behind takes all that it is sent. While messages are published, such
rounds are short and together get a share of the loop's time, a smaller one when time is scarce: a
publish or a tail reader waits for at most one short round. While nothing is published, they run at
full speed.
"""

from __future__ import annotations

SHARE_MAX = 0.2
SHARE_MIN = 0.05
"""Smallest share of the loop's time for catching up beside tail work."""

FOLLOW = 1.5
"""Catching up gets at least this multiple of the time that reading the new entries will take: old
entries must be read faster than new ones are added, or a backlog would never end.
"""

WINDOW_S = 0.1
"""New entries are averaged over at least this time."""

LATE_S = 0.0012
"""A pause that ends later than this shows an overloaded loop or machine."""

SHARE_UP = 0.002
SHARE_DOWN = 0.7
"""The share grows a little after each pause that ended in time, and shrinks much after a late one.
"""

BUSY_S = 0.05
"""Tail work counts as running for this time after an append."""

ROUND_ENTRIES = 20
ROUND_BYTES = 128 * 1024
"""Bound of a round beside tail work: some 0.3 ms of work."""

ENTRY_S = 15e-6
BYTE_S = 3e-9
"""Time to read and send an entry, and each of its bytes. Measured on one machine; on another the
share is a little larger or smaller.
"""

BURST_S = 0.002
"""Unused time that may be made up for, as sleeps last longer than requested."""


class CatchUp:
    """Paces all pumps that catch up. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self.share = SHARE_MAX
        self._inflow_s = 0.0  # new entries, as the time to read them later
        self._seen_s = 0.0
        self._known_s = 0.0
        self._since_s = 0.0
        self._inflow = 0.0  # the same per second
        self._busy_until_s = 0.0
        self._free_at_s = 0.0

    def appended(self, entries: int, size_bytes: int) -> None:
        """Count published entries; called once a run."""
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
        """Seconds for which a pump must pause after sending that much from ledgers."""
        if not self.busy(now_s):
            self._free_at_s = now_s
            return 0.0
        cost_s = entries * ENTRY_S + size_bytes * BYTE_S
        began_s = max(self._free_at_s, now_s - cost_s - BURST_S)
        share = min(1.0, max(self.share, FOLLOW * self._inflow))
        self._free_at_s = began_s + cost_s / share
        return max(0.0, self._free_at_s - now_s)

    def paused(self, late_s: float) -> None:
        """A pause ended that much too late."""
        if late_s > LATE_S:
            self.share = max(SHARE_MIN, self.share * SHARE_DOWN)
        else:
            self.share = min(SHARE_MAX, self.share + SHARE_UP)
