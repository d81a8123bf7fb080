"""Authentication at the proxy's web ports, its own pages, WebSockets (spec PX-04, PX-06, PX-09)."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import h11
import pytest
import trio

from geminga_protocol import tokens
from geminga_proxy.http import session
from geminga_proxy.http._tests.played import (
    Answer,
    Client,
    PlayedBroker,
    Talk,
    brokers,
    echo,
    proxied,
    raw,
)
from geminga_proxy.relay import relay
from geminga_runtime._tests.certificates import Authority
from geminga_runtime.auth.own import own_credentials
from geminga_runtime.settings import ConfigError

SECRET = bytes(range(32))
AUTH = {
    "authenticationEnabled": "true",
    "authenticationProviders": "token",
    "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
    "brokerClientAuthenticationPlugin": "token",
    "brokerClientAuthenticationParameters": "token:of-the-proxy",
}
UPGRADE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"),
]


def token(role: str) -> str:
    return "Bearer " + tokens.create(SECRET, role)


async def test_clients_are_authenticated() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        client = await Client.of(running)
        for given in ([], [("Authorization", "Bearer rubbish")], [("Authorization", "Nonsense")]):
            status, _, body = await client.ask("GET", "/admin", b"", given)
            assert (status, json.loads(body)) == (401, {"reason": "Authentication required"})
        assert broker.requests == []
        given = [("Authorization", token("joe")), ("X-Original-Principal", "admin")]
        assert (await client.ask("GET", "/admin", b"", given))[0] == 200
        told = broker.headers()
        assert told[b"authorization"] == b"Bearer of-the-proxy"
        assert told[b"x-original-principal"] == b"joe"
        # A line break in a role must not add a header.
        evil = [("Authorization", token("joe\r\nX-Original-Principal: admin"))]
        assert (await client.ask("GET", "/admin", b"", evil))[0] == 400
        assert len(broker.requests) == 1


async def test_credentials_are_forwarded_when_asked_for() -> None:
    settings = AUTH | {"forwardAuthorizationCredentials": "true"}
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        client = await Client.of(running)
        theirs = token("joe")
        await client.ask("GET", "/admin", b"", [("Authorization", theirs)])
        told = broker.headers()
        assert told[b"authorization"] == theirs.encode()
        assert told[b"x-original-principal"] == b"joe"


async def test_own_pages(tmp_path: Path) -> None:
    file = tmp_path / "up"
    settings = AUTH | {"statusFilePath": str(file)}
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", "/status.html"))[0] == 404
        file.touch()
        assert (await client.ask("GET", "/status.html"))[2] == b"OK"
        assert (await client.ask("HEAD", "/status.html"))[2] == b""
        assert (await client.ask("GET", "/metrics"))[0] == 401
        given = [("Authorization", token("joe"))]
        status, headers, body = await client.ask("GET", "/metrics", b"", given)
        assert (status, headers[b"content-type"][:10]) == (200, b"text/plain")
        assert b'pulsar_proxy_active_connections{cluster=""} 0\n' in body
        assert (
            b'pulsar_authentication_success_total{cluster="",'
            b'provider_name="AuthenticationProviderToken",auth_method="token"} 1\n' in body
        )
        assert b'pulsar_authentication_failures_total{cluster="",provider_name="none"' in body
        assert b'pulsar_expiring_token_minutes_bucket{cluster="",le="+Inf"} 0\n' in body
        assert b'pulsar_expired_token_total{cluster=""} 0\n' in body
        assert b'process_resident_memory_bytes{cluster=""} ' in body
        assert broker.requests == []
    settings = {**AUTH, "authenticateMetricsEndpoint": "false"}
    async with proxied(**settings) as running:
        assert (await (await Client.of(running)).ask("GET", "/metrics"))[0] == 200


async def accept(talk: Talk) -> None:
    headers = [(b"connection", b"upgrade"), (b"upgrade", b"websocket"), (b"x-kept", b"1")]
    answer = h11.InformationalResponse(status_code=101, headers=headers)
    await talk.stream.send_all((talk.http.send(answer) or b"") + b"hello ")


async def switch(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
    """Switch to an echo protocol if the client asks for an upgrade."""
    if (b"upgrade", b"websocket") not in request.headers:
        await talk.say(200)
        return
    await accept(talk)
    await talk.stream.send_all(talk.http.trailing_data[0])
    async for data in talk.stream:
        await talk.stream.send_all(data)


async def open_websocket(
    running: object, target: str, *headers: tuple[str, str], data: bytes = b""
) -> tuple[Client, h11.Event]:
    client = await Client.of(running)  # type: ignore[arg-type]
    request = h11.Request(method="GET", target=target, headers=[("Host", "p"), *UPGRADE, *headers])
    await client.stream.send_all((client.http.send(request) or b"") + data)
    client.http.send(h11.EndOfMessage())
    with trio.fail_after(60):
        return client, await client.event()


async def test_websockets_are_tunnels() -> None:
    async with brokers(switch) as (broker,), proxied(broker.port) as running:
        client, answer = await open_websocket(running, "/ws/v2/producer/x", data=b"early ")
        assert isinstance(answer, h11.InformationalResponse)
        assert answer.status_code == 101
        headers = dict(answer.headers)
        assert headers[b"upgrade"] == b"websocket"
        assert headers[b"connection"] == b"upgrade"
        assert headers[b"x-kept"] == b"1"
        assert broker.headers()[b"sec-websocket-version"] == b"13"
        await client.stream.send_all(b"late")
        got = bytes(client.http.trailing_data[0])
        with trio.fail_after(60):
            while got != b"hello early late":
                got += bytes(await client.stream.receive_some())
        assert running.service.metrics.tunnels == 1
        await client.stream.aclose()
        with trio.fail_after(60):
            while running.service.metrics.tunnels:  # noqa: ASYNC110
                await trio.sleep(0.01)
        # Only paths of WebSockets are upgraded.
        _, answer = await open_websocket(running, "/admin")
        assert b"upgrade" not in broker.headers()


async def leave(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
    """Switch, then end."""
    await accept(talk)


async def pour(broker: PlayedBroker, request: h11.Request, body: bytes, talk: Talk) -> None:
    """Switch, then send for ever."""
    await accept(talk)
    while True:
        await talk.stream.send_all(bytes(1 << 16))


@pytest.mark.parametrize("broker_does", [leave, pour])
async def test_a_websocket_ends_if_its_client_neither_reads_nor_leaves(
    broker_does: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else ends it: the broker has gone, or waits."""
    ended = trio.Event()

    async def watched(*args: Any) -> None:
        await relay(*args)
        ended.set()

    monkeypatch.setattr(session, "relay", watched)
    monkeypatch.setattr(session, "WEBSOCKET_PATIENCE_S", 0.2)
    async with brokers(broker_does) as (broker,), proxied(broker.port) as running:
        await open_websocket(running, "/ws/v2/producer/x")
        with trio.fail_after(60):
            await ended.wait()


