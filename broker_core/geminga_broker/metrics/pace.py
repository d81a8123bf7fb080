"""How a page of metrics is made beside the broker's other work (spec OP-05)."""

from __future__ import annotations

from geminga_broker.metrics.exposition import Exposition
from geminga_runtime.background import Turns

PACK_UNITS = 192
"""After so many units the page's lines become bytes."""


class Pace:
    """Counts the work for a page in units of `Turns`: a subscription, some producers."""

    __slots__ = ("_left", "_text", "_turns")

    def __init__(self, text: Exposition) -> None:
        self._text = text
        self._turns = Turns()
        self._left = PACK_UNITS

    async def spend(self, units: int = 1) -> None:
        """Count finished work; pauses when a turn is used up. Lists that `Exposition.rows` has
        given may be empty afterwards.
        """
        self._left -= units
        if self._left <= 0:
            self._left = PACK_UNITS
            self._text.pack()
        await self._turns.spend(units)
