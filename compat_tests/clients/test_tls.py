"""TLS crosswise: our SDK, the official Python and Java clients, our server and Apache's."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import pytest
import trio

import geminga
import geminga.aio
import geminga.blocking
from compat_tests.apache import jars
from compat_tests.apache.server import start_apache
from compat_tests.faults.test_proxy import until
from compat_tests.missing import APACHE, JAVA_CLIENT, skipped_without
from compat_tests.processes import ServerProcess, free_port, start_geminga
from geminga import AuthenticationTls
from geminga_runtime._tests.certificates import Authority, Leaf

SIZES = (1, 1_000_000, 20_000)


class TlsServer(NamedTuple):
    """A server with TLS, the authority of its certificate, and a client's certificate."""

    server: ServerProcess
    ca: str
    client: Leaf
    other_ca: str


@pytest.fixture(
    scope="module", params=["geminga", pytest.param("apache", marks=[pytest.mark.java])]
)
def tls_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsServer]:
    folder = tmp_path_factory.mktemp(f"tls-{request.param}")
    authority = Authority(folder / "ca", with_rsa=True)
    leaf = authority.server()
    settings = {
        "tlsCertificateFilePath": str(leaf.certificate),
        "tlsKeyFilePath": str(leaf.key),
        "tlsTrustCertsFilePath": str(authority.certificate),
    }
    if request.param == "apache":
        ports = free_port(), free_port()
        settings |= {"brokerServicePortTls": str(ports[0]), "webServicePortTls": str(ports[1])}
        with skipped_without(APACHE):
            server = start_apache(folder / "work", settings=settings)
        server.service_url_tls = f"pulsar+ssl://127.0.0.1:{ports[0]}"
        server.web_url_tls = f"https://127.0.0.1:{ports[1]}"
    else:
        settings |= {"brokerServicePortTls": "0", "webServicePortTls": "0"}
        server = start_geminga(folder / "data", settings=settings)
    other = Authority(folder / "other", "Other CA")
    yield TlsServer(
        server, str(authority.certificate), authority.client("alice"), str(other.certificate)
    )
    server.kill()


def topic(about: str) -> str:
    return f"persistent://public/default/tls-{about}-{time.time_ns()}"


@pytest.mark.parametrize("scheme", ["pulsar+ssl", "https"])
@pytest.mark.parametrize("certificate", [False, True])
async def test_sdk(tls_server: TlsServer, scheme: str, certificate: bool) -> None:
    server = tls_server.server
    url = server.service_url_tls if scheme == "pulsar+ssl" else server.web_url_tls
    options: dict[str, Any] = {"tls_trust_certs_file_path": tls_server.ca}
    if certificate:
        options["authentication"] = AuthenticationTls(*tls_server.client)
    name = topic("sdk")
    with trio.fail_after(200):
        async with geminga.connect(url, **options) as client:
            consumer = await client.subscribe(name, "s")
            producer = await client.create_producer(name)
            for size in SIZES:
                await producer.send(b"x" * size)
                message = await consumer.receive(60)
                assert len(message.data) == size
                await consumer.acknowledge(message)
            assert all(stream.name.endswith(port_of(server)) for stream in connections(client))


def port_of(server: ServerProcess) -> str:
    return server.service_url_tls.rpartition(":")[2]


def connections(client: geminga.Client) -> list[Any]:
    return list(client._core.pool.connections)


async def test_sdk_refuses_another_authority(tls_server: TlsServer) -> None:
    for url in (tls_server.server.service_url_tls, tls_server.server.web_url_tls):
        async with geminga.connect(url, tls_trust_certs_file_path=tls_server.other_ca) as client:
            with trio.fail_after(60), pytest.raises(geminga.TlsError, match="refused"):
                await client.create_producer(topic("other"))
    plain = tls_server.server.service_url.replace("pulsar://", "pulsar+ssl://")
    ca = tls_server.ca
    async with geminga.connect(
        plain, tls_trust_certs_file_path=ca, operation_timeout_s=5
    ) as client:
        with trio.fail_after(60), pytest.raises(geminga.ConnectionFailedError, match="TLS"):
            await client.create_producer(topic("plain"))


async def test_faces(tls_server: TlsServer) -> None:
    url, options = tls_server.server.service_url_tls, {"tls_trust_certs_file_path": tls_server.ca}

    def blocking() -> None:
        with geminga.blocking.connect(url, **options) as client:
            client.create_producer(topic("blocking")).send(b"x")

    async def over_asyncio() -> None:
        async with geminga.aio.connect(url, **options) as client:
            await (await client.create_producer(topic("aio"))).send(b"x")

    import asyncio

    await trio.to_thread.run_sync(blocking)
    await trio.to_thread.run_sync(lambda: asyncio.run(over_asyncio()))


