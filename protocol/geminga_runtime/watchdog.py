"""A thread that tells when the Trio loop is blocked, and by what."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import trio

_log = logging.getLogger(__name__)

BLOCKED_MAX_S = 0.1


@contextmanager
def watch_loop(*, blocked_max_s: float = BLOCKED_MAX_S) -> Iterator[None]:
    """Log a warning with the loop's stack each time that the loop is blocked longer than that.

    The thread asks the loop for an answer every half of `blocked_max_s`, which costs some
    microseconds of the loop each; every block over the limit is seen, one of over half of it may
    be.
    """
    watchdog = _Watchdog(trio.lowlevel.current_trio_token(), blocked_max_s / 2)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.stop()


class _Watchdog:
    def __init__(self, token: trio.lowlevel.TrioToken, interval_s: float) -> None:
        self._token = token
        self._interval_s = interval_s
        self._loop_thread_id = threading.get_ident()
        self._stopped = threading.Event()
        self._alive = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._alive.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._alive.clear()
            asked_s = time.monotonic()
            try:
                self._token.run_sync_soon(self._alive.set, idempotent=True)
            except trio.RunFinishedError:
                return
            if not self._alive.wait(self._interval_s):
                stack = self._stack()
                self._alive.wait()
                if not self._stopped.is_set():
                    blocked_ms = (time.monotonic() - asked_s) * 1000
                    _log.warning("the loop was blocked for %.0f ms in:\n%s", blocked_ms, stack)

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread_id)
        return "".join(traceback.format_stack(frame)) if frame is not None else "(no stack)"
