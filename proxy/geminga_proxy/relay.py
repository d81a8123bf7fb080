"""Bytes both ways between two connections (spec PX-02).

Each direction is read only after its last read was written: a slow reader stops the writer's
socket, and a direction holds one read at most. A connection without traffic costs two parked tasks
and holds no bytes. A half-close is passed on; the tunnel ends when both sides are closed, or one
breaks.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable

import trio

from geminga_proxy.metrics import ProxyMetrics
from geminga_runtime.errors import TlsFailed

RELAY_BYTES = 256 * 1024
"""Bytes of one read, the most that a direction holds."""
LOOKS_PER_TIMEOUT = 4

_BROKEN = (
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
    TlsFailed,
)


class Direction:
    """One direction of a tunnel."""

    __slots__ = ("_quiet", "_reads_seen", "bytes", "has_ended", "is_stuck", "on_data", "reads")

    def __init__(self, on_data: Callable[[bytes], object] | None = None) -> None:
        self.on_data = on_data
        """Called with the bytes that pass."""
        self.reads = 0
        self.bytes = 0
        self.is_stuck = False
        """The last read can't be written now."""
        self.has_ended = False
        self._reads_seen = 0
        self._quiet = 0

    def is_silent(self) -> bool:
        """Whether nothing came during LOOKS_PER_TIMEOUT calls. A stuck direction doesn't count: it
        isn't read, so its sender may be sending.
        """
        if self.has_ended or self.is_stuck or self.reads != self._reads_seen:
            self._reads_seen, self._quiet = self.reads, 0
            return False
        self._quiet += 1
        return self._quiet >= LOOKS_PER_TIMEOUT


class Tunnel:
    """Both directions of a relay, and its end."""

    __slots__ = ("down", "patience_s", "scope", "up")

    def __init__(
        self,
        on_up: Callable[[bytes], object] | None = None,
        on_down: Callable[[bytes], object] | None = None,
        *,
        patience_s: float = math.inf,
    ) -> None:
        """`patience_s`: time for a side to take more bytes, and to end after the other side. Not
        needed in `Tunnels`.
        """
        self.up, self.down = Direction(on_up), Direction(on_down)
        self.patience_s = patience_s
        self.scope = trio.CancelScope()


class Tunnels:
    """All tunnels of a proxy. Ends those with a silent side: clients and brokers ping each other
    every 30 s.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._open: dict[Tunnel, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, tunnel: Tunnel) -> None:
        """Watch a tunnel."""
        self._open[tunnel] = None

    def remove(self, tunnel: Tunnel) -> None:
        """The tunnel has ended."""
        del self._open[tunnel]

    async def watch(self) -> None:
        """Look at all tunnels from time to time, for ever."""
        while True:
            await trio.sleep(self._timeout_s / LOOKS_PER_TIMEOUT)
            for tunnel in self._open:
                # `|`, not `or`: both directions must count each look.
                if tunnel.up.is_silent() | tunnel.down.is_silent():
                    tunnel.scope.cancel()


async def relay(
    ours: trio.abc.Stream,
    theirs: trio.abc.Stream,
    metrics: ProxyMetrics,
    tunnel: Tunnel | None = None,
) -> None:
    """Relay until both sides are closed, one breaks, or the tunnel is cancelled. The owners close
    the streams.
    """
    tunnel = tunnel or Tunnel()
    with tunnel.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_one_way, theirs, ours, metrics, tunnel.down, tunnel)
            await _one_way(ours, theirs, metrics, tunnel.up, tunnel)


async def _one_way(
    source: trio.abc.Stream,
    sink: trio.abc.Stream,
    metrics: ProxyMetrics,
    direction: Direction,
    tunnel: Tunnel,
) -> None:
    try:
        if isinstance(source, trio.SocketStream) and isinstance(sink, trio.SocketStream):
            await _sockets(source.socket, sink.socket, metrics, direction, tunnel.patience_s)
        else:
            await _streams(source, sink, metrics, direction, tunnel.patience_s)
        direction.has_ended = True
        if isinstance(sink, trio.SocketStream):
            sink.socket.shutdown(socket.SHUT_WR)
            tunnel.scope.deadline = trio.current_time() + tunnel.patience_s
            return
    except _BROKEN:
        pass
    # Broken, too slow, or a stream without half-close: both directions end.
    tunnel.scope.cancel()


async def _sockets(
    source: trio.socket.SocketType,
    sink: trio.socket.SocketType,
    metrics: ProxyMetrics,
    direction: Direction,
    patience_s: float,
) -> None:
    """Direct system calls: Trio's layers above them would double the cost."""
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
        direction.bytes += size
        metrics.bytes_relayed += size
        metrics.reads_relayed += 1
        if direction.on_data is not None:
            direction.on_data(data)
        try:
            sent = os.write(write_to, data)
        except BlockingIOError:
            sent = 0
        if sent < size:
            await _rest(memoryview(data)[sent:], sink, direction, patience_s)
        # The next read may come late: free the bytes now.
        data = b""


async def _rest(
    rest: memoryview, sink: trio.socket.SocketType, direction: Direction, patience_s: float
) -> None:
    direction.is_stuck = True
    write_to = sink.fileno()
    while rest:
        with trio.fail_after(patience_s):
            await trio.lowlevel.wait_writable(sink)
        try:
            rest = rest[os.write(write_to, rest) :]
        except BlockingIOError:
            continue
    direction.is_stuck = False


async def _streams(
    source: trio.abc.Stream,
    sink: trio.abc.Stream,
    metrics: ProxyMetrics,
    direction: Direction,
    patience_s: float,
) -> None:
    while data := await source.receive_some(RELAY_BYTES):
        direction.reads += 1
        direction.bytes += len(data)
        metrics.bytes_relayed += len(data)
        metrics.reads_relayed += 1
        if direction.on_data is not None:
            direction.on_data(bytes(data))
        direction.is_stuck = True
        with trio.fail_after(patience_s):
            await sink.send_all(data)
        direction.is_stuck = False
        data = b""
