"""One broker's process, from the parent's side: started, served with metadata and entries, started
again when it dies, stopped.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass

import trio

from geminga_broker.config import BrokerConfig
from geminga_broker.processes import messages
from geminga_broker.processes.messages import Begin, Descriptors, Refused, Serving, Stop
from geminga_broker.processes.sockets import Listeners, bind_own_again
from geminga_protocol.bookkeeper.framing import WireError
from geminga_runtime.backoff import Backoff
from geminga_runtime.errors import BindFailed, ConnectionLost
from geminga_runtime.lasting import open_lasting_nursery
from geminga_runtime.observing.log_setup import LogSettings
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)

CHILD_MODULE = "geminga_broker.processes.child"

BACKOFF_S = 0.1
BACKOFF_MAX_S = 30.0
"""Waits before a broker is started again."""

STEADY_S = 60.0
"""After a broker that lived for so long the waits begin anew."""

GRACE_S = 5.0
"""Time for a process to end once a connection of it has."""

Serve = Callable[[FramedStream], Awaitable[object]]
"""Serves a connection until the other side closes it."""


class BrokerRefused(Exception):
    """A broker's process can't start; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the parent has for its brokers."""

    metadata: Serve
    entries: Serve


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """How a broker's process is started."""

    name: str
    config: BrokerConfig
    logs: LogSettings
    service: Listeners
    """The sockets of the service's address, which all brokers have."""
    own_ports: list[int | None]
    """0 takes a free one, which a process that follows has too if it can be had."""
    command: tuple[str, ...] = (sys.executable, "-P", "-m", CHILD_MODULE)
    """Gets the file descriptor of the control connection."""

    @property
    def stop_s(self) -> float:
        """How long a broker may take to stop: it closes its clients, then what is left."""
        return 2 * self.config.network.shutdown_timeout_ms / 1000 + GRACE_S


class _Child:
    """A process that was started, and our ends of its connections."""

    def __init__(self, plan: BrokerPlan, ports: list[int | None]) -> None:
        """Raises BindFailed, OSError."""
        self.plan = plan
        self.refusal: str | None = None
        self.is_serving = False
        self.received = messages.to_parent()
        pairs = [socket.socketpair() for _ in range(3)]
        with ExitStack() as stack:
            for _, theirs in pairs:
                stack.enter_context(theirs)
            ours = [stack.enter_context(end) for end, _ in pairs]
            own = bind_own_again(plan.config, ports, fixed=0 not in plan.own_ports)
            self.ports = own.ports
            with own:
                descriptors, every = _inherited(own, plan.service, [pair[1] for pair in pairs])
                self.process = subprocess.Popen(
                    [*plan.command, str(every[0])], pass_fds=every, stdin=subprocess.DEVNULL
                )
            names = ("", " metadata", " entries")
            self.control, self.metadata, self.entries = (
                messages.stream_of(end.dup(), f"{plan.name}{name}")
                for end, name in zip(ours, names, strict=True)
            )
        begin = Begin(plan.name, plan.logs, plan.config, descriptors)
        self.control.write(messages.message(begin))

    async def end(self) -> int:
        """Close the connections, which ends the process, or kill it; returns its exit code."""
        for stream in (self.control, self.metadata, self.entries):
            await stream.aclose()
        with trio.move_on_after(GRACE_S):
            await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)
        self.process.kill()
        return await trio.to_thread.run_sync(self.process.wait)

    def kill(self) -> None:
        """End it before it was attended to."""
        self.process.kill()
        self.process.wait()
        for stream in (self.control, self.metadata, self.entries):
            stream.abort()


def _inherited(
    own: Listeners, service: Listeners, theirs: list[socket.socket]
) -> tuple[Descriptors, list[int]]:
    """What a child is told of its descriptors, and all of them, the control connection first."""
    control, metadata, entries = (end.fileno() for end in theirs)
    listening = [
        [each.fileno() for each in pair if each is not None]
        for pair in zip(own, service, strict=True)
    ]
    every = [control, metadata, entries, *(fd for pair in listening for fd in pair)]
    return Descriptors(metadata, entries, *listening), every


