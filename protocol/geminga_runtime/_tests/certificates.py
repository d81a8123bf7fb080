"""Certificates for tests, made in milliseconds: an authority, and leaves for servers and clients.

Needs the `cryptography` package (extra `server`).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

LOCAL = ("localhost", "127.0.0.1", "::1")
"""The hosts that a server's certificate is for, unless told otherwise."""


class Leaf(NamedTuple):
    """A certificate and its key, in PEM, as files."""

    certificate: Path
    key: Path


def common_name(certificate: bytes | None) -> str:
    """The CN of a certificate in DER."""
    assert certificate is not None
    subject = x509.load_der_x509_certificate(certificate).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[-1].value)


class Authority:
    """A certificate authority that writes what it issues to a folder.

    `with_rsa` makes RSA keys (slow, but read by every old software) in place of elliptic curves.
    """

    def __init__(self, folder: Path, name: str = "Test CA", *, with_rsa: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._with_rsa = with_rsa
        self._name = _name(name)
        self._key = self._new_key()
        self._count = 0
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._builder(self._name, self._key, expired=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / f"{name.replace(' ', '-').lower()}.pem"
        self.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))

    def server(
        self, *hosts: str, name: str = "broker", expired: bool = False, password: str | None = None
    ) -> Leaf:
        """A server's certificate for these host names and addresses, `LOCAL` if none is given."""
        return self._issue(
            name, hosts or LOCAL, ExtendedKeyUsageOID.SERVER_AUTH, expired, password=password
        )

    def client(self, name: str, *, expired: bool = False, units: Sequence[str] = ()) -> Leaf:
        """A client's certificate; `name` is its common name, hence its role."""
        return self._issue(name, (), ExtendedKeyUsageOID.CLIENT_AUTH, expired, units=units)

    def _issue(
        self,
        name: str,
        hosts: Sequence[str],
        usage: x509.ObjectIdentifier,
        expired: bool,
        password: str | None = None,
        units: Sequence[str] = (),
    ) -> Leaf:
        key = self._new_key()
        builder = (
            self._builder(_name(name, units), key, expired=expired)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        self._count += 1
        leaf = Leaf(
            self._folder / f"{name}-{self._count}.pem", self._folder / f"{name}-{self._count}.key"
        )
        how: KeySerializationEncryption = NoEncryption()
        if password is not None:
            how = BestAvailableEncryption(password.encode())
        leaf.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        leaf.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
        return leaf

    def _new_key(self) -> PrivateKey:
        if self._with_rsa:
            return rsa.generate_private_key(65537, 2048)
        return ec.generate_private_key(ec.SECP256R1())

    def _builder(
        self, subject: x509.Name, key: PrivateKey, *, expired: bool
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        day = dt.timedelta(days=1)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * day)
            .not_valid_after(now - day if expired else now + day)
        )


def _name(text: str, units: Sequence[str] = ()) -> x509.Name:
    kind = NameOID.ORGANIZATIONAL_UNIT_NAME
    parts = [x509.NameAttribute(kind, each) for each in units]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
