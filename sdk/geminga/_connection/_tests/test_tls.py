"""TLS of the SDK, over real sockets: to a broker in memory, and to web services."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import geminga
from geminga import AuthenticationTls, AuthenticationToken, FailoverCluster
from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga_protocol.commands import lookup, producing
from geminga_protocol.frames import Frame
from geminga_runtime._tests.certificates import Authority, Leaf, common_name
from geminga_runtime.server import Bound, serve
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import ServerTls, TlsContexts

HOST = "127.0.0.1"
LOOKUP = "/lookup/v2/topic/persistent/public/default/t"
QUICK = {"operation_timeout_s": 60.0, "max_backoff_s": 0.05, "initial_backoff_s": 0.01}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


class TlsSession(FakeSession):
    """Returns the broker's TLS address, and a plain address without a server."""

    def on_lookupTopic(self, body: Any, frame: Frame) -> None:
        self.broker.certificates.append(self.stream.peer_certificate)
        answer = lookup.lookup_response(
            body.request_id, broker_url="pulsar://127.0.0.1:1", broker_url_tls=self.broker.url
        )
        self.stream.write(answer)


@asynccontextmanager
async def tls_broker(tls: ServerTls) -> AsyncIterator[FakeBroker]:
    async with fake_broker() as broker:
        broker.certificates = []

        async def handle(stream: FramedStream) -> None:
            session = TlsSession(broker, stream)
            broker.sessions.append(session)
            await session.run()

        contexts = TlsContexts(tls, refresh_check_s=0)
        bound: list[Bound] = await broker.nursery.start(
            partial(serve, handle, host=HOST, port=0, tls=contexts)
        )
        broker.url = f"pulsar+ssl://{HOST}:{bound[0].port}"
        yield broker


def server_tls(leaf: Leaf, **options: object) -> ServerTls:
    return ServerTls(str(leaf.certificate), str(leaf.key), **options)


async def test_produce_and_consume(authority: Authority) -> None:
    async with tls_broker(server_tls(authority.server())) as broker:
        # Several hosts, the first one without a server.
        url = broker.url.replace("://", "://127.0.0.1:1,")
        ca = str(authority.certificate)
        async with geminga.connect(url, tls_trust_certs_file_path=ca, **QUICK) as client:
            consumer = await client.subscribe("t", "s")
            producer = await client.create_producer("t")
            for size in (1, 100_000, 3):
                await producer.send(bytes(size))
                assert len((await consumer.receive()).data) == size
        assert broker.certificates[0] is None


async def refused(url: str, match: str, **options: object) -> None:
    with trio.fail_after(60), pytest.raises(geminga.TlsError, match=match) as caught:
        async with geminga.connect(url, **options) as client:
            await client.create_producer("t")
    assert isinstance(caught.value, geminga.ConnectionFailedError)
    assert not caught.value.retryable


@pytest.mark.slow
async def test_who_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "Other CA")
    mine = {"tls_trust_certs_file_path": str(authority.certificate)}
    async with tls_broker(server_tls(authority.server())) as broker:
        wrong = {"tls_trust_certs_file_path": str(other.certificate)}
        await refused(broker.url, "certificate is refused", **wrong)
        await refused(broker.url, "certificate is refused")
        async with geminga.connect(broker.url, tls_allow_insecure_connection=True) as client:
            await client.create_producer("t")
    async with tls_broker(server_tls(authority.server("elsewhere"))) as broker:
        await refused(broker.url, "not valid for", **mine)
        async with geminga.connect(broker.url, tls_validate_hostname=False, **mine) as client:
            await client.create_producer("t")
    async with tls_broker(server_tls(authority.server(expired=True))) as broker:
        await refused(broker.url, "expired", **mine)
    ca = str(authority.certificate)
    must = server_tls(authority.server(), trust_certs_file=ca, require_client_certificate=True)
    async with tls_broker(must) as broker:
        with pytest.raises(geminga.ConnectionFailedError, match="certificate required"):
            async with geminga.connect(broker.url, **mine, operation_timeout_s=3) as client:
                await client.create_producer("t")


@pytest.mark.parametrize("how", ["authentication", "options"])
async def test_a_certificate_of_our_own(authority: Authority, how: str) -> None:
    ca, leaf = str(authority.certificate), authority.client("alice")
    options: dict[str, Any] = {"tls_trust_certs_file_path": ca}
    if how == "authentication":
        options["authentication"] = AuthenticationTls(*leaf)
    else:
        options["tls_certificate_file_path"] = str(leaf.certificate)
        options["tls_private_key_file_path"] = str(leaf.key)
    async with tls_broker(server_tls(authority.server(), trust_certs_file=ca)) as broker:
        async with geminga.connect(broker.url, **options) as client:
            await client.create_producer("t")
        assert common_name(broker.certificates[0]) == "alice"
        assert broker.auth[0] == (("tls", b"") if how == "authentication" else ("", b""))