@pytest.mark.parametrize("scheme", ["pulsar+ssl", "https"])
@pytest.mark.parametrize("certificate", [False, True])
def test_official_python_client(tls_server: TlsServer, scheme: str, certificate: bool) -> None:
    server = tls_server.server
    who = None
    if certificate:
        who = pulsar.AuthenticationTLS(*map(str, tls_server.client))
    client = pulsar.Client(
        server.service_url_tls if scheme == "pulsar+ssl" else server.web_url_tls,
        authentication=who,
        tls_trust_certs_file_path=tls_server.ca,
        tls_validate_hostname=True,
        operation_timeout_seconds=15,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        name = topic("python")
        consumer = client.subscribe(name, "s")
        producer = client.create_producer(name)
        for size in SIZES:
            producer.send(b"x" * size)
            message = consumer.receive(60_000)
            assert len(message.data()) == size
            consumer.acknowledge(message)
    finally:
        client.close()


@pytest.mark.java
def test_java_client(tls_server: TlsServer) -> None:
    server = tls_server.server
    urls = [server.service_url_tls, server.web_url_tls]
    for who in (("-", "-"), tuple(map(str, tls_server.client))):
        with skipped_without(JAVA_CLIENT):
            command = jars.java_command("Tls", [tls_server.ca, *who, *urls])
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.stdout.split() == ["ok", urls[0], "ok", urls[1]], done.stderr[-2000:]


def test_lookup_names_both_ports(tls_server: TlsServer) -> None:
    server = tls_server.server
    context = ssl.create_default_context(cafile=tls_server.ca)
    path = topic("lookup").replace("://", "/")
    answers = []
    for base in (server.web_url, server.web_url_tls):
        secure = context if base.startswith("https") else None
        url = f"{base}/lookup/v2/topic/{path}"
        with urllib.request.urlopen(url, timeout=60, context=secure) as answer:
            answers.append(json.loads(answer.read()))
    assert (
        answers[0]
        == answers[1]
        == {
            "brokerUrl": server.service_url.replace("127.0.0.1", host(answers[0]["brokerUrl"])),
            "brokerUrlTls": server.service_url_tls,
            "httpUrl": server.web_url,
            "httpUrlTls": server.web_url_tls,
            "nativeUrl": server.service_url,
            "brokerUrlSsl": "",
        }
    )


def host(url: str) -> str:
    return url.partition("://")[2].rpartition(":")[0]


@pytest.mark.slow
def test_client_certificates_are_required(tmp_path: Path) -> None:
    """The official clients with a certificate, without, and with one of another authority."""
    authority = Authority(tmp_path / "ca", with_rsa=True)
    leaf, alice = authority.server(), authority.client("alice")
    mallory = Authority(tmp_path / "other", "Other CA", with_rsa=True).client("alice")
    settings = {
        "brokerServicePortTls": "0",
        "tlsCertificateFilePath": str(leaf.certificate),
        "tlsKeyFilePath": str(leaf.key),
        "tlsTrustCertsFilePath": str(authority.certificate),
        "tlsRequireTrustedClientCertOnConnect": "true",
    }
    server = start_geminga(tmp_path / "data", settings=settings)
    try:
        for who, works in ((alice, True), (None, False), (mallory, False)):
            client = pulsar.Client(
                server.service_url_tls,
                authentication=who and pulsar.AuthenticationTLS(*map(str, who)),
                tls_trust_certs_file_path=str(authority.certificate),
                tls_validate_hostname=True,
                operation_timeout_seconds=60 if works else 5,
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            )
            try:
                if works:
                    client.create_producer(topic("mutual")).send(b"x")
                else:
                    with pytest.raises(pulsar.PulsarException):
                        client.create_producer(topic("mutual"))
            finally:
                client.close()
        # The client may hear of it a moment before the line is written.
        for line in (
            "failed: TLS: peer did not return a certificate",
            "failed: the certificate is refused: unable to get local issuer",
        ):
            until(lambda line=line: line in server.log_path.read_text())
    finally:
        server.kill()


@pytest.mark.slow
async def test_failover_to_a_cluster_of_another_authority(tmp_path: Path) -> None:
    """Killed, the first broker is left for the second one; back again, it is returned to."""
    authorities = [Authority(tmp_path / name, name) for name in ("one", "two")]
    ports = free_port(), free_port()

    def start(number: int) -> ServerProcess:
        leaf = authorities[number].server()
        settings = {
            "brokerServicePortTls": str(ports[number]),
            "tlsCertificateFilePath": str(leaf.certificate),
            "tlsKeyFilePath": str(leaf.key),
        }
        return start_geminga(tmp_path / f"data{number}", settings=settings)

    servers = [await trio.to_thread.run_sync(start, number) for number in (0, 1)]
    try:
        first, second = (server.service_url_tls for server in servers)
        other = geminga.FailoverCluster(
            second, tls_trust_certs_file_path=str(authorities[1].certificate)
        )
        policy = geminga.AutoClusterFailover(
            [other], failover_delay_s=0.3, switch_back_delay_s=0.3, check_interval_s=0.1
        )
        with trio.fail_after(200):
            async with geminga.connect(
                first,
                tls_trust_certs_file_path=str(authorities[0].certificate),
                failover=policy,
                max_backoff_s=0.5,
            ) as client:
                producer = await client.create_producer(name := topic("failover"))
                await producer.send(b"one")
                servers[0].kill()
                await producer.send(b"two")
                assert second in repr(client)
                servers[0] = await trio.to_thread.run_sync(start, 0)
                while first not in repr(client):  # noqa: ASYNC110
                    await trio.sleep(0.05)
                await producer.send(b"three")
                for url, authority, expected in (
                    (first, authorities[0], [b"one", b"three"]),
                    (second, authorities[1], [b"two"]),
                ):
                    ca = str(authority.certificate)
                    async with geminga.connect(url, tls_trust_certs_file_path=ca) as there:
                        reader = await there.create_reader(name, geminga.EARLIEST)
                        got = [(await reader.read_next(60)).data for _ in expected]
                        assert got == expected
    finally:
        for server in servers:
            server.kill()
