"""WebSockets of the web port (spec PX-09; RFC 6455)."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from geminga_broker.web._tests.served import ask
from geminga_broker.web._tests.test_sockets_hostile import ASK, CONTINUED, TEXT, frame
from geminga_broker.web.server import bind_web, serve_web
from geminga_broker.web.sockets import CLOSE_S
from geminga_broker.websocket.settings import WebSocketSettings

PING, PONG, CLOSE, BINARY = 9, 10, 8, 2
MUCH_BYTES = 16 << 20
"""More than a socket takes while nobody reads."""


class Told:
    """What the application has seen."""

    def __init__(self) -> None:
        self.found: list[str | bytes | int] = []
        self.ended = trio.Event()


async def note(told: Told, websocket: WebSocket) -> None:
    await websocket.accept(subprotocol=next(iter(websocket.scope["subprotocols"]), None))
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            told.found.append(message["text"] if "text" in message else message["bytes"])
            if told.found[-1] == "leave":
                await websocket.close(4001, "as you wish")
    except WebSocketDisconnect as gone:
        told.found.append(gone.code)
    told.ended.set()


async def refuse(websocket: WebSocket) -> None:
    await websocket.close()


async def deny(websocket: WebSocket) -> None:
    await websocket.send_denial_response(PlainTextResponse("not you", 401))


async def leave(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close(4002, "bye")


async def fail(_: WebSocket) -> None:
    raise RuntimeError("planted")


async def fail_later(websocket: WebSocket) -> None:
    await websocket.accept()
    raise RuntimeError("planted")


async def send_much(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_bytes(b"x" * MUCH_BYTES)
    await websocket.send_text("after")
    await websocket.receive()


@asynccontextmanager
async def served(told: Told, settings: WebSocketSettings) -> AsyncIterator[int]:
    sock = bind_web("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    routes = [WebSocketRoute("/", partial(note, told))]
    routes += [
        WebSocketRoute(f"/{each.__name__}", each)
        for each in (refuse, deny, leave, fail, fail_later, send_much)
    ]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_web, websockets=settings)
            await nursery.start(serve, Starlette(routes=routes), sock)
            yield port
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def opened(
    told: Told, settings: WebSocketSettings = WebSocketSettings(), ask: bytes = ASK
) -> AsyncIterator[trio.SocketStream]:
    async with (
        served(told, settings) as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        await stream.send_all(ask)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 101 ")
        yield stream


async def test_messages_come_whole_and_in_order() -> None:
    told = Told()
    async with opened(told) as stream:
        parts = [frame(TEXT, "é".encode()[:1], last=False), frame(CONTINUED, "é".encode()[1:])]
        sent = [frame(TEXT, b"one"), *parts, frame(BINARY, b"\0"), frame(TEXT, b"")]
        for each in sent:
            await stream.send_all(each)
        await stream.send_all(frame(PING, b"there?"))
        assert await stream.receive_some() == b"\x8a\x06there?"
        await stream.send_all(frame(CLOSE, struct.pack(">H", 1000)))
        assert await stream.receive_some() == b"\x88\x02" + struct.pack(">H", 1000)
        await told.ended.wait()
    assert told.found == ["one", "é", b"\0", "", 1000]


async def test_frames_that_come_with_the_request() -> None:
    told = Told()
    async with opened(told, ask=ASK + frame(TEXT, b"early") + frame(CLOSE, b"")):
        await told.ended.wait()
    assert told.found == ["early", 1005]


async def test_an_end_from_either_side() -> None:
    told = Told()
    async with opened(told) as stream:
        await stream.send_all(frame(TEXT, b"leave"))
        closing = await stream.receive_some()
        assert closing == b"\x88\x0d" + struct.pack(">H", 4001) + b"as you wish"
        await stream.send_all(frame(CLOSE, struct.pack(">H", 4001)))
        assert await stream.receive_some() == b""
    told = Told()
    async with opened(told) as stream:
        await stream.aclose()
        await told.ended.wait()
    assert told.found == [1006]


async def test_an_end_by_the_application_waits_for_the_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ends while the client's frames are waited for; only one task may read."""
    async with (
        served(Told(), WebSocketSettings()) as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        await stream.send_all(ASK.replace(b"GET / ", b"GET /leave "))
        found = b""
        while not found.endswith(b"bye"):
            found += await stream.receive_some()
        await trio.sleep(0.1)
        await stream.send_all(frame(TEXT, b"late"))
        await stream.send_all(frame(CLOSE, struct.pack(">H", 4002)))
        with trio.fail_after(CLOSE_S / 2):
            assert await stream.receive_some() == b""
    assert not caplog.records


async def test_a_connection_is_closed_once_both_sides_have_ended_it() -> None:
    """Clients wait for the server to close it."""
    async with opened(Told()) as stream:
        await stream.send_all(frame(CLOSE, b""))
        with trio.fail_after(CLOSE_S / 2):
            assert await stream.receive_some() == b"\x88\x00"
            assert await stream.receive_some() == b""


async def test_clients_are_told_that_the_server_stops() -> None:
    """The application hears of the end as of any other."""
    told = Told()
    sock = bind_web("127.0.0.1", 0)
    stop = trio.CancelScope()
    app = Starlette(routes=[WebSocketRoute("/", partial(note, told))])

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        with stop:
            await serve_web(app, sock, task_status=task_status)

    async with trio.open_nursery() as nursery:
        port = sock.getsockname()[1]
        await nursery.start(serve)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(ASK)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 101 ")
            stop.cancel()
            going = struct.pack(">H", 1001)
            with trio.fail_after(60):
                assert await stream.receive_some() == b"\x88\x02" + going
                await stream.send_all(frame(CLOSE, going))
                assert await stream.receive_some() == b""
    assert told.found == [1001]


@pytest.mark.slow
async def test_a_client_is_asked_whether_it_is_there() -> None:
    async with opened(Told(), WebSocketSettings(ping_interval_s=1)) as stream:
        assert await stream.receive_some() == b"\x89\x00"


async def test_an_answer_to_a_ping_waits_for_the_end_of_a_message() -> None:
    """Frames are not mixed, though a large one goes out in parts."""
    async with (
        served(Told(), WebSocketSettings()) as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        await stream.send_all(ASK.replace(b"GET / ", b"GET /send_much "))
        found = bytearray()
        while b"xxx" not in found:
            found += await stream.receive_some()
        await trio.sleep(0.1)
        await stream.send_all(frame(PING, b"there?"))
        await trio.sleep(0.1)
        message = b"\x82\x7f" + struct.pack(">Q", MUCH_BYTES) + b"x" * MUCH_BYTES
        ends = {b"\x8a\x06there?\x81\x05after", b"\x81\x05after\x8a\x06there?"}
        del found[: found.index(b"\r\n\r\n") + 4]
        while len(found) < len(message) + len(min(ends)):
            found += await stream.receive_some()
    assert found.startswith(message)
    assert bytes(found[len(message) :]) in ends


async def test_a_subprotocol_is_agreed_upon() -> None:
    lines = b"Sec-WebSocket-Protocol: one, two\r\n\r\n"
    async with (
        served(Told(), WebSocketSettings()) as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        await stream.send_all(ASK[:-2] + lines)
        assert b"\r\nsec-websocket-protocol: one\r\n" in await stream.receive_some()


@pytest.mark.parametrize(
    ("path", "lacks", "status"),
    [
        (b"/refuse", b"", b"403"),
        (b"/deny", b"", b"401"),
        (b"/fail", b"", b"403"),
        (b"/fail_later", b"", b"101"),
        (b"/", b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", b"426"),
        (b"/", b"Sec-WebSocket-Version: 13\r\n", b"426"),
    ],
)
@pytest.mark.slow
async def test_refusals(path: bytes, lacks: bytes, status: bytes) -> None:
    async with served(Told(), WebSocketSettings()) as port:
        sent = ASK.replace(b"GET / ", b"GET " + path + b" ").replace(lacks, b"")
        answer = await ask(port, sent)
    assert answer.split()[1] == status
    assert answer.count(b"HTTP/1.1") == 1
    if status == b"101":
        assert answer.endswith(b"\x88\x02" + struct.pack(">H", 1011))
    if status == b"401":
        assert answer.endswith(b"not you")
