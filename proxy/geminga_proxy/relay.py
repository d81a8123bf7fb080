"""Bytes both ways between two connections (spec PX-02).

What one side sends is read only when the other has taken what came before: a slow reader stops the
writer's socket, and no more than one read is held for each direction. A connection without traffic
costs two parked tasks. The end of one side's bytes is passed on; the tunnel ends when both have
ended, or one breaks.
"""

from __future__ import annotations

import os
import socket

import trio

from geminga_proxy.metrics import ProxyMetrics
from geminga_runtime.errors import TlsFailed

RELAY_BYTES = 256 * 1024
"""One read of one direction: what is held for it at most."""

_BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, TlsFailed)


async def relay(ours: trio.abc.Stream, theirs: trio.abc.Stream, metrics: ProxyMetrics) -> None:
    """Until both sides have ended or one breaks. The streams are closed by their owners."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_one_way, theirs, ours, metrics, nursery.cancel_scope)
        await _one_way(ours, theirs, metrics, nursery.cancel_scope)


async def _one_way(
    source: trio.abc.Stream,
    sink: trio.abc.Stream,
    metrics: ProxyMetrics,
    tunnel: trio.CancelScope,
) -> None:
    try:
        if isinstance(source, trio.SocketStream) and isinstance(sink, trio.SocketStream):
            await _sockets(source.socket, sink.socket, metrics)
        else:
            await _streams(source, sink, metrics)
        if isinstance(sink, trio.SocketStream):
            sink.socket.shutdown(socket.SHUT_WR)
            return
    except _BROKEN:
        pass
    # Broken, or a stream that can't end one direction alone: both end.
    tunnel.cancel()


async def _sockets(
    source: trio.socket.SocketType, sink: trio.socket.SocketType, metrics: ProxyMetrics
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
        drained = len(data) < RELAY_BYTES
        metrics.bytes_relayed += len(data)
        metrics.reads_relayed += 1
        rest: bytes | memoryview = data
        while rest:
            try:
                sent = os.write(write_to, rest)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(sink)
            else:
                rest = memoryview(rest)[sent:]


async def _streams(source: trio.abc.Stream, sink: trio.abc.Stream, metrics: ProxyMetrics) -> None:
    while data := await source.receive_some(RELAY_BYTES):
        metrics.bytes_relayed += len(data)
        metrics.reads_relayed += 1
        await sink.send_all(data)
