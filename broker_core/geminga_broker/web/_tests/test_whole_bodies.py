"""A body that has come with its head is taken at once; any other one is waited for."""

from __future__ import annotations

import pytest
import trio
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from geminga_broker.admin import rest
from geminga_broker.web._tests.served import served
from geminga_broker.web.settings import WHOLE_BODY

HEAD = "PUT / HTTP/1.1\r\nHost: p\r\n"


class Echo:
    """Answers what `rest.raw_body` reads; notes whether all of it was there."""

    def __init__(self) -> None:
        self.whole: list[bool] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        waited: list[Message] = []

        async def noted() -> Message:
            waited.append(await receive())
            return waited[-1]

        try:
            body = await rest.raw_body(Request(scope, noted))
            status = 200
        except rest.RestError as error:
            body, status = error.reason.encode(), error.status
        assert scope[WHOLE_BODY]() is None, "a body is taken once"
        self.whole.append(not waited)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"<%b>" % body})


async def answers_to(stream: trio.SocketStream, *pieces: bytes) -> bytes:
    for piece in pieces:
        await stream.send_all(piece)
        await trio.testing.wait_all_tasks_blocked(0.02)
    return bytes(await stream.receive_some())


async def test_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "BODY_BYTES_MAX", 5)
    echo = Echo()
    sized = f"{HEAD}Content-Length: 3\r\n\r\n".encode()
    chunked = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
    expected: list[tuple[tuple[bytes, ...], bytes, bool]] = [
        ((f"{HEAD}\r\n".encode(),), b"<>", True),
        ((sized + b"abc",), b"<abc>", True),
        ((chunked + b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",), b"<abc>", True),
        ((sized, b"abc"), b"<abc>", False),
        ((sized + b"a", b"bc"), b"<abc>", False),
        ((chunked + b"1\r\na\r\n", b"2\r\nbc\r\n", b"0\r\n\r\n"), b"<abc>", False),
    ]
    async with served(echo) as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for pieces, answer, is_whole in expected:
            assert (await answers_to(stream, *pieces)).endswith(answer)
            assert echo.whole.pop() == is_whole
        large = f"{HEAD}Content-Length: 6\r\n\r\nabcdef".encode()
        assert (await answers_to(stream, large)).startswith(b"HTTP/1.1 413 ")