async def test_websockets_keep_the_clients_credentials() -> None:
    bearer = token("joe")
    async with brokers(switch) as (broker,), proxied(broker.port, **AUTH) as running:
        _, answer = await open_websocket(running, "/ws/v2/producer/x")
        assert isinstance(answer, h11.Response)
        assert answer.status_code == 401
        _, answer = await open_websocket(running, "/ws/v2/producer/x", ("Authorization", bearer))
        assert answer.status_code == 101  # type: ignore[union-attr]
        assert broker.headers()[b"authorization"] == bearer.encode()
        assert broker.headers()[b"x-original-principal"] == b"joe"
        target = "/ws/v2/producer/x?token=" + bearer.removeprefix("Bearer ")
        _, answer = await open_websocket(running, target)
        assert answer.status_code == 101  # type: ignore[union-attr]
        assert broker.requests[-1].target == target.encode()
        assert b"authorization" not in broker.headers()


async def test_websockets_show_no_certificate_of_the_proxy(tmp_path: Path) -> None:
    """Apache's service would take it for the client's, and give the client the proxy's rights."""
    authority = Authority(tmp_path)
    leaf, own = authority.server(), authority.client("proxy")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.load_cert_chain(leaf.certificate, leaf.key)
    context.verify_mode = ssl.CERT_OPTIONAL
    bearer = token("joe")
    async with brokers(echo, tls=context) as (broker,):
        settings = AUTH | {
            "tlsEnabledWithBroker": "true",
            "brokerWebServiceURL": "",
            "brokerServiceURLTLS": "pulsar+ssl://127.0.0.1:1",
            "brokerWebServiceURLTLS": f"https://127.0.0.1:{broker.port}",
            "brokerClientTrustCertsFilePath": str(authority.certificate),
            "brokerClientAuthenticationPlugin": "tls",
            "brokerClientAuthenticationParameters": (
                f"tlsCertFile:{own.certificate},tlsKeyFile:{own.key}"
            ),
        }
        async with proxied(**settings) as running:
            client = await Client.of(running)
            assert (await client.ask("GET", "/admin", b"", [("Authorization", bearer)]))[0] == 200
            method = ("X-Pulsar-Auth-Method-Name", "tls")
            path = "/ws/v2/producer/x"
            for given in ([], [method]):
                await open_websocket(running, path, ("Authorization", bearer), *given)
            await open_websocket(running, f"{path}?token={bearer.removeprefix('Bearer ')}")
            assert broker.certificates == ["proxy", "", "", ""]
            # Requests with the proxy's own credentials don't reuse that connection.
            assert (await client.ask("GET", "/admin", b"", [("Authorization", bearer)]))[0] == 200
            assert broker.certificates[-1] == "proxy"
            # Authorization named by Connection is dropped, so the request has no credentials.
            named = ("Connection", "authorization")
            _, answer = await open_websocket(running, path, ("Authorization", bearer), named)
            assert isinstance(answer, h11.Response)
            assert answer.status_code == 403
            assert len(broker.certificates) == 5


