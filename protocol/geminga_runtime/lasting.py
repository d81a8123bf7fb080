"""Tasks that a block's cleanup still needs when the block is cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_lasting_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks run until the block has ended, also while it is being cancelled; then
    they are cancelled. One that fails cancels the block.
    """
    async with trio.open_nursery() as outer:
        scope = trio.CancelScope(shield=True)

        async def hold(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
            with scope:
                async with trio.open_nursery() as nursery:
                    task_status.started(nursery)
                    await trio.sleep_forever()

        nursery: trio.Nursery = await outer.start(hold)
        try:
            yield nursery
        finally:
            scope.cancel()
