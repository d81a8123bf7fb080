"""A real proxy before scripted brokers (spec PX-06)."""

from __future__ import annotations

import json
import os
import socket
from functools import partial

import h11
import pytest
import trio
import trio.testing

from geminga_proxy.addresses import Address
from geminga_proxy.http._tests.played import (
    Client,
    PlayedBroker,
    Talk,
    brokers,
    echo,
    proxied,
    raw,
)
from geminga_proxy.http._tests.test_client_side import REFUSED


async def test_requests_and_answers_go_through() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        for _ in range(3):
            status, headers, body = await client.ask("GET", "/admin/v2/a%2Fb?x=1&y")
            assert (status, body) == (200, b"/admin/v2/a%2Fb?x=1&y")
            assert headers[b"x-broker"] == b"%d" % broker.port
        assert broker.connections == 1
        told = broker.headers()
        assert told[b"host"] == b"127.0.0.1:%d" % broker.port
        assert told[b"x-forwarded-for"] == b"127.0.0.1"
        assert b"x-forwarded-host" not in told
        assert b"x-original-principal" not in told
        status, _, body = await client.ask("PUT", "/admin", b"some body")
        assert (status, body) == (200, b"some body")
        chunked = [("Transfer-Encoding", "chunked")]
        status, _, body = await client.ask("POST", "/admin", b"x" * 200_000, chunked)
        assert (status, len(body)) == (200, 200_000)
        assert broker.headers()[b"transfer-encoding"] == b"chunked"
        status, headers, body = await client.ask("HEAD", "/admin")
        assert (status, body, headers[b"content-length"]) == (200, b"", b"6")
        assert running.service.metrics.active_connections == 0


async def test_a_client_waits_for_100() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        headers = [("Host", "p"), ("Content-Length", "4"), ("Expect", "100-continue")]
        request = h11.Request(method="PUT", target="/admin", headers=headers)
        await client.stream.send_all(client.http.send(request) or b"")
        with trio.fail_after(60):
            interim = await client.event()
        assert isinstance(interim, h11.InformationalResponse)
        assert interim.status_code == 100
        data = (client.http.send(h11.Data(data=b"body")) or b"") + (
            client.http.send(h11.EndOfMessage()) or b""
        )
        await client.stream.send_all(data)
        assert (await client.answer())[2] == b"body"


@pytest.mark.parametrize("name", REFUSED)
async def test_smuggled_requests_never_reach_a_broker(name: str) -> None:
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        hidden = b"GET /hidden HTTP/1.1\r\nHost: p\r\n\r\n"
        answer = await raw(running, REFUSED[name] + hidden)
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 505 "))
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"Connection: close" in answer
        assert [bytes(one.target) for one in broker.requests if b"hidden" in one.target] == []


async def test_a_bad_chunk_beside_an_early_answer() -> None:
    """Both come at once; in either order of handling, the client gets one response."""
    clients: list[Client] = []

    async def early(stream: trio.SocketStream) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += bytes(await stream.receive_some())
        os.write(clients[-1].stream.socket.fileno(), b"no number\r\n")
        answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        os.write(stream.socket.fileno(), answer)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listen = partial(trio.serve_tcp, early, 0, host="127.0.0.1")
        (listener,) = await nursery.start(listen)
        async with proxied(listener.socket.getsockname()[1]) as running:
            for _ in range(20):
                clients.append(await Client.of(running))
                stream, found = clients[-1].stream, b""
                head = b"POST / HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n"
                await stream.send_all(head)
                with trio.fail_after(60):
                    while piece := await stream.receive_some():
                        found += bytes(piece)
                assert found.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 "))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("rest", [True, False])
@pytest.mark.parametrize("target", [b"/early", b"/metrics/../x"])
@pytest.mark.slow
async def test_an_answer_before_the_bodys_end_says_that_the_connection_ends(
    target: bytes, rest: bool
) -> None:
    """A client that keeps it would lose its next request. One that first sends the `rest` of its
    body gets the answer all the same.
    """

    async def early(stream: trio.SocketStream) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n1"):
            head += bytes(await stream.receive_some())
        await stream.send_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listen = partial(trio.serve_tcp, early, 0, host="127.0.0.1")
        (listener,) = await nursery.start(listen)
        async with proxied(listener.socket.getsockname()[1]) as running:
            stream, found = (await Client.of(running)).stream, b""
            head = b"POST %b HTTP/1.1\r\nHost: p\r\nContent-Length: 10001\r\n\r\n1" % target
            await stream.send_all(head)
            with trio.fail_after(60):
                if rest:
                    await stream.socket.recv(1, socket.MSG_PEEK)
                    for _ in range(10):
                        await stream.send_all(bytes(1000))
                        await trio.sleep(0.002)
                while piece := bytes(await stream.receive_some()):
                    found += piece
            assert found.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 "))
            assert b"connection: close" in found.lower()
        nursery.cancel_scope.cancel()


