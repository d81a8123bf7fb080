"""End-to-end encryption of payloads (spec SDK-10, PIP-4), byte for byte as in the official clients
(MessageCryptoBc of the Java client, MessageCrypto of the C++ client).

A producer has a *data key*, 32 random bytes. Each payload, after compression, is encrypted with it
by AES-256-GCM with a fresh IV; the tag of 16 bytes follows the ciphertext. The message
metadata carry the IV (`encryption_param`) and, for each public key by its name, the data key
encrypted with that (`encryption_keys`): RSA by OAEP with SHA-1, EC by ECIES as BouncyCastle does.
`encryption_algo` stays unset, as both clients leave it. Nothing of the metadata is authenticated.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re

from cryptography import x509
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DATA_KEY_BYTES = 32
TAG_BYTES = 16
"""Bytes that encryption adds to a payload."""
KEY_BYTES_MAX = 64 * 1024
"""Longer keys are refused unread."""

PRIVATE_KEYS_MAX = 32
"""Cached private keys: the check of an RSA key of 2048 bits takes 40 ms, and each producer's data
key needs it."""

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_OAEP = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
_MAC_KEY_BYTES = 16
_MAC_BYTES = 20
_PARAMETERS = re.compile(rb"-----BEGIN EC PARAMETERS-----.*?-----END EC PARAMETERS-----\s*", re.S)


class KeyUnusable(ValueError):
    """A key can't be read or has an unsupported kind. The text holds no part of the key."""


class Undecryptable(ValueError):
    """Encrypted for another key, or the bytes were changed."""


def load_public_key(data: bytes) -> PublicKey:
    """An RSA or EC public key from PEM: a key, or a certificate; `EC PARAMETERS` may go before.
    Raises KeyUnusable.
    """
    pem = _pem(data, "public")
    try:
        if b"-----BEGIN CERTIFICATE-----" in pem:
            key: object = x509.load_pem_x509_certificate(pem).public_key()
        else:
            key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnusable("it is no public key in PEM, or its curve is not known") from None
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        raise KeyUnusable("it is neither an RSA nor an EC key")
    return key


@functools.lru_cache(maxsize=PRIVATE_KEYS_MAX)
def load_private_key(data: bytes) -> PrivateKey:
    """An RSA or EC private key from PEM without password, of its own form or PKCS#8; `EC
    PARAMETERS` may go before. Raises KeyUnusable.
    """
    pem = _pem(data, "private")
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        text = "it is no private key in PEM, has a password, or its curve is not known"
        raise KeyUnusable(text) from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise KeyUnusable("it is neither an RSA nor an EC key")
    return key


def _pem(data: bytes, kind: str) -> bytes:
    if len(data) > KEY_BYTES_MAX:
        raise KeyUnusable(f"it has {len(data)} bytes, which no {kind} key needs")
    return _PARAMETERS.sub(b"", data)


def encrypt_data_key(
    key: PublicKey, data_key: bytes, ephemeral: ec.EllipticCurvePrivateKey | None = None
) -> bytes:
    """The data key, encrypted for a public key. Raises KeyUnusable for an RSA key that is
    too short.

    With EC, `ephemeral` is the key of this encryption, by default a new one.
    """
    if isinstance(key, rsa.RSAPublicKey):
        try:
            return key.encrypt(data_key, _OAEP)
        except ValueError:
            raise KeyUnusable(f"an RSA key of {key.key_size} bits is too short") from None
    own = ephemeral or ec.generate_private_key(key.curve)
    point = own.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    mac_key, stream = _ecies_keys(point, own.exchange(ec.ECDH(), key), len(data_key))
    text = _xor(data_key, stream)
    return point + text + _ecies_mac(mac_key, text)


def decrypt_data_key(key: PrivateKey, value: bytes) -> bytes:
    """Inverse of `encrypt_data_key`, also for other clients' bytes. Raises Undecryptable."""
    if isinstance(key, rsa.RSAPrivateKey):
        try:
            data_key = key.decrypt(value, _OAEP)
        except ValueError:
            raise Undecryptable("the data key is not for this private key") from None
    else:
        data_key = _ecies_decrypt(key, value)
    if len(data_key) not in (16, 24, DATA_KEY_BYTES):
        raise Undecryptable(f"a data key of {len(data_key)} bytes is none of AES")
    return data_key


def _ecies_decrypt(key: ec.EllipticCurvePrivateKey, value: bytes) -> bytes:
    field_bytes = (key.key_size + 7) // 8
    point_bytes = 1 + (2 * field_bytes if value[:1] == b"\x04" else field_bytes)
    point, text, mac = (
        value[:point_bytes],
        value[point_bytes:-_MAC_BYTES],
        value[max(point_bytes, len(value) - _MAC_BYTES) :],
    )
    try:
        public = ec.EllipticCurvePublicKey.from_encoded_point(key.curve, point)
        shared = key.exchange(ec.ECDH(), public)
    except ValueError:
        raise Undecryptable("the data key is not for a key of this curve") from None
    mac_key, stream = _ecies_keys(point, shared, len(text))
    if not hmac.compare_digest(mac, _ecies_mac(mac_key, text)):
        raise Undecryptable("the data key is not for this private key")
    return _xor(text, stream)


def _ecies_keys(point: bytes, shared: bytes, size: int) -> tuple[bytes, bytes]:
    """Key of the MAC and the bytes to XOR with: KDF2 of the ephemeral point and the shared secret
    (IESEngine of BouncyCastle, in its stream mode).
    """
    seed = point + shared
    wanted = _MAC_KEY_BYTES + size
    blocks = -(-wanted // 20)
    made = b"".join(
        hashlib.sha1(seed + number.to_bytes(4, "big")).digest() for number in range(1, blocks + 1)
    )
    return made[:_MAC_KEY_BYTES], made[_MAC_KEY_BYTES:wanted]


def _ecies_mac(key: bytes, text: bytes) -> bytes:
    # Followed by the length of the encoding vector, which is empty.
    return hmac.digest(key, text + bytes(8), "sha1")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


class DataKey:
    """A data key, ready for use. Its `repr` doesn't show it."""

    __slots__ = ("_cipher",)

    def __init__(self, data_key: bytes) -> None:
        self._cipher = AESGCM(data_key)

    def encrypt(self, iv: bytes, payload: bytes | memoryview) -> bytes:
        """The encrypted payload with its tag. Never use an IV twice."""
        return self._cipher.encrypt(iv, payload, None)

    def decrypt(self, iv: bytes, encrypted: bytes | memoryview) -> bytes:
        """The payload. Raises Undecryptable if the key, the IV or any byte is wrong."""
        try:
            return self._cipher.decrypt(iv, encrypted, None)
        except (InvalidTag, ValueError):
            raise Undecryptable("the payload was changed, or is of another data key") from None