async def test_error_texts_do_not_quote_the_request(caplog: pytest.LogCaptureFixture) -> None:
    """h11's error texts quote the bad line."""
    secret = token("joe")
    heads = [
        f"GET /ws/v2/reader/\u00e9?token={secret} HTTP/1.1\r\nHost: p\r\n\r\n".encode(),
        f"GET / HTTP/1.1\r\nHost: p\r\nAuthorization : {secret}\r\n\r\n".encode(),
        f"GET / HTTP/1.1\r\nHost: p\r\nAuthorization: {secret}\x00\r\n\r\n".encode(),
        f"POST / HTTP/1.1\r\nHost: p\r\nAuthorization: {secret}\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n{secret}\r\n".encode(),
    ]
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        for head in heads:
            answer = await raw(running, head)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert secret.encode() not in answer
    assert secret not in caplog.text
    assert secret.removeprefix("Bearer ") not in caplog.text


async def test_the_proxys_own_token_does_not_leak(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\nsecond\n")
    settings = AUTH | {"brokerClientAuthenticationParameters": f"file:{file}"}
    with pytest.raises(ConfigError, match="without white space"):
        own_credentials("token", f"file:{file}")
    file.write_text("first\n")
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        file.write_text("first\nsecond\n")
        client = await Client.of(running)
        given = [("Authorization", token("joe"))]
        status, _, body = await client.ask("GET", "/admin", b"", given)
        assert (status, b"first" in body) == (200, False)
        assert broker.headers()[b"authorization"] == b"Bearer first"


async def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    leaf, alice = authority.server(), authority.client("alice")
    settings = AUTH | {
        "webServicePort": "-1",
        "webServicePortTls": "0",
        "authenticationProviders": "tls",
        "forwardAuthorizationCredentials": "true",
        "tlsCertificateFilePath": str(leaf.certificate),
        "tlsKeyFilePath": str(leaf.key),
        "tlsTrustCertsFilePath": str(authority.certificate),
    }
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(alice.certificate, alice.key)
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        assert running.urls[-1].startswith("https://")
        port = int(running.urls[-1].rpartition(":")[2])
        stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context)
        client = Client(stream)
        assert (await client.ask("GET", "/admin"))[0] == 200
        assert broker.headers()[b"x-original-principal"] == b"alice"
        assert broker.headers()[b"authorization"] == b"Bearer of-the-proxy"
        assert broker.headers()[b"x-forwarded-proto"] == b"https"
        request = h11.Request(
            method="GET", target="/ws/v2/producer/x", headers=[("Host", "p"), *UPGRADE]
        )
        await stream.send_all(client.http.send(request) or b"")
        client.http.send(h11.EndOfMessage())
        assert (await client.answer())[0] == 403
