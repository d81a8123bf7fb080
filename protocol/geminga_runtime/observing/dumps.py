"""What a running process is asked by signals: its tasks, and what it holds (spec OP-09)."""

from __future__ import annotations

import logging
import os
import select
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType

import trio

from geminga_runtime.observing.dump_signals import DUMP_SIGNALS
from geminga_runtime.observing.heap import format_heap

_log = logging.getLogger(__name__)

TASKS_MAX = 10_000
"""Tasks that are shown; further ones are counted only."""

TURN_TASKS = 50
"""Tasks that are shown in one turn of the loop: some milliseconds."""

WRITE_MAX_S = 10.0
"""If standard error doesn't take a dump in that time, the rest of it is dropped."""

_STANDARD_ERROR = 2
_PART_BYTES = 4096
"""What a pipe that is ready takes at once (PIPE_BUF)."""


async def dump_on_signals() -> None:
    """Print all tasks to standard error at SIGUSR1, and what is held in memory and in queues at
    SIGUSR2, until cancelled. They are no lines of the log, which are short. A dump that fails is
    logged.
    """
    if not DUMP_SIGNALS:
        return
    with trio.open_signal_receiver(*DUMP_SIGNALS) as receiver:
        async for number in receiver:
            if number == DUMP_SIGNALS[0]:
                await _dump("all tasks", format_tasks)
            else:
                await _dump("held", format_heap)


async def _dump(what: str, make: Callable[[], Awaitable[str]]) -> None:
    try:
        shown = (await make()).encode(errors="backslashreplace")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head = f"---- {what}, process {os.getpid()}, {now} ----\n".encode()
        text = head + shown + f"\n---- end of {what} ----\n".encode()
        write = partial(write_within, WRITE_MAX_S, _STANDARD_ERROR, text)
        # The thread ends by itself, so that a stop needn't wait for it.
        limiter = trio.CapacityLimiter(1)
        if await trio.to_thread.run_sync(write, abandon_on_cancel=True, limiter=limiter):
            return
        _log.warning("standard error did not take the dump %s in %.0f s", what, WRITE_MAX_S)
    except Exception:  # whatever objects are found, the process goes on
        _log.exception("defect: the dump %s failed", what)


def write_within(limit_s: float, descriptor: int, text: bytes) -> bool:
    """Write to a file or pipe, whose reader may hang. Returns whether all is written, or nobody
    can read it. Blocks the thread for about `limit_s` at most.
    """
    until_s = time.monotonic() + limit_s
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    with suppress(OSError), memoryview(text) as view:  # e.g. a file on a full disk
        written = 0
        while written < len(view):
            if not ready.poll(max(0.0, until_s - time.monotonic()) * 1000):
                return False
            written += os.write(descriptor, view[written : written + _PART_BYTES])
    return True


async def format_tasks() -> str:
    """The tree of all tasks with their stacks, as text. Those that are there at the call are shown
    in turns of some milliseconds, each as it is then.
    """
    found = list(_tree())
    lines: list[str] = []
    for number, (depth, task) in enumerate(found[:TASKS_MAX], 1):
        lines += _task_lines(task, "  " * depth)
        if number % TURN_TASKS == 0:
            await trio.lowlevel.checkpoint()
    if len(found) > TASKS_MAX:
        lines.append(f"and {len(found) - TASKS_MAX} more tasks")
    return "\n".join(lines)


def _tree() -> Iterator[tuple[int, trio.lowlevel.Task]]:
    """All tasks with their depth, each before its children."""
    root = trio.lowlevel.current_root_task()
    waiting = [] if root is None else [(0, root)]
    while waiting:
        depth, task = waiting.pop()
        yield depth, task
        children = [each for nursery in task.child_nurseries for each in nursery.child_tasks]
        waiting += [(depth + 1, child) for child in reversed(children)]


def _task_lines(task: trio.lowlevel.Task, indent: str) -> Iterator[str]:
    yield f"{indent}{task.name}"
    for frame, line in _frames(task.coro):
        code = frame.f_code
        text = traceback.FrameSummary(code.co_filename, line, code.co_name).line or ""
        yield f"{indent}  | {code.co_filename}:{line} {code.co_name}: {text}"


def _frames(awaited: object) -> Iterator[tuple[FrameType, int]]:
    """The frames of a suspended coroutine, outermost first."""
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
