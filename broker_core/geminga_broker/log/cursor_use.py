"""A cursor's waiter, and its last use, over restarts (spec BR-03, BR-38; Apache's
`lastActive`).

The time is written with each state of the cursor, and when the log is closed.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

CACHE_GRACE_S = 10.0
"""For this time after a consumer left, the cache keeps the log's tail for its return."""


class CursorUse:
    """The last time, by the wall clock; while there are users it is now.

    A cursor is active, and the cache kept for it, while something waits on it, and `CACHE_GRACE_S`
    longer.
    """

    def __init__(self, now_ms: Callable[[], int], last_ms: int | None) -> None:
        """`last_ms` is the stored time; None: used just now."""
        self._now_ms = now_ms
        self._last_ms = now_ms() if last_ms is None else last_ms
        self._current = False
        self.written_ms = self._last_ms
        """The time in the last write."""
        self._wake: Callable[[], None] | None = None
        self._kept_until_s = 0.0

    def wait(self, wake: Callable[[], None] | None) -> None:
        """Call `wake` when the log has new entries; None: stop."""
        if wake is None and self._wake is not None:
            self._kept_until_s = trio.current_time() + CACHE_GRACE_S
        self._wake = wake

    @property
    def is_active(self) -> bool:
        """Whether the cache is kept for the cursor."""
        return self._wake is not None or (
            self._kept_until_s > 0 and trio.current_time() < self._kept_until_s
        )

    def grown(self) -> None:
        """The log has new entries."""
        if self._wake is not None:
            self._wake()

    @property
    def last_ms(self) -> int:
        """The last use, in milliseconds since the epoch."""
        return self._now_ms() if self._current else self._last_ms

    @property
    def idle_s(self) -> float:
        """Seconds since the last use; 0 if the clock was set back."""
        return max(0, self._now_ms() - self.last_ms) / 1000

    def begin(self) -> None:
        """The cursor is in use."""
        self._current = True

    def end(self) -> None:
        """The cursor is no longer in use."""
        self._last_ms = self._now_ms()
        self._current = False

    def is_stale(self, slack_s: float) -> bool:
        """Whether the written time is at least `slack_s` too old."""
        return self.last_ms - self.written_ms > slack_s * 1000
