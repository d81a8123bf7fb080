"""A connection's bytes, with deadlines for clients that don't read (spec PX-24)."""

from __future__ import annotations

import logging

import trio

from geminga_broker.web.requests import RequestReader
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)

SEND_S = 30.0
"""Time to send a part of an answer."""
SEND_BYTES = 64 * 1024
"""Bytes of such a part."""
READ_BYTES = 16 * 1024
"""Bytes of a read: nine hundred of the smallest requests, which are cut in one turn."""
BODY_READ_BYTES = 64 * 1024


class Wire:
    """Reads requests from a stream and sends answers to it. One task reads at a time, and only
    when somebody waits for more: what a client sends ahead stays in the socket.
    """

    def __init__(self, stream: FramedStream) -> None:
        self.stream = stream
        self.reader = RequestReader()
        self.has_ended = False
        """Whether the client sends nothing more."""
        self._gone = trio.Event()
        self._in_parts = trio.Lock()
        """Held while something goes out in parts: a WebSocket has several tasks that send."""

    @property
    def is_gone(self) -> bool:
        """Whether nothing can be sent."""
        return self.stream.lost

    async def read_more(self, bytes_max: int = READ_BYTES) -> bool:
        """Read once; false if nothing more comes that could be read."""
        if self.has_ended or self.reader.is_over:
            await trio.lowlevel.checkpoint()
            return False
        return await self._read(bytes_max)

    async def _read(self, bytes_max: int) -> bool:
        data = await self._received(bytes_max)
        if data:
            self.reader.feed(data)
        return bool(data)

    async def _received(self, bytes_max: int) -> bytes:
        """Nothing if the client has ended its side, or is lost."""
        try:
            data = await self.stream.receive(bytes_max)
        except ConnectionLost:
            data = b""
        self.has_ended = not data
        return data

    async def lost(self) -> None:
        """Wait until the client is gone, for an application that has something to end then. Reads
        ahead until there is another request, for nothing else tells.
        """
        while not (self.has_ended or self.is_gone):
            if self.reader.ready:
                await self._gone.wait()
                return
            await self._read(READ_BYTES)  # what comes behind the last request is dropped

    async def ended(self) -> None:
        """Drop what comes until the client has ended its side."""
        while not self.has_ended:
            await self._received(BODY_READ_BYTES)

    def write(self, data: bytes) -> None:
        """Send soon, few bytes."""
        self.stream.write_now(data)

    async def send(self, first: bytes, rest: bytes, timeout_s: float | None = None) -> None:
        """Send both, in few calls. A client that doesn't read is gone after `timeout_s` (`SEND_S`
        without one); sending to one that is gone does nothing.
        """
        stream = self.stream
        if len(first) + len(rest) <= SEND_BYTES and not self._in_parts.locked():
            # Joined: the call costs more than the copy.
            stream.write_now(first + rest if first and rest else first or rest)
            if not stream.pending_bytes:
                if stream.lost:
                    await trio.lowlevel.checkpoint()
                return
            await self._sent(timeout_s)
            return
        async with self._in_parts:
            for part in (memoryview(first), memoryview(rest)):
                for at in range(0, len(part), SEND_BYTES):
                    stream.write(part[at : at + SEND_BYTES])
                    if not await self._sent(timeout_s):
                        return

    async def _sent(self, timeout_s: float | None) -> bool:
        try:
            with trio.fail_after(SEND_S if timeout_s is None else timeout_s):
                await self.stream.flush()
            return True
        except ConnectionLost:
            pass
        except trio.TooSlowError:
            _log.info("a web client does not read its responses: connection closed")
            self.stream.abort("the client does not read")
        self._gone.set()
        return False
