"""Transports of a FramedStream: a socket, TLS, or any Trio stream."""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import trio

from geminga_protocol.buffers import Buffer
from geminga_runtime.tls_stream import TlsStream, large_sends

SMALL_BUFFER_BYTES = 4096
"""Buffers under this are cheaper to join than to hand to the kernel one by one."""

JOIN_BUFFERS_MAX = 256
IOV_MAX = 1024
"""The kernel's limit of buffers in a call (UIO_MAXIOV)."""
SEND_BYTES_MAX = 256 * 1024
"""Bytes in a call: nothing else runs while the kernel copies them. Other tasks run before the next
call (spec BR-40).
"""


def coalesce(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes with runs of small buffers joined; large buffers are not copied."""
    if len(buffers) == 1:
        return list(buffers)
    if max(map(len, buffers), default=0) < SMALL_BUFFER_BYTES:
        if len(buffers) <= JOIN_BUFFERS_MAX:
            return [b"".join(buffers)]
        starts = range(0, len(buffers), JOIN_BUFFERS_MAX)
        return [b"".join(buffers[start : start + JOIN_BUFFERS_MAX]) for start in starts]
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < SMALL_BUFFER_BYTES:
            run.append(buffer)
            continue
        if run:
            joined.append(run[0] if len(run) == 1 else b"".join(run))
            run = []
        joined.append(buffer)
    if run:
        joined.append(run[0] if len(run) == 1 else b"".join(run))
    return joined


def cap(window: list[Buffer]) -> bool:
    """Cut `window` to SEND_BYTES_MAX; returns whether it was longer."""
    left = SEND_BYTES_MAX
    for at, buffer in enumerate(window):
        left -= len(buffer)
        if left < 0:
            window[at:] = [memoryview(buffer)[:left]]
            return True
    return False


class Transport(Protocol):
    """One reader, one writer. Both raise OSError, and Trio's errors of streams."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """Bytes from the peer; b"" at the end. A cancelled call loses no bytes."""

    async def send_buffers(
        self, buffers: list[Buffer], count_sent: Callable[[int], object]
    ) -> None:
        """Send in order; calls `count_sent` with the number of bytes after each send."""

    def send_now(self, buffers: Sequence[Buffer]) -> int:
        """Send without waiting; returns the number of bytes sent, which may be 0. Never raises."""

    def close(self) -> None:
        """Close both directions, also while a task reads or writes. Idempotent."""


def transport_of(stream: trio.abc.Stream) -> Transport:
    """The transport for a stream."""
    if isinstance(stream, TlsStream):
        return stream
    if isinstance(stream, trio.SocketStream) and hasattr(os, "writev"):
        large_sends(stream.socket)
        return _SocketTransport(stream.socket)
    return _StreamTransport(stream)


class _SocketTransport:
    """System calls without Trio's layers above them."""

    __slots__ = ("_drained", "_may_hurry", "_socket")

    def __init__(self, socket: trio.socket.SocketType) -> None:
        self._socket = socket
        self._drained = True
        self._may_hurry = True

    async def receive_some(self, max_bytes: int) -> bytes:
        """One wait and one read."""
        if self._drained:
            await trio.lowlevel.wait_readable(self._socket.fileno())
        else:
            # The last read was full, so there is more to read: only let other tasks run.
            await trio.lowlevel.checkpoint()
        while True:
            try:
                data = os.read(self._socket.fileno(), max_bytes)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket.fileno())
            else:
                self._drained = len(data) < max_bytes
                self._may_hurry = True
                return data

    async def send_buffers(
        self, buffers: list[Buffer], count_sent: Callable[[int], object]
    ) -> None:
        first = 0
        left_bytes = sum(map(len, buffers))
        while first < len(buffers):
            window = buffers[first : first + IOV_MAX]
            is_capped = left_bytes > SEND_BYTES_MAX and cap(window)
            try:
                # Not trio's sendmsg: it is a checkpoint, and the writer task waits soon anyway.
                sent = os.writev(self._socket.fileno(), window)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket.fileno())
                continue
            left_bytes -= sent
            count_sent(sent)
            while first < len(buffers):
                size = len(buffers[first])
                if sent < size:
                    if sent:
                        buffers[first] = memoryview(buffers[first])[sent:]
                    break
                sent -= size
                buffers[first] = b""
                first += 1
            if is_capped:
                await trio.lowlevel.checkpoint()

    def send_now(self, buffers: Sequence[Buffer]) -> int:
        """One send after each read; further buffers are joined by the writer task."""
        if not self._may_hurry:
            return 0
        self._may_hurry = False
        try:
            return os.writev(self._socket.fileno(), buffers)
        except OSError:
            # Full, or broken: the writer task then gets the same error.
            return 0

    def close(self) -> None:
        self._socket.close()


class _StreamTransport:
    """A stream that can't be closed while a task reads or writes: `close` cancels these instead."""

    __slots__ = ("_closed", "_scopes", "_stream")

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._closed = False
        self._scopes: list[trio.CancelScope] = []

    async def receive_some(self, max_bytes: int) -> bytes:
        with self._cancelled_by_close():
            return bytes(await self._stream.receive_some(max_bytes))
        raise trio.ClosedResourceError("closed on our side")

    async def send_buffers(
        self, buffers: list[Buffer], count_sent: Callable[[int], object]
    ) -> None:
        for buffer in buffers:
            if self._closed:
                return
            with self._cancelled_by_close():
                await self._stream.send_all(memoryview(buffer))
                count_sent(len(buffer))

    def send_now(self, buffers: Sequence[Buffer]) -> int:
        return 0

    def close(self) -> None:
        self._closed = True
        for scope in self._scopes:
            scope.cancel()

    @contextmanager
    def _cancelled_by_close(self) -> Iterator[None]:
        with trio.CancelScope() as scope:
            self._scopes.append(scope)
            try:
                yield
            finally:
                self._scopes.remove(scope)
