"""What became of a seed, and what was logged meanwhile."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from geminga_bookie._tests.power import ORPHANS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed."""

    seed: int
    violations: list[str]
    digest: str
    events: int
    deliveries: int
    virtual_s: float
    lines: list[str] | None
    figures: Mapping[str, float] | None = None
    """What was measured, of simulations that measure."""


TORN = ("can't be read at 0 to", ".log.unread can be found any more")
"""Of a log whose first pages a loss of power took, when an index is made anew: nobody knows that it
was never synced. What was acknowledged is looked for by the simulation itself.
"""
EXPECTED = (
    *("by the simulation", "injected at", "No space left", "the broker is dead", ORPHANS),
    *TORN,
)
"""What the bookie's errors are about that the faults make."""


class Watch(logging.Handler):
    """An error that is logged with a traceback is one that nobody expected; of the bookie's, each
    that the faults don't explain."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []
        self.is_of_the_dead: Callable[[], bool] = lambda: False
        """Whether who logs now was killed: what is shielded there goes on, and nobody hears it."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        if self.is_of_the_dead():
            return
        if record.name.startswith("geminga_bookie"):
            text = record.getMessage()
            if not any(part in text for part in EXPECTED):
                self.found.append(f"{record.name}: {text}")
        elif record.exc_info is not None and record.exc_info[1] is not None:
            text = "".join(traceback.format_exception(record.exc_info[1]))
            if "the broker is dead" not in text:
                self.found.append(f"{record.getMessage()}\n{text}")


async def ends(run: Callable[[], Awaitable[None]], found: list[str], *, limit_s: float) -> float:
    """Run it, and add what ended it otherwise to `found`; returns the virtual time then."""
    try:
        with trio.fail_after(limit_s):
            await run()
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        found.append(f"ended by {type(error).__name__}\n{text}")
    return trio.current_time()


@contextmanager
def watched() -> Iterator[Watch]:
    """Errors that are logged meanwhile are kept."""
    watch = Watch()
    loggers = [logging.getLogger(name) for name in ("geminga", "geminga_broker", "geminga_bookie")]
    before = [(each.level, each.propagate) for each in loggers]
    for each in loggers:
        each.addHandler(watch)
        each.setLevel(logging.ERROR)
        each.propagate = False
    try:
        yield watch
    finally:
        for each, (level, propagate) in zip(loggers, before, strict=True):
            each.removeHandler(watch)
            each.setLevel(level)
            each.propagate = propagate
