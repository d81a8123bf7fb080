"""Decodes a MESSAGE frame: checks, decompresses and splits it into messages (spec SDK-20). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from fastcrc import crc32

from geminga._acknowledging.acks import AckStates, BatchAcks
from geminga._entries.batch_index import index_batch, single_metadata
from geminga._entries.chunks import CHUNKED_MESSAGE_BYTES_MAX, Chunks
from geminga._entries.crypto import Opener
from geminga.encryption import ConsumerCryptoFailureAction
from geminga.errors import CorruptMessageError, CryptoError
from geminga_protocol.ack_set import AckSet
from geminga_protocol.arrivals import MessageRun
from geminga_protocol.chunking import chunk_of
from geminga_protocol.compression import decompress
from geminga_protocol.errors import ProtocolError, RemoteProtocolError
from geminga_protocol.message_id import MessageId
from geminga_protocol.payload import (
    MAGIC_CRC32C,
    decode_metadata,
    peek_broker_entry_metadata,
    split,
    strip_broker_entry_metadata,
    unpack_front,
    verify_checksum,
)
from geminga_protocol.pb.pulsar_api_pb2 import (
    BrokerEntryMetadata,
    CommandAck,
    MessageMetadata,
    SingleMessageMetadata,
)

UNCOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Bound of the size that a compressed entry may announce, and so of the memory it can claim."""
CHUNKS_MAX = 1 << 20
"""Bound of the chunks that a message may announce."""

ValidationError = CommandAck.ValidationError
_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
match_plain = re.compile(
    rb"\x10" + _VARINT + rb"\x18" + _VARINT + rb"(?:\x48" + _VARINT + rb")?", re.DOTALL
).fullmatch
"""The metadata after the producer's name of a message with a payload only: sequence id, time and
size."""


class UndecodableEntry(CorruptMessageError):
    """The entry can't be read; `validation_error` is reported to the broker. With `comes_again` it
    stays unacknowledged; the broker counts it as `messages`.
    """

    def __init__(self, message: str, validation_error: ValidationError | None) -> None:
        super().__init__(message)
        self.validation_error = validation_error
        self.comes_again = False
        self.messages = 1


class Source(Protocol):
    """The partition's consumer that received an entry."""

    topic: str
    partition: int
    opener: Opener
    crypto_failure_action: ConsumerCryptoFailureAction
    generation: int
    """Incremented whenever all untaken messages are dropped."""

    def taken(self, entry: Entry) -> int:
        """`entry.at` messages of the entry were taken. Returns the count for the next call (the
        end of the entry always calls).
        """
        ...


class ReadsValues(Protocol):
    """Reads the values of messages by a schema."""

    def value_of(self, message: Any, /) -> Any:
        """The value of a `Message`."""


