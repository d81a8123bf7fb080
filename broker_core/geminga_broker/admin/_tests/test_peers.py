"""Calls of one broker's admin API by another: addresses, credentials, redirects, bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import pytest
import trio
import trio.lowlevel

from geminga_broker.admin import peers as peers_module
from geminga_broker.admin.peer_settings import PeerSettings
from geminga_broker.admin.peers import PeerAnswer, Peers, PeerUnreachable
from geminga_broker.ownership.brokers import BROKERS_PATH
from geminga_runtime._tests.certificates import Authority
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.settings import ConfigError
from geminga_runtime.tls import ServerTls

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
TOKEN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


def redirect(location: str) -> bytes:
    head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    return head.encode()


@dataclass
class Web:
    """A web service that answers each connection by its next answer, the last one for ever."""

    answers: list[bytes]
    port: int = 0
    asked: list[bytes] = field(default_factory=list)
    open_now: int = 0
    open_most: int = 0

    @property
    def broker_id(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def handle(self, stream: trio.abc.Stream) -> None:
        with suppress(trio.BrokenResourceError):
            await self._handle(stream)

    async def _handle(self, stream: trio.abc.Stream) -> None:
        async with stream:
            self.open_now += 1
            self.open_most = max(self.open_most, self.open_now)
            request = b""
            while b"\r\n\r\n" not in request:
                request += await stream.receive_some()
            head, _, body = request.partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            while len(body) < int(length or 0):
                body += await stream.receive_some()
            self.asked.append(head + b"\r\n\r\n" + body)
            await trio.lowlevel.checkpoint()
            answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
            if answer:
                await stream.send_all(answer)
            else:
                await trio.sleep_forever()
            self.open_now -= 1


@asynccontextmanager
async def serving(*webs: Web) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for web in webs:
            listen = partial(trio.serve_tcp, web.handle, 0, host="127.0.0.1")
            listeners = await nursery.start(listen)
            web.port = listeners[0].socket.getsockname()[1]
        yield
        nursery.cancel_scope.cancel()


async def register(store: MemoryMetadataStore, web: Web, **record: object) -> None:
    found = record or {"webServiceUrl": f"http://127.0.0.1:{web.port}", "maxResourceUsage": 0.1}
    await store.put(f"{BROKERS_PATH}/{web.broker_id}", msgspec.json.encode(found))


def peers(store: MemoryMetadataStore, settings: PeerSettings = PeerSettings()) -> Peers:
    return Peers(store, settings)


async def test_a_call_and_its_answer() -> None:
    store, web = MemoryMetadataStore(), Web([HELLO])
    async with serving(web):
        await register(store, web)
        ours = peers(store, PeerSettings(auth_plugin=TOKEN, auth_parameters="token:a.b.c"))
        assert await ours.call(web.broker_id, "PUT", "/admin/v2/a%2Fb?c=d", b'{"x":1}') == (
            PeerAnswer(200, b"hello")
        )
        await ours.call(web.broker_id, "DELETE", "/admin/v2/a")
        await ours.call(web.broker_id, "PUT", "/admin/v2/a")
    put, delete, empty = web.asked
    assert put.startswith(b"PUT /admin/v2/a%2Fb?c=d HTTP/1.1\r\n")
    assert f"\r\nHost: {web.broker_id}\r\n".encode() in put
    assert b"\r\nAuthorization: Bearer a.b.c\r\n" in put
    assert b"\r\nContent-Type: application/json\r\n" in put
    assert put.endswith(b'\r\n\r\n{"x":1}')
    assert b"Content-" not in delete
    assert b"Content-Length: 0" in empty


async def test_the_reason_of_an_error() -> None:
    body = b'{"reason":"Topic not found"}'
    assert PeerAnswer(404, body).reason == "Topic not found"
    assert PeerAnswer(404, b"<html>").reason == "HTTP status 404"


async def test_brokers_that_are_not_registered_get_no_credential() -> None:
    store, web = MemoryMetadataStore(), Web([HELLO])
    async with serving(web):
        ours = peers(store, PeerSettings(auth_plugin=TOKEN, auth_parameters="token:a.b.c"))
        for broker_id in (web.broker_id, "", "../admin/clusters", f"x/../{web.broker_id}"):
            with pytest.raises(PeerUnreachable):
                await ours.call(broker_id, "GET", "/")
    assert web.asked == []


async def test_redirects_lead_to_registered_brokers_only() -> None:
    store, first, second = MemoryMetadataStore(), Web([]), Web([HELLO])
    async with serving(first, second):
        await register(store, first)
        target = f"http://127.0.0.1:{second.port}/admin/v2/x?authoritative=true"
        first.answers = [redirect(target)]
        ours = peers(store)
        with pytest.raises(PeerUnreachable, match="which is no broker"):
            await ours.call(first.broker_id, "GET", "/admin/v2/x")
        answer = await ours.call(first.broker_id, "GET", "/admin/v2/x", follow=False)
        assert answer.status == 307, "nobody else is asked"
        assert second.asked == []
        await register(store, second)
        assert (await ours.call(first.broker_id, "GET", "/admin/v2/x")).status == 200
        assert second.asked[0].startswith(b"GET /admin/v2/x?authoritative=true HTTP/1.1")
        second.answers = [redirect(f"http://127.0.0.1:{first.port}/admin/v2/x")]
        with pytest.raises(PeerUnreachable, match="too often"):
            await ours.call(first.broker_id, "GET", "/admin/v2/x")
        for location in ("", "/admin/v2/x", "https://127.0.0.1:1/", "http://[", "ftp://x:1/"):
            first.answers = [redirect(location)]
            with pytest.raises(PeerUnreachable, match="redirects to"):
                await ours.call(first.broker_id, "GET", "/admin/v2/x")


@pytest.mark.parametrize(
    "record",
    [
        {"webServiceUrl": None, "webServiceUrlTls": "https://127.0.0.1:1"},
        {"webServiceUrl": "http://127.0.0.1"},
        {"webServiceUrl": 7},
        {"webServiceUrl": "http://["},
    ],
)
async def test_records_without_a_usable_address(record: Mapping[str, object]) -> None:
    store, web = MemoryMetadataStore(), Web([HELLO], port=7)
    await register(store, web, **record)
    with pytest.raises(PeerUnreachable, match="no web service without TLS"):
        await peers(store).call(web.broker_id, "GET", "/")


async def test_with_tls_and_a_certificate(tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    server, client = authority.server(), authority.client("admin")
    context = ServerTls(
        certificate_file=str(server.certificate),
        key_file=str(server.key),
        trust_certs_file=str(authority.certificate),
        require_client_certificate=True,
    ).context()
    store, web = MemoryMetadataStore(), Web([HELLO])
    async with trio.open_nursery() as nursery:
        listen = partial(trio.serve_ssl_over_tcp, web.handle, 0, context, host="127.0.0.1")
        listeners = await nursery.start(listen)
        web.port = listeners[0].transport_listener.socket.getsockname()[1]
        await register(store, web, webServiceUrlTls=f"https://127.0.0.1:{web.port}")
        without = PeerSettings(tls=True, trust_certs_file=str(authority.certificate))
        files = f"tlsCertFile:{client.certificate},tlsKeyFile:{client.key}"
        ours = peers(store, replace(without, auth_plugin="tls", auth_parameters=files))
        assert (await ours.call(web.broker_id, "GET", "/")).body == b"hello"
        with pytest.raises(PeerUnreachable):  # without a certificate
            await peers(store, without).call(web.broker_id, "GET", "/")
        # Ours would prove that whoever asks is this broker.
        with pytest.raises(PeerUnreachable):
            await ours.call(web.broker_id, "GET", "/", headers={"authorization": "Bearer t"})
        with pytest.raises(PeerUnreachable):
            await ours.follow(f"https://127.0.0.1:{web.port}/", "GET", b"", {})
        nursery.cancel_scope.cancel()


async def test_calls_of_others_have_their_credentials_only() -> None:
    store, web, stranger = MemoryMetadataStore(), Web([HELLO]), Web([HELLO])
    own = PeerSettings(auth_plugin=TOKEN, auth_parameters="token:of-the-broker")
    theirs = {"authorization": "Bearer theirs"}
    async with serving(web, stranger):
        await register(store, web)
        ours = peers(store, own)
        assert (await ours.call(web.broker_id, "GET", "/a", headers=theirs)).body == b"hello"
        location = f"http://127.0.0.1:{web.port}/b?c=d"
        found = await ours.follow(location, "POST", b"{}", theirs)
        assert (found.status, found.body) == (200, b"hello")
        assert (await ours.follow(location, "GET", b"", {})).body == b"hello"
        for elsewhere in (f"http://127.0.0.1:{stranger.port}/", "", "/b", "https://127.0.0.1/"):
            with pytest.raises(PeerUnreachable):
                await ours.follow(elsewhere, "GET", b"", theirs)
        web.answers = [redirect(location)]
        with pytest.raises(PeerUnreachable, match="too often"):
            await ours.follow(location, "GET", b"", theirs)
    assert stranger.asked == []
    assert web.asked[1].startswith(b"POST /b?c=d HTTP/1.1\r\n")
    assert all(b"of-the-broker" not in each for each in web.asked)
    assert sum(b"Bearer theirs" in each for each in web.asked) == len(web.asked) - 1


def test_settings_are_checked_at_the_start() -> None:
    with pytest.raises(ConfigError, match="brokerClientTrustCertsFilePath"):
        PeerSettings(tls=True, trust_certs_file="/nowhere").contexts(300)
    with pytest.raises(ConfigError, match="brokerClientAuthenticationPlugin"):
        PeerSettings(auth_plugin="x").credentials()


async def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "BODY_BYTES_MAX", 4)
    monkeypatch.setattr(peers_module, "CONNECTIONS_PER_BROKER_MAX", 2)
    store, web = MemoryMetadataStore(), Web([HELLO])
    async with serving(web):
        await register(store, web)
        ours = peers(store)

        async def call() -> None:
            with pytest.raises(PeerUnreachable, match="too long"):
                await ours.call(web.broker_id, "GET", "/")

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(call)
        assert len(web.asked) == 10
        assert web.open_most <= 2


async def test_a_broker_that_does_not_answer() -> None:
    store, web = MemoryMetadataStore(), Web([b""])
    async with serving(web):
        await register(store, web)
        with pytest.raises(PeerUnreachable, match=r"within 0\.05 s"):
            await peers(store).call(web.broker_id, "GET", "/", timeout_s=0.05)
    with pytest.raises(PeerUnreachable, match=f"broker {web.broker_id}: "):
        await peers(store).call(web.broker_id, "GET", "/")
