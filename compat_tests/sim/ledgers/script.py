"""How late what one process asks arrives, and what it is answered: chosen by kind of message."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Deliver = Callable[[], None]


class Script:
    """All messages of a kind between the process and one peer are about as late, or lost, so that
    kinds overtake each other as whole kinds: all adds come behind a fence, or behind the reads.
    """

    def __init__(self, chance: Random, fast_share: float, late_s: float) -> None:
        self._chance = chance
        self._fast_share = fast_share
        self._late_s = late_s
        self._lateness: dict[tuple[str, str], float | None] = {}
        self._follows: dict[tuple[str, str], Deliver] = {}

    def set(self, peer: str, kind: str, late_s: float | None) -> None:
        """So late they are from now on; None: they are lost."""
        self._lateness[peer, kind] = late_s

    def follows(self, peer: str, kind: str, call: Deliver) -> None:
        """Call it just before the next one of the kind arrives."""
        self._follows[peer, kind] = call

    def lateness(self, peer: str, kind: str) -> float | None:
        """Of a message that is sent now."""
        key = peer, kind
        if key not in self._lateness:
            self._lateness[key] = self._drawn()
        return self._lateness[key]

    def _drawn(self) -> float | None:
        chance = self._chance
        if chance.random() < self._fast_share:
            return 0.0
        if chance.random() < 0.2:
            return None
        return chance.choice((0.03, 0.3, 1.5)) * self._late_s * chance.random()

    def with_what_follows(self, peer: str, kind: str, deliver: Deliver) -> Deliver:
        """The delivery of a message that is sent now."""
        call = self._follows.pop((peer, kind), None)
        if call is None:
            return deliver
        before = call

        def both() -> None:
            before()
            deliver()

        return both
