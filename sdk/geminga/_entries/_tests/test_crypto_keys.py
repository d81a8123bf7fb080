"""Sources of keys, times of their reads, and errors for missing ones."""

from __future__ import annotations

import base64
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import geminga
from geminga import DefaultCryptoKeyReader, EncryptionKeyInfo
from geminga import ProducerCryptoFailureAction as OnSend
from geminga._entries.crypto import (
    DATA_KEY_AGE_MAX_S,
    DATA_KEYS_MAX,
    KEYS_TRIED_MAX,
    MISSING_S,
    RETRY_S,
    Opener,
    Sealer,
)
from geminga._tests.crypto_keys import PUBLIC, READER, CountingReader
from geminga.encryption import ProducerCryptoOptions
from geminga.errors import CryptoError
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata


class Sealed:
    """A sealer with its own clock."""

    def __init__(self, reader: geminga.CryptoKeyReader, action: OnSend = OnSend.FAIL) -> None:
        self.now_ms = 5_000_000
        options = ProducerCryptoOptions(["ec"], reader, action)
        self.sealer = Sealer(options, lambda: self.now_ms)

    def value(self) -> bytes:
        metadata = MessageMetadata()
        self.sealer.seal(metadata, b"payload")
        return metadata.encryption_keys[0].value


def test_the_data_key_changes_every_four_hours() -> None:
    reader = CountingReader()
    sealed = Sealed(reader)
    sealed.sealer.prepare()
    first = sealed.value()
    sealed.now_ms += round(DATA_KEY_AGE_MAX_S * 1000) - 1
    assert sealed.value() == first
    assert len(reader.asked) == 1
    sealed.now_ms += 1
    second = sealed.value()
    assert second != first
    assert sealed.value() == second
    assert len(reader.asked) == 2


def test_a_renewal_that_fails_leaves_the_key_and_is_tried_again() -> None:
    reader = CountingReader()
    sealed = Sealed(reader)
    first = sealed.value()
    reader.fails = True
    sealed.now_ms += round(DATA_KEY_AGE_MAX_S * 1000)
    assert sealed.value() == first
    assert sealed.value() == first
    assert len(reader.asked) == 2
    reader.fails = False
    sealed.now_ms += round(RETRY_S * 1000)
    assert sealed.value() != first


def test_keys_that_come_later() -> None:
    reader = CountingReader()
    reader.fails = True
    sealed = Sealed(reader)
    with pytest.raises(CryptoError, match="'ec'"):
        sealed.value()
    reader.fails = False
    with pytest.raises(CryptoError, match="'ec'"):
        sealed.value()
    sealed.now_ms += round(RETRY_S * 1000)
    assert sealed.value()


def sealed_by(keys: list[str]) -> tuple[MessageMetadata, bytes]:
    metadata = MessageMetadata()
    sealer = Sealer(ProducerCryptoOptions(keys, CountingReader()), lambda: 0)
    return metadata, sealer.seal(metadata, b"payload")


def test_a_private_key_is_asked_for_once() -> None:
    reader = CountingReader()
    opener = Opener(reader)
    metadata, payload = sealed_by(["ec", "rsa"])
    for now_s in (0.0, 5.0, DATA_KEY_AGE_MAX_S - 1):
        assert opener.open(metadata, payload, now_s) == b"payload"
    assert reader.asked == [("private", "ec", {"version": "1"})]
    assert opener.open(metadata, payload, DATA_KEY_AGE_MAX_S) == b"payload"
    assert len(reader.asked) == 2


def test_a_missing_key_is_asked_for_again_a_little_later() -> None:
    reader = CountingReader()
    reader.fails = True
    opener = Opener(reader)
    metadata, payload = sealed_by(["ec"])
    for _ in range(10):
        with pytest.raises(CryptoError, match="LookupError for the private key 'ec'"):
            opener.open(metadata, payload, 0.0)
    assert len(reader.asked) == 1
    reader.fails = False
    assert opener.open(metadata, payload, MISSING_S) == b"payload"


def test_a_key_that_is_missing_isnt_asked_for_while_another_does() -> None:
    asked: list[str] = []

    class Half(CountingReader):
        def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
            asked.append(name)
            if name == "rsa":
                raise CryptoError("there is none")
            return super().get_private_key(name, metadata)

    opener = Opener(Half())
    metadata, payload = sealed_by(["rsa", "ec"])
    for now_s in (0.0, 2 * MISSING_S, 4 * MISSING_S):
        assert opener.open(metadata, payload, now_s) == b"payload"
    assert asked == ["rsa", "ec"]


def test_a_message_with_very_many_keys_costs_little() -> None:
    reader = CountingReader()
    reader.fails = True
    metadata = MessageMetadata()
    for n in range(50_000):
        metadata.encryption_keys.add(key="ec", value=n.to_bytes(4, "big"))
    with pytest.raises(CryptoError) as caught:
        Opener(reader).open(metadata, b"", 0.0)
    assert len(reader.asked) == KEYS_TRIED_MAX
    assert len(str(caught.value)) < 1000


ENCRYPTED = st.tuples(
    st.sampled_from(["ec", "rsa", "gone"]), st.binary(max_size=150), st.binary(max_size=20)
)


