"""Attacks on WebSockets of the web port (spec OP-08, PX-24)."""

from __future__ import annotations

import gc
import struct
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from geminga_broker.admin.guard import headers_of
from geminga_broker.web import sockets
from geminga_broker.web._tests.served import rest_of
from geminga_broker.web.server import bind_web, serve_web
from geminga_broker.websocket.settings import WebSocketSettings
from geminga_protocol._tests.cost import cpu_s

TEXT_BYTES_MAX = 100_000
ASK = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
CONTINUED, TEXT = 0, 1
TOO_LARGE = b"\x88\x02" + struct.pack(">H", 1009)


def frame(kind: int, data: bytes, *, last: bool = True, compressed: bool = False) -> bytes:
    """One of a client, masked with zeros."""
    size = len(data)
    if size < 126:
        sizes = bytes((0x80 | size,))
    elif size < 1 << 16:
        sizes = b"\xfe" + struct.pack(">H", size)
    else:
        sizes = b"\xff" + struct.pack(">Q", size)
    return bytes((last << 7 | compressed << 6 | kind,)) + sizes + bytes(4) + data


async def echo_sizes(websocket: WebSocket) -> None:
    await websocket.accept()
    sizes: list[int] = websocket.app.state.sizes
    try:
        while True:
            sizes.append(len(await websocket.receive_text()))
            await websocket.send_text(str(sizes[-1]))
    except WebSocketDisconnect:
        pass


async def flood(websocket: WebSocket) -> None:
    async def send() -> None:
        while True:
            await websocket.send_text("a" * TEXT_BYTES_MAX)
            await trio.lowlevel.checkpoint()  # once it is closed, sending returns at once

    await websocket.accept()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with suppress(WebSocketDisconnect):
                await websocket.receive_text()
            nursery.cancel_scope.cancel()
    finally:  # also if sending fails first
        websocket.app.state.ended.set()


@asynccontextmanager
async def opened(
    sizes: list[int] | None = None,
) -> AsyncIterator[tuple[trio.SocketStream, bytes]]:
    """A WebSocket, and the server's answer to its handshake; `sizes` are those of the texts that
    the application gets.
    """
    sock = bind_web("127.0.0.1", 0)
    address = sock.getsockname()
    app = Starlette(routes=[WebSocketRoute("/", echo_sizes)])
    app.state.sizes = [] if sizes is None else sizes
    settings = WebSocketSettings(text_bytes_max=TEXT_BYTES_MAX)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve_web, websockets=settings), app, sock)
            async with await trio.open_tcp_stream(*address) as stream:
                await stream.send_all(ASK)
                yield stream, bytes(await stream.receive_some())
            nursery.cancel_scope.cancel()


@contextmanager
def longest_turn() -> Iterator[list[float]]:
    """The processor time of the loop's longest turn, at the end; without collections, which go
    through all that pytest made.
    """
    found = [0.0]

    class Turns(trio.abc.Instrument):
        began_s = time.thread_time()

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.began_s = time.thread_time()

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            found[0] = max(found[0], time.thread_time() - self.began_s)

    turns = Turns()
    trio.lowlevel.add_instrument(turns)
    gc.disable()
    try:
        yield found
    finally:
        gc.enable()
        trio.lowlevel.remove_instrument(turns)


@pytest.mark.slow
async def test_compression_is_not_agreed_upon() -> None:
    """A few kilobytes could hold a hundred thousand times as much."""
    async with opened() as (stream, answer):
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"deflate" not in answer
        await stream.send_all(frame(TEXT, b"abc"))
        assert await stream.receive_some() == b"\x81\x013"
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = packer.compress(b"a" * 10_000_000) + packer.flush(zlib.Z_SYNC_FLUSH)
        await stream.send_all(frame(TEXT, packed[:-4], compressed=True))
        (told,) = struct.unpack_from(">H", await rest_of(stream), 2)
        assert told == 1002  # a protocol error


@pytest.mark.slow
async def test_frames_of_a_few_bytes_do_not_hold_up_the_others() -> None:
    """Sixteen thousand come with one read."""
    took_s: list[float] = []
    async with opened() as (stream, _):
        empty = frame(CONTINUED, b"", last=False) * 50_000
        for _ in range(3):  # a neighbour on the same core may slow one of them
            with longest_turn() as longest:
                await stream.send_all(frame(TEXT, b"abc", last=False) + empty)
                await stream.send_all(frame(CONTINUED, b"de"))
                assert await stream.receive_some() == b"\x81\x015"
            took_s += longest
    assert min(took_s) < 0.006  # many clients may do so


@pytest.mark.slow
async def test_frames_of_a_few_bytes_behind_a_large_one_do_not_hold_up_the_others() -> None:
    """Where frames are large, more bytes are handled in a turn."""
    took_s: list[float] = []
    empty = frame(CONTINUED, b"", last=False) * 10_000  # about as many as come with one read
    for _ in range(3):  # a neighbour on the same core may slow one of them
        async with opened() as (stream, _):
            await stream.send_all(frame(TEXT, b"a" * 50_000))
            assert await stream.receive_some() == b"\x81\x0550000"
            with longest_turn() as longest:
                await stream.send_all(frame(TEXT, b"abc", last=False) + empty)
                await stream.send_all(frame(CONTINUED, b"de"))
                assert await stream.receive_some() == b"\x81\x015"
            took_s += longest
    assert min(took_s) < 0.03


@pytest.mark.parametrize("pieces", [1, 10])
async def test_a_text_that_is_too_large_ends_the_connection(
    pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the client does then; and nothing more is kept of it."""
    monkeypatch.setattr(sockets, "CLOSE_S", 0.1)
    sizes: list[int] = []
    async with opened(sizes) as (stream, _):
        await stream.send_all(frame(TEXT, b"a" * TEXT_BYTES_MAX))
        assert await stream.receive_some() == b"\x81\x06100000"
        size = TEXT_BYTES_MAX // pieces + 1
        rest = frame(CONTINUED, b"a" * size, last=False)
        await stream.send_all(frame(TEXT, b"a" * size, last=False) + rest * pieces)
        await stream.send_all(frame(CONTINUED, b"end") + frame(TEXT, b"another"))
        assert await rest_of(stream) == TOO_LARGE
    assert sizes == [TEXT_BYTES_MAX]


async def test_a_client_that_never_reads_is_closed() -> None:
    """Nothing else tells that it is gone: what would close it waits behind what it doesn't read."""
    sock = bind_web("127.0.0.1", 0)
    address = sock.getsockname()
    app = Starlette(routes=[WebSocketRoute("/", flood)])
    app.state.ended = trio.Event()
    settings = WebSocketSettings(idle_timeout_ms=300)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve_web, websockets=settings), app, sock)
            async with await trio.open_tcp_stream(*address) as stream:
                await stream.send_all(ASK)
                await app.state.ended.wait()
            nursery.cancel_scope.cancel()


def test_many_headers_do_not_hold_up_the_others() -> None:
    """As many as fit into a request's 64 KiB."""
    raw = [(b"h%d" % number, b"v") for number in range(7000)]
    request = HTTPConnection({"type": "http", "headers": [*raw, (b"h0", b"second")]})
    found = headers_of(request)
    assert cpu_s(lambda: headers_of(request), 0.05) < 0.05
    assert len(found) == 7000
    assert found["h0"] == "v"
