"""How a page of metrics is made and sent beside the broker's other work (spec OP-05)."""

from __future__ import annotations

from time import perf_counter

import trio

from geminga_runtime.background import TURN_UNITS

TURN_S = 0.0003
"""So long others wait for a turn of a page."""
PAUSE_S = 0.001
"""The shortest sleep that there is: a page takes a fourth of the loop's time."""


class Pace:
    """Counts the work for a page in units: a topic, a subscription, some producers. A turn ends
    after so many of them as one of `Turns`, or after `turn_s`.
    """

    __slots__ = ("_began_s", "_left", "_turn_s")

    def __init__(self, turn_s: float = TURN_S) -> None:
        self._turn_s = turn_s
        self._left = TURN_UNITS
        self._began_s = perf_counter()

    async def spend(self, units: int = 1) -> None:
        """Count finished work; pauses when a turn is used up."""
        self._left -= units
        if self._left <= 0 or perf_counter() - self._began_s >= self._turn_s:
            await trio.sleep(PAUSE_S)
            self._left = TURN_UNITS
            self._began_s = perf_counter()
