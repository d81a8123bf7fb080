"""Attacks of clients and brokers on the proxy's web side (spec PX-03, PX-06, PX-24)."""

from __future__ import annotations

import json
import tracemalloc

import h11
import pytest
import trio
import trio.testing

from geminga_proxy.bounds import HeldBytes
from geminga_proxy.http import server as server_module
from geminga_proxy.http import session as session_module
from geminga_proxy.http._tests.played import (
    Client,
    PlayedBroker,
    Talk,
    brokers,
    echo,
    proxied,
    raw,
)
from geminga_proxy.http._tests.test_admission import AUTH, UPGRADE, token
from geminga_proxy.http.client_side import BodyEnd, BodyPart, Event
from geminga_proxy.http.exchange import RequestBody

OWN_TOKEN = b"of-the-proxy"


async def reflect(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
    """Answer with the request's headers, as a servlet answers TRACE."""
    await talk.say(200, b"\r\n".join(b": ".join(pair) for pair in request.headers))


@pytest.mark.parametrize("method", ["TRACE", "TRACK", "trace", "Trace", "DEBUG", "PROPFIND"])
@pytest.mark.parametrize("target", ["/%6detrics/", "/admin/v2/tenants", "/metrics", "/ws/v2/x"])
async def test_methods_that_echo_a_request_never_reach_a_broker(method: str, target: str) -> None:
    async with brokers(reflect) as (broker,), proxied(broker.port, **AUTH) as running:
        client = await Client.of(running)
        headers = [("Authorization", token("joe"))]
        status, told, body = await client.ask(method, target, b"", headers)
        assert status == 405
        assert told[b"allow"] == b"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH"
        assert OWN_TOKEN not in body
        assert broker.requests == []


@pytest.mark.parametrize(
    "target",
    [
        "/metrics/x",
        "/%6detrics/",
        "/%6Detrics",
        "//metrics",
        "/;x/metrics",
        "/metrics;x",
        "/metrics%3Bx",
        "/%2Fmetrics",
        "http://proxy//metrics",
    ],
)
async def test_brokers_metrics_are_not_reached_by_another_spelling(target: str) -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        client = await Client.of(running)
        headers = [("Authorization", token("joe"))]
        assert (await client.ask("GET", target, b"", headers))[0] == 404
        assert broker.requests == []


@pytest.mark.parametrize(
    "path",
    [
        "/admin/../metrics",
        "/admin/%2e%2E/metrics",
        "/admin/..%2Fmetrics",
        "/admin/..;x/metrics",
        "/admin/./v2",
        "/admin/..",
        "/admin/%00",
        "/admin/%0d%0a",
        "/admin/..\\metrics",
    ],
)
async def test_paths_that_servers_read_differently_are_refused(path: str) -> None:
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", path))[0] == 400
        assert broker.requests == []


async def test_names_with_escapes_still_pass() -> None:
    target = "/admin/v2/persistent/public/default/a%2Fb%20..c%3Bd?x=../.."
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", target))[::2] == (200, target.encode())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_a_redirect_to_a_stranger_is_not_followed(status: int, method: str) -> None:
    stranger: list[PlayedBroker] = []

    async def elsewhere(
        broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk
    ) -> None:
        to = b"http://127.0.0.1:%d/steal" % stranger[0].port
        await talk.say(status, b"", [(b"location", to)])

    async with brokers(elsewhere, reflect) as (first, evil), proxied(first.port, **AUTH) as running:
        stranger.append(evil)
        client = await Client.of(running)
        headers = [("Authorization", token("joe"))]
        found, told, body = await client.ask(method, "/admin/x", b"", headers)
        assert evil.connections == 0
        reason = {"reason": "The broker redirects to an address that is no known broker"}
        assert (found, json.loads(body)) == (502, reason)
        assert b"location" not in told


async def test_a_websocket_is_not_redirected_to_a_stranger() -> None:
    async with brokers(reflect) as (evil,):

        async def elsewhere(
            broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk
        ) -> None:
            to = b"http://127.0.0.1:%d/ws/x" % evil.port
            await talk.say(307, b"", [(b"location", to)])

        async with brokers(elsewhere) as (first,), proxied(first.port, **AUTH) as running:
            client = await Client.of(running)
            headers = [("Authorization", token("joe")), *UPGRADE]
            assert (await client.ask("GET", "/ws/v2/x", b"", headers))[0] == 502
            assert evil.connections == 0


@pytest.mark.parametrize(
    ("location", "status", "told"),
    [
        (b"//evil.example/x", 502, b""),
        (b"ftp://evil.example/x", 502, b""),
        (b"http://evil.example:99999/x", 502, b""),
        (b"http:///x", 502, b""),
        (b"/\\evil.example", 502, b""),
        (b"http://[evil/", 502, b""),
        (b"javascript:alert(1)", 502, b""),
        (b"/metrics/", 302, b"/metrics/"),
        (b"http://proxy.example:8080/admin/", 302, b"/admin/"),
        (b"http://proxy.example//evil.example/x", 302, b"/evil.example/x"),
    ],
)
async def test_redirects_lead_to_the_proxy_only(location: bytes, status: int, told: bytes) -> None:
    async def elsewhere(
        broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk
    ) -> None:
        await talk.say(302, b"", [(b"location", location)])

    settings = {"advertisedAddress": "proxy.example"}
    async with brokers(elsewhere) as (first,), proxied(first.port, **settings) as running:
        found, headers, _ = await (await Client.of(running)).ask("GET", "/admin")
        assert (found, headers.get(b"location", b"")) == (status, told)


async def test_clients_forwarding_headers_are_dropped() -> None:
    said = [
        ("Forwarded", "for=1.2.3.4;host=evil.example"),
        ("X-Real-IP", "1.2.3.4"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Port", "6666"),
        ("X-Forwarded-Proto", "gopher"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X-Forwarded-Server", "evil.example"),
        ("X-Proxied-Https", "on"),
        ("Proxy-Auth-Cert", "evil"),
        ("Proxy-Ssl-Id", "evil"),
    ]
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        await client.ask("GET", "/admin", b"", said)
        told = broker.headers()
        assert {name: value for name, value in told.items() if name.startswith(b"x-f")} == {
            b"x-forwarded-for": b"127.0.0.1",
            b"x-forwarded-proto": b"http",
            b"x-forwarded-server": b"127.0.0.1",
        }
        text = repr(broker.requests[0].headers).lower()
        assert "evil" not in text
        assert "1.2.3.4" not in text
    settings = {"advertisedAddress": "proxy.example", "webServiceTrustXForwardedFor": "true"}
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        client = await Client.of(running)
        await client.ask("GET", "/admin", b"", [("X-Forwarded-For", "1.2.3.4")])
        told = broker.headers()
        assert told[b"x-forwarded-host"] == b"proxy.example"
        assert told[b"x-forwarded-for"] == b"1.2.3.4, 127.0.0.1"


@pytest.mark.parametrize("name", ["Authorization", "X-Pulsar-Auth-Method-Name"])
async def test_credentials_given_twice_are_refused(name: str) -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        line = f"{name}: {token('joe')}\r\n".encode()
        answer = await raw(running, b"GET /admin HTTP/1.1\r\nHost: p\r\n" + 2 * line + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert broker.requests == []


async def test_a_websocket_with_two_tokens_is_refused() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        mine = token("joe").removeprefix("Bearer ")
        client = await Client.of(running)
        target = f"/ws/v2/producer/persistent/a/b/c?token={mine}&token=other"
        assert (await client.ask("GET", target, b"", UPGRADE))[0] == 400
        assert broker.requests == []


@pytest.mark.parametrize("when", ["with the answer", "after it"])
async def test_bytes_beyond_an_answer_reach_no_other_client(when: str) -> None:
    more = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"

    async def twice(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        if when == "with the answer":
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine"
            await talk.stream.send_all(answer + more)
            talk.http.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            talk.http.send(h11.EndOfMessage())
        else:
            await talk.say(200, b"mine")
            await talk.stream.send_all(more)

    async with brokers(twice) as (broker,), proxied(broker.port) as running:
        for _ in range(3):
            client = await Client.of(running)
            assert (await client.ask("GET", "/admin"))[2] == b"mine"
            await trio.testing.wait_all_tasks_blocked()
        assert broker.connections == 3


# ---- bounds ----


@pytest.mark.alone
async def test_a_body_in_small_chunks_is_kept_in_its_own_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces = 20_000

    async def next_event() -> Event:
        nonlocal pieces
        await trio.lowlevel.checkpoint()
        pieces -= 1
        return BodyPart(b"xy") if pieces >= 0 else BodyEnd()

    body = RequestBody(next_event, HeldBytes(1 << 20), has_body=True, kept_bytes_max=100_000)
    tracemalloc.start()
    try:
        at, sent = 0, b""
        while (part := await body.part(at)) is not None:
            at += len(part)
            sent += part
        held = tracemalloc.get_traced_memory()[0] - len(sent)
    finally:
        tracemalloc.stop()
    assert held < 4 * 40_000
    assert (body.is_repeatable, sent) == (True, b"xy" * 20_000)
    again = b""
    while (part := await body.part(len(again))) is not None:
        again += part
    assert again == sent


async def test_bodies_that_are_kept_are_bounded_together() -> None:
    """Above the bound, bodies still pass, but can't be repeated to another broker."""
    release = trio.Event()
    waiting = 0

    async def late(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        nonlocal waiting
        waiting += 1
        await release.wait()
        await talk.say(200, b"%d" % len(body))

    async with brokers(late) as (broker,), proxied(broker.port) as running:
        running.service.kept.bytes_max = 3_500_000
        answers: list[bytes] = []

        async def ask() -> None:
            client = await Client.of(running)
            answers.append((await client.ask("POST", "/admin", b"x" * 1_000_000))[2])

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)
            with trio.fail_after(60):
                while waiting < 8:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert 3_000_000 <= running.service.kept.bytes <= 3_500_000
            release.set()
        assert answers == [b"1000000"] * 8
        await trio.testing.wait_all_tasks_blocked()
        assert running.service.kept.bytes == 0


async def test_silent_connections_make_room() -> None:
    settings = {"maxHttpServerConnections": "10"}
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        silent = [await Client.of(running) for _ in range(30)]
        client = await Client.of(running)
        assert (await client.ask("GET", "/admin"))[0] == 200
        assert len(silent) == 30


async def test_connections_of_one_address_are_bounded() -> None:
    settings = {"maxHttpServerConnectionsPerIp": "3"}
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        clients = [await Client.of(running) for _ in range(3)]
        for client in clients:
            assert (await client.ask("GET", "/admin"))[0] == 200
        assert await raw(running, b"") == b""


async def test_a_slow_body_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "BODY_S", 0.3)
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        head = b"POST /admin HTTP/1.1\r\nHost: p\r\nContent-Length: 100000\r\n\r\n"
        await client.stream.send_all(head)
        answer = b""
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:

                async def drip() -> None:
                    try:
                        while True:
                            await client.stream.send_all(b"x")
                            await trio.sleep(0.05)
                    except trio.BrokenResourceError:
                        pass

                nursery.start_soon(drip)
                try:
                    while piece := await client.stream.receive_some():
                        answer += bytes(piece)
                except trio.BrokenResourceError:
                    pass
                nursery.cancel_scope.cancel()
        assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_reads_no_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CLIENT_SEND_S", 0.3)
    given_up = trio.Event()

    async def torrent(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        await talk.stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 30))
        try:
            while True:
                await talk.stream.send_all(b"x" * 65536)
        except trio.BrokenResourceError:
            given_up.set()

    async with brokers(torrent) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        await client.stream.send_all(b"GET /admin HTTP/1.1\r\nHost: p\r\n\r\n")
        got = 0
        with trio.fail_after(60):
            await given_up.wait()
            try:
                while piece := await client.stream.receive_some(1 << 20):
                    got += len(piece)
            except trio.BrokenResourceError:
                pass
        assert got < 100 << 20


async def test_websockets_of_one_role_are_bounded() -> None:
    async def accept(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
        answer = b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        await talk.stream.send_all(answer)
        await talk.stream.receive_some()

    settings = AUTH | {"webSocketMaxConnectionsPerRole": "2"}
    async with brokers(accept) as (broker,), proxied(broker.port, **settings) as running:

        async def upgrade(role: str) -> bytes:
            client = await Client.of(running)
            lines = [f"{name}: {value}" for name, value in UPGRADE]
            lines += ["Host: p", f"Authorization: {token(role)}"]
            head = "\r\n".join(["GET /ws/v2/x HTTP/1.1", *lines, "", ""])
            await client.stream.send_all(head.encode())
            with trio.fail_after(60):
                return bytes(await client.stream.receive_some())[:12]

        assert [await upgrade(role) for role in ("joe", "joe", "joe", "ann")] == [
            b"HTTP/1.1 101",
            b"HTTP/1.1 101",
            b"HTTP/1.1 429",
            b"HTTP/1.1 101",
        ]
