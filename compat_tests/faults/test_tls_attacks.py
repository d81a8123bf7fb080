"""The same with TLS: wrong ports, wrong certificates, and clients that stall (spec PX-25)."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path

import pytest
import trio

import geminga
from compat_tests.faults.attacked import TOPIC, Attacked, log_size, logged
from compat_tests.processes import ServerProcess, start_geminga
from geminga_protocol.commands import connection
from geminga_runtime._tests.certificates import Authority

PATIENCE_S = 60
"""Longer than any busy machine takes; ten seconds are given for a handshake."""


def _tls(server: ServerProcess) -> tuple[str, int]:
    host, _, port = server.service_url_tls.removeprefix("pulsar+ssl://").rpartition(":")
    return host, int(port)


def _context(ca: str, leaf: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if leaf is not None:
        context.load_cert_chain(*leaf)
    return context


def test_a_plain_client_on_the_tls_port(attacked: Attacked) -> None:
    since = log_size(attacked.server)
    with socket.create_connection(_tls(attacked.server), PATIENCE_S) as client:
        port = client.getsockname()[1]
        client.sendall(connection.connect("x"))
        assert b"CONNECTED" not in _all(client)
    assert "TLS" in logged(attacked.server, port, since)
    attacked.bystander.is_served()


def test_a_tls_client_on_the_plain_port(attacked: Attacked) -> None:
    since = log_size(attacked.server)
    with socket.create_connection(attacked.server.address, PATIENCE_S) as client:
        port = client.getsockname()[1]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _context(attacked.keys.ca).wrap_socket(client, server_hostname="localhost")
    assert "speaks TLS on the plaintext port" in logged(attacked.server, port, since)
    attacked.bystander.is_served()


def _all(client: socket.socket) -> bytes:
    taken = b""
    try:
        while data := client.recv(65536):
            taken += data
    except ConnectionError:
        pass
    return taken


@pytest.mark.parametrize("kind", ["expired", "other CA"])
def test_certificates_that_are_not_good(attacked: Attacked, kind: str, tmp_path: Path) -> None:
    if kind == "expired":
        leaf = attacked.keys.authority.client("alice", expired=True)
    else:
        leaf = Authority(tmp_path, "Other CA").client("alice")
    since = log_size(attacked.server)
    with socket.create_connection(_tls(attacked.server), PATIENCE_S) as plain:
        port = plain.getsockname()[1]
        context = _context(attacked.keys.ca, leaf)
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(connection.connect("x", auth_method_name="tls", auth_data=b""))
            assert not _all(client)
            raise ConnectionResetError
    assert "the certificate is refused" in logged(attacked.server, port, since)
    attacked.bystander.is_served()


@pytest.mark.parametrize("kind", ["other host", "expired", "other CA"])
async def test_clients_refuse_such_servers(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    signer = Authority(tmp_path / "other", "Other CA") if kind == "other CA" else authority
    hosts = ("elsewhere.example",) if kind == "other host" else ()
    leaf = signer.server(*hosts, expired=kind == "expired")
    settings = {
        "tlsCertificateFilePath": str(leaf.certificate),
        "tlsKeyFilePath": str(leaf.key),
        "brokerServicePortTls": "0",
        "webServicePortTls": "0",
    }
    server = start_geminga(tmp_path / "data", settings=settings)
    try:
        for url in (server.service_url_tls, server.web_url_tls):
            ca = str(authority.certificate)
            async with geminga.connect(url, tls_trust_certs_file_path=ca) as client:
                with trio.fail_after(PATIENCE_S), pytest.raises(geminga.TlsError):
                    await client.create_producer(TOPIC)
    finally:
        server.kill()


@pytest.mark.slow
def test_clients_that_stall_in_the_handshake(attacked: Attacked) -> None:
    began = time.monotonic()
    ports = (_tls(attacked.server), ("127.0.0.1", int(attacked.server.web_url_tls.split(":")[-1])))
    stalled = [socket.create_connection(port, PATIENCE_S) for port in ports for _ in range(50)]
    try:
        for number, client in enumerate(stalled):
            if number % 2:
                client.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
        while time.monotonic() - began < 3:
            attacked.bystander.is_served()
        with (
            socket.create_connection(_tls(attacked.server), PATIENCE_S) as plain,
            _context(attacked.keys.ca).wrap_socket(plain, server_hostname="localhost"),
        ):
            pass
        for client in stalled:
            client.settimeout(max(0.1, 60 - (time.monotonic() - began)))
            assert _all(client) == b""
    finally:
        for client in stalled:
            client.close()
    assert 8 < time.monotonic() - began < 60
    attacked.bystander.is_served()
