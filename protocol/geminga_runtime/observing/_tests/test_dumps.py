"""What a process prints of itself when it is asked by a signal (OP-09)."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import weakref
from collections import deque
from pathlib import Path

import pytest
import trio
import trio.testing

from geminga_runtime.observing import dumps, heap
from geminga_runtime.observing.dump_signals import DUMP_SIGNALS
from geminga_runtime.observing.dumps import dump_on_signals, format_tasks
from geminga_runtime.process import freeze_after_start
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
    assert "test_tasks_have_the_caller" in await format_tasks()


async def test_tasks_are_shown_in_turns_and_so_many() -> None:
    """None is lost that is there at the call; the last ones are counted only."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(dumps.TASKS_MAX + 7):
            nursery.start_soon(trio.sleep_forever)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(count)
        text = await format_tasks()
        nursery.cancel_scope.cancel()
    assert turns >= dumps.TASKS_MAX / dumps.TURN_TASKS - 1
    shown, more = text.rsplit("\nand ", 1)
    slept = shown.count(" sleep_forever: ")
    assert slept <= dumps.TASKS_MAX
    assert slept + int(more.removesuffix(" more tasks")) >= dumps.TASKS_MAX + 7


def test_a_hanging_reader_holds_up_a_thread_for_a_while() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as unread, open(writer, "wb", buffering=0) as pipe:
        assert not dumps.write_within(0.2, pipe.fileno(), b"x" * (1 << 20))
        unread.close()
        assert dumps.write_within(60, pipe.fileno(), b"nobody can read it")


def test_all_of_a_dump_is_written(tmp_path: Path) -> None:
    text = bytes(range(256)) * 1000
    with (tmp_path / "errors").open("wb") as file:
        assert dumps.write_within(60, file.fileno(), text)
    assert (tmp_path / "errors").read_bytes() == text


@pytest.mark.parametrize("number", DUMP_SIGNALS)
async def test_a_dump_that_fails_is_logged(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process goes on, and answers the next signal."""
    tried, next_tried = trio.open_memory_channel[None](2)

    async def fail() -> str:
        tried.send_nowait(None)
        raise RuntimeError("dictionary keys changed during iteration")

    monkeypatch.setattr(dumps, "format_heap", fail)
    monkeypatch.setattr(dumps, "format_tasks", fail)
    before = signal.signal(number, signal.SIG_IGN)  # else a failure would end this process
    try:
        await _asked_twice(number, next_tried)
    finally:
        signal.signal(number, before)
    assert caplog.text.count("defect: the dump ") == 2


async def _asked_twice(number: signal.Signals, tried: trio.MemoryReceiveChannel[None]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dump_on_signals)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(60):
            for _ in range(2):
                os.kill(os.getpid(), number)
                await tried.receive()
        nursery.cancel_scope.cancel()


EARLY = """
import os, signal, sys
from importlib import import_module

def ask():
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        os.kill(os.getpid(), number)

class Asking:
    def find_spec(self, name, path, target=None):
        if name in ("trio", "click"):
            print("asked at", name, flush=True)
            ask()

sys.meta_path.insert(0, Asking())
sys.argv = ["geminga", "--version"]
module = import_module(sys.stdin.read())
try:
    module.main()
finally:
    ask()
    print("over", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", ["geminga._command", "geminga_broker.processes.child"])
def test_signals_do_not_end_a_program_that_imports_or_has_served(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY],
        input=program, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("asked at "), done.stderr
    assert done.stdout.endswith("over\n"), (done.returncode, done.stderr)


class _Slots:
    __slots__ = ("line",)

    def __init__(self, line: deque[int]) -> None:
        self.line = line


@pytest.mark.slow
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


class _Registry:
    """As those of a server: made at its start, filled later."""

    def __init__(self) -> None:
        self.topics: dict[int, str] = {}
        self.slots = _Slots(deque())


@pytest.mark.slow
async def test_registries_that_were_frozen_are_named() -> None:
    _Registry.__module__ = _Slots.__module__ = "geminga_x"
    registry = _Registry()
    before = gc.get_threshold()
    try:
        freeze_after_start()
        registry.topics.update((number, "topic") for number in range(34_567))
        registry.slots.line.extend(range(23_456))
        assert not any(each is registry for each in gc.get_objects())
        text = await heap.format_heap()
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        heap.keep_in_sight()
    assert "  34567 in dict of geminga_x._Registry" in text
    assert "  23456 in deque of geminga_x._Slots" in text


@pytest.mark.slow
async def test_what_was_frozen_is_not_kept_alive() -> None:
    _Registry.__module__ = "geminga_x"
    registry = _Registry()
    gone = weakref.ref(registry)
    heap.keep_in_sight()
    del registry
    assert gone() is None
    await heap.format_heap()


@pytest.mark.slow
async def test_objects_that_raise_errors_when_they_are_asked() -> None:
    """E.g. a proxy in an instance of ours, whose target is gone."""

    class Target:
        pass

    target = Target()
    proxy = weakref.proxy(target)
    slots = _Slots(deque())
    slots.line = proxy
    slots.__class__.__module__ = "geminga_x"
    del target
    assert "objects=" in await heap.format_heap()
    assert slots.line is proxy


def test_dicts_that_threads_change_meanwhile() -> None:
    registry = _Registry()
    topics = registry.topics
    topics.update((number, "topic") for number in range(10))
    seen = 0
    for each in heap._held(registry):
        if each == "topic":
            seen += 1
            topics[100 + seen] = "one more"
    assert seen == 10


@pytest.mark.slow
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
