"""Attacks on the web port (spec OP-08, PX-24)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from geminga_broker.admin import rest
from geminga_broker.admin.http.shared_answers import SharedAnswers
from geminga_broker.admin.rest import EXCEPTION_HANDLERS, ok, read_body
from geminga_broker.web import connection, settings, wire
from geminga_broker.web._tests.served import ask, rest_of
from geminga_broker.web._tests.served import served as serving
from geminga_runtime.server import ConnectionCount

LARGE_BYTES = 32 << 20


async def hello(_request: Request) -> Response:
    return PlainTextResponse("hello")


async def large(_request: Request) -> Response:
    return PlainTextResponse(b"x" * LARGE_BYTES)


async def body(request: Request) -> Response:
    return ok(await read_body(request, dict))


def application() -> ASGIApp:
    routes = [
        Route("/", hello, methods=["GET", "POST"]),
        Route("/large", large),
        Route("/body", body, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)


def served(count: ConnectionCount) -> AbstractAsyncContextManager[int]:
    return serving(application(), count)


@pytest.mark.parametrize(("size", "status"), [(16 * 1024, b"404"), (16 * 1024 + 1, b"414")])
async def test_long_paths_are_not_looked_up(size: int, status: bytes) -> None:
    """Each of two hundred patterns would read all of it, before the client is known."""
    async with served(ConnectionCount(10)) as port:
        path = b"/" + b"a" * (size - 1)
        answer = await ask(
            port, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
    assert answer.split()[1] == status


async def test_a_long_path_of_head_is_the_last_request() -> None:
    """Its answer has a body, which would be read as the next answer."""
    async with served(ConnectionCount(10)) as port:
        head = b"HEAD /" + b"a" * (16 * 1024) + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await ask(port, head + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 414 ")
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.count(b"HTTP/1.1") == 1


async def until_none(count: ConnectionCount) -> None:
    with trio.fail_after(60):
        while count.open:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_http_2_is_refused() -> None:
    count = ConnectionCount(10)
    async with served(count) as port:
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
        answer = await ask(port, preface)
        assert answer.startswith(b"HTTP/1.1 505 ")
        assert answer.count(b"HTTP/1.1") == 1
        upgrade = (
            b"GET / HTTP/1.1\r\nHost: p\r\nConnection: Upgrade, HTTP2-Settings, close\r\n"
            b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
        )
        answer = await ask(port, upgrade)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"hello")
        await until_none(count)


async def hello_from(stream: trio.SocketStream) -> None:
    found = b""
    with trio.fail_after(60):
        while not found.endswith(b"hello"):
            piece = await stream.receive_some()
            assert piece, "closed"
            found += bytes(piece)
    assert found.count(b"HTTP/1.1") == 1
    assert b"close" not in found


async def test_a_connection_outlives_an_answer_before_the_body() -> None:
    """Else the client's next request is lost: nothing has told it that the connection ends."""
    body = b"x" * 100_000
    head = b"POST / HTTP/1.1\r\nHost: p\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with (
        served(ConnectionCount(10)) as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        for at in (0, 1, len(body) // 2):
            await stream.send_all(head + body[:at])
            await hello_from(stream)
            await stream.send_all(body[at:])
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: p\r\n\r\n")
        await hello_from(stream)


async def test_a_closed_connection_does_not_wait_for_its_idle_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would count as open so long: a monitor's probes would take all the room."""
    monkeypatch.setattr(settings, "IDLE_S", 1000)
    count = ConnectionCount(10)
    async with served(count) as port:
        for request in (b"", b"GET / HTTP/1.1\r\nHost: p\r\n\r\n"):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                if request:
                    await stream.send_all(request)
                    await hello_from(stream)
            await until_none(count)


@pytest.mark.slow
async def test_the_rest_of_a_body_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REST_BYTES_MAX", 1000)
    count = ConnectionCount(10)
    async with served(count) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"POST / HTTP/1.1\r\nHost: p\r\nContent-Length: 10000\r\n\r\n")
        await hello_from(stream)
        await stream.send_all(b"x" * 1000)
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert count.open == 1
        await stream.send_all(b"x")
        await until_none(count)
        await stream.aclose()


