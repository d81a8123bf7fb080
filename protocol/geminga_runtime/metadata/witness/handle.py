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
from pathlib import Path

import trio

_log = logging.getLogger(__name__)

END_S = 1.0
"""How long a close waits for the witness to be gone."""

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WITHOUT = "should this process be killed, its session with ZooKeeper ends by the time-out only"


class Witness:
    """Of this process. Call `tell` in the loop's thread."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it. That it can't be is logged: all goes on without it."""
        try:
            self._process = await trio.to_thread.run_sync(self._start)
        except (OSError, ValueError) as error:
            _log.warning("no witness of this process's end (%s): %s", error, _WITHOUT)
            return
        _log.info(
            "process %d is the witness of this one: it ends the session with ZooKeeper should this "
            "one be killed",
            self._process.pid,
        )

    def _start(self) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise ValueError("the path of Python is unknown")
        # Nothing of the environment and of the working directory, and no packages: what is beside
        # this file, with Python's own library.
        program = str(Path(__file__).with_name("__main__.py"))
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
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def tell(self, session_id: int, password: bytes, timeout_s: float) -> None:
        """That is the session from now on. Never blocks."""
        self._write(b"%d %s %.3f\n" % (session_id, password.hex().encode(), timeout_s))

    def _write(self, line: bytes) -> None:
        """A line is shorter than what a pipe takes whole or not at all."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), line)
        except OSError as error:
            _log.warning("the witness of this process is gone (%s): %s", error, _WITHOUT)
            self._let_go()

    async def aclose(self) -> None:
        """The session has been closed: it is to end too. Closes even when cancelled."""
        self._write(b"\n")
        process = self._let_go()
        if process is None:
            return
        with trio.move_on_after(END_S, shield=True):
            await trio.to_thread.run_sync(
                process.wait, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )

    def _let_go(self) -> subprocess.Popen[bytes] | None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
        return process