async def test_a_refused_request_whose_body_comes_behind_its_head_keeps_the_connection() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        stream = (await Client.of(running)).stream
        found = b""
        for _ in range(2):
            await stream.send_all(b"TRACE / HTTP/1.1\r\nHost: p\r\nContent-Length: 3\r\n\r\n")
            await trio.sleep(0.01)
            await stream.send_all(b"123")
        with trio.fail_after(60):
            while found.count(b"HTTP/1.1 405 ") < 2:
                found += bytes(await stream.receive_some())
        assert b"connection: close" not in found.lower()


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        requests = b"".join(
            b"POST /%d HTTP/1.1\r\nHost: p\r\nContent-Length: 2\r\n\r\n%02d" % (n, n)
            for n in range(5)
        )
        last = b"GET /last HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n"
        answer = await raw(running, requests + last)
        assert answer.count(b"HTTP/1.1 200") == 6
        assert [bytes(one.target) for one in broker.requests] == [
            b"/0", b"/1", b"/2", b"/3", b"/4", b"/last",
        ]  # fmt: skip
        assert answer.endswith(b"/last")


async def test_redirects_are_followed_with_the_body() -> None:
    async def elsewhere(
        broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk
    ) -> None:
        to = b"http://127.0.0.1:%d%b" % (broker.owner, request.target)
        await talk.say(307, b"", [(b"location", to)])

    async with brokers(elsewhere, echo) as (first, owner), proxied(first.port) as running:
        first.owner = owner.port
        tell = running.service.brokers.on_web_found
        assert tell is not None
        tell([Address("127.0.0.1", port) for port in (first.port, owner.port)])
        client = await Client.of(running)
        for body in (b"", b"to be sent twice" * 1000):
            status, headers, got = await client.ask("PUT", "/admin/x?y", body)
            assert (status, got) == (200, body or b"/admin/x?y")
            assert headers[b"x-broker"] == b"%d" % owner.port
        first.owner = first.port
        status, _, got = await client.ask("GET", "/admin")
        assert (status, json.loads(got)) == (502, {"reason": "More than 8 brokers were asked"})


async def test_a_body_too_large_to_keep_leads_the_client_back_to_the_proxy() -> None:
    async def elsewhere(
        broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk
    ) -> None:
        to = b"http://127.0.0.1:%d/admin?z" % broker.port
        await talk.say(307, b"", [(b"location", to)])

    settings = {"httpInputMaxReplayBufferSize": "1000"}
    async with brokers(elsewhere) as (first,), proxied(first.port, **settings) as running:
        client = await Client.of(running)
        status, headers, _ = await client.ask("PUT", "/admin?z", b"x" * 5000)
        assert (status, headers[b"location"]) == (307, b"/admin?z")


