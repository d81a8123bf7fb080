"""A server's process: start, stop by signals, dumps of tasks, a watchdog."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TypeVar

import trio

from geminga_runtime.observing.dumps import dump_on_signals
from geminga_runtime.observing.heap import keep_in_sight

_log = logging.getLogger(__name__)

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
BLOCKED_MAX_S = 0.1
FRAMES_MAX = 6
"""Frames in the report of a blocked loop."""
SILENT_LOOKS = 2
"""Looks at a loop without an answer, half of the limit apart, after which it is blocked."""
_POLLS = "trio._core._io_"

SWITCH_INTERVAL_S = 0.0005
"""How long one thread keeps the interpreter lock from another that waits for it."""

YOUNG_OBJECTS = 50_000
"""New objects between two collections of young ones (with Python's 700, each network read would
cause one).
"""

MIDDLE_COLLECTIONS = 20
OLD_COLLECTIONS = 50


def run_server(
    start: Callable[..., Awaitable[object]],
    describe: Callable[[T], str],
    *refusals: type[Exception],
) -> BaseException | None:
    """Run a server until SIGINT or SIGTERM, or until `start` returns. `start` serves, and passes
    the running server to `task_status.started`; the line that `describe` makes of it is printed.
    Returns the error if the server ended with one of `refusals`.
    """
    refused = run_part(start, partial(_announce, describe), *refusals)
    if refused is None:
        _log.info("stopped")
    return refused


def run_part(
    start: Callable[..., Awaitable[object]],
    announce: Callable[[T], object],
    *refusals: type[Exception],
) -> BaseException | None:
    """As `run_server`, for a process that is part of a server: `announce` gets the running part."""
    refused: BaseException | None = None
    try:
        trio.run(run_until_signal, partial(_serve, start, announce))
    except* refusals as group:
        refused = group
        while isinstance(refused, BaseExceptionGroup):
            refused = refused.exceptions[0]
    return refused


async def _serve(start: Callable[..., Awaitable[object]], announce: Callable[[T], object]) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    async with trio.open_nursery() as beside:
        async with trio.open_nursery() as nursery:
            running: T = await nursery.start(start)
            freeze_after_start()
            announce(running)
            beside.start_soon(_watch)
        beside.cancel_scope.cancel()


async def _watch() -> None:
    with watch_loop():
        await trio.sleep_forever()


def _announce(describe: Callable[[T], str], running: T) -> None:
    line = f"ready in {process_age_s():.2f} s: {describe(running)}"
    with suppress(OSError):  # e.g. standard output is a file on a full disk
        try:
            print(line, flush=True)
        except UnicodeEncodeError:  # e.g. a path that standard output can't encode
            print(line.encode("ascii", "backslashreplace").decode(), flush=True)


def process_age_s() -> float:
    """Seconds since this process started; since Python's start where /proc can't tell."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    except (OSError, ValueError, AttributeError):
        return time.perf_counter()


_SET_PARENT_DEATH_SIGNAL = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends. Without effect where
    there is no such call: only Linux has it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def freeze_after_start() -> None:
    """Call once all modules are imported and start-up is over.

    Objects that exist then live as long as the process: later collections skip them, and become
    rare. Entries on the hot path are freed by reference counting alone.
    """
    gc.collect()
    keep_in_sight()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_COLLECTIONS, OLD_COLLECTIONS)


async def run_until_signal(main: Callable[[], Awaitable[object]]) -> signal.Signals | None:
    """Run `main` until it ends (returns None) or a stop signal comes (returns the signal).

    The first signal cancels `main`, which may then drain; a second one ends the process at once
    with the shell's exit code for that signal. SIGUSR1 and SIGUSR2 print what
    `dump_on_signals` says. Main thread only.
    """
    received: signal.Signals | None = None
    # A terminal that is closed stops the server in order, unless `nohup` or the like forbids it.
    hung_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    with trio.open_signal_receiver(*STOP_SIGNALS, *hung_up) as stops:
        async with trio.open_nursery() as watchers:
            watchers.start_soon(dump_on_signals)
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


@contextmanager
def watch_loop(*, blocked_max_s: float = BLOCKED_MAX_S) -> Iterator[None]:
    """Log a line with the innermost frames each time that the loop is blocked for `blocked_max_s`.

    A thread looks every half of `blocked_max_s`. A loop that waits for I/O is not blocked, and is
    left alone; one that runs is pinged, and its answer read at a later look: neither wakes the
    other, which costs them hundreds of microseconds. It reports no shorter block, and every one of
    at least 1.5 times the limit.
    """
    watchdog = _Watchdog(trio.lowlevel.current_trio_token(), blocked_max_s)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.stop()


class _Watchdog:
    def __init__(self, token: trio.lowlevel.TrioToken, blocked_max_s: float) -> None:
        self._token = token
        self._blocked_max_s = blocked_max_s
        self._loop_thread_id = threading.get_ident()
        self._stopped = threading.Event()
        self._alive = threading.Event()
        """The last ping was answered."""
        self._alive.set()
        self._thread = threading.Thread(target=self._run, name="loop-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._alive.set()

    def _run(self) -> None:
        asked_s, silent = 0.0, 0
        while not self._stopped.wait(self._blocked_max_s / 2):
            if not self._alive.is_set():
                silent += 1
                if silent == SILENT_LOOKS:
                    self._report(asked_s)
            elif not _polls(self._frame()):
                self._alive.clear()
                asked_s, silent = time.monotonic(), 0
                try:
                    self._token.run_sync_soon(self._alive.set, idempotent=True)
                except trio.RunFinishedError:
                    return

    def _report(self, asked_s: float) -> None:
        """Tell of a block when it is over."""
        place = self._place()
        self._alive.wait()
        if place and not self._stopped.is_set():
            blocked_ms = (time.monotonic() - asked_s) * 1000
            _log.warning("the loop was blocked for %.0f ms in %s", blocked_ms, place)

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._loop_thread_id)

    def _place(self) -> str:
        """The loop's innermost frames; empty if it waits for I/O."""
        frame = self._frame()
        if frame is None or _polls(frame):
            return ""
        inner = islice(traceback.walk_stack(frame), FRAMES_MAX)
        return ", from ".join(f"{_name(one)}:{line}" for one, line in inner)


def _polls(frame: FrameType | None) -> bool:
    """Whether the loop, whose innermost frame this is, waits for I/O."""
    return frame is not None and _name(frame).startswith(_POLLS)


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}"
