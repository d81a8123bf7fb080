"""The broker's listeners with TLS: ports, addresses, client certificates, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from geminga_broker.config import load_config
from geminga_broker.process import Running
from geminga_broker.standalone import run_standalone
from geminga_broker.standalone_parts import StandaloneOptions
from geminga_broker.web import connection as web_connection
from geminga_broker.web.server import bind_web, serve_web
from geminga_broker.web.settings import TLS_PEER_CERTIFICATE
from geminga_protocol.commands import connection, lookup
from geminga_protocol.frames import FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand
from geminga_runtime._tests.certificates import Authority, Leaf, common_name
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, ConnectionLost, TlsRefused
from geminga_runtime.http.get import BadHttpAnswer, HttpAnswer, get
from geminga_runtime.settings import ConfigError
from geminga_runtime.tls import ClientTls, ServerTls, TlsContexts

TOPIC = "persistent://public/default/t"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def settings(authority: Authority, leaf: Leaf, **more: str) -> dict[str, str]:
    return {
        "bindAddress": "127.0.0.1",
        "brokerServicePort": "0",
        "webServicePort": "0",
        "brokerServicePortTls": "0",
        "webServicePortTls": "0",
        "tlsCertificateFilePath": str(leaf.certificate),
        "tlsKeyFilePath": str(leaf.key),
        "tlsTrustCertsFilePath": str(authority.certificate),
        "tlsCertRefreshCheckDurationSec": "0",
        **more,
    }


@asynccontextmanager
async def standalone(given: Mapping[str, str]) -> AsyncIterator[Running]:
    options = StandaloneOptions(load_config(None, {}, given))
    async with trio.open_nursery() as nursery:
        yield await nursery.start(run_standalone, options)
        nursery.cancel_scope.cancel()


def client_tls(authority: Authority, who: Leaf | None = None) -> TlsContexts:
    files = {} if who is None else {"certificate_file": str(who[0]), "key_file": str(who[1])}
    return TlsContexts(ClientTls(trust_certs_file=str(authority.certificate), **files))


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def talk(port: int, tls: TlsContexts | None, *frames: bytes) -> list[BaseCommand]:
    """The answers to frames that are sent at once, one for each."""
    reader, answers = FrameReader(), []
    stream = await connect("127.0.0.1", port, tls=tls)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_writer)
        stream.write(*frames)
        try:
            while len(answers) < len(frames):
                data = await stream.receive()
                if not data:
                    break
                answers += [frame.command for frame in reader.feed(data)]
        except ConnectionLost:
            pass
        await stream.aclose()
    return answers


async def fetch(url: str, path: str, tls: TlsContexts | None = None) -> HttpAnswer:
    stream = await connect("127.0.0.1", port_of(url), tls=tls)
    return await get(stream, "127.0.0.1", path, {})


async def test_four_addresses(authority: Authority) -> None:
    tls = client_tls(authority)
    async with standalone(settings(authority, authority.server())) as running:
        assert [url.partition("://")[0] for url in running.urls] == [
            "pulsar",
            "pulsar+ssl",
            "http",
            "https",
        ]
        asked = (connection.connect("test"), lookup.lookup(TOPIC, 7))
        for port, context in (
            (port_of(running.broker_url), None),
            (port_of(running.broker_url_tls), tls),
        ):
            connected, answer = await talk(port, context, *asked)
            assert connected.type == BaseCommand.CONNECTED
            found = answer.lookupTopicResponse
            assert found.brokerServiceUrl == running.broker_url
            assert found.brokerServiceUrlTls == running.broker_url_tls
        path = "/lookup/v2/topic/persistent/public/default/t"
        plain = await fetch(running.web_url, path)
        secure = await fetch(running.web_url_tls, path, tls)
        assert json.loads(plain.body) == json.loads(secure.body)
        assert json.loads(secure.body)["brokerUrlTls"] == running.broker_url_tls
        assert json.loads(secure.body)["httpUrlTls"] == running.web_url_tls
        cluster = await fetch(running.web_url_tls, "/admin/v2/clusters/standalone", tls)
        assert json.loads(cluster.body)["serviceUrlTls"] == running.web_url_tls


async def test_with_tls_alone(authority: Authority) -> None:
    given = settings(authority, authority.server(), brokerServicePort="", webServicePort=" ")
    async with standalone(given) as running:
        assert running.urls == [running.broker_url_tls, running.web_url_tls]
        asked = (connection.connect("test"), lookup.lookup(TOPIC, 7))
        port = port_of(running.broker_url_tls)
        _, answer = await talk(port, client_tls(authority), *asked)
        assert not answer.lookupTopicResponse.HasField("brokerServiceUrl")
        health = await fetch(running.web_url_tls, "/admin/v2/brokers/health", client_tls(authority))
        assert health.body == b"ok"


async def test_client_certificates(authority: Authority, tmp_path: Path) -> None:
    given = settings(authority, authority.server(), tlsRequireTrustedClientCertOnConnect="true")
    alice = client_tls(authority, authority.client("alice"))
    stranger = client_tls(authority, Authority(tmp_path, "Other CA").client("alice"))
    async with standalone(given) as running:
        stream = await connect("127.0.0.1", port_of(running.broker_url_tls), tls=alice)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.run_writer)
            stream.write(connection.connect("test"))
            await stream.receive()
            (session,) = running.service.connections.sessions
            assert common_name(session.stream.peer_certificate) == "alice"
            await stream.aclose()
        for wrong in (stranger, client_tls(authority)):
            port = port_of(running.broker_url_tls)
            assert await talk(port, wrong, connection.connect("test")) == []
            with pytest.raises((ConnectionLost, BadHttpAnswer)):
                await fetch(running.web_url_tls, "/metrics/", wrong)
        assert (await fetch(running.web_url_tls, "/metrics/", alice)).status == 200


async def test_certificate_in_the_scope_of_requests(
    authority: Authority, nursery: trio.Nursery
) -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope.get(TLS_PEER_CERTIFICATE, "no TLS"))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    leaf = authority.server()
    files = str(leaf.certificate), str(leaf.key), str(authority.certificate)
    plain, secure = bind_web("127.0.0.1", 0), bind_web("127.0.0.1", 0)
    urls = [f"http://127.0.0.1:{sock.getsockname()[1]}" for sock in (plain, secure)]
    await nursery.start(serve_web, app, plain, secure, TlsContexts(ServerTls(*files)))
    await fetch(urls[1], "/", client_tls(authority, authority.client("alice")))
    await fetch(urls[1], "/", client_tls(authority))
    await fetch(urls[0], "/")
    await fetch(urls[1], "/", client_tls(authority, authority.client("bob")))
    alice, nobody, without, bob = seen
    assert (common_name(alice), nobody, without, common_name(bob)) == (
        "alice",
        None,
        "no TLS",
        "bob",
    )


async def test_a_last_answer_ends_at_once(
    authority: Authority, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that waits for the end is not waited for: TLS can't end one side alone."""
    monkeypatch.setattr(web_connection, "LINGER_S", 30)
    leaf, sock = authority.server(), bind_web("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    files = str(leaf.certificate), str(leaf.key), str(authority.certificate)
    answer = PlainTextResponse("hello")
    await nursery.start(serve_web, answer, None, sock, TlsContexts(ServerTls(*files)))
    stream = await connect("127.0.0.1", port, tls=client_tls(authority))
    nursery.start_soon(stream.run_writer)
    stream.write(b"GET / HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n")
    found = b""
    with trio.fail_after(15):
        while data := await stream.receive():
            found += data
    assert found.endswith(b"hello")
    await stream.aclose()


async def test_replaced_on_disk(authority: Authority, tmp_path: Path) -> None:
    here = Leaf(tmp_path / "tls.pem", tmp_path / "tls.key")
    tls = client_tls(authority)

    async def names(running: Running) -> list[str | None]:
        found = []
        for url in (running.broker_url_tls, running.web_url_tls):
            stream = await connect("127.0.0.1", port_of(url), tls=tls)
            found.append(common_name(stream.peer_certificate))
            await stream.aclose()
        return found

    def install(name: str) -> None:
        leaf = authority.server(name=name)
        shutil.copy(leaf.certificate, here.certificate)
        shutil.copy(leaf.key, here.key)

    install("first")
    async with standalone(settings(authority, here)) as running:
        assert await names(running) == ["first", "first"]
        install("second")
        assert await names(running) == ["second", "second"]


async def test_the_wrong_port(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    tls = client_tls(authority)
    async with standalone(settings(authority, authority.server())) as running:
        caplog.clear()
        with trio.fail_after(60):
            port = port_of(running.broker_url_tls)
            assert await talk(port, None, connection.connect("test")) == []
            assert caplog.text.count("does not speak TLS") == 1
            with pytest.raises(ConnectFailed):
                await connect("127.0.0.1", port_of(running.broker_url), tls=tls)
            assert caplog.text.count("the peer speaks TLS on the plaintext port") == 1
            with pytest.raises((ConnectionLost, BadHttpAnswer)):
                await fetch(running.web_url_tls, "/metrics/")
            assert caplog.text.count("failed: the peer does not speak TLS") == 2
            with pytest.raises(TlsRefused):
                await connect("127.0.0.1", port_of(running.web_url), tls=tls)
            assert (await fetch(running.web_url_tls, "/metrics/", tls)).status == 200


async def test_invalid_tls_settings(authority: Authority) -> None:
    leaf, other = authority.server(), authority.server()

    def wrong(text: str, **more: str) -> None:
        with pytest.raises(ConfigError, match=text):
            load_config(None, {}, settings(authority, leaf, **more)).tls.check()

    wrong("tlsCertificateFilePath: it is not set; a TLS port needs", tlsCertificateFilePath="")
    wrong("tlsKeyFilePath: .* is not the key of", tlsKeyFilePath=str(other.key))
    wrong("tlsTrustCertsFilePath: /none can't be read", tlsTrustCertsFilePath="/none")
    wrong("tlsProtocols: 'SSLv3'", tlsProtocols="TLSv1.2, SSLv3")
    wrong("^tlsCiphers: ", tlsCiphers="NOPE")
    wrong("^webServiceTlsProtocols: 'SSLv3'", webServiceTlsProtocols="SSLv3")
    wrong("^webServiceTlsCiphers: ", webServiceTlsCiphers="NOPE")
    wrong("brokerServicePortTls in command line", brokerServicePortTls="70000")
    both = {"tlsRequireTrustedClientCertOnConnect": "true", "tlsAllowInsecureConnection": "true"}
    wrong("tlsRequireTrustedClientCertOnConnect with tlsAllowInsecureConnection: ", **both)
    with pytest.raises(ConfigError, match="webServicePort, webServicePortTls: one must be set"):
        load_config(None, {}, {"webServicePort": "-1"})
    for key in ("brokerServicePort", "brokerServicePortTls", "webServicePortTls"):
        with pytest.raises(ConfigError, match=f"webServicePort.* are both {8080}: each needs"):
            load_config(None, {}, {key: "8080"})


async def test_the_webs_port_may_have_versions_of_its_own(authority: Authority) -> None:
    only = {"tlsProtocols": "TLSv1.3", "webServiceTlsProtocols": "TLSv1.2"}
    trusted = str(authority.certificate)
    async with standalone(settings(authority, authority.server(), **only)) as running:
        with trio.fail_after(60):
            for version, taken, refused in (
                ("TLSv1.3", running.broker_url_tls, running.web_url_tls),
                ("TLSv1.2", running.web_url_tls, running.broker_url_tls),
            ):
                tls = TlsContexts(ClientTls(trust_certs_file=trusted, protocols=(version,)))
                stream = await connect("127.0.0.1", port_of(taken), tls=tls)
                await stream.aclose()
                with pytest.raises(TlsRefused):
                    await connect("127.0.0.1", port_of(refused), tls=tls)