async def test_dead_brokers_are_skipped() -> None:
    async with brokers(echo) as (gone,):
        dead = gone.port
    async with brokers(echo, echo) as (one, two), proxied(dead, one.port, two.port) as running:
        client = await Client.of(running)
        for _ in range(6):
            assert (await client.ask("POST", "/admin"))[0] == 200
        assert len(one.requests) >= 2
        assert len(two.requests) >= 2
    async with proxied(dead) as running:
        status, headers, body = await (await Client.of(running)).ask("GET", "/admin")
        assert (status, json.loads(body)) == (502, {"reason": "No broker can be reached now"})
        assert headers[b"content-type"] == b"application/json"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "brokerWebServiceURL"),
        (
            {"brokerServiceURLTLS": "pulsar+ssl://127.0.0.1:1", "tlsEnabledWithBroker": "true"},
            "brokerWebServiceURLTLS",
        ),
    ],
)
async def test_a_proxy_without_a_web_url_names_the_key(
    settings: dict[str, str], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = f"This proxy passes on no HTTP: {key} is not set"
    async with proxied(**settings) as running:
        assert told in caplog.text
        client = await Client.of(running)
        status, _, body = await client.ask("GET", "/admin")
        assert (status, json.loads(body)) == (502, {"reason": told})
        assert (await client.ask("GET", "/status.html"))[0] == 200


async def test_discovered_brokers_are_asked() -> None:
    async with brokers(echo) as (one,), proxied() as running:
        tell = running.service.brokers.on_web_found
        assert tell is not None
        tell([Address("127.0.0.1", one.port)])
        assert (await (await Client.of(running)).ask("GET", "/admin"))[0] == 200
    async with brokers(echo, echo) as (listed, found), proxied(listed.port) as running:
        # Requests go to listed brokers; redirects may also lead to discovered ones.
        tell = running.service.brokers.on_web_found
        assert tell is not None
        tell([Address("127.0.0.1", found.port)])
        for _ in range(3):
            assert (await (await Client.of(running)).ask("GET", "/admin"))[0] == 200
        assert found.connections == 0


async def test_a_broker_that_says_nothing() -> None:
    async def silent(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        await trio.sleep_forever()

    async with brokers(silent) as (one,), proxied(one.port, httpProxyTimeout="50") as running:
        status, _, body = await (await Client.of(running)).ask("GET", "/admin")
        assert (status, json.loads(body)) == (504, {"reason": "The broker did not answer in time"})


async def test_a_broker_that_leaves_in_mid_answer() -> None:
    async def half(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        if request.target == b"/chunks":
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
        else:
            head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"
        await talk.stream.send_all(head)
        await talk.stream.aclose()

    async with brokers(half) as (one,), proxied(one.port) as running:
        for target in (b"/chunks", b"/length"):
            answer = await raw(running, b"GET %b HTTP/1.1\r\nHost: p\r\n\r\n" % target)
            assert b"hello" in answer
            assert not answer.endswith(b"0\r\n\r\n")


async def test_a_request_is_made_again_only_where_that_is_safe() -> None:
    async def leaves(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        if request.target == b"/first":
            await talk.say(200, b"ok")
        else:
            await talk.stream.aclose()

    async with (
        brokers(leaves, echo) as (one, two),
        proxied(one.port, two.port) as running,
    ):
        client = await Client.of(running)
        for _ in range(2):
            await client.ask("GET", "/first")
        for _ in range(4):
            assert (await client.ask("GET", "/second"))[0] == 200
    async with brokers(leaves, echo) as (one, two), proxied(one.port, two.port) as running:
        client = await Client.of(running)
        statuses = sorted([(await client.ask("POST", "/third"))[0] for _ in range(4)])
        assert 502 in statuses
        assert 200 in statuses
        assert len([r for r in (*one.requests, *two.requests) if r.target == b"/third"]) == 4


async def test_a_kept_connection_that_the_broker_closed_is_not_used() -> None:
    async def closes(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        await talk.say(200, b"ok")
        await talk.stream.aclose()

    async with brokers(closes) as (one,), proxied(one.port) as running:
        client = await Client.of(running)
        for _ in range(5):
            assert (await client.ask("POST", "/admin"))[0] == 200
            await trio.testing.wait_all_tasks_blocked()
        assert one.connections == 5


async def test_bodies_stream_with_back_pressure() -> None:
    size = 64 << 20
    sent = 0

    async def torrent(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        nonlocal sent
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
        await talk.stream.send_all(head)
        while sent < size:
            await talk.stream.send_all(b"x" * 65536)
            sent += 65536

    async with brokers(torrent) as (one,), proxied(one.port) as running:
        client = await Client.of(running)
        await client.stream.send_all(b"GET / HTTP/1.1\r\nHost: p\r\n\r\n")
        last = -1
        while last != sent:  # the client reads nothing, so the broker is stopped
            last = sent
            await trio.sleep(0.05)
        assert sent < size // 4
        got = 0
        with trio.fail_after(60):
            while got < size:
                got += len(await client.stream.receive_some(1 << 20))


async def test_a_drain_ends_idle_connections_at_once_and_waits_for_answers() -> None:
    asked, go = trio.Event(), trio.Event()

    async def slow(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        asked.set()
        await go.wait()
        await talk.say(200, b"done")

    answers: list[bytes] = []
    async with (
        brokers(slow) as (broker,),
        trio.open_nursery() as outer,
        proxied(broker.port, proxyDrainSeconds="20") as running,
    ):
        idle, busy = await Client.of(running), await Client.of(running)

        async def ask() -> None:
            answers.append((await busy.ask("GET", "/admin"))[2])

        async def leave() -> None:
            with trio.fail_after(60):
                assert await idle.stream.receive_some() == b""
            go.set()

        outer.start_soon(ask)
        await asked.wait()
        outer.start_soon(leave)
    assert answers == [b"done"]
