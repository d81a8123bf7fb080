"""What a process prints of itself when it is asked by a signal (OP-09)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import deque

import pytest
import trio
import trio.testing

from geminga_runtime.observing import heap
from geminga_runtime.observing.dumps import format_tasks
from geminga_runtime.stream import FramedStream

WAITING_TASKS = 200
SERVER = f"""
import trio
import trio.testing
from geminga_runtime.observing.log_setup import LogSettings, set_up_logging
from geminga_runtime.process import run_until_signal

class Held:
    def __init__(self):
        self.many = {{number: [] for number in range(70_000)}}

async def waits_for_nothing(held):
    await trio.sleep_forever()

async def main():
    held = Held()
    Held.__module__ = "geminga_held"
    async with trio.open_nursery() as nursery:
        for _ in range({WAITING_TASKS}):
            nursery.start_soon(waits_for_nothing, held)
        await trio.testing.wait_all_tasks_blocked()
        print("up", flush=True)

import trio.testing
set_up_logging(LogSettings(as_json=True))
trio.run(run_until_signal, main)
"""


@pytest.mark.slow
def test_both_signals() -> None:
    """A process prints all of it, also where lines of its log are short objects."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "up\n"
        texts = []
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(process.pid, number)
            lines = [process.stderr.readline()]
            while not lines[-1].startswith("---- end"):
                lines.append(process.stderr.readline())
            texts.append("".join(lines))
        process.kill()
    tasks, held = texts
    assert tasks.startswith(f"---- all tasks, process {process.pid}, 2")
    assert tasks.count("  | <string>") == WAITING_TASKS + 1
    assert tasks.count("waits_for_nothing: \n") == WAITING_TASKS
    assert re.search(r"memory=\d+ kB peak=\d+ kB descriptors=\d+\n", held)
    assert re.search(r"threads=\d+ tasks=20\d ", held)
    assert re.search(r"\n  7\d\d\d\d list \(", held)
    assert re.search(r"\n  70000 in dict of geminga_held.Held\n", held)


async def test_tasks_have_the_caller() -> None:
    assert "test_tasks_have_the_caller" in format_tasks()


class _Slots:
    __slots__ = ("line",)

    def __init__(self, line: deque[int]) -> None:
        self.line = line


async def test_long_containers_and_waiting_bytes_are_named() -> None:
    slots = _Slots(deque(range(123_456)))
    slots.__class__.__module__ = "geminga_x"
    ours, theirs = trio.testing.memory_stream_pair()
    stream = FramedStream(ours, name="address:1")
    stream.write(b"x" * 777)
    async with theirs:
        text = await heap.format_heap()
    assert "  123456 in deque of geminga_x._Slots" in text
    assert "  777 to address:1" in text
    assert len(slots.line) == 123_456


async def test_other_tasks_run_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "TURN_OBJECTS", 1000)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    kept = [[] for _ in range(50_000)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await heap.format_heap()
        nursery.cancel_scope.cancel()
    assert turns >= len(kept) / 1000
