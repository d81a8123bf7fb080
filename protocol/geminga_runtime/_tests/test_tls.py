"""Contexts from files, their errors, and their reload."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from geminga_runtime._tests.certificates import Authority
from geminga_runtime.tls import (
    ClientTls,
    ServerTls,
    TlsConfigError,
    TlsContexts,
    peer_certificate,
)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def refused(options: ClientTls | ServerTls, field: str, text: str) -> None:
    with pytest.raises(TlsConfigError, match=text) as caught:
        options.context()
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


def test_files_that_can_not_be_used(authority: Authority, tmp_path: Path) -> None:
    leaf, other = authority.server(), authority.server()
    good, key = str(leaf.certificate), str(leaf.key)
    secret = str(authority.server(password="hush").key)
    garbage = tmp_path / "garbage"
    garbage.write_text("no PEM")
    refused(ServerTls(), "certificate_file", "not set")
    refused(ServerTls(good), "key_file", "not set")
    refused(ClientTls("", key), "certificate_file", "not set")
    refused(ServerTls("/no/where.pem", key), "certificate_file", "/no/where.pem can't be read: No")
    refused(ServerTls(good, str(tmp_path / "gone")), "key_file", "gone can't be read: No such")
    refused(ServerTls(good, str(other.key)), "key_file", "is not the key of")
    refused(ServerTls(good, secret), "key_file", "is encrypted")
    refused(ServerTls(str(garbage), key), "certificate_file", "garbage has no certificate")
    refused(ServerTls(good, str(garbage)), "key_file", "garbage has no private key")
    refused(ClientTls(trust_certs_file=str(garbage)), "trust_certs_file", "no certificate")
    refused(ClientTls(trust_certs_file="/none"), "trust_certs_file", "/none can't be read")
    proven = ServerTls(good, key, allow_insecure=True, require_client_certificate=True)
    refused(proven, "require_client_certificate", "unproven")


def test_protocols_and_ciphers() -> None:
    both = ClientTls().context()
    assert both.minimum_version == ssl.TLSVersion.TLSv1_2
    assert both.maximum_version == ssl.TLSVersion.TLSv1_3
    assert both.check_hostname
    assert both.verify_mode == ssl.CERT_REQUIRED
    only = ClientTls(protocols=("TLSv1.2",)).context()
    assert only.maximum_version == ssl.TLSVersion.TLSv1_2
    refused(ClientTls(protocols=("TLSv1.1",)), "protocols", "TLSv1.1")
    insecure = ClientTls(allow_insecure=True).context()
    assert (insecure.check_hostname, insecure.verify_mode) == (False, ssl.CERT_NONE)
    lax = ClientTls(validate_hostname=False).context()
    assert (lax.check_hostname, lax.verify_mode) == (False, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    ("given", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_ciphers(given: str, openssl: str) -> None:
    context = ClientTls(ciphers=(given,)).context()
    names = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert names == [openssl]
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2


def test_ciphers_choose_the_protocol() -> None:
    new = ClientTls(ciphers=("TLS_AES_256_GCM_SHA384",)).context()
    assert new.minimum_version == ssl.TLSVersion.TLSv1_3
    either = ClientTls(ciphers=("TLS_AES_256_GCM_SHA384", "ECDHE-RSA-AES128-GCM-SHA256")).context()
    assert either.minimum_version == ssl.TLSVersion.TLSv1_2
    assert either.maximum_version == ssl.TLSVersion.TLSv1_3
    refused(ClientTls(ciphers=("NO-SUCH-CIPHER",)), "ciphers", "NO-SUCH-CIPHER")
    never = ClientTls(protocols=("TLSv1.2",), ciphers=("TLS_AES_256_GCM_SHA384",))
    refused(never, "ciphers", "TLSv1.2")


def test_reload(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now_s = 0.0
    leaf, next_one = authority.server(), authority.server()
    options = ServerTls(str(leaf.certificate), str(leaf.key))
    contexts = TlsContexts(options, refresh_check_s=10, clock=lambda: now_s)
    first = contexts.current()
    # The key alone: for now the two don't fit.
    leaf.key.write_bytes(next_one.key.read_bytes())
    assert contexts.current() is first
    now_s = 10.0
    assert contexts.current() is first
    assert "keeping the old ones: key_file" in caplog.text
    leaf.certificate.write_bytes(next_one.certificate.read_bytes())
    now_s = 19.0
    assert contexts.current() is first
    now_s = 20.0
    second = contexts.current()
    assert second is not first
    assert "reloaded" in caplog.text
    leaf.certificate.unlink()
    now_s = 30.0
    assert contexts.current() is second
    caplog.clear()
    now_s = 40.0
    assert contexts.current() is second
    assert not caplog.text


def shaken(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake in memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(down, up, server_hostname="127.0.0.1"),
        server.wrap_bio(up, down, server_side=True),
    )
    left = list(ends)
    while left:
        for end in list(left):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.remove(end)
    return ends


def test_a_certificate_that_nobody_vouched_for_names_nobody(authority: Authority) -> None:
    leaf, trusted = authority.server(), str(authority.certificate)
    server = ServerTls(str(leaf.certificate), str(leaf.key)).context()
    verified, _ = shaken(ClientTls(trust_certs_file=trusted).context(), server)
    assert peer_certificate(verified) == verified.getpeercert(binary_form=True) is not None
    unverified, other = shaken(ClientTls(allow_insecure=True).context(), server)
    assert unverified.getpeercert(binary_form=True) is not None
    assert peer_certificate(unverified) is None
    assert peer_certificate(other) is None