@given(
    keys=st.lists(ENCRYPTED, min_size=1, max_size=4),
    iv=st.binary(max_size=150),
    payload=st.binary(max_size=60),
    goes=st.booleans(),
)
def test_whatever_a_producer_writes(
    keys: list[tuple[str, bytes, bytes]], iv: bytes, payload: bytes, goes: bool
) -> None:
    """It is read, or raises CryptoError; other keys, even invalid ones, have no effect."""
    metadata, sealed = sealed_by(["ec"])
    good = metadata.encryption_keys[0]
    nonsense = MessageMetadata(encryption_param=metadata.encryption_param if goes else iv)
    for name, value, text in keys:
        nonsense.encryption_keys.add(key=name, value=value).metadata.add(key="k", value=text.hex())
    opener = Opener(READER)
    if goes:
        nonsense.encryption_keys.append(good)
        assert opener.open(nonsense, sealed, 0.0) == b"payload"
    else:
        with pytest.raises(CryptoError):
            opener.open(nonsense, payload, 0.0)


def test_what_is_remembered_is_bounded() -> None:
    reader = CountingReader()
    reader.fails = True
    opener = Opener(reader)
    metadata = MessageMetadata()
    metadata.encryption_keys.add(key="k", value=b"")
    for n in range(DATA_KEYS_MAX + 10):
        metadata.encryption_keys[0].value = n.to_bytes(4, "big")
        with pytest.raises(CryptoError):
            opener.open(metadata, b"", 0.0)
    assert len(opener._known) == DATA_KEYS_MAX


def test_damaged_payloads_and_metadata_are_refused() -> None:
    opener = Opener(READER)
    metadata, payload = sealed_by(["ec"])
    for bad in (b"", payload[:-1], payload + b"x"):
        with pytest.raises(CryptoError, match="key 'ec': the payload was changed"):
            opener.open(metadata, bad, 0.0)
    metadata.encryption_param = b""
    with pytest.raises(CryptoError, match="'ec'"):
        opener.open(metadata, payload, 0.0)
    with pytest.raises(CryptoError, match="no crypto_key_reader"):
        Opener(None).open(metadata, payload, 0.0)


def test_where_keys_may_come_from(tmp_path: Path) -> None:
    file = tmp_path / "a key.pem"
    file.write_bytes(PUBLIC["ec"])
    encoded = base64.b64encode(PUBLIC["ec"]).decode()
    for source in (
        file,
        str(file),
        file.as_uri(),
        f"data:application/x-pem-file;base64,{encoded}",
        PUBLIC["ec"],
        PUBLIC["ec"].decode(),
    ):
        reader = DefaultCryptoKeyReader(source, public_keys={"mine": PUBLIC["rsa"]})
        assert reader.get_public_key("any", {}).key == PUBLIC["ec"]
        assert reader.get_public_key("mine", {}).key == PUBLIC["rsa"]
        assert encoded[-40:-5] not in repr(reader)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "there is no private key 'k'"),
        ("/no/such/file.pem", "private key 'k' can't be read: No such file"),
        ("file:///no/such/file.pem", "private key 'k': /no/such/file.pem can't be read"),
        ("data:application/x-pem-file;base64,$$hush", "private key 'k': the data: URL is not"),
    ],
)
def test_keys_that_arent_there(source: str | None, reason: str) -> None:
    reader = DefaultCryptoKeyReader(default_private_key=source)
    with pytest.raises(CryptoError, match=reason) as caught:
        reader.get_private_key("k", {})
    assert "hush" not in str(caught.value)
    with pytest.raises(CryptoError, match="no public key"):
        reader.get_public_key("k", {})


def test_keys_that_cant_be_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hush = "-----BEGIN PUBLIC KEY-----\nhush\n-----END PUBLIC KEY-----"
    sealed = Sealed(DefaultCryptoKeyReader(hush))
    with pytest.raises(CryptoError, match="public key 'ec' can't be used: it is no public key"):
        sealed.value()
    metadata, payload = sealed_by(["ec"])
    with pytest.raises(CryptoError, match="private key 'ec' can't be used: it is no private key"):
        Opener(DefaultCryptoKeyReader(default_private_key=hush)).open(metadata, payload, 0.0)
    assert "hush" not in caplog.text
    assert "hush" not in repr(EncryptionKeyInfo(hush.encode()))

    class Odd(CountingReader):
        def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
            return hush.encode()  # type: ignore[return-value]

    with pytest.raises(CryptoError, match="returned a bytes for the public key 'ec'"):
        Sealed(Odd()).value()
    for key, metadata in (("hush", {}), (b"", {"a": 1}), (b"", None)):
        with pytest.raises(geminga.InvalidArgumentError) as refused:
            EncryptionKeyInfo(key, metadata)  # type: ignore[arg-type]
        assert "hush" not in str(refused.value)
    with pytest.raises(geminga.InvalidArgumentError, match="keys must be"):
        DefaultCryptoKeyReader(5)  # type: ignore[arg-type]


def test_the_library_is_needed_for_encryption_alone() -> None:
    code = """
import sys
sys.modules["cryptography"] = None
import geminga, geminga.client, geminga.consumer, geminga.producer
from geminga._entries.crypto import Opener
Opener(None)
try:
    Opener(geminga.DefaultCryptoKeyReader())
except geminga.CryptoError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ("cryptography is not installed; it comes with geminga[encryption]\n"), (
        done.stderr
    )
