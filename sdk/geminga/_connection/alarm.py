"""A timer that is moved often and fires rarely."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from geminga_runtime.waiters import Wakeup


class Alarm:
    """Calls back at the earliest requested time; moving it needs no task switch.

    `callback(now_s)` returns the time of its next call, or infinity. All times are Trio's clock. It
    must not raise.
    """

    def __init__(self, callback: Callable[[float], float]) -> None:
        self._callback = callback
        self._at_s = math.inf
        self._scope = trio.CancelScope()
        self._now = Wakeup()
        self._running = trio.CancelScope()

    def at(self, time_s: float) -> None:
        """Call back at that time, or at an earlier requested one; a past time means at once."""
        if time_s < self._at_s:
            self._at_s = time_s
            self._scope.deadline = time_s

    def now(self) -> None:
        """Call back in the scheduler's next turn; cheaper than a past time."""
        self._now.set()

    async def run(self) -> None:
        """Run until `stop`; started once, by the owner."""
        with self._running:
            while True:
                with trio.CancelScope(deadline=self._at_s) as self._scope:
                    while True:
                        await self._now.wait()
                        self._call()
                        self._scope.deadline = self._at_s
                self._call()

    def stop(self) -> None:
        """Never call back again."""
        self._running.cancel()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._running.cancel_called

    def _call(self) -> None:
        self._at_s = math.inf
        self.at(self._callback(trio.current_time()))
