from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest
import trio
import trio.testing

from geminga_runtime.errors import ConnectionLost
from geminga_runtime.http import client as http_client
from geminga_runtime.http.client import HttpClient, HttpRequest, Origin, tcp_opener
from geminga_runtime.http.get import AnswerReader, BadHttpAnswer

ORIGIN = Origin("there", 80)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


class Servers:
    """Answers requests over memory streams, one script a connection: each answer of a script waits
    for a request; a connection whose script is over is closed.
    """

    def __init__(self, nursery: trio.Nursery, *scripts: list[bytes]) -> None:
        self._nursery = nursery
        self._scripts = list(scripts)
        self.opened = 0
        self.requests: list[bytes] = []
        self.closed = 0

    async def __call__(self, origin: Origin) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        script = self._scripts[self.opened]
        self.opened += 1
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs, script)
        return ours

    async def _serve(self, stream: trio.abc.Stream, script: list[bytes]) -> None:
        for answer in script:
            request = b""
            while b"\r\n\r\n" not in request or not _is_whole(request):
                data = await stream.receive_some(1 << 16)
                if not data:
                    self.closed += 1
                    return
                request += data
            self.requests.append(request)
            if answer:
                await stream.send_all(answer)
        await stream.aclose()


def _is_whole(request: bytes) -> bool:
    head, _, body = request.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.startswith(b"Content-Length: "):
            return len(body) >= int(line.removeprefix(b"Content-Length: "))
    return True


def asked(method: str = "GET", body: bytes | None = None, **headers: str) -> HttpRequest:
    named: Mapping[str, str] = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest(method, "/a?b=c", named, body)


async def test_connections_are_kept(nursery: trio.Nursery) -> None:
    servers = Servers(nursery, [OK, CHUNKED, EMPTY, OK, CLOSING], [OK])
    client = HttpClient(servers)
    for body in (b"ok", b"ok", b"", b"ok", b"ok", b"ok"):
        assert (await client.ask(ORIGIN, asked())).body == body
    assert servers.opened == 2
    assert servers.requests[0] == b"GET /a?b=c HTTP/1.1\r\nHost: there:80\r\nAccept: */*\r\n\r\n"
    await client.aclose()


async def test_bodies_are_sent_with_their_length(nursery: trio.Nursery) -> None:
    servers = Servers(nursery, [OK, OK, OK, OK])
    client = HttpClient(servers)
    await client.ask(ORIGIN, asked("POST", b"{}", Content_Type="application/json"))
    await client.ask(ORIGIN, asked("PUT"))
    await client.ask(ORIGIN, asked("DELETE"))
    await client.ask(ORIGIN, asked("DELETE", b"x"))
    assert servers.requests[0].endswith(
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert b"Content-Length: 0\r\n" in servers.requests[1]
    assert b"Content-Length" not in servers.requests[2]
    assert b"Content-Length: 1\r\n" in servers.requests[3]
    await client.aclose()


async def test_each_server_has_its_own_connections(nursery: trio.Nursery) -> None:
    servers = Servers(nursery, [OK, OK], [OK, OK])
    client = HttpClient(servers)
    other = Origin("there", 81)
    for origin in (ORIGIN, other, ORIGIN, other):
        await client.ask(origin, asked())
    assert servers.opened == 2
    assert [request.split(b"\r\n")[1] for request in servers.requests] == [
        b"Host: there:80",
        b"Host: there:81",
        b"Host: there:80",
        b"Host: there:81",
    ]
    await client.aclose()


async def test_a_kept_connection_that_ended_is_replaced(nursery: trio.Nursery) -> None:
    servers = Servers(nursery, [OK], [OK], [OK])
    client = HttpClient(servers)
    for method in ("GET", "PUT", "DELETE"):
        await client.ask(ORIGIN, asked(method))
    assert servers.opened == 3
    await client.aclose()


async def test_a_request_that_may_have_had_its_effect_is_not_repeated(
    nursery: trio.Nursery,
) -> None:
    servers = Servers(nursery, [OK], [OK])
    client = HttpClient(servers)
    await client.ask(ORIGIN, asked())
    with pytest.raises(ConnectionLost):
        await client.ask(ORIGIN, asked("POST", b"1"))
    assert servers.opened == 1
    await client.aclose()


async def test_a_new_connection_that_ends_is_no_reason_to_repeat(nursery: trio.Nursery) -> None:
    servers = Servers(nursery, [b""], [OK])
    client = HttpClient(servers)
    with pytest.raises(BadHttpAnswer, match="is this the web service's port"):
        await client.ask(ORIGIN, asked())
    assert servers.opened == 1
    await client.aclose()


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n", OK[:-1]],
)
async def test_bad_answers_are_refused_and_their_connections_closed(
    nursery: trio.Nursery, answer: bytes
) -> None:
    servers = Servers(nursery, [answer], [OK])
    client = HttpClient(servers, body_bytes_max=10_000)
    with pytest.raises(BadHttpAnswer):
        await client.ask(ORIGIN, asked())
    assert (await client.ask(ORIGIN, asked())).body == b"ok"
    await client.aclose()


