"""Connections that are kept between requests: when they end; in how many packets answers come."""

from __future__ import annotations

import pytest
import trio

from geminga_broker.web import settings
from geminga_broker.web._tests.served import served
from geminga_broker.web.connection import Connection
from geminga_broker.web.wire import SEND_BYTES
from geminga_runtime.stream import FramedStream


def request(name: str) -> bytes:
    return f"GET /{name} HTTP/1.1\r\nHost: p\r\n\r\n".encode()


async def read_until(stream: trio.SocketStream, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        piece = await stream.receive_some()
        if not piece:
            break
        found += piece
    return found


async def test_an_answer_is_one_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    write_now = FramedStream.write_now

    def noted(self: FramedStream, *buffers: bytes) -> None:
        sent.append(b"".join(buffers))
        write_now(self, *buffers)

    monkeypatch.setattr(FramedStream, "write_now", noted)
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for name, end in (("hello", b"hello"), ("nothing", b"\r\n\r\n"), ("hello", b"hello")):
            sent.clear()
            await stream.send_all(request(name))
            assert await read_until(stream, end) == b"".join(sent)
            assert len(sent) == 1, "a head or an end went alone"
        await stream.send_all(request("large"))
        assert (await read_until(stream, b"x" * SEND_BYTES)).startswith(b"HTTP/1.1 200")
        await stream.send_all(request("broken"))
        # Its head was not sent yet, so that there can be another one.
        assert (await read_until(stream, b"never")).startswith(b"HTTP/1.1 500")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/hello", "200"),
        ("http://p/hello", "200"),
        ("HTTPS://elsewhere:1/hello?a=b", "200"),
        ("http://p", "404"),
        ("ftp://p/hello", "404"),
        ("*", "404"),
        ("hello", "400"),
    ],
)
async def test_a_target_may_name_the_server(target: str, status: str) -> None:
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(
            f"GET {target} HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n".encode()
        )
        answer = await read_until(stream, b"never")
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer


@pytest.mark.parametrize("behind", [b"", b"\r\n", b"GET /hello HTTP/1.1\r\nHost: p\r\n\r\n", b"x"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_comes_behind_the_last_request(
    version: str, behind: bytes, at_once: bool
) -> None:
    """It is not read, whatever it is: the request has its answer, which ends the connection."""
    headers = "Host: p\r\nConnection: close\r\nContent-Length: 2"
    last = f"POST /slow HTTP/{version}\r\n{headers}\r\n\r\n{{}}"
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(last.encode() + (behind if at_once else b""))
        if not at_once:
            await trio.sleep(0.1)
            await stream.send_all(behind)
        answer = await read_until(stream, b"never")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert answer.endswith(b"late"), answer
        assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.slow
async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "IDLE_S", 0.35)
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for _ in range(4):  # longer than the time in all, and each answer takes longer than it
            await trio.sleep(0.1)
            await stream.send_all(request("slow"))
            assert (await read_until(stream, b"late")).endswith(b"late")
        began = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - began > 0.2, "closed at once after an answer"
        async with await trio.open_tcp_stream("127.0.0.1", port) as silent:
            assert await silent.receive_some() == b"", "without a request it stays for ever"


@pytest.mark.slow
async def test_a_request_that_comes_with_the_end_of_the_idle_time_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    next_comes = Connection._next_comes

    async def and_the_time_is_over(self: Connection, waits: trio.CancelScope) -> bool:
        found = await next_comes(self, waits)
        waits.cancel()
        return found

    monkeypatch.setattr(Connection, "_next_comes", and_the_time_is_over)
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for _ in range(3):
            await stream.send_all(request("slow") + request("hello"))
            answers = await read_until(stream, b"hello")
            assert answers.count(b"HTTP/1.1 200") == 2
            assert b"late" in answers
