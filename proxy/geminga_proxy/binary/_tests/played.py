"""A scripted broker, a real proxy before it, and clients that send and receive frames."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from geminga_protocol import tokens
from geminga_protocol.commands import answers, connection, lookup, producing
from geminga_protocol.frames import Frame, FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandConnect, ServerError
from geminga_protocol.proxy_header import ProxyHeaderReader
from geminga_proxy.config import load_config
from geminga_proxy.standalone import Running, run_proxy

SECRET = bytes(range(32))
NO_REQUEST = (1 << 64) - 1
TOPIC = "persistent://public/default/t"
AUTH = {
    "authenticationEnabled": "true",
    "authenticationProviders": "token",
    "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
    "brokerClientAuthenticationPlugin": "token",
    "brokerClientAuthenticationParameters": "token:of-the-proxy",
}
C = BaseCommand.Type


class Wire:
    """Frames over a stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._reader = FrameReader()
        self._frames: list[Frame] = []

    async def next(self) -> Frame | None:
        while not self._frames:
            data = await self.stream.receive_some()
            if not data:
                return None
            self._frames += self._reader.feed(bytes(data))
        return self._frames.pop(0)

    async def expect(self, kind: int) -> BaseCommand:
        with trio.fail_after(60):
            frame = await self.next()
        assert frame is not None, "closed"
        assert frame.type == kind, frame.command
        return frame.command

    async def send(self, *frames: bytes) -> None:
        await self.stream.send_all(b"".join(frames))

    async def ask(self, request: bytes, kind: int) -> BaseCommand:
        await self.send(request)
        return await self.expect(kind)

    async def ended(self) -> bool:
        with trio.fail_after(60):
            return await self.next() is None


@dataclass
class PlayedBroker:
    """Answers CONNECT and lookups; echoes everything else."""

    port: int = 0
    hellos: list[CommandConnect] = field(default_factory=list)
    redirect_to: int | None = None
    names: int | None = None
    """The broker that it names as a topic's, itself without this."""
    refuses: ServerError | None = None
    """With what it answers CONNECT, instead of taking it."""
    says: tuple[bytes, ...] = ()
    """Pieces that follow CONNECTED: the first one with it, the others a moment later each."""
    on_subscribe: bytes = b""
    reads_proxy_header: bool = False
    sources: list[str] = field(default_factory=list)

    async def serve(self, stream: trio.SocketStream) -> None:
        wire = Wire(stream)
        if self.reads_proxy_header:
            header = ProxyHeaderReader()
            while not header.done:
                header.feed(await stream.receive_some(1))
            self.sources.append(str(header.source))
        try:
            while (frame := await wire.next()) is not None:
                await self._answer(wire, frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _answer(self, wire: Wire, frame: Frame) -> None:
        command = frame.command
        if frame.type == C.CONNECT:
            self.hellos.append(command.connect)
            if self.refuses is not None:
                await wire.send(answers.error(NO_REQUEST, self.refuses, "no"))
                await wire.stream.aclose()
                return
            first, *later = (*self.says, b"")
            connected = connection.connected(f"broker-{self.port}", protocol_version=19)
            await wire.send(connected, first)
            for piece in later:
                await trio.sleep(0.05)
                await wire.send(piece)
        elif frame.type == C.LOOKUP:
            request_id = command.lookupTopic.request_id
            if self.redirect_to is None:
                url = f"pulsar://127.0.0.1:{self.names or self.port}"
                await wire.send(lookup.lookup_response(request_id, broker_url=url))
            else:
                url = f"pulsar://127.0.0.1:{self.redirect_to}"
                await wire.send(lookup.lookup_response(request_id, broker_url=url, redirect=True))
        elif frame.type == C.PARTITIONED_METADATA:
            request_id = command.partitionMetadata.request_id
            await wire.send(lookup.partitioned_metadata_response(request_id, 7))
        elif frame.type == C.PRODUCER:
            await wire.send(producing.producer_success(command.producer.request_id, "p"))
        elif frame.type == C.SUBSCRIBE:
            await wire.send(self.on_subscribe)


@asynccontextmanager
async def brokers(count: int = 1) -> AsyncIterator[list[PlayedBroker]]:
    async with trio.open_nursery() as nursery:
        played = [PlayedBroker() for _ in range(count)]
        for one in played:
            listen = partial(trio.serve_tcp, one.serve, 0, host="127.0.0.1")
            (listener,) = await nursery.start(listen)
            one.port = listener.socket.getsockname()[1]
        yield played
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def proxied(broker: PlayedBroker, **settings: str) -> AsyncIterator[Running]:
    values = {
        "bindAddress": "127.0.0.1",
        "servicePort": "0",
        "webServicePort": "-1",
        "brokerServiceURL": f"pulsar://127.0.0.1:{broker.port}",
        "proxyDrainSeconds": "0",
        **settings,
    }
    async with trio.open_nursery() as nursery:
        running: Running = await nursery.start(run_proxy, load_config(None, {}, values))
        try:
            yield running
        finally:
            while opened:
                await trio.aclose_forcefully(opened.pop().stream)
        nursery.cancel_scope.cancel()


opened: list[Wire] = []
"""Clients, closed with the proxy."""


async def client(running: Running) -> Wire:
    port = int(running.urls[0].rpartition(":")[2])
    wire = Wire(await trio.open_tcp_stream("127.0.0.1", port))
    opened.append(wire)
    return wire


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


def token(role: str, lasts_s: float | None = None) -> bytes:
    expires = None if lasts_s is None else math.ceil(time.time() + lasts_s)
    return tokens.create(SECRET, role, expires_at_s=expires).encode()


async def open_tunnel(running: Running, broker: PlayedBroker) -> Wire:
    wire = await client(running)
    target = f"127.0.0.1:{broker.port}"
    hello = connection.connect("c", proxy_to_broker_url=target)
    connected = await wire.ask(hello, C.CONNECTED)
    assert connected.connected.server_version == f"broker-{broker.port}"
    assert connected.connected.protocol_version == 19
    return wire
