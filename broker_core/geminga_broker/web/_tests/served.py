"""A web server with a small application, and clients of bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from geminga_broker.web.server import bind_web, serve_web
from geminga_broker.web.wire import SEND_BYTES
from geminga_runtime.server import ConnectionCount

CLOSING = b"GET /hello HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n"


async def hello(_: Request) -> Response:
    """A short answer."""
    return PlainTextResponse("hello")


async def nothing(_: Request) -> Response:
    """An answer without a body."""
    return Response(status_code=204)


async def large(_: Request) -> Response:
    """An answer in more than one part."""
    return PlainTextResponse("x" * SEND_BYTES)


async def slow(_: Request) -> Response:
    """An answer after a while."""
    await trio.sleep(0.4)
    return PlainTextResponse("late")


async def echo(request: Request) -> Response:
    """What was sent."""
    return Response(await request.body())


async def pieces(_: Request) -> Response:
    """An answer whose length nobody knows."""

    async def made() -> AsyncIterator[bytes]:
        for piece in (b"one", b"", b"two"):
            await trio.lowlevel.checkpoint()
            yield piece

    return StreamingResponse(made())


async def broken(_: Request) -> Response:
    """An answer that ends before its body."""

    async def made() -> AsyncIterator[bytes]:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("planted")
        yield b""

    return StreamingResponse(made())


async def failing(_: Request) -> Response:
    """No answer."""
    raise RuntimeError("planted")


ROUTES = [
    Route(f"/{each.__name__}", each, methods=["GET", "POST"])
    for each in (hello, nothing, large, slow, echo, pieces, broken, failing)
]


@asynccontextmanager
async def served(
    app: ASGIApp | None = None,
    count: ConnectionCount | None = None,
    *,
    proxy_header: bool = False,
) -> AsyncIterator[int]:
    """The server's port."""
    sock = bind_web("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    async with trio.open_nursery() as nursery:
        application = Starlette(routes=ROUTES) if app is None else app
        serve = partial(serve_web, connections=count, proxy_header=proxy_header)
        await nursery.start(serve, application, sock)
        with trio.fail_after(60):
            yield port
        nursery.cancel_scope.cancel()


async def rest_of(stream: trio.SocketStream) -> bytes:
    """What comes until the server closes."""
    found = b""
    with trio.fail_after(60):
        try:
            while piece := await stream.receive_some():
                found += bytes(piece)
        except trio.BrokenResourceError:
            pass
    return found


async def ask(port: int, data: bytes) -> bytes:
    """The same of a connection of its own, which sends this."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(data)
        return await rest_of(stream)
