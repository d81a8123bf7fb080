"""The watchdog's thread runs in real time; so do these tests, briefly."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import trio

from geminga_runtime.process import FRAMES_MAX, _Watchdog, watch_loop


def block_the_loop(until: threading.Event) -> None:
    """Block until the watchdog has read the loop's stack; its thread may be late."""
    assert until.wait(60)


async def test_reports_a_blocked_loop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = threading.Event(), _Watchdog._place

    def place(watchdog: _Watchdog) -> str:
        try:
            return look(watchdog)
        finally:
            looked.set()

    monkeypatch.setattr(_Watchdog, "_place", place)
    with watch_loop(blocked_max_s=0.04):
        await trio.sleep(0.01)
        looked.clear()
        block_the_loop(looked)
        with trio.fail_after(60):
            while "the loop was blocked for" not in caplog.text:  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert "test_watchdog.block_the_loop:" in caplog.text


def deep(levels: int, place: Callable[[], str]) -> str:
    return deep(levels - 1, place) if levels else place()


async def test_the_report_is_one_short_line() -> None:
    watchdog = _Watchdog(trio.lowlevel.current_trio_token(), 1)
    told = deep(100, watchdog._place)
    assert told.count(", from ") == FRAMES_MAX - 1
    assert ".test_watchdog.deep:" in told
    assert "\n" not in told


async def test_a_loop_that_waits_for_io_is_not_blocked(caplog: pytest.LogCaptureFixture) -> None:
    """Its answer comes late because the machine is busy."""
    asked = 0
    enough = threading.Event()

    class Late:
        def run_sync_soon(self, function: Callable[[], None], *, idempotent: bool) -> None:
            nonlocal asked
            asked += 1
            if asked == 3:
                enough.set()
            timer = threading.Timer(0.03, function)
            timer.daemon = True
            timer.start()

    await trio.to_thread.run_sync(enough.is_set)  # the start of Trio's thread may block the loop
    watchdog = _Watchdog(Late(), 0.001)
    watchdog.start()
    assert await trio.to_thread.run_sync(enough.wait, 60)
    watchdog.stop()
    assert "blocked" not in caplog.text


def test_a_block_below_the_limit_is_not_reported() -> None:
    """The loop has the whole limit for its answer."""
    given: list[float | None] = []

    class Alive(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            given.append(timeout)
            watchdog.stop()
            return True

    class Silent:
        def run_sync_soon(self, function: Callable[[], None], *, idempotent: bool) -> None:
            pass

    watchdog = _Watchdog(Silent(), 0.02)
    watchdog._alive = Alive()
    watchdog.start()
    watchdog._thread.join(60)
    assert given == [0.02]


def test_silent_when_the_loop_answers(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0
    enough = threading.Event()

    class Answers:
        def run_sync_soon(self, function: Callable[[], None], *, idempotent: bool) -> None:
            nonlocal asked
            asked += 1
            function()
            if asked == 5:
                enough.set()

    watchdog = _Watchdog(Answers(), 0.001)
    watchdog.start()
    assert enough.wait(60)
    watchdog.stop()
    assert caplog.text == ""


async def test_stops_with_its_context() -> None:
    with watch_loop(blocked_max_s=0.01):
        assert "loop-watchdog" in {thread.name for thread in threading.enumerate()}
    with trio.fail_after(60):
        await trio.to_thread.run_sync(join_watchdogs)


def join_watchdogs() -> None:
    for thread in threading.enumerate():
        if thread.name == "loop-watchdog":
            thread.join()


def test_ends_with_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Ended:
        def run_sync_soon(self, function: Callable[[], None], *, idempotent: bool) -> None:
            raise trio.RunFinishedError

    watchdog = _Watchdog(Ended(), 0.001)
    watchdog.start()
    watchdog._thread.join(60)
    assert not watchdog._thread.is_alive()
