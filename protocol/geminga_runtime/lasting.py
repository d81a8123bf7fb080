"""Tasks that a block's cleanup still needs when the block is cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from geminga_runtime.waiters import Promise


@asynccontextmanager
async def open_lasting_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks run until the block has ended, also while it is being cancelled; then
    they are cancelled. One that fails cancels the block.
    """
    async with trio.open_nursery() as outer:
        scope = trio.CancelScope(shield=True)
        found: Promise[trio.Nursery] = Promise()

        async def hold() -> None:
            with scope:
                async with trio.open_nursery() as nursery:
                    found.resolve(nursery)
                    await trio.sleep_forever()

        # Not by `start`: cancelled meanwhile, it would wait for the shielded task for ever.
        outer.start_soon(hold)
        try:
            yield await found.wait()
        finally:
            scope.cancel()