class Entry(msgspec.Struct, eq=False):
    """An entry and its taken messages; `indexes` are those to be delivered."""

    ledger_id: int
    entry_id: int
    partition: int
    redelivery_count: int
    ack_set: AckSet
    _metadata: MessageMetadata | bytes
    payload: bytes
    source: Source
    topic: str
    broker_part: bytes = b""
    message_count: int = 1
    bounds: list[int] | None = None
    """The offsets of `index_batch`; None for a single message."""
    chunks: tuple[tuple[int, int], ...] = ()
    """Ledger and entry of the message's chunks except the last one, which is the entry itself."""
    indexes: Sequence[int] = (-1,)
    at: int = 0
    at_call: int = 1
    released: int = 0
    """Number of taken messages that the permits have counted."""
    generation: int = 0
    """The source's epoch at its arrival."""
    value_reader: ReadsValues | None = None
    """Reads the messages' values, if the consumer has a schema."""
    ack_state: BatchAcks | None = None
    """The state of its acknowledged messages; None before the first."""
    ack_states: AckStates | None = None
    """States shared with other deliveries of the entry over the same connection."""
    is_encrypted: bool = False
    """Whether the payload is still encrypted, as it couldn't be decrypted."""
    _size_bytes: int = -1

    @property
    def metadata(self) -> MessageMetadata:
        """The entry's metadata; those of plain messages are parsed on use.

        Raises RemoteProtocolError if they are invalid.
        """
        found = self._metadata
        if isinstance(found, bytes):
            found = self._metadata = decode_metadata(found)
        return found

    def id_of(self, index: int) -> MessageId:
        """A message's id."""
        if self.bounds is not None:
            return MessageId(
                self.ledger_id, self.entry_id, self.partition, index, self.message_count
            )
        first = MessageId(*self.chunks[0], self.partition) if self.chunks else None
        return MessageId(self.ledger_id, self.entry_id, self.partition, first_chunk=first)

    def payload_of(self, index: int) -> bytes:
        """A message's payload."""
        bounds = self.bounds
        if bounds is None:
            return self.payload
        return self.payload[bounds[2 * index + 1] : bounds[2 * index + 2] - 4]

    def size_of(self, index: int) -> int:
        """Bytes of a message's payload."""
        bounds = self.bounds
        if bounds is None:
            return len(self.payload)
        return bounds[2 * index + 2] - 4 - bounds[2 * index + 1]

    def size_of_all(self, indexes: Sequence[int]) -> int:
        """Bytes of the payloads of several."""
        bounds = self.bounds
        if not indexes:
            return 0
        if bounds is None:
            return len(self.payload)
        if isinstance(indexes, range):
            # A range is contiguous: sums of slices need no step per message.
            at, end = indexes[0], indexes[-1] + 1
            stops = sum(bounds[2 * at + 2 : 2 * end + 1 : 2])
            return stops - sum(bounds[2 * at + 1 : 2 * end : 2]) - 4 * len(indexes)
        return sum(map(self.size_of, indexes))

    def size_between(self, start: int, stop: int) -> int:
        """Bytes of the payloads of `indexes[start:stop]`; the sum of all is cached."""
        indexes = self.indexes
        if start or stop < len(indexes):
            return self.size_of_all(indexes[start:stop])
        if self._size_bytes < 0:
            self._size_bytes = self.size_of_all(indexes)
        return self._size_bytes

    def metadata_of(self, index: int) -> MessageMetadata | SingleMessageMetadata:
        """A message's metadata: the entry's, or its own within a batch.

        Raises RemoteProtocolError if they are invalid, which a checked batch excludes.
        """
        bounds = self.bounds
        if bounds is None:
            return self.metadata
        return single_metadata(self.payload[bounds[2 * index] : bounds[2 * index + 1]])

    def broker_metadata(self) -> BrokerEntryMetadata | None:
        """The broker's metadata of the entry; None if it sends none."""
        if not self.broker_part:
            return None
        return peek_broker_entry_metadata(memoryview(self.broker_part))


def decode(
    source: Source,
    run: MessageRun,
    place: tuple[int, int, int],
    chunks: Chunks,
    clock: Callable[[], float],
) -> Entry | None:
    """Check and decode one entry of a run; returns None for a chunk of an incomplete message. The
    bytes are copied once, to release the received buffer.

    Raises UndecodableEntry.
    """
    entry_id, begin, end = place
    try:
        metadata, payload, broker_part = _opened(run.data, begin, end)
    except RemoteProtocolError as error:
        raise UndecodableEntry(str(error), CommandAck.BatchDeSerializeError) from error
    entry = Entry(
        run.ledger_id,
        entry_id,
        source.partition,
        run.redelivery_count,
        run.ack_set,
        metadata,
        payload,
        source,
        source.topic,
        broker_part,
    )
    if isinstance(metadata, bytes):
        return entry
    return _unpacked(entry, metadata, chunks, clock)


