"""Background work that must neither crash nor block the rest of the process."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain, islice
from typing import ParamSpec

import trio

_log = logging.getLogger(__name__)

P = ParamSpec("P")


TURN_UNITS = 16
"""Units of work between two pauses; a unit (a topic, a subscription) takes tens of microseconds."""

PAUSE_S = 0.002
"""About as long as a turn, so that a sweep takes at most half of the loop's time."""


class Turns:
    """Splits a sweep over many topics into turns; other tasks run between them."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = TURN_UNITS

    async def spend(self, units: int = 1) -> None:
        """Count finished work. When the turn is used up, sleep; otherwise this is no checkpoint."""
        self._left -= units
        if self._left <= 0:
            self._left = TURN_UNITS
            await trio.sleep(PAUSE_S)


async def run_guarded(
    job: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Await the job. Logs an unexpected error instead of raising it, which would cancel everything
    in the nursery.
    """
    try:
        await job(*args, **kwargs)
    except Exception:
        name = getattr(job, "__qualname__", repr(job))
        _log.exception("defect: %s failed", name)


async def side_by_side(jobs: Iterable[Callable[[], Awaitable[object]]], at_once_max: int) -> None:
    """Await all jobs, at most `at_once_max` at a time. Raises the first error, which cancels the
    others.
    """
    waiting = iter(jobs)
    first = list(islice(waiting, at_once_max))
    if len(first) <= 1:  # tasks cost more than many a job
        for job in chain(first, waiting):
            await job()
        return
    errors: list[Exception] = []

    async def work(job: Callable[[], Awaitable[object]]) -> None:
        try:
            for each in chain((job,), waiting):
                await each()
        except Exception as error:
            errors.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for job in first:
            nursery.start_soon(work, job)
    if errors:
        raise errors[0]


async def until_enough(jobs: Sequence[Callable[[], Awaitable[bool]]]) -> None:
    """Await all jobs side by side until one returns True, which cancels the others. They raise
    nothing.
    """
    if len(jobs) == 1:
        await jobs[0]()
        return

    async def run(job: Callable[[], Awaitable[bool]]) -> None:
        if await job():
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(run, job)
