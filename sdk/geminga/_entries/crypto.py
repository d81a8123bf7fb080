"""Encrypting what a producer sends and decrypting what a consumer gets (spec SDK-10; ProducerImpl.
encryptMessage and ConsumerImpl.decryptPayloadIfNeeded of the Java client).

The keys' arithmetic is `geminga_protocol.encryption`; it is imported when it is needed, since it
needs a library that only an extra brings.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

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
"""A producer makes a new data key after that time, and a consumer forgets one, as both official
clients do."""
DATA_KEY_USES_MAX = 1 << 31
"""Or after that many messages: IVs are random, and must not meet."""
RETRY_S = 60.0
"""Keys that can't be read are asked for again after that time, by a producer."""
MISSING_S = 1.0
"""The same by a consumer: the reader isn't called for each message of a key that isn't there."""
REASONS_MAX = 5
"""Keys of a message that an error tells of."""
DATA_KEYS_MAX = 1000
"""Decrypted data keys that a consumer remembers; the oldest is forgotten."""
KEYS_TRIED_MAX = 100
"""Of one message: each may cost a question and a private key's operation, and a message has room
for many."""
TAG_BYTES = 16
_IV_BYTES = 12


def require() -> None:
    """Raises CryptoError, naming the extra, if the library isn't there."""
    try:
        import geminga_protocol.encryption  # noqa: F401
    except ImportError as error:
        raise CryptoError(
            f"{error.name} is not installed; it comes with geminga[encryption]"
        ) from None


def _ask(
    ask: Callable[[str, Mapping[str, str]], object], kind: str, name: str, metadata: dict[str, str]
) -> EncryptionKeyInfo:
    """What the program's key reader answers. Raises CryptoError."""
    try:
        found = ask(name, metadata)
    except CryptoError:
        raise
    except Exception as error:
        # Not its text: nobody knows what that repeats.
        text = f"the key reader raised {type(error).__name__} for the {kind} key {name!r}"
        raise CryptoError(text) from error
    if not isinstance(found, EncryptionKeyInfo):
        text = f"the key reader returned a {type(found).__name__} for the {kind} key {name!r}"
        raise CryptoError(text)
    return found


class Sealing(NamedTuple):
    """A data key and what the metadata of messages say of it."""

    data_key: DataKey
    keys: tuple[EncryptionKeys, ...]

    def mark(self, metadata: MessageMetadata) -> None:
        """Write the keys, and an IV that `seal` replaces: the metadata have their full size."""
        metadata.encryption_keys.extend(self.keys)
        metadata.encryption_param = bytes(_IV_BYTES)

    def seal(self, metadata: MessageMetadata, payload: bytes | memoryview) -> bytes:
        """The payload encrypted, with an IV of its own in the metadata."""
        iv = metadata.encryption_param = os.urandom(_IV_BYTES)
        return self.data_key.encrypt(iv, payload)


class Sealer:
    """Encrypts what one producer sends to one partition."""

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
        """Read the keys, if they weren't yet. Raises CryptoError, naming the key."""
        if self._sealing is None and self._clock_ms() >= self._renew_ms:
            self._renew()
        if self._sealing is None and not self._sends_plain:
            raise CryptoError(self._error)

    def begin(self, metadata: MessageMetadata) -> Sealing | None:
        """What a message is to be encrypted with; the metadata tell the keys. None if it is to go
        as it is. Raises CryptoError.
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
        """A payload as it is to be sent. Raises CryptoError."""
        sealing = self.begin(metadata)
        return payload if sealing is None else sealing.seal(metadata, payload)

    def _renew(self) -> None:
        """A new data key. What can't be read is asked for again later: until then messages go with
        the key that was, if there was one.
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
    """A data key as it stands in messages: decrypted, or why it can't be."""

    data_key: DataKey | None
    error: str
    until_s: float


class Opener:
    """Decrypts what one consumer gets from one partition."""

    def __init__(self, reader: CryptoKeyReader | None) -> None:
        """Raises CryptoError without the library, if there is a reader."""
        if reader is not None:
            require()
        self._reader = reader
        self._known: dict[bytes, _Known] = {}

    def open(self, metadata: MessageMetadata, payload: bytes, now_s: float) -> bytes:
        """The payload. Raises CryptoError, saying of the keys why they don't do."""
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
    """How an entry was encrypted, None if it wasn't."""
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