def _unpacked(
    entry: Entry, metadata: MessageMetadata, chunks: Chunks, clock: Callable[[], float]
) -> Entry | None:
    """Decode an entry that may be encrypted, compressed, a chunk or a batch."""
    source = entry.source
    payload = entry.payload
    if metadata.encryption_keys:
        decrypted = _decrypt(source, metadata, payload, clock())
        if decrypted is None:
            entry.is_encrypted = True
            entry.message_count = max(1, metadata.num_messages_in_batch)
            return entry
        payload = decrypted
    is_chunk = metadata.num_chunks_from_msg > 1
    if is_chunk:
        whole = _put_together(entry, metadata, payload, chunks, clock())
        if whole is None:
            return None
        payload = whole
    if metadata.compression:
        bytes_max = CHUNKED_MESSAGE_BYTES_MAX if is_chunk else UNCOMPRESSED_BYTES_MAX
        payload = _decompress(metadata, payload, bytes_max)
    entry.payload = payload
    if is_chunk:
        entry.chunks = chunks.earlier((entry.ledger_id, entry.entry_id))
    elif metadata.HasField("num_messages_in_batch"):
        try:
            entry.bounds = index_batch(metadata.num_messages_in_batch, payload)
        except RemoteProtocolError as error:
            raise UndecodableEntry(str(error), CommandAck.BatchDeSerializeError) from error
        entry.message_count = len(entry.bounds) // 2
        entry.indexes = range(entry.message_count)
    return entry


def _opened(data: bytes, begin: int, end: int) -> tuple[MessageMetadata | bytes, bytes, bytes]:
    """Metadata (bytes if they are a plain message's), payload and the broker's metadata.

    Raises UndecodableEntry for a wrong checksum, RemoteProtocolError for wrong lengths.
    """
    if end - begin >= 10:
        # The head of nearly every entry, unpacked at once; the code below is for all others.
        magic, checksum, size = unpack_front(data, begin)
        at = begin + 10 + size
        checked = memoryview(data)[begin + 6 : end]
        if magic == MAGIC_CRC32C and at <= end and crc32.iscsi(checked) == checksum:
            encoded = data[begin + 10 : at]
            if size > 2 and encoded[0] == 10 and match_plain(encoded, 2 + encoded[1]):
                return encoded, data[at:end], b""
            return decode_metadata(encoded), data[at:end], b""
    view = memoryview(data)[begin:end]
    body = strip_broker_entry_metadata(view)
    if not verify_checksum(body):
        raise UndecodableEntry("checksum does not fit", CommandAck.ChecksumMismatch)
    parts = split(body)
    broker_part = bytes(view[: len(view) - len(body)])
    return decode_metadata(parts.metadata), bytes(parts.payload), broker_part


def _decrypt(
    source: Source, metadata: MessageMetadata, payload: bytes, now_s: float
) -> bytes | None:
    """The payload; None if it is to be delivered encrypted. Raises UndecodableEntry."""
    try:
        return source.opener.open(metadata, payload, now_s)
    except CryptoError as error:
        action = source.crypto_failure_action
        if action is ConsumerCryptoFailureAction.CONSUME:
            return None
        discards = action is ConsumerCryptoFailureAction.DISCARD
        told = CommandAck.DecryptionError if discards else None
        undecodable = UndecodableEntry(f"it can't be decrypted: {error}", told)
        undecodable.comes_again = not discards
        undecodable.messages = max(1, metadata.num_messages_in_batch)
        raise undecodable from None


def _put_together(
    entry: Entry, metadata: MessageMetadata, part: bytes, chunks: Chunks, now_s: float
) -> bytes | None:
    try:
        chunk = chunk_of(metadata, chunks_max=CHUNKS_MAX, bytes_max=CHUNKED_MESSAGE_BYTES_MAX)
    except RemoteProtocolError as error:
        raise UndecodableEntry(str(error), CommandAck.BatchDeSerializeError) from error
    if chunk is None:
        raise UndecodableEntry("a chunk without uuid", CommandAck.BatchDeSerializeError)
    position = entry.ledger_id, entry.entry_id
    return chunks.add(chunk, position, part, metadata.publish_time, now_s)


def _decompress(metadata: MessageMetadata, payload: bytes, bytes_max: int) -> bytes:
    size = metadata.uncompressed_size
    if size > bytes_max:
        raise UndecodableEntry(
            f"uncompressed size of {size} bytes is above the limit",
            CommandAck.UncompressedSizeCorruption,
        )
    try:
        return bytes(decompress(metadata.compression, payload, size, bytes_max))
    except ProtocolError as error:
        # A missing codec is our own problem: the broker must not consider the message damaged.
        told = CommandAck.DecompressionError if isinstance(error, RemoteProtocolError) else None
        raise UndecodableEntry(str(error), told) from error
