"""End-to-end encryption (spec SDK-10, PIP-4): key sources, and actions if a key is missing.

A producer with `encryption_keys` encrypts payloads so that only the holders of the private keys can
read them; brokers see keys, properties and sizes, not payloads. A consumer needs a
`crypto_key_reader` that has one of the private keys. Needs the extra `geminga[encryption]`.
"""

from __future__ import annotations

import enum
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from geminga._options.checks import of_enum, texts
from geminga.errors import CryptoError, InvalidArgumentError
from geminga_runtime.auth.key_files import KeySourceError, read_key

KeySource = str | bytes | os.PathLike[str]
"""A key in PEM: `file:///...`, `data:application/x-pem-file;base64,...`, a path, or its bytes."""


class ProducerCryptoFailureAction(enum.Enum):
    """The action for a message that can't be encrypted."""

    FAIL = "fail"
    """It fails with CryptoError; so does creating a producer."""
    SEND = "send"
    """It is sent unencrypted."""


class ConsumerCryptoFailureAction(enum.Enum):
    """The action for a message that can't be decrypted."""

    FAIL = "fail"
    """It is not delivered to the program and stays unacknowledged: on a Shared or Key_Shared
    subscription it is redelivered after `negative_ack_redelivery_delay_s`, on others when the
    consumer reconnects. A cumulative acknowledgement of a later message includes it.
    """
    DISCARD = "discard"
    """It is acknowledged, and so lost."""
    CONSUME = "consume"
    """It is delivered encrypted, a batch as one message, a large message chunk by chunk;
    `Message.encryption_context` has the parameters for decrypting it.
    """


@dataclass(frozen=True)
class EncryptionKeyInfo:
    """A key (from a key reader: PEM; in an encryption context: the encrypted data key), and
    metadata sent with it, by which consumers find the private key.
    """

    key: bytes = field(repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes):
            raise InvalidArgumentError(f"key must be bytes, not {type(self.key).__name__}")
        texts(self.metadata, "metadata")


class CryptoKeyReader(ABC):
    """Finds keys by name (CryptoKeyReader of the Java client).

    It is called in the client's event loop, on first use of a key and again after four hours, so it
    must not take long. An error that it raises counts as a missing key.
    """

    @abstractmethod
    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """The public key or certificate with that name; the metadata are empty."""

    @abstractmethod
    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """The private key; the metadata are those of the producer's public key."""


class DefaultCryptoKeyReader(CryptoKeyReader):
    """Keys from files, `data:` URLs or memory (DefaultCryptoKeyReader of the Java client). The
    defaults are for names without a key of their own. Files are read each time.
    """

    def __init__(
        self,
        default_public_key: KeySource | None = None,
        default_private_key: KeySource | None = None,
        *,
        public_keys: Mapping[str, KeySource] | None = None,
        private_keys: Mapping[str, KeySource] | None = None,
    ) -> None:
        self._public = dict(public_keys or {})
        self._private = dict(private_keys or {})
        self._default_public = default_public_key
        self._default_private = default_private_key
        given = (default_public_key, default_private_key)
        for source in (*self._public.values(), *self._private.values(), *given):
            if source is not None and not isinstance(source, str | bytes | os.PathLike):
                raise InvalidArgumentError(
                    f"keys must be texts, bytes or paths, not {type(source)}"
                )

    def __repr__(self) -> str:
        return f"<DefaultCryptoKeyReader of {sorted({*self._public, *self._private})}>"

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """Raises CryptoError."""
        return _read("public", name, self._public.get(name, self._default_public))

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """Raises CryptoError."""
        return _read("private", name, self._private.get(name, self._default_private))


def _read(kind: str, name: str, source: KeySource | None) -> EncryptionKeyInfo:
    if source is None:
        raise CryptoError(f"there is no {kind} key {name!r}")
    if isinstance(source, bytes):
        return EncryptionKeyInfo(source)
    try:
        if not isinstance(source, str):
            return EncryptionKeyInfo(Path(source).read_bytes())
        if source.startswith("-----BEGIN"):
            return EncryptionKeyInfo(source.encode())
        if source.startswith(("data:", "file:")):
            return EncryptionKeyInfo(read_key(source))
        return EncryptionKeyInfo(Path(source).read_bytes())
    except KeySourceError as error:
        raise CryptoError(f"{kind} key {name!r}: {error}") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CryptoError(f"{kind} key {name!r} can't be read: {reason}") from None


@dataclass(frozen=True)
class EncryptionContext:
    """How a message was encrypted (EncryptionContext of the Java client).

    `keys` are the data key encrypted by each public key, `param` is the IV. With `is_encrypted` the
    message's payload is as stored by the broker: after decryption it must be decompressed, and
    split if it is a batch of `batch_size`.
    """

    keys: Mapping[str, EncryptionKeyInfo]
    param: bytes
    compression_type: int
    uncompressed_size_bytes: int
    batch_size: int | None
    is_encrypted: bool


@dataclass(frozen=True)
class ProducerCryptoOptions:
    """A producer's encryption options. The data key is encrypted by each of the `encryption_keys`
    (names of public keys); the holder of any of the private keys can decrypt.
    """

    encryption_keys: Sequence[str] = ()
    crypto_key_reader: CryptoKeyReader | None = None
    crypto_failure_action: ProducerCryptoFailureAction = ProducerCryptoFailureAction.FAIL

    def check_crypto(self) -> None:
        """Raises InvalidArgumentError, naming the option."""
        check_key_names(self.encryption_keys)
        check_reader(self.crypto_key_reader)
        of_enum(self, "crypto_failure_action", ProducerCryptoFailureAction)
        if self.encryption_keys and self.crypto_key_reader is None:
            raise InvalidArgumentError("encryption_keys needs a crypto_key_reader")


def check_reader(reader: object) -> None:
    """Raises InvalidArgumentError unless it is a CryptoKeyReader or None; doesn't repeat what it
    is.
    """
    if reader is not None and not isinstance(reader, CryptoKeyReader):
        kind = type(reader).__name__
        raise InvalidArgumentError(f"crypto_key_reader must be a CryptoKeyReader, not a {kind}")


def check_key_names(names: object) -> None:
    """Raises InvalidArgumentError unless it is a sequence of texts."""
    if (
        not isinstance(names, Sequence)
        or isinstance(names, str | bytes)
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise InvalidArgumentError("encryption_keys must be a list of names of keys")


class ProducerCryptoKeywords(TypedDict, total=False):
    """Keywords of `ProducerCryptoOptions`."""

    encryption_keys: Sequence[str]
    crypto_key_reader: CryptoKeyReader | None
    crypto_failure_action: ProducerCryptoFailureAction


@dataclass(frozen=True)
class ConsumerCryptoOptions:
    """The part of consumers, readers and table views."""

    crypto_key_reader: CryptoKeyReader | None = None
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL

    def __post_init__(self) -> None:
        self.check_crypto()

    def check_crypto(self) -> None:
        """Raises InvalidArgumentError, naming the option."""
        check_reader(self.crypto_key_reader)
        of_enum(self, "crypto_failure_action", ConsumerCryptoFailureAction)


class ConsumerCryptoKeywords(TypedDict, total=False):
    """Keywords of `ConsumerCryptoOptions`."""

    crypto_key_reader: CryptoKeyReader | None
    crypto_failure_action: ConsumerCryptoFailureAction