@pytest.mark.slow
async def test_the_rest_of_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "IDLE_S", 0.5)
    count = ConnectionCount(10)
    async with served(count) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"POST / HTTP/1.1\r\nHost: p\r\nContent-Length: 10000\r\n\r\n")
        await hello_from(stream)
        await until_none(count)
        await stream.aclose()


@pytest.mark.parametrize("chunks", [5, 12, 500])
async def test_an_unread_body_leaves_no_task_behind(chunks: int) -> None:
    count = ConnectionCount(10)
    async with served(count) as port:
        head = b"POST / HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n"
        for _ in range(3):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(head + b"2\r\nxx\r\n" * chunks)
                await hello_from(stream)
        await until_none(count)


@pytest.mark.slow
async def test_connections_are_bounded_in_all_and_by_address() -> None:
    for count in (ConnectionCount(3), ConnectionCount(100, 3)):
        async with served(count) as port:
            silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(3)]
            with trio.fail_after(60):
                while count.open < 3:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            request = b"GET / HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n"
            with pytest.raises((AssertionError, trio.BrokenResourceError)):
                assert await ask(port, request)
            assert count.rejected == 1
            await silent[0].aclose()
            with trio.fail_after(60):
                while count.open > 2:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert (await ask(port, request)).endswith(b"hello")
            for stream in silent:
                await stream.aclose()
            await until_none(count)


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "SEND_S", 0.3)
    count = ConnectionCount(10)
    async with served(count) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"GET /large HTTP/1.1\r\nHost: p\r\n\r\n")
        await until_none(count)
        await stream.aclose()
        monkeypatch.setattr(wire, "SEND_S", 2.0)
        slow, began_s = b"", trio.current_time()
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"GET /large HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n")
        while piece := await stream.receive_some(2 << 20):
            slow += bytes(piece)
            await trio.sleep(0.2)
        await stream.aclose()
        assert len(slow) > LARGE_BYTES
        assert trio.current_time() - began_s > 2.0


@pytest.mark.slow
async def test_the_server_stops_though_a_client_reads_nothing() -> None:
    stopped = trio.current_time()
    async with served(ConnectionCount(10)) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"GET /large HTTP/1.1\r\nHost: p\r\n\r\n")
        await trio.sleep(0.3)
        stopped = trio.current_time()
    assert trio.current_time() - stopped < wire.SEND_S / 2
    await stream.aclose()


@pytest.mark.slow
async def test_a_slow_body_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "BODY_S", 0.5)
    count = ConnectionCount(10)
    async with served(count) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"POST /body HTTP/1.1\r\nHost: p\r\nContent-Length: 1000\r\n\r\n")
        with trio.move_on_after(60) as patience:
            try:
                while count.open or patience.deadline - trio.current_time() > 59.8:
                    await stream.send_all(b"x")
                    await trio.sleep(0.1)
            except trio.BrokenResourceError:
                pass
        assert not patience.cancelled_caught
        answer = await rest_of(stream)
        assert not answer or answer.startswith(b"HTTP/1.1 408 ")
        await stream.aclose()
        await until_none(count)


async def test_concurrent_requests_share_a_page() -> None:
    made = 0
    go = trio.Event()

    async def make() -> bytes:
        nonlocal made
        made += 1
        number = made
        await go.wait()
        if number == 2:
            raise ValueError("planted")
        return b"%d" % number

    pages = SharedAnswers[bytes]()
    found: list[bytes] = []

    async def get() -> None:
        try:
            found.append(await pages.of("page", make))
        except ValueError:
            found.append(b"planted")

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(get)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert (made, found) == (1, [b"1"] * 50)
    # The creating request may fail or leave: another one creates the page then.
    found.clear()
    go = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(get)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert (made, sorted(found)) == (3, [b"3", b"3", b"planted"])
    found.clear()
    go = trio.Event()
    async with trio.open_nursery() as nursery:
        first = trio.CancelScope()

        async def leave() -> None:
            with first:
                await get()

        nursery.start_soon(leave)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(get)
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert (made, found) == (5, [b"5"])
