"""What a running process is asked by signals: its tasks, and what it holds (spec OP-09)."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType

import trio

from geminga_runtime.observing.heap import format_heap


async def dump_on_signals() -> None:
    """Print all tasks to standard error at SIGUSR1, and what is held in memory and in queues at
    SIGUSR2, until cancelled. They are no lines of the log, which are short.
    """
    asked = [getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)]
    if not asked:
        return
    with trio.open_signal_receiver(*asked) as receiver:
        async for number in receiver:
            if number == asked[0]:
                _print("all tasks", format_tasks())
            else:
                _print("held", await format_heap())


def _print(what: str, text: str) -> None:
    with suppress(OSError):  # e.g. standard error is a file on a full disk
        shown = text.encode(errors="backslashreplace").decode()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head = f"---- {what}, process {os.getpid()}, {now} ----"
        print(f"{head}\n{shown}\n---- end of {what} ----", file=sys.stderr, flush=True)


def format_tasks() -> str:
    """The tree of all tasks with their stacks, as text."""
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
