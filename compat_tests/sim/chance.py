"""Where all chance and all time of a run come from: one seed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import trio

from geminga_runtime._tests.scheduling import scheduled_by

EPOCH_NS = 1_700_000_000_000_000_000
"""The wall clock's time at the run's beginning."""


class EventLog:
    """What happened, in order, with virtual times. Two runs of one seed have the same hash."""

    def __init__(self, *, keep: bool) -> None:
        self.lines: list[str] | None = [] if keep else None
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, text: str) -> None:
        line = f"{trio.current_time():.9f} {text}"
        self.count += 1
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class Chances:
    """A stream of chance for each part, so that a change in one does not shift the others."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, part: str) -> Random:
        return Random(f"{self._seed} {part}")


class Wall:
    """The wall clock, which may be set."""

    offset_s = 0.0


@contextmanager
def seeded(chances: Chances) -> Iterator[Wall]:
    """Trio's scheduler goes by the seed, and `time` by Trio's clock; in other threads, as other
    tests may have left them, by the real one.
    """
    wall = Wall()
    clocks = real_time_ns, _, real_perf_counter = time.time_ns, time.time, time.perf_counter

    def time_ns() -> int:
        if not trio.lowlevel.in_trio_run():
            return real_time_ns()
        return EPOCH_NS + int((trio.current_time() + wall.offset_s) * 1e9)

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
    time.perf_counter = lambda: (
        trio.current_time() if trio.lowlevel.in_trio_run() else real_perf_counter()
    )
    try:
        with scheduled_by(chances.of("scheduler")):
            yield wall
    finally:
        time.time_ns, time.time, time.perf_counter = clocks
