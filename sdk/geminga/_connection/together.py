"""Concurrent calls with one plain error for all of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from geminga.errors import GemingaError

A = TypeVar("A")
R = TypeVar("R")
ABANDON_TIMEOUT_S = 10.0
"""Timeout of an undo, even if the program was cancelled."""


@asynccontextmanager
async def undone_on_error(undo: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    """Call `undo` if the block fails or is cancelled."""
    try:
        yield
    except BaseException:
        with trio.move_on_after(ABANDON_TIMEOUT_S, shield=True):
            await undo()
        raise


async def together(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run all to their end, then raise the first GemingaError: for the program this is one
    operation, without an exception group. KeyboardInterrupt is raised as it is, too.
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


async def gathered(
    call: Callable[[A], Awaitable[R]], arguments: Iterable[A], at_once: int
) -> list[R]:
    """Results of `call` for each argument, in order, with a bound of concurrent calls. After the
    first GemingaError no other call begins, and it is raised.
    """
    given = list(arguments)
    results: dict[int, R] = {}
    waiting = iter(range(len(given)))

    async def work() -> None:
        for n in waiting:
            try:
                results[n] = await call(given[n])
            except GemingaError:
                for _ in waiting:
                    pass
                raise

    await together([work] * min(at_once, len(given)))
    return [results[n] for n in range(len(given))]