async def test_a_producer_lives_on_when_certificates_change(
    authority: Authority, tmp_path: Path
) -> None:
    here, trusted = Leaf(tmp_path / "tls.pem", tmp_path / "tls.key"), tmp_path / "trusted.pem"
    other = Authority(tmp_path / "other", "Other CA")

    def install(ca: Authority) -> None:
        for source, target in zip(ca.server(), here, strict=True):
            shutil.copy(source, target)

    install(authority)
    shutil.copy(authority.certificate, trusted)
    async with tls_broker(server_tls(here)) as broker:
        options = {"tls_trust_certs_file_path": str(trusted), **QUICK}
        async with geminga.connect(broker.url, **options) as client:
            producer = await client.create_producer("t")
            install(other)
            await producer.send(b"on the old connection")
            broker.cut()
            receipt = await producer.submit(b"on the new one")
            await trio.sleep(0.1)
            assert producer.pending_messages == 1
            shutil.copy(other.certificate, trusted)
            with trio.fail_after(60):
                await receipt.wait()


async def test_the_broker_tells_where_the_topic_goes(authority: Authority) -> None:
    ca = {"tls_trust_certs_file_path": str(authority.certificate)}
    leaf = authority.server()
    tls = server_tls(leaf)
    async with tls_broker(tls) as first, tls_broker(tls) as second:  # noqa: SIM117
        async with geminga.connect(first.url, **ca, **QUICK) as client:
            producer = await client.create_producer("t")
            session = next(each for each in first.sessions if each.producers)
            (producer_id,) = session.producers
            session.producers.clear()
            first.topic("t").producers.clear()
            session.stream.write(
                producing.close_producer(
                    producer_id,
                    (1 << 64) - 1,
                    assigned_broker_url="pulsar://127.0.0.1:1",
                    assigned_broker_url_tls=second.url,
                )
            )
            with trio.fail_after(60):
                await producer.send(b"over there")
            assert len(second.topic("t").entries) == 1


def test_wrong_options(authority: Authority) -> None:
    for wrong, name in (
        ({"tls_trust_certs_file_path": ""}, "tls_trust_certs_file_path"),
        ({"tls_validate_hostname": "no"}, "tls_validate_hostname"),
        ({"tls_certificate_file_path": "a"}, "tls_private_key_file_path"),
        ({"tls_protocols": ["TLSv1"]}, "tls_protocols: 'TLSv1'"),
        ({"tls_protocols": "TLSv1.3"}, "tls_protocols"),
        ({"tls_ciphers": [5]}, "tls_ciphers"),
    ):
        with pytest.raises(geminga.InvalidArgumentError, match=name):
            geminga.connect("pulsar+ssl://h", **wrong)
        with pytest.raises(geminga.InvalidArgumentError, match=name):
            FailoverCluster("pulsar+ssl://h", **wrong)
    with pytest.raises(geminga.InvalidArgumentError, match="private_key_path"):
        AuthenticationTls("a", 5)


async def test_files_are_looked_at_when_the_client_is_opened(authority: Authority) -> None:
    one, other = authority.client("one"), authority.client("other")
    for options, text in (
        ({"tls_trust_certs_file_path": "/none"}, "tls_trust_certs_file_path: /none can't be read"),
        ({"tls_ciphers": ["NOPE"]}, "tls_ciphers: none is known"),
        (
            {"authentication": AuthenticationTls(one.certificate, other.key)},
            "tls_private_key_file_path: .* is not the key of",
        ),
    ):
        with pytest.raises(geminga.InvalidArgumentError, match=text):
            async with geminga.connect("pulsar+ssl://h", **options):
                pass
        # Without TLS nothing is read.
        async with geminga.connect("pulsar://h", **options):
            pass


class Web:
    """A web service with TLS."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], object]] = {}
        self.heads: list[bytes] = []

    async def handle(self, stream: FramedStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.run_writer)
            head = await stream.receive()
            self.heads.append(head)
            path = head.split(b" ")[1].decode().partition("?")[0]
            status, headers, body = self.answers.get(path, (404, {}, {}))
            data = json.dumps(body).encode()
            lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            stream.write("\r\n".join([*lines, "", ""]).encode() + data)
            await stream.flush()
            stream.abort()


async def test_https_lookup(
    authority: Authority, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    web, leaf = Web(), authority.server()
    bound: list[Bound] = await nursery.start(
        partial(serve, web.handle, host=HOST, port=0, tls=TlsContexts(server_tls(leaf)))
    )
    url = f"https://{HOST}:{bound[0].port}"
    options = {
        "tls_trust_certs_file_path": str(authority.certificate),
        "authentication": AuthenticationToken("s3cret.t0ken"),
        **QUICK,
    }
    async with tls_broker(server_tls(leaf)) as broker:
        path = "/admin/v2/persistent/public/default/t/partitions"
        web.answers[path] = (200, {}, {"partitions": 0})
        web.answers[LOOKUP] = (307, {"Location": f"{url}/moved"}, {})
        found = {"brokerUrl": "pulsar://127.0.0.1:1", "brokerUrlTls": broker.url}
        web.answers["/moved"] = (200, {}, found)
        async with geminga.connect(url, **options) as client:
            producer = await client.create_producer("t")
            await producer.send(b"x")
            assert all(b"Authorization: Bearer s3cret.t0ken\r\n" in head for head in web.heads)
            # Never from https to http, where others could read the token.
            web.answers["/moved"] = (307, {"Location": f"http://{HOST}:1/"}, {})
            with pytest.raises(geminga.ServiceNotReadyError, match="from https to http"):
                await client._core.lookup.broker_of("persistent://public/default/t")
    assert "s3cret" not in caplog.text