class BrokerProcess:
    """The process of one broker, and those that follow it."""

    def __init__(self, plan: BrokerPlan) -> None:
        self._plan = plan
        self._ports = plan.own_ports
        self._child: _Child | None = None
        self.serving: Promise[list[str]] = Promise()
        """The own addresses of the first process, once it serves."""

    @property
    def pid(self) -> int | None:
        """Of the process that runs."""
        return None if self._child is None else self._child.process.pid

    def spawn(self) -> None:
        """Start the process. It waits for `run`. Raises BindFailed, BrokerRefused."""
        self._child = self._started()

    def abandon(self) -> None:
        """Kill a process that `run` has not taken care of. Idempotent."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _started(self) -> _Child:
        try:
            child = _Child(self._plan, self._ports)
        except BindFailed:
            raise
        except OSError as error:
            raise BrokerRefused(f"{self._plan.name} can't be started: {error}") from error
        self._ports = child.ports
        return child

    async def run(self, services: Services) -> None:
        """Keep a process alive until cancelled, then stop it. One that an administrator stops is
        followed by another, too. Raises BrokerRefused if the first one doesn't come to serve.
        """
        name, backoff = self._plan.name, Backoff(BACKOFF_S, BACKOFF_MAX_S)
        while True:
            began, level = trio.current_time(), logging.ERROR
            try:
                child = self._child = self._child or self._started()
            except (BindFailed, BrokerRefused) as error:
                why = str(error)
            else:
                try:
                    code = await self._attend(child, services)
                finally:
                    self._child = None
                why = child.refusal or f"ended with code {code}"
                if not self.serving.is_done():
                    raise BrokerRefused(child.refusal or f"{name} {why} before it served")
                if code == 0:  # it was told to stop
                    level = logging.INFO
            now = trio.current_time()
            if now - began >= STEADY_S:
                backoff.reset()
            wait_s = backoff.next_s(now)
            _log.log(level, "%s %s: started again in %.1f s", name, why, wait_s)
            await trio.sleep(wait_s)

    async def _attend(self, child: _Child, services: Services) -> int:
        """Until the process has ended; stops it when cancelled. Returns its exit code."""
        code = 0
        try:
            async with open_lasting_nursery() as nursery:
                nursery.start_soon(child.control.run_writer)
                nursery.start_soon(self._serve, services.metadata, child.metadata, child)
                nursery.start_soon(self._serve, services.entries, child.entries, child)
                has_ended = False
                try:
                    await self._follow(child)
                    has_ended = True
                finally:
                    if child.is_serving:
                        with trio.move_on_after(self._plan.stop_s, shield=True):
                            child.control.write(messages.message(Stop()))
                            await self._follow(child)
                    elif not has_ended:  # it has no topics, and may not hear before it has begun
                        child.process.kill()
        finally:
            with trio.CancelScope(shield=True):
                code = await child.end()
        return code

    async def _serve(self, serve: Serve, stream: FramedStream, child: _Child) -> None:
        await serve(stream)
        # The process ends too, or hangs: then nobody else can serve what it owns.
        await trio.sleep(GRACE_S)
        _log.error("%s is killed: it has no connection any more", stream.name)
        child.process.kill()

    async def _follow(self, child: _Child) -> None:
        """Until the control connection ends."""
        try:
            while data := await child.control.receive():
                for _, said, _ in child.received.feed(data):
                    if isinstance(said, Serving):
                        pid, urls = child.process.pid, " ".join(said.urls)
                        _log.info("%s serves: %s pid=%d", self._plan.name, urls, pid)
                        child.is_serving = True
                        self.serving.resolve(said.urls)
                    elif isinstance(said, Refused):
                        child.refusal = said.text
        except (ConnectionLost, WireError):
            pass
