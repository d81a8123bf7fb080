"""A connection's bytes. Sends are awaited: one read at most is in memory (spec PX-06)."""

from __future__ import annotations

import os
import socket

import trio

from geminga_runtime.errors import ConnectionLost, TlsFailed
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls_stream import TlsStream

READ_BYTES = 64 * 1024
_BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, TlsFailed)


class Wire:
    """The stream beneath a FramedStream. The FramedStream's owner closes it."""

    def __init__(self, framed: FramedStream, stream: trio.abc.Stream) -> None:
        self.name = framed.name
        self.stream = stream
        self._framed = framed
        self.send_s = float("inf")
        """Time for one send; the connection is lost after it."""

    @classmethod
    async def over(cls, framed: FramedStream) -> Wire:
        """Take the stream out. Raises ConnectionLost."""
        return cls(framed, await framed.detach())

    async def receive(self) -> bytes:
        """Some bytes, b"" at the end. Raises ConnectionLost. A cancelled call loses no bytes."""
        try:
            return bytes(await self.stream.receive_some(READ_BYTES))
        except _BROKEN as error:
            raise ConnectionLost(f"{self.name}: {error}") from error

    async def send(self, data: bytes) -> None:
        """Return when the kernel has the bytes. Raises ConnectionLost."""
        if not data:
            return
        try:
            with trio.fail_after(self.send_s):
                await self.stream.send_all(data)
        except _BROKEN as error:
            raise ConnectionLost(f"{self.name}: {error}") from error
        except trio.TooSlowError:
            raise ConnectionLost(f"{self.name} reads too slowly") from None

    async def end_sending(self) -> None:
        """Half-close, where the stream can. Raises ConnectionLost."""
        if isinstance(self.stream, trio.SocketStream):
            try:
                await self.stream.send_eof()
            except _BROKEN as error:
                raise ConnectionLost(f"{self.name}: {error}") from error

    @property
    def is_quiet(self) -> bool:
        """Whether the connection is open with nothing to read, as far as the kernel knows."""
        stream = self.stream
        if isinstance(stream, TlsStream) and stream.has_unread:
            return False
        inner = stream.transport_stream if isinstance(stream, TlsStream) else stream
        if not isinstance(inner, trio.SocketStream):
            return False
        try:
            with socket.socket(fileno=os.dup(inner.socket.fileno())) as probe:
                probe.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def aclose(self) -> None:
        """Close, even when cancelled."""
        await self._framed.aclose()
