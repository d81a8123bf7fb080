"""Encryption of sent and decryption of received messages (spec SDK-10; ProducerImpl.encryptMessage
and ConsumerImpl.decryptPayloadIfNeeded of the Java client).

The cryptography is in `geminga_protocol.encryption`, which is imported on use, as its library comes
with an extra.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from geminga._options.callbacks import FAILURES
from geminga.encryption import (
    CryptoKeyReader,
    EncryptionContext,
    EncryptionKeyInfo,
    ProducerCryptoFailureAction,
    ProducerCryptoOptions,
)
from geminga.errors import CryptoError
from geminga_protocol.pb.pulsar_api_pb2 import EncryptionKeys, KeyValue, MessageMetadata

if TYPE_CHECKING:
    from geminga_protocol.encryption import DataKey

logger = logging.getLogger("geminga")

DATA_KEY_AGE_MAX_S = 4 * 3600.0
"""Life of a producer's data key, and of a consumer's cached one, as in both official clients."""
DATA_KEY_USES_MAX = 1 << 31
"""A data key's bound of messages: IVs are random, and must not repeat."""
RETRY_S = 60.0
"""A producer's pause before it reads a failed key again."""
MISSING_S = 1.0
"""A consumer's pause: the key reader isn't called for each message of a missing key."""
REASONS_MAX = 5
"""Bound of a message's keys named in an error."""
DATA_KEYS_MAX = 1000
"""Bound of a consumer's cached data keys; the oldest is dropped."""
KEYS_TRIED_MAX = 100
"""Bound of the tried keys of one message: each may cost a call and a private key operation."""
TAG_BYTES = 16
_IV_BYTES = 12


def require() -> None:
    """Raises CryptoError, naming the extra, if the library isn't installed."""
    try:
        import geminga_protocol.encryption  # noqa: F401
    except ImportError as error:
        raise CryptoError(
            f"{error.name} is not installed; it comes with geminga[encryption]"
        ) from None


def _ask(
    ask: Callable[[str, Mapping[str, str]], object], kind: str, name: str, metadata: dict[str, str]
) -> EncryptionKeyInfo:
    """Call the program's key reader. Raises CryptoError."""
    try:
        found = ask(name, metadata)
    except CryptoError:
        raise
    except FAILURES as error:
        # Without the error's text, which may contain secrets.
        text = f"the key reader raised {type(error).__name__} for the {kind} key {name!r}"
        raise CryptoError(text) from error
    if not isinstance(found, EncryptionKeyInfo):
        text = f"the key reader returned a {type(found).__name__} for the {kind} key {name!r}"
        raise CryptoError(text)
    return found


class Sealing(NamedTuple):
    """A data key and its description in message metadata."""

    data_key: DataKey
    keys: tuple[EncryptionKeys, ...]

    def mark(self, metadata: MessageMetadata) -> None:
        """Write the keys, and a placeholder IV, so that the metadata have their final size."""
        metadata.encryption_keys.extend(self.keys)
        metadata.encryption_param = bytes(_IV_BYTES)

    def seal(self, metadata: MessageMetadata, payload: bytes | memoryview) -> bytes:
        """Encrypt the payload, with a new IV in the metadata."""
        iv = metadata.encryption_param = os.urandom(_IV_BYTES)
        return self.data_key.encrypt(iv, payload)


class Sealer:
    """Encrypts the messages of one producer to one partition."""

    def __init__(self, options: ProducerCryptoOptions, clock_ms: Callable[[], int]) -> None:
        """Raises CryptoError without the library."""
        require()
        self._names = tuple(dict.fromkeys(options.encryption_keys))
        self._reader = options.crypto_key_reader
        self._sends_plain = options.crypto_failure_action is ProducerCryptoFailureAction.SEND
        self._clock_ms = clock_ms
        self._sealing: Sealing | None = None
        self._renew_ms = 0
        self._uses = 0
        self._error = ""

    def prepare(self) -> None:
        """Read the keys, if not yet done. Raises CryptoError, naming the key."""
        if self._sealing is None and self._clock_ms() >= self._renew_ms:
            self._renew()
        if self._sealing is None and not self._sends_plain:
            raise CryptoError(self._error)

    def begin(self, metadata: MessageMetadata) -> Sealing | None:
        """The sealing of a message, with the keys in the metadata; None to send it unencrypted.
        Raises CryptoError.
        """
        self._uses += 1
        if self._uses >= DATA_KEY_USES_MAX or self._clock_ms() >= self._renew_ms:
            self._renew()
        sealing = self._sealing
        if sealing is not None:
            sealing.mark(metadata)
        elif not self._sends_plain:
            raise CryptoError(self._error)
        return sealing

    def seal(self, metadata: MessageMetadata, payload: bytes) -> bytes:
        """The payload to be sent. Raises CryptoError."""
        sealing = self.begin(metadata)
        return payload if sealing is None else sealing.seal(metadata, payload)

    def _renew(self) -> None:
        """Make a new data key. If a key can't be read, it is retried later; until then the previous
        data key is used, if there is one.
        """
        self._uses = 0
        try:
            self._sealing = self._make()
            self._renew_ms = self._clock_ms() + round(DATA_KEY_AGE_MAX_S * 1000)
        except CryptoError as error:
            self._error = str(error)
            self._renew_ms = self._clock_ms() + round(RETRY_S * 1000)
            then = "messages are sent in plain" if self._sends_plain else "messages fail"
            if self._sealing is not None:
                then = "the data key stays as it was"
            logger.warning("%s; %s", error, then)

    def _make(self) -> Sealing:
        from geminga_protocol import encryption

        assert self._reader is not None
        secret = os.urandom(encryption.DATA_KEY_BYTES)
        keys: list[EncryptionKeys] = []
        for name in self._names:
            info = _ask(self._reader.get_public_key, "public", name, {})
            try:
                value = encryption.encrypt_data_key(encryption.load_public_key(info.key), secret)
            except encryption.KeyUnusable as error:
                raise CryptoError(f"public key {name!r} can't be used: {error}") from None
            metadata = [KeyValue(key=key, value=text) for key, text in info.metadata.items()]
            keys.append(EncryptionKeys(key=name, value=value, metadata=metadata))
        return Sealing(encryption.DataKey(secret), tuple(keys))


