"""Keys for tests of encryption."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import geminga
from geminga import DefaultCryptoKeyReader, EncryptionKeyInfo
from geminga_protocol.encryption import PrivateKey

PEM = serialization.Encoding.PEM
KEYS: dict[str, PrivateKey] = {
    "rsa": rsa.generate_private_key(65537, 1024),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "other": ec.generate_private_key(ec.SECP256R1()),
}
PRIVATE = {
    name: key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for name, key in KEYS.items()
}
PUBLIC = {
    name: key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for name, key in KEYS.items()
}
READER = DefaultCryptoKeyReader(public_keys=PUBLIC, private_keys=PRIVATE)


class CountingReader(geminga.CryptoKeyReader):
    """Notes its calls; with `fails` it has no keys."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.fails = False

    def _answer(
        self, kind: str, name: str, metadata: Mapping[str, str], pem: bytes
    ) -> EncryptionKeyInfo:
        self.asked.append((kind, name, dict(metadata)))
        if self.fails:
            raise LookupError("hush: not to be repeated")
        return EncryptionKeyInfo(pem, {"version": "1"})

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        return self._answer("public", name, metadata, PUBLIC[name])

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        return self._answer("private", name, metadata, PRIVATE[name])
