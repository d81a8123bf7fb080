"""How a page of metrics is made and sent beside the broker's other work (spec OP-05)."""

from __future__ import annotations

from time import perf_counter, thread_time

import trio

from geminga_runtime.background import TURN_UNITS

TURN_S = 0.0003
"""So long others wait for a turn of a page."""
PAUSE_S = 0.001
"""The shortest sleep that there is: a page takes a fourth of the loop's time."""
BUSY_S = 0.00008
"""Whoever waits so long only wakes takes half of it: others had work in a pause that took more."""
BUSY_PAUSE_S = 0.002
"""Such a pause is so much longer: it is others' latency that a page costs, and nobody waits for it
as they do.
"""
PATIENCE_S = 2.5
"""After so long a page is no longer held up, which a scraper gives some seconds."""


class Pace:
    """Counts the work for a page in units: a topic, a subscription, some producers. A turn ends
    after so many of them as one of `Turns`, or after `turn_s`. While the loop has other work, a
    page of 10 000 topics takes twice as long. Pages with the same `turns` pause one after the
    other: so many of them take no more of the loop's time than one.
    """

    __slots__ = ("_began_s", "_left", "_patient_to_s", "_turn_s", "_turns")

    def __init__(self, turn_s: float = TURN_S, turns: trio.Lock | None = None) -> None:
        self._turn_s = turn_s
        self._turns = trio.Lock() if turns is None else turns
        self._left = TURN_UNITS
        self._began_s = perf_counter()
        self._patient_to_s = self._began_s + PATIENCE_S

    async def spend(self, units: int = 1) -> None:
        """Count finished work; pauses when a turn is used up."""
        self._left -= units
        if self._left <= 0 or perf_counter() - self._began_s >= self._turn_s:
            await self._pause()
            self._left = TURN_UNITS
            self._began_s = perf_counter()

    async def _pause(self) -> None:
        async with self._turns:
            used_s = thread_time()
            await trio.sleep(PAUSE_S)
            if thread_time() - used_s > BUSY_S and perf_counter() < self._patient_to_s:
                await trio.sleep(BUSY_PAUSE_S)