class _Known(NamedTuple):
    """A decrypted data key, or the error."""

    data_key: DataKey | None
    error: str
    until_s: float


class Opener:
    """Decrypts the messages of one consumer from one partition."""

    def __init__(self, reader: CryptoKeyReader | None) -> None:
        """Raises CryptoError if there is a reader but no library."""
        if reader is not None:
            require()
        self._reader = reader
        self._known: dict[bytes, _Known] = {}

    def open(self, metadata: MessageMetadata, payload: bytes, now_s: float) -> bytes:
        """The payload. Raises CryptoError, with the error of each key."""
        if self._reader is None:
            names = ", ".join(repr(each.key) for each in metadata.encryption_keys[:REASONS_MAX])
            raise CryptoError(f"encrypted for {names}, and there is no crypto_key_reader")
        from geminga_protocol.encryption import Undecryptable

        reasons: list[str] = []
        known_first = sorted(
            metadata.encryption_keys[:KEYS_TRIED_MAX],
            key=lambda each: not self._is_open(each.value, now_s),
        )
        for each in known_first:
            known = self._known.get(each.value)
            if known is None or now_s >= known.until_s:
                known = self._decrypt(each, now_s)
            if known.data_key is None:
                reasons.append(known.error)
                continue
            try:
                return known.data_key.decrypt(metadata.encryption_param, payload)
            except Undecryptable as error:
                reasons.append(f"key {each.key!r}: {error}")
        more = f"; and {len(reasons) - REASONS_MAX} more" if len(reasons) > REASONS_MAX else ""
        raise CryptoError("; ".join(reasons[:REASONS_MAX]) + more)

    def _is_open(self, value: bytes, now_s: float) -> bool:
        known = self._known.get(value)
        return known is not None and known.data_key is not None and now_s < known.until_s

    def _decrypt(self, keys: EncryptionKeys, now_s: float) -> _Known:
        try:
            known = _Known(self._data_key(keys), "", now_s + DATA_KEY_AGE_MAX_S)
        except CryptoError as error:
            known = _Known(None, str(error), now_s + MISSING_S)
        self._known.pop(keys.value, None)
        if len(self._known) >= DATA_KEYS_MAX:
            del self._known[next(iter(self._known))]
        self._known[keys.value] = known
        return known

    def _data_key(self, keys: EncryptionKeys) -> DataKey:
        from geminga_protocol import encryption

        assert self._reader is not None
        name = keys.key
        metadata = {pair.key: pair.value for pair in keys.metadata}
        info = _ask(self._reader.get_private_key, "private", name, metadata)
        try:
            private = encryption.load_private_key(info.key)
            return encryption.DataKey(encryption.decrypt_data_key(private, keys.value))
        except encryption.KeyUnusable as error:
            raise CryptoError(f"private key {name!r} can't be used: {error}") from None
        except encryption.Undecryptable as error:
            raise CryptoError(f"private key {name!r}: {error}") from None


def context_of(metadata: MessageMetadata, is_encrypted: bool) -> EncryptionContext | None:
    """How an entry was encrypted; None if it was not."""
    if not metadata.encryption_keys:
        return None
    return EncryptionContext(
        keys={
            each.key: EncryptionKeyInfo(
                each.value, {pair.key: pair.value for pair in each.metadata}
            )
            for each in metadata.encryption_keys
        },
        param=metadata.encryption_param,
        compression_type=int(metadata.compression),
        uncompressed_size_bytes=metadata.uncompressed_size,
        batch_size=(
            metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else None
        ),
        is_encrypted=is_encrypted,
    )
