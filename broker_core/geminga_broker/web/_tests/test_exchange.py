"""Answers as they go out (spec OP-03; RFC 9112)."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.lowlevel
import trio.testing
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geminga_broker.web import connection, server
from geminga_broker.web._tests.served import CLOSING, ask, rest_of, served


def get(path: str, *lines: str, version: str = "1.1", method: str = "GET", body: str = "") -> bytes:
    head = "\r\n".join((f"{method} {path} HTTP/{version}", "Host: p", *lines))
    return f"{head}\r\n\r\n{body}".encode()


CLOSE = "Connection: close"


def split(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (each once) and body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(headers) == len(lines)
    return int(first.split()[1]), headers, body


async def test_answers_by_kind() -> None:
    async with served() as port:
        status, headers, body = split(await ask(port, get("/hello", CLOSE)))
        assert (status, body, headers["connection"]) == (200, b"hello", "close")
        assert headers["date"].endswith(" GMT")
        status, headers, body = split(await ask(port, get("/hello", CLOSE, method="HEAD")))
        assert (status, body, headers["content-length"]) == (200, b"", "5")
        status, headers, body = split(await ask(port, get("/nothing", CLOSE)))
        assert (status, body) == (204, b"")
        assert not {"content-length", "transfer-encoding"} & headers.keys()
        status, headers, body = split(await ask(port, get("/pieces", CLOSE)))
        assert (body, headers["transfer-encoding"]) == (
            b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
            "chunked",
        )


async def test_http_1_0() -> None:
    """The end of a body whose length isn't known is that of the connection."""
    async with served() as port:
        _, headers, body = split(await ask(port, get("/pieces", version="1.0")))
        assert body == b"onetwo"
        assert "transfer-encoding" not in headers
        kept = get("/hello", "Connection: keep-alive", version="1.0")
        answer = await ask(port, kept + get("/hello", version="1.0"))
        assert answer.count(b"hello") == 2
        assert answer.count(b"connection: keep-alive") == answer.count(b"connection: close") == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with served() as port:
        bodies = [str(number) * 3 for number in range(200)]
        sent = [
            get("/echo", f"Content-Length: {len(each)}", method="POST", body=each)
            for each in bodies
        ]
        answer = await ask(port, b"".join(sent) + get("/hello", CLOSE))
        told = [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert [each.decode() for each in told] == [*bodies, "hello"]


async def test_a_client_that_waits_before_its_body_is_told_to_go_on() -> None:
    expect = ("Content-Length: 3", "Expect: 100-continue", CLOSE)
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(get("/echo", *expect, method="POST"))
        assert await stream.receive_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await stream.send_all(b"abc")
        assert (await stream.receive_some()).endswith(b"\r\n\r\nabc")
    # Not one that doesn't wait, nor one whose body nobody reads.
    async with served() as port:
        answer = await ask(port, get("/echo", *expect, method="POST", body="abc"))
        assert answer.startswith(b"HTTP/1.1 200")
        answer = await ask(port, get("/hello", *expect, method="POST"))
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("large", [3 << 20, 100_000])
async def test_a_large_body_comes_whole(large: int) -> None:
    body = bytes(range(256)) * (large // 256)
    head = get("/echo", f"Content-Length: {len(body)}", CLOSE, method="POST")
    async with served() as port:
        _, headers, told = split(await ask(port, head + body))
    assert headers["content-length"] == str(len(body))
    assert told == body


async def test_a_failing_application_is_answered_for() -> None:
    async with served() as port:
        status, headers, _ = split(await ask(port, get("/failing", CLOSE)))
        assert (status, headers["connection"]) == (500, "close")
        status, _, body = split(await ask(port, get("/broken", CLOSE)))
        assert (status, body) == (500, b"HTTP 500")
        assert (await ask(port, get("/hello", CLOSE))).endswith(b"hello")


async def answered(messages: list[Message], scope: Scope, receive: Receive, send: Send) -> None:
    for message in messages:
        await send(message)


START: Message = {"type": "http.response.start", "status": 200, "headers": []}
BODY: Message = {"type": "http.response.body", "body": b"abc"}


def start(*headers: tuple[bytes, bytes]) -> Message:
    return {**START, "headers": headers}


@pytest.mark.parametrize(
    ("messages", "status", "log"),
    [
        ([], 500, ""),
        ([BODY], 500, "no place here"),
        ([START, START], 500, "no place here"),
        ([start((b"a", b"b\r\nc: d")), BODY], 500, "a line's end"),
        ([start((b"content-length", b"2")), BODY], 500, "longer than its content-length"),
        ([start((b"content-length", b"5")), BODY], 200, ""),
        ([START, BODY, BODY], 200, ""),
    ],
)
async def test_wrong_answers(
    messages: list[Message], status: int, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    """None is taken for another, and the connection ends where its framing would be lost."""
    app: ASGIApp = partial(answered, messages)
    async with served(app) as port:
        answer = await ask(port, get("/", CLOSE))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1") == 1
    assert b"\r\nc: d" not in answer
    assert log in caplog.text


async def test_a_body_that_is_shorter_than_announced_ends_the_connection() -> None:
    """The client takes what comes behind it for its rest."""
    async with served(partial(answered, [start((b"content-length", b"5")), BODY])) as port:
        answer = await ask(port, get("/") + get("/", CLOSE))
    assert answer.endswith(b"\r\n\r\nabc")
    assert answer.count(b"HTTP/1.1") == 1


async def test_a_client_of_http_1_0_is_not_told_to_go_on() -> None:
    """It has no such answer (RFC 9110, 10.1.1)."""
    head = get("/echo", "Content-Length: 3", "Expect: 100-continue", version="1.0", method="POST")
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(head)
        await trio.sleep(0.1)
        await stream.send_all(b"abc")
        answer = await rest_of(stream)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\nabc")


async def test_an_application_learns_that_its_client_is_gone() -> None:
    gone = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        while message["type"] != "http.disconnect":
            message = await receive()
        gone.set()
        await send(START)  # nothing comes of it
        await send(BODY)

    async with served(app) as port:
        for last in (b"", get("/second"), get("/", CLOSE)):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(last or get("/"))
            await trio.testing.wait_all_tasks_blocked(0.01)
            await stream.aclose()
            await gone.wait()
            gone = trio.Event()


async def test_a_stop_lets_answers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those within the time of the drain, for which idle clients don't wait."""
    monkeypatch.setattr(server, "DRAIN_S", 10.0)
    found: list[bytes] = []

    async def client(port: int) -> None:
        found.append(await ask(port, get("/slow")))

    async with trio.open_nursery() as nursery, served() as port:
        idle = await trio.open_tcp_stream("127.0.0.1", port)
        nursery.start_soon(client, port)
        await trio.testing.wait_all_tasks_blocked(0.05)
        began = trio.current_time()
    assert found[0].endswith(b"late")
    assert trio.current_time() - began < 5
    assert await idle.receive_some() == b""
    await idle.aclose()


async def test_a_refusal_arrives_though_the_client_still_sends() -> None:
    """A close while bytes are unread would reset the connection, and the answer be lost."""
    assert connection.LINGER_S > 0
    async with served() as port:
        for _ in range(10):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(b"POST / HTTP/1.1\r\nHost: p\r\nHost: q\r\n\r\n")
            for _ in range(50):
                await stream.send_all(b"x" * 1000)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 400 ")
            await stream.aclose()


async def test_an_answer_instead_of_going_on_is_the_last() -> None:
    """The client need not send its body then: its next request would be read as that."""
    head = b"POST /hello HTTP/1.1\r\nHost: p\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    async with served() as port:
        answer = await ask(port, head)
        assert answer.endswith(b"hello")
        assert b"\r\nconnection: close\r\n" in answer
        whole = await ask(port, head + b"123456789" + CLOSING)
        assert whole.count(b"HTTP/1.1 200 ") == 2


async def test_an_answer_before_a_long_body_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a client learns why its request is refused, such as one that is too large."""
    assert connection.LINGER_S > 0
    monkeypatch.setattr(connection, "LINGER_S", 30)  # however slow the machine is
    body = b"x" * (8 * connection.REST_BYTES_MAX)
    async with served() as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        head = b"POST /hello HTTP/1.1\r\nHost: p\r\nContent-Length: %d\r\n\r\n" % len(body)
        await stream.send_all(head + body)
        assert (await rest_of(stream)).endswith(b"hello")
        await stream.aclose()


@pytest.mark.parametrize("header", ["PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n", ""])
async def test_a_load_balancer_tells_the_clients_address(header: str) -> None:
    seen: list[tuple[str, int]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["client"])
        await send(START)
        await send(BODY)

    async with served(app, proxy_header=True) as port:
        answer = await ask(port, header.encode() + get("/", CLOSE))
    assert answer.startswith(b"HTTP/1.1 200 ")
    ((host, client_port),) = seen
    assert (host == "192.0.2.7", client_port == 4711) == (bool(header), bool(header))


async def test_an_application_is_told_that_its_client_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = 0
    over = trio.Event()

    async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
        nonlocal parts
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 999, "more_body": True})
                parts += 1
                await trio.lowlevel.checkpoint()
        finally:
            over.set()

    async with served(endless) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(get("/"))
        assert await stream.receive_some()
        await stream.aclose()
        with trio.fail_after(60):
            await over.wait()
        assert parts
    assert not caplog.records
