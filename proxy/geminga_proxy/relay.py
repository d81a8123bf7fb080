"""Bytes both ways between two connections (spec PX-02).

What one side sends is read only when the other has taken what came before: a slow reader stops the
writer's socket, and no more than one read is held for each direction. A connection without traffic
costs two parked tasks and holds no bytes. The end of one side's bytes is passed on; the tunnel ends
when both have ended, or one breaks.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import trio

from geminga_proxy.metrics import ProxyMetrics
from geminga_runtime.errors import TlsFailed

RELAY_BYTES = 256 * 1024
"""One read of one direction: what is held for it at most."""
LOOKS_PER_TIMEOUT = 4

_BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, TlsFailed)


class Direction:
    """One direction of a tunnel."""

    __slots__ = ("_quiet", "_reads_seen", "has_ended", "is_stuck", "reads", "see")

    def __init__(self, see: Callable[[bytes], object] | None = None) -> None:
        self.see = see
        """Is shown what passes."""
        self.reads = 0
        self.is_stuck = False
        """What was read can't be written now."""
        self.has_ended = False
        self._reads_seen = 0
        self._quiet = 0

    def is_silent(self) -> bool:
        """Whether nothing has come for some looks; this is one. Nothing is heard of a sender that
        isn't read.
        """
        if self.has_ended or self.is_stuck or self.reads != self._reads_seen:
            self._reads_seen, self._quiet = self.reads, 0
            return False
        self._quiet += 1
        return self._quiet >= LOOKS_PER_TIMEOUT


class Tunnel:
    """Both directions of a relay, and its end."""

    __slots__ = ("down", "scope", "up")

    def __init__(
        self,
        see_up: Callable[[bytes], object] | None = None,
        see_down: Callable[[bytes], object] | None = None,
    ) -> None:
        self.up, self.down = Direction(see_up), Direction(see_down)
        self.scope = trio.CancelScope()


class Tunnels:
    """All tunnels of a proxy; ends those that one end of has vanished without a word: clients and
    brokers ask each other every 30 s whether they are there.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._open: dict[Tunnel, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, tunnel: Tunnel) -> None:
        """It is watched from now on."""
        self._open[tunnel] = None

    def remove(self, tunnel: Tunnel) -> None:
        """It has ended."""
        del self._open[tunnel]

    async def watch(self) -> None:
        """Run as long as there are tunnels."""
        while True:
            await trio.sleep(self._timeout_s / LOOKS_PER_TIMEOUT)
            for tunnel in self._open:
                # Both are looked at, whatever the first says.
                if tunnel.up.is_silent() | tunnel.down.is_silent():
                    tunnel.scope.cancel()


async def relay(
    ours: trio.abc.Stream,
    theirs: trio.abc.Stream,
    metrics: ProxyMetrics,
    tunnel: Tunnel | None = None,
) -> None:
    """Until both sides have ended, one breaks, or the tunnel is cancelled. The streams are closed
    by their owners.
    """
    tunnel = tunnel or Tunnel()
    with tunnel.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_one_way, theirs, ours, metrics, tunnel.down, tunnel.scope)
            await _one_way(ours, theirs, metrics, tunnel.up, tunnel.scope)


async def _one_way(
    source: trio.abc.Stream,
    sink: trio.abc.Stream,
    metrics: ProxyMetrics,
    direction: Direction,
    tunnel: trio.CancelScope,
) -> None:
    try:
        if isinstance(source, trio.SocketStream) and isinstance(sink, trio.SocketStream):
            await _sockets(source.socket, sink.socket, metrics, direction)
        else:
            await _streams(source, sink, metrics, direction)
        direction.has_ended = True
        if isinstance(sink, trio.SocketStream):
            sink.socket.shutdown(socket.SHUT_WR)
            return
    except _BROKEN:
        pass
    # Broken, or a stream that can't end one direction alone: both end.
    tunnel.cancel()


async def _sockets(
    source: trio.socket.SocketType,
    sink: trio.socket.SocketType,
    metrics: ProxyMetrics,
    direction: Direction,
) -> None:
    """The system calls themselves: what Trio has above them costs as much as they do."""
    read_from, write_to = source.fileno(), sink.fileno()
    drained = True
    while True:
        if drained:
            await trio.lowlevel.wait_readable(source)
        else:
            await trio.lowlevel.checkpoint()
        try:
            data = os.read(read_from, RELAY_BYTES)
        except BlockingIOError:
            drained = True
            continue
        if not data:
            return
        size = len(data)
        drained = size < RELAY_BYTES
        direction.reads += 1
        metrics.bytes_relayed += size
        metrics.reads_relayed += 1
        if direction.see is not None:
            direction.see(data)
        try:
            sent = os.write(write_to, data)
        except BlockingIOError:
            sent = 0
        if sent < size:
            await _rest(memoryview(data)[sent:], sink, direction)
        # Not held while nothing comes, which may be long.
        data = b""


async def _rest(rest: memoryview, sink: trio.socket.SocketType, direction: Direction) -> None:
    direction.is_stuck = True
    write_to = sink.fileno()
    while rest:
        await trio.lowlevel.wait_writable(sink)
        try:
            rest = rest[os.write(write_to, rest) :]
        except BlockingIOError:
            continue
    direction.is_stuck = False


async def _streams(
    source: trio.abc.Stream, sink: trio.abc.Stream, metrics: ProxyMetrics, direction: Direction
) -> None:
    while data := await source.receive_some(RELAY_BYTES):
        direction.reads += 1
        metrics.bytes_relayed += len(data)
        metrics.reads_relayed += 1
        if direction.see is not None:
            direction.see(bytes(data))
        direction.is_stuck = True
        await sink.send_all(data)
        direction.is_stuck = False
        data = b""
