"""A store in memory or in a file that is served over streams in memory."""

from __future__ import annotations

import trio
from trio.testing import memory_stream_pair

from geminga_runtime.errors import ConnectFailed
from geminga_runtime.metadata.embedded import EmbeddedStore
from geminga_runtime.metadata.remote_server import ServerLimits, serve_session
from geminga_runtime.stream import FramedStream


class Server:
    """A store that is served over streams in memory."""

    def __init__(self, base: EmbeddedStore, limits: ServerLimits | None = None) -> None:
        self.base = base
        self.limits = limits or ServerLimits()
        self.streams: list[FramedStream] = []
        self.sessions = 0
        self.refuses = False
        self.is_deaf = False
        """What clients write goes nowhere."""

    async def dial(self, deadline: float) -> FramedStream:
        await trio.lowlevel.checkpoint()
        if self.refuses:
            raise ConnectFailed("refused")
        here, there = memory_stream_pair()
        trio.lowlevel.spawn_system_task(self._serve, there)
        return FramedStream(trio.StapledStream(_Sender(self, here), here), name="server")

    async def _serve(self, stream: trio.abc.Stream) -> None:
        framed = FramedStream(stream, name="client")
        self.streams.append(framed)
        self.sessions += 1
        await serve_session(self.base, framed, self.limits)
        await framed.aclose()
        self.sessions -= 1


class _Sender(trio.abc.SendStream):
    def __init__(self, server: Server, stream: trio.abc.SendStream) -> None:
        self._server = server
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._server.is_deaf:
            await trio.lowlevel.checkpoint()
        else:
            await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()
