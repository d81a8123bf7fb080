"""When a cursor was last used, over restarts (spec BR-38; Apache's `lastActive`).

It is written with each state of the cursor, and when the log is closed.
"""

from __future__ import annotations

from collections.abc import Callable


class CursorUse:
    """The last time, by the wall clock; while there are users it is now."""

    def __init__(self, now_ms: Callable[[], int], last_ms: int | None) -> None:
        """`last_ms` is what was stored; None: used just now."""
        self._now_ms = now_ms
        self._last_ms = now_ms() if last_ms is None else last_ms
        self._current = False
        self.written_ms = self._last_ms
        """What the last write began with."""

    @property
    def last_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms() if self._current else self._last_ms

    @property
    def idle_s(self) -> float:
        """For how long it has not been used. A clock that was set back makes it 0."""
        return max(0, self._now_ms() - self.last_ms) / 1000

    def begin(self) -> None:
        """It is in use from now on."""
        self._current = True

    def end(self) -> None:
        """It is no longer in use."""
        self._last_ms = self._now_ms()
        self._current = False

    def is_stale(self, slack_s: float) -> bool:
        """Whether what is written is so much older."""
        return self.last_ms - self.written_ms > slack_s * 1000
