"""Against data of the Java and C++ clients, bad keys, and round trips."""

from __future__ import annotations

import base64
import datetime as dt
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol import encryption
from geminga_protocol.encryption import DataKey, KeyUnusable, Undecryptable

RSA = """\
-----BEGIN RSA PRIVATE KEY-----
MIICXAIBAAKBgQDRMcy9JInE3hknp8TqyDY5/5G3Py3NW/DaQ/Yjm9yaWjFDT4lS
PuV/5RcN3StqjuXPxjJMVvLGydeZQcO3G6bwVh40IyihqcpwrPpwN6L3pEikJBP5
y8g2lioSauEEsECDoT5ORACudC2gqSVPRPwBNBzRRJDjQWBtm8HLUIJIkwIDAQAB
AoGAcJ0uamPRBnnJcN+P0hQVnQNHni4UqghkkBsl1eWBzFXhTyrx8aSKR188GeqG
BMcIT+GSEiZ8aycdORN+GIR6SM3FzpqzL/b/6GQtdymZk6MpXP4GehMYpk1TSJVz
BOF3tj435zYMF0qDbqkgm0nrHuSx9N8peLqi34vP0ERSdYECQQDvdb358BoBkOLl
oNkPwfDb/IscW6tawUYAwu+HT3j3KQPQfzw6XQ0JKNKdJFEDC4qoR36dJPCbgoHY
RnVRXr5nAkEA36Tjhfi2uD9c/LaexGBKuXVP5EjKtwP4FjQ94Hc7dyv+NH1RjyFF
Eh/n2JO2FU98Hs83XMgS5NMqd46jDo9w9QJBAJ1UW8yCj2OmAR3kL5ll0E2JQRER
vaT0RX0sltntQkoJ3aK4ZibmijERbEeo271HcQOdbbfr1FYoSg2CRYR/3lMCQDXU
+8tArcK1xc0yrA662uG/QibB+sGI3AuEMay5JoAt/7dkvuAD8xtEwMrZ60c/5bGI
0Vus8RdRWPSESe10S40CQBhtUAbUosYosfU6Aw9p/Q2OLzJvKsmqKX7uaNBOFxSR
0hvzFUqcIQ9Tw3EK7JOQtTFd4t4evbVNE8DckyH6T3k=
-----END RSA PRIVATE KEY-----
"""
EC = """\
-----BEGIN EC PARAMETERS-----
BggqhkjOPQMBBw==
-----END EC PARAMETERS-----
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIMHGcjKqYl4BO4+3HnFzp5e7vmI4v1nA0mipUyR7pRpdoAoGCCqGSM49
AwEHoUQDQgAE7j7YMYhFS1E5X5XrSmJuuyfFPzuzU94hsH/l/YSo/RLzNs8TFmKD
TNQHvUg7a22qPT3x5xZf3//QBUACph0L5Q==
-----END EC PRIVATE KEY-----
"""


class Golden(NamedTuple):
    """A payload as another client encrypted it with the public key."""

    private: str
    value: bytes
    iv: bytes
    encrypted: bytes


PAYLOAD = b"hello from Java"
# Of MessageCryptoBc 4.0.7.
GOLDEN = {
    "rsa": Golden(
        RSA,
        bytes.fromhex(
            "36e3f8e3569ae99b8a9f8a627cdd7e08dfe2cbf63d707c50dde84beca06aedb0d846df66931aa199"
            "2066440986897262a86827139f6575ef43eb3e279ca15de9991e420ab3a943608ade97df336baf33"
            "dd74225583d5e672cd42d1267c3835d62006cdb9672b117caa20f7ccc3ddbe048e8009ebae57f7ba"
            "204b5f6813ebfcc2"
        ),
        bytes.fromhex("73698eb955cd1ea5696c7f30"),
        bytes.fromhex("a20ff8f642bcfdd92f68add907fb3ca81ce9f7a2f7f81f0b859c432d21f287"),
    ),
    "ec": Golden(
        EC,
        bytes.fromhex(
            "042a1ea48729b5d15ba0e847bf5e4af6b0fd390c4c2de973d1882f1aa5a4b628c8b181fe3780d147"
            "2b161ce57ba5cfbb3df55a5ff1431a968b736a8f15168c3a69dda9c029d2560bf8e680140abe3403"
            "2f88dd209c14c14e1011898ff1c6d6a664c80653bedb414d78d880806c7328fb3798332af8"
        ),
        bytes.fromhex("956dd9014e08dbdc4b53b699"),
        bytes.fromhex("535b9a1a9510f5734af1ca4c7b72194c66081c8c92430e62e797549f5acb65"),
    ),
}
# Of the C++ client in pulsar-client 3.13.
CPP = Golden(
    RSA,
    bytes.fromhex(
        "b708d1d53f76e828eae34b5fab066eccabfd0452eabd36c7240a90bdde5bbef818f46e4c000c1ddf"
        "25b2bde315e9aceba33081fc3d92e54be24ce1349a492a7680b3e51c0aac81c013b8a2a409d2b079"
        "81b202891f999e383619fb1a8baa64f2b9d76d2bd7adffc4081f6dc48e55dfddf590617437595122"
        "e0c93d2e338aeb5e"
    ),
    bytes.fromhex("13ea980443d497ae16dda673"),
    bytes.fromhex("0eb741a442902ff1949590df414bfda675806098f65b60e0ecd8d526828d"),
)
KEYS = {name: encryption.load_private_key(each.private.encode()) for name, each in GOLDEN.items()}
NAMES = sorted(GOLDEN)


