"""Scripted brokers, and a raw HTTP client."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import h11
import trio

from geminga_proxy.config import load_config
from geminga_proxy.standalone import Running, run_proxy

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
Answer = Callable[["PlayedBroker", h11.Request, bytes, "Talk"], Awaitable[None]]


@dataclass
class Talk:
    """One connection of a played broker."""

    stream: Stream
    http: h11.Connection
    method: bytes = b"GET"

    async def say(
        self, status: int, body: bytes = b"", headers: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        given = headers or []
        if not any(name == b"transfer-encoding" for name, _ in given):
            given = [*given, (b"content-length", b"%d" % len(body))]
        out = self.http.send(h11.Response(status_code=status, headers=given)) or b""
        if body and self.method != b"HEAD" and self.http.our_state is h11.SEND_BODY:
            out += self.http.send(h11.Data(data=body)) or b""
        await self.stream.send_all(out + (self.http.send(h11.EndOfMessage()) or b""))


async def echo(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
    """Answer with what came."""
    await talk.say(200, body or request.target, [(b"x-broker", b"%d" % broker.port)])


@dataclass
class PlayedBroker:
    """A broker's web service."""

    answer: Answer = echo
    port: int = 0
    requests: list[h11.Request] = field(default_factory=list)
    connections: int = 0
    certificates: list[str] = field(default_factory=list)
    """Common names that clients showed with their requests, empty for none; by TLS only."""

    def headers(self, at: int = -1) -> dict[bytes, bytes]:
        return {bytes(name): bytes(value) for name, value in self.requests[at].headers}

    async def serve(self, stream: Stream) -> None:
        self.connections += 1
        http = h11.Connection(h11.SERVER)
        try:
            while True:
                request, body = None, b""
                while True:
                    event = http.next_event()
                    if event is h11.NEED_DATA:
                        if http.they_are_waiting_for_100_continue:
                            interim = h11.InformationalResponse(status_code=100, headers=[])
                            await stream.send_all(http.send(interim) or b"")
                        http.receive_data(bytes(await stream.receive_some()))
                    elif isinstance(event, h11.Request):
                        request = event
                        self.requests.append(event)
                        if isinstance(stream, trio.SSLStream):
                            self.certificates.append(_common_name(stream))
                    elif isinstance(event, h11.Data):
                        body += event.data
                    elif isinstance(event, h11.EndOfMessage):
                        break
                    else:
                        return
                assert request is not None
                await self.answer(self, request, body, Talk(stream, http, request.method))
                if http.our_state is not h11.DONE:
                    return
                http.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass


def _common_name(stream: trio.SSLStream[trio.SocketStream]) -> str:
    shown = stream.getpeercert() or {}
    names = dict(pair for (pair,) in shown.get("subject", ()))
    return str(names.get("commonName", ""))


@asynccontextmanager
async def brokers(
    *answers: Answer, tls: ssl.SSLContext | None = None
) -> AsyncIterator[list[PlayedBroker]]:
    """One scripted broker for each handler."""
    async with trio.open_nursery() as nursery:
        played = [PlayedBroker(answer) for answer in answers]
        for one in played:
            listen = partial(trio.serve_tcp, one.serve, 0, host="127.0.0.1")
            if tls is not None:
                listen = partial(
                    trio.serve_ssl_over_tcp, one.serve, 0, ssl_context=tls, host="127.0.0.1"
                )
            (listener,) = await nursery.start(listen)
            tcp = listener.transport_listener if tls is not None else listener
            one.port = tcp.socket.getsockname()[1]
        yield played
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def proxied(*ports: int, **settings: str) -> AsyncIterator[Running]:
    """A proxy before them."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    values = {
        "bindAddress": "127.0.0.1",
        "servicePort": "-1",
        "webServicePort": "0",
        "brokerServiceURL": "pulsar://127.0.0.1:1",
        "brokerWebServiceURL": f"http://{hosts}" if hosts else "",
        "proxyDrainSeconds": "0",
        **settings,
    }
    try:
        async with trio.open_nursery() as nursery:
            running: Running = await nursery.start(run_proxy, load_config(None, {}, values))
            yield running
            nursery.cancel_scope.cancel()
    finally:
        while opened:
            await trio.aclose_forcefully(opened.pop().stream)


opened: list[Client] = []
"""Clients, closed with the proxy."""


class Client:
    """A client's connection; answers are read by h11."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.http = h11.Connection(h11.CLIENT)
        opened.append(self)

    @classmethod
    async def of(cls, running: Running) -> Client:
        port = int(running.urls[-1].rpartition(":")[2])
        return cls(await trio.open_tcp_stream("127.0.0.1", port))

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: list[tuple[str, str]] | None = None,
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        """One request and its answer."""
        given = [("Host", "proxy"), *(headers or [])]
        chunked = any(name.lower() == "transfer-encoding" for name, _ in given)
        if body and not chunked:
            given.append(("Content-Length", str(len(body))))
        request = h11.Request(method=method, target=target, headers=given)
        out = self.http.send(request) or b""
        if body:
            out += self.http.send(h11.Data(data=body)) or b""
        await self.stream.send_all(out + (self.http.send(h11.EndOfMessage()) or b""))
        return await self.answer()

    async def answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        status, headers, body = 0, {}, b""
        with trio.fail_after(60):
            while True:
                event = await self.event()
                if isinstance(event, h11.Response):
                    status = event.status_code
                    headers = {bytes(name): bytes(value) for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    if self.http.our_state is h11.DONE and self.http.their_state is h11.DONE:
                        self.http.start_next_cycle()
                    return status, headers, body

    async def event(self) -> h11.Event:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(bytes(await self.stream.receive_some()))
        assert not isinstance(event, type)
        return event


async def raw(running: Running, data: bytes) -> bytes:
    """The proxy's response to these bytes, until it closes."""
    client = await Client.of(running)
    found = b""
    with trio.fail_after(60):
        await client.stream.send_all(data)
        while piece := await client.stream.receive_some():
            found += bytes(piece)
    return found
