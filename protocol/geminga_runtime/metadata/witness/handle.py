"""A small process beside this one that ends this one's session with ZooKeeper (decision 48).

A server that is killed can't close its session, and ZooKeeper keeps the nodes of a session until
its time-out: so long its topics have no owner, and its bookie is thought to live. A process beside
it knows at once, as the system closes the pipe between them.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import trio

_log = logging.getLogger(__name__)

END_S = 1.0
"""How long a close waits for the witness to be gone."""

AGAIN_S = 1.0
"""After a witness has ended before its time another one is started; each time twice as late."""

AGAIN_MAX_S = 600.0
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WITHOUT = "should this process be killed, its session with ZooKeeper ends by the time-out only"


class Witness:
    """Of this process. Call `tell` in the loop's thread."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._process: subprocess.Popen[bytes] | None = None
        self._line = b""
        """Of the last session."""
        self._lock = threading.Lock()
        """Of those two; nobody waits who has it."""
        self._is_closed = threading.Event()

    async def start(self) -> None:
        """Start it. That it can't be is logged: all goes on without it."""
        try:
            process = await trio.to_thread.run_sync(self._start)
            threading.Thread(
                target=self._replace, args=(process,), name="witness", daemon=True
            ).start()
        except (OSError, ValueError, RuntimeError) as error:
            with self._lock:
                self._let_go()  # no thread could be started that looks after it
            _log.warning("no witness of this process's end (%s): %s", error, _WITHOUT)
            return
        _log.info(
            "process %d is the witness of this one: it ends the session with ZooKeeper should this "
            "one be killed",
            process.pid,
        )

    def _start(self) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise ValueError("the path of Python is unknown")
        # Nothing of Python's variables and of the working directory, and no packages: what is
        # beside this file, with Python's own library.
        program = str(Path(__file__).resolve().with_name("__main__.py"))
        command = [sys.executable, "-I", "-S", program, self._hosts, str(os.getpid())]
        # Those that a terminal or a supervisor sends to all processes: it is to see the end of this
        # one. What a thread blocks is blocked in the processes that it starts.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",  # it may outlive this process, whose folder may be unmounted then
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        with self._lock:
            self._process = process
            if self._is_closed.is_set():
                self._let_go()
            else:
                self._write(self._line)
        return process

    def _replace(self, process: subprocess.Popen[bytes]) -> None:
        """In a thread of its own: start another one after one that has ended before its time."""
        again_s = AGAIN_S
        while True:
            code = process.wait()
            with self._lock:
                if self._is_closed.is_set():
                    return
                self._let_go()
            _log.warning(
                "the witness of this process, %d, has ended (%d); another one in %g s: until then, "
                "%s",
                process.pid,
                code,
                again_s,
                _WITHOUT,
            )
            while True:
                if self._is_closed.wait(again_s):
                    return
                again_s = min(again_s * 2, AGAIN_MAX_S)
                try:
                    process = self._start()
                except (OSError, ValueError, RuntimeError) as error:
                    _log.warning("no witness of this process's end (%s): %s", error, _WITHOUT)
                else:
                    _log.warning("process %d is this one's witness now", process.pid)
                    break

    def tell(self, session_id: int, password: bytes, timeout_s: float) -> None:
        """That is the session from now on. Never blocks."""
        with self._lock:
            self._line = b"%d %s %.3f\n" % (session_id, password.hex().encode(), timeout_s)
            self._write(self._line)

    def _write(self, line: bytes) -> None:
        """A line is shorter than what a pipe takes whole or not at all. One that can't be told of
        this session knows an earlier one at most, and ends with that.
        """
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), line)
        except OSError:
            self._let_go()

    async def aclose(self) -> None:
        """Let the witness see to it that the session has ended, and end: a moment, if a server
        answers. Closes even when cancelled.
        """
        with self._lock:
            self._is_closed.set()
            process = self._let_go()
        if process is None:
            return
        with trio.move_on_after(END_S, shield=True):
            await trio.to_thread.run_sync(
                process.wait, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
        if process.poll() is None:
            _log.warning(
                "whether the session with ZooKeeper has ended isn't known yet: process %d, this "
                "one's witness, goes on asking, until the session's time-out at most",
                process.pid,
            )

    def _let_go(self) -> subprocess.Popen[bytes] | None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
        return process