def public_pem(key: encryption.PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@pytest.mark.parametrize("name", NAMES)
def test_encrypted_data_of_the_java_client_is_read(name: str) -> None:
    golden = GOLDEN[name]
    data_key = encryption.decrypt_data_key(KEYS[name], golden.value)
    assert len(data_key) == encryption.DATA_KEY_BYTES
    assert DataKey(data_key).decrypt(golden.iv, golden.encrypted) == PAYLOAD
    # Key and IV determine the ciphertext: ours equals Java's.
    assert DataKey(data_key).encrypt(golden.iv, PAYLOAD) == golden.encrypted


def test_encrypted_data_of_the_cpp_client_is_read() -> None:
    data_key = DataKey(encryption.decrypt_data_key(KEYS["rsa"], CPP.value))
    assert data_key.decrypt(CPP.iv, CPP.encrypted) == b"hello from C++"
    assert data_key.encrypt(CPP.iv, b"hello from C++") == CPP.encrypted


def test_an_ecies_value_is_a_function_of_its_ephemeral_key() -> None:
    """The layout: point, text, MAC; the receiver derives the keys from the ephemeral's point."""
    own = ec.derive_private_key(7, ec.SECP256R1())
    public = encryption.load_public_key(public_pem(KEYS["ec"]))
    data_key = bytes(range(32))
    value = encryption.encrypt_data_key(public, data_key, own)
    assert value == encryption.encrypt_data_key(public, data_key, own)
    assert (len(value), value[0]) == (65 + 32 + 20, 4)
    assert encryption.decrypt_data_key(KEYS["ec"], value) == data_key


@pytest.mark.parametrize("name", NAMES)
@given(data_key=st.binary(min_size=32, max_size=32), payload=st.binary(max_size=300))
def test_round_trip(name: str, data_key: bytes, payload: bytes) -> None:
    public = encryption.load_public_key(public_pem(KEYS[name]))
    value = encryption.encrypt_data_key(public, data_key)
    assert encryption.decrypt_data_key(KEYS[name], value) == data_key
    iv = bytes(12)
    sealed = DataKey(data_key).encrypt(iv, memoryview(payload))
    assert len(sealed) == len(payload) + encryption.TAG_BYTES
    assert DataKey(data_key).decrypt(iv, memoryview(sealed)) == payload


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_changed_value_is_refused(name: str, data: st.DataObject) -> None:
    """Cut anywhere, or with any bit turned (OAEP and MAC cover all of it)."""
    value = GOLDEN[name].value
    at = data.draw(st.integers(0, len(value) * 8 - 1))
    if data.draw(st.booleans()):
        changed = value[: at // 8]
    else:
        number = int.from_bytes(value, "big") ^ (1 << at)
        changed = number.to_bytes(len(value), "big")
    with pytest.raises(Undecryptable):
        encryption.decrypt_data_key(KEYS[name], changed)


@given(at=st.integers(0, (len(PAYLOAD) + 16) * 8 - 1), cut=st.booleans(), iv=st.binary(max_size=40))
def test_a_changed_payload_is_refused(at: int, cut: bool, iv: bytes) -> None:
    golden = GOLDEN["ec"]
    key = DataKey(encryption.decrypt_data_key(KEYS["ec"], golden.value))
    whole = golden.encrypted
    number = int.from_bytes(whole, "big") ^ (1 << at)
    changed = whole[: at // 8] if cut else number.to_bytes(len(whole), "big")
    with pytest.raises(Undecryptable):
        key.decrypt(golden.iv, changed)
    if iv != golden.iv:
        with pytest.raises(Undecryptable):
            key.decrypt(iv, whole)


@pytest.mark.parametrize("name", NAMES)
@given(value=st.binary(max_size=400))
def test_random_bytes_are_refused(name: str, value: bytes) -> None:
    with pytest.raises(Undecryptable):
        encryption.decrypt_data_key(KEYS[name], value)


@given(data=st.binary(max_size=200), kind=st.sampled_from(["EC PRIVATE KEY", "PUBLIC KEY", ""]))
def test_random_keys_are_refused(data: bytes, kind: str) -> None:
    body = base64.b64encode(data)
    pem = b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (kind.encode(), body, kind.encode())
    for load in (encryption.load_private_key, encryption.load_public_key):
        for bad in (data, pem, pem[:-20]):
            with pytest.raises(KeyUnusable):
                load(bad)


def test_a_key_is_checked_once() -> None:
    assert encryption.load_private_key(EC.encode()) is encryption.load_private_key(EC.encode())


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1(), ec.SECP256K1()])
def test_curves_and_forms(curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve)
    value = encryption.encrypt_data_key(key.public_key(), bytes(32))
    assert encryption.decrypt_data_key(key, value) == bytes(32)
    for form in (
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.PrivateFormat.PKCS8,
    ):
        pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        again = encryption.load_private_key(pem)
        assert encryption.decrypt_data_key(again, value) == bytes(32)


def test_a_compressed_point_is_read() -> None:
    """BouncyCastle can be told to write one."""
    key = KEYS["ec"]
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    own = ec.derive_private_key(9, ec.SECP256R1())
    point = own.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    )
    shared = own.exchange(ec.ECDH(), key.public_key())
    mac_key, stream = encryption._ecies_keys(point, shared, 32)
    value = point + stream + encryption._ecies_mac(mac_key, stream)
    assert encryption.decrypt_data_key(key, value) == bytes(32)