async def test_what_comes_behind_an_answer_is_never_the_next_one(nursery: trio.Nursery) -> None:
    smuggled = OK + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"
    servers = Servers(nursery, [smuggled, OK], [OK])
    client = HttpClient(servers)
    assert (await client.ask(ORIGIN, asked())).body == b"ok"
    assert (await client.ask(ORIGIN, asked())).body == b"ok"
    assert servers.opened == 2
    await client.aclose()


async def test_a_head_has_no_body(nursery: trio.Nursery) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    servers = Servers(nursery, [head, OK])
    client = HttpClient(servers)
    assert (await client.ask(ORIGIN, asked("HEAD"))).body == b""
    assert (await client.ask(ORIGIN, asked())).body == b"ok"
    assert servers.opened == 1
    await client.aclose()


async def test_a_cancelled_request_leaves_no_connection(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    servers = Servers(nursery, [b"", OK], [OK])
    client = HttpClient(servers)
    with trio.move_on_after(0.01):
        await client.ask(ORIGIN, asked())
    assert (await client.ask(ORIGIN, asked())).body == b"ok"
    assert servers.opened == 2
    await trio.testing.wait_all_tasks_blocked()
    assert servers.closed == 1
    await client.aclose()


async def test_idle_connections_are_bounded_and_grow_old(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    count = http_client.IDLE_CONNECTIONS_MAX + 2
    servers = Servers(nursery, *[[OK, OK, OK]] * (count + 1))
    client = HttpClient(servers)
    for port in range(count):
        await client.ask(Origin("there", port), asked())
    await trio.testing.wait_all_tasks_blocked()
    assert servers.closed == 2
    await trio.sleep(http_client.IDLE_MAX_S + 1)
    await client.ask(Origin("there", count - 1), asked())
    assert servers.opened == count + 1
    await trio.testing.wait_all_tasks_blocked()
    assert servers.closed == count
    await client.aclose()


async def test_requests_at_a_time_are_bounded(nursery: trio.Nursery) -> None:
    servers = Servers(nursery, *[[OK]] * 5)
    client = HttpClient(servers, connections_max=2)
    async with trio.open_nursery() as asking:
        for _ in range(5):
            asking.start_soon(client.ask, ORIGIN, asked())
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert servers.opened <= 2
    assert len(servers.requests) == 5
    await client.aclose()


async def test_a_closed_client_keeps_nothing(nursery: trio.Nursery) -> None:
    servers = Servers(nursery, [OK, OK], [OK, OK])
    client = HttpClient(servers)
    await client.ask(ORIGIN, asked())
    await client.aclose()
    await client.ask(ORIGIN, asked())
    await trio.testing.wait_all_tasks_blocked()
    assert servers.opened == servers.closed == 2


async def test_line_breaks_are_never_sent(nursery: trio.Nursery) -> None:
    client = HttpClient(Servers(nursery, [OK]))
    with pytest.raises(BadHttpAnswer, match="line break"):
        await client.ask(ORIGIN, asked(X="a\r\nY: b"))


async def test_over_a_real_network_an_ended_connection_is_seen(nursery: trio.Nursery) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        # Each connection answers once, and is then closed without the client being told.
        async with stream:
            if await stream.receive_some(1 << 16):
                await stream.send_all(OK)

    listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    origin = Origin("127.0.0.1", listeners[0].socket.getsockname()[1])
    client = HttpClient(tcp_opener(None, 5.0))
    with trio.fail_after(30):
        await client.ask(origin, asked())
        while not http_client._has_news(client._idle[0].stream):  # noqa: ASYNC110 - the kernel's
            await trio.sleep(0.001)
        # Even a POST: the end was there before it was sent.
        assert (await client.ask(origin, asked("POST", b"1"))).body == b"ok"
    await client.aclose()
    nursery.cancel_scope.cancel()


def test_trailers_are_bounded() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    with pytest.raises(BadHttpAnswer, match="trailers"):
        for _ in range(2000):
            reader.feed(b"X: 0123456789\r\n")


def test_header_names_as_they_were_written() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 204 x\r\nX-Pulsar-PROPERTY-Key: a\r\n\r\n")
    assert ("X-Pulsar-PROPERTY-Key", "a") in reader.answer.header_list
