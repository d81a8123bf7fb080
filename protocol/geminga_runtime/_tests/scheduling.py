"""Trio's order of tasks from a seed, so that a run can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from threading import get_ident


class _OneThreads(Random):
    """What Trio draws: of one thread from its own chance, of others from what they had.

    Other loops run in the process of a test: a broker that several share, a blocking client's.
    """

    def __init__(self, chance: Random, others: Random) -> None:
        super().__init__(0)
        self._thread = get_ident()
        self._chance = chance
        self._others = others

    def random(self) -> float:
        """Draw it for the thread that asks."""
        return self._drawn.random()

    def getrandbits(self, k: int, /) -> int:
        """Draw them for the thread that asks: what `shuffle` goes by."""
        return self._drawn.getrandbits(k)

    @property
    def _drawn(self) -> Random:
        return self._chance if get_ident() == self._thread else self._others


@contextmanager
def scheduled_by(chance: Random) -> Iterator[None]:
    """Of this thread's tasks that can go on, `chance` draws who goes first."""
    from trio._core import _run

    before = _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING
    _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING = _OneThreads(chance, before[0]), True
    try:
        yield
    finally:
        _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING = before
