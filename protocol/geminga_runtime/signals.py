"""Signals of a server process: stop on SIGINT and SIGTERM, a dump of all tasks on SIGUSR1."""

from __future__ import annotations

import logging
import os
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterator
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType

import trio

_log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def run_until_signal(main: Callable[[], Awaitable[object]]) -> signal.Signals | None:
    """Run `main` until it ends (answers None) or a stop signal comes (answers the signal).

    The first signal cancels `main`, which may take its time to drain; a second one ends the
    process at once with the shell's code for that signal. SIGUSR1 logs all tasks. Only in the
    main thread.
    """
    received: signal.Signals | None = None
    with trio.open_signal_receiver(*STOP_SIGNALS) as stops:
        async with trio.open_nursery() as watchers:
            watchers.start_soon(_dump_on_sigusr1)
            with trio.CancelScope() as scope:

                async def wait_for_stop() -> None:
                    nonlocal received
                    async for number in stops:
                        if received is not None:
                            os._exit(128 + number)
                        received = signal.Signals(number)
                        _log.info("%s: stopping", received.name)
                        scope.cancel()

                watchers.start_soon(wait_for_stop)
                await main()
            watchers.cancel_scope.cancel()
    return received


async def _dump_on_sigusr1() -> None:
    number = getattr(signal, "SIGUSR1", None)
    if number is None:
        return
    with trio.open_signal_receiver(number) as receiver:
        async for _ in receiver:
            _log.warning("all tasks:\n%s", format_tasks())


def format_tasks() -> str:
    """The tree of all tasks, each with where it stands; for people."""
    root = trio.lowlevel.current_root_task()
    return "\n".join(_task_lines(root, 0)) if root is not None else ""


def _task_lines(task: trio.lowlevel.Task, depth: int) -> Iterator[str]:
    indent = "  " * depth
    yield f"{indent}{task.name}"
    for frame, line in _frames(task.coro):
        code = frame.f_code
        text = traceback.FrameSummary(code.co_filename, line, code.co_name).line or ""
        yield f"{indent}  | {code.co_filename}:{line} {code.co_name}: {text}"
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _task_lines(child, depth + 1)


def _frames(awaited: object) -> Iterator[tuple[FrameType, int]]:
    """The frames of a suspended coroutine, the outermost first."""
    while True:
        if isinstance(awaited, CoroutineType):
            frame, awaited = awaited.cr_frame, awaited.cr_await
        elif isinstance(awaited, GeneratorType):
            frame, awaited = awaited.gi_frame, awaited.gi_yieldfrom
        elif isinstance(awaited, AsyncGeneratorType):
            frame, awaited = awaited.ag_frame, awaited.ag_await
        else:
            return
        if frame is not None:
            yield frame, frame.f_lineno
