"""The watchdog's thread runs in real time; so do these tests, briefly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FrameType

import pytest
import trio

from geminga_runtime.process import FRAMES_MAX, _Watchdog, watch_loop


def block_the_loop(until: threading.Event) -> None:
    """Block until the watchdog has read the loop's stack; its thread may be late."""
    until.wait(5)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the watchdog has read the loop's stack."""
    found, look = threading.Event(), _Watchdog._place

    def place(watchdog: _Watchdog) -> str:
        try:
            return look(watchdog)
        finally:
            found.set()

    monkeypatch.setattr(_Watchdog, "_place", place)
    return found


async def test_reports_a_blocked_loop(
    caplog: pytest.LogCaptureFixture, looked: threading.Event
) -> None:
    with watch_loop(blocked_max_s=0.04):
        await trio.sleep(0.01)
        with trio.fail_after(60):
            while "test_watchdog.block_the_loop:" not in caplog.text:
                looked.clear()
                # On a busy machine another place may have been read just before; of that one
                # the watchdog tells first, and it looks at no other until then.
                block_the_loop(looked)
                await trio.sleep(0.1)
    assert "the loop was blocked for" in caplog.text


def deep(levels: int, place: Callable[[], str]) -> str:
    return deep(levels - 1, place) if levels else place()


async def test_the_report_is_one_short_line() -> None:
    watchdog = _Watchdog(trio.lowlevel.current_trio_token(), 1)
    told = deep(100, watchdog._place)
    assert told.count(", from ") == FRAMES_MAX - 1
    assert ".test_watchdog.deep:" in told
    assert "\n" not in told


async def test_a_loop_that_waits_for_io_is_not_blocked(
    caplog: pytest.LogCaptureFixture, looked: threading.Event
) -> None:
    """It ran when it was asked, and its answer comes late because the machine is busy."""

    class Late:
        def run_sync_soon(self, function: Callable[[], None], *, idempotent: bool) -> None:
            timer = threading.Timer(0.1, function)
            timer.daemon = True
            timer.start()

    await trio.to_thread.run_sync(threading.get_ident)  # its first start may block the loop
    watchdog = _Watchdog(Late(), 0.02)
    watchdog.start()
    while watchdog._alive.is_set():  # at work until it is asked
        pass
    assert await trio.to_thread.run_sync(looked.wait, 60)
    watchdog.stop()
    await trio.to_thread.run_sync(watchdog._thread.join, 60)
    assert "blocked" not in caplog.text


async def test_a_loop_that_waits_for_io_is_left_alone() -> None:
    looks = 0
    enough = threading.Event()

    class Answers:
        def run_sync_soon(self, function: Callable[[], None], *, idempotent: bool) -> None:
            nonlocal looks
            looks = 0  # the loop may have been at work yet when it was looked at
            function()

    class Watched(_Watchdog):
        def _frame(self) -> FrameType | None:
            nonlocal looks
            looks += 1
            if looks == 10:  # without a question in between
                enough.set()
            return super()._frame()

    watchdog = Watched(Answers(), 0.02)
    watchdog.start()
    assert await trio.to_thread.run_sync(enough.wait, 60)
    watchdog.stop()


@pytest.mark.parametrize("looks", [1, 2])
def test_a_block_below_the_limit_is_not_reported(
    caplog: pytest.LogCaptureFixture, looks: int
) -> None:
    """The loop has the whole limit for its answer: two looks after the one that asks."""
    given: list[float | None] = []

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            given.append(timeout)
            if len(given) == 1 + looks:
                watchdog._alive.set()
            return len(given) > 1 + looks

    class Silent:
        def run_sync_soon(self, function: Callable[[], None], *, idempotent: bool) -> None:
            pass

    watchdog = _Watchdog(Silent(), 0.02)
    watchdog._stopped = Stopped()
    watchdog.start()
    watchdog._thread.join(10)
    watchdog._alive.set()  # ends one that has reported
    assert given == [0.01] * (2 + looks)
    assert caplog.text == ""


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
