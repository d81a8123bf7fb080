"""Errors of single connections don't end the web server (spec OP-08)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from hypercorn.trio.tcp_server import TCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from geminga_broker.web import bind_web, serve_web


async def hello(_request: Request) -> Response:
    return PlainTextResponse("hello")


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    sock = bind_web("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_web, Starlette(routes=[Route("/", hello)]), sock)
        yield port
        nursery.cancel_scope.cancel()


async def ask(
    port: int, data: bytes = b"GET / HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n"
) -> bytes:
    found = b""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        with trio.fail_after(60):
            await stream.send_all(data)
            while piece := await stream.receive_some():
                found += bytes(piece)
    return found


@pytest.mark.parametrize("error", [RuntimeError("planted"), trio.BusyResourceError("planted")])
async def test_one_connection_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async with served() as port:
        assert b"hello" in await ask(port)

        async def breaks(_server: TCPServer) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(TCPServer, "_read_data", breaks)
            assert await ask(port) == b""
        assert b"hello" in await ask(port)
    assert "a connection on the web port failed" in caplog.text


async def test_an_answer_to_a_connection_that_is_being_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as port:

        async def busy(_stream: trio.SocketStream, _data: bytes) -> None:
            raise trio.BusyResourceError("another task is sending")

        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"GET / HTTP/1.1\r\n")
        with monkeypatch.context() as patched:
            send_all = trio.SocketStream.send_all
            patched.setattr(trio.SocketStream, "send_all", busy)
            await send_all(stream, b"Host: p\r\n\r\n")
            await trio.testing.wait_all_tasks_blocked()
        await stream.aclose()
        assert b"hello" in await ask(port)
