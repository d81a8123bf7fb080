"""Several calls at once, with one plain error for all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import trio

from geminga.errors import GemingaError

ABANDON_TIMEOUT_S = 10.0
"""How long what was half begun may take to be undone, even when the program was cancelled."""


async def together(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run all to their end, then raise the first GemingaError that came: no exception group for
    what is one operation to the program. KeyboardInterrupt comes out as itself too.
    """
    waiting = list(calls)
    if len(waiting) == 1:
        await waiting[0]()
        return
    failures: list[GemingaError] = []

    async def run(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except GemingaError as error:
            failures.append(error)

    try:
        async with trio.open_nursery() as nursery:
            for call in waiting:
                nursery.start_soon(run, call)
    except BaseExceptionGroup as group:
        interrupted = group.subgroup(KeyboardInterrupt)
        if interrupted is None:
            raise
        raise KeyboardInterrupt from group
    if failures:
        raise failures[0]
