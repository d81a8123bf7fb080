"""One timer that is moved often and fires seldom."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from geminga_runtime.waiters import Wakeup


class Alarm:
    """Calls back at the earliest time that was asked for; moving it costs no task switch.

    `callback(now_s)` returns when it wants to be called again, infinity for "not by itself". All
    times are Trio's clock. It must not raise.
    """

    def __init__(self, callback: Callable[[float], float]) -> None:
        self._callback = callback
        self._at_s = math.inf
        self._scope = trio.CancelScope()
        self._now = Wakeup()
        self._running = trio.CancelScope()

    def at(self, time_s: float) -> None:
        """Call back at that time, or earlier if that was asked for; the past means at once."""
        if time_s < self._at_s:
            self._at_s = time_s
            self._scope.deadline = time_s

    def now(self) -> None:
        """Call back in the scheduler's next turn; cheaper than a time that is past."""
        self._now.set()

    async def run(self) -> None:
        """Keep the time until `stop`; started once, by the owner."""
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