def test_a_certificate_holds_a_public_key() -> None:
    key = ec.derive_private_key(3, ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    day = dt.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, day, day)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    value = encryption.encrypt_data_key(encryption.load_public_key(pem), bytes(32))
    assert encryption.decrypt_data_key(key, value) == bytes(32)


def test_key_errors_do_not_show_the_key() -> None:
    other = ed25519.Ed25519PrivateKey.generate()
    none = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = KEYS["rsa"].private_bytes(pem, pkcs8, serialization.BestAvailableEncryption(b"hush"))
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    for load, bad in (
        (encryption.load_public_key, b""),
        (encryption.load_public_key, RSA.encode()),
        (encryption.load_public_key, other.public_key().public_bytes(pem, spki)),
        (encryption.load_public_key, b"-----BEGIN CERTIFICATE-----\nAAAA\n"),
        (encryption.load_private_key, public_pem(KEYS["ec"])),
        (encryption.load_private_key, RSA[:200].encode()),
        (encryption.load_private_key, locked),
        (encryption.load_private_key, other.private_bytes(pem, pkcs8, none)),
        (encryption.load_private_key, bytes(100_000)),
    ):
        with pytest.raises(KeyUnusable) as caught:
            load(bad)
        assert RSA[60:80] not in str(caught.value)
        assert caught.value.__cause__ is None


def test_an_rsa_key_may_be_too_short_or_the_data_key_of_an_odd_length() -> None:
    key = KEYS["rsa"]
    assert isinstance(key, rsa.RSAPrivateKey)
    with pytest.raises(KeyUnusable, match="1024 bits"):
        encryption.encrypt_data_key(key.public_key(), bytes(100))
    with pytest.raises(Undecryptable, match="5 bytes"):
        encryption.decrypt_data_key(key, encryption.encrypt_data_key(key.public_key(), b"12345"))


def test_a_data_keys_repr_does_not_show_it() -> None:
    assert "0000" not in repr(DataKey(bytes(32)))
