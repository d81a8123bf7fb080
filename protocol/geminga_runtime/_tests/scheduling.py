"""Trio's order of tasks from a seed, so that a run can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random


@contextmanager
def scheduled_by(chance: Random) -> Iterator[None]:
    """Of the tasks that can go on, `chance` draws who goes first."""
    from trio._core import _run

    before = _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING
    _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING = chance, True
    try:
        yield
    finally:
        _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING = before
