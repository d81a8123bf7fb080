"""A MESSAGE frame taken apart: checked, decompressed, cut into its messages (spec SDK-20). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from geminga.errors import CorruptMessage
from geminga_protocol.ack_set import AckSet
from geminga_protocol.batch import Message as BatchedMessage
from geminga_protocol.batch import split_batch
from geminga_protocol.compression import decompress
from geminga_protocol.errors import ProtocolError, RemoteProtocolError
from geminga_protocol.payload import (
    decode_metadata,
    peek_broker_entry_metadata,
    split,
    strip_broker_entry_metadata,
    verify_checksum,
)
from geminga_protocol.pb.pulsar_api_pb2 import (
    BrokerEntryMetadata,
    CommandAck,
    CommandMessage,
    MessageMetadata,
)

UNCOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""The most that a compressed entry may announce: a peer's word alone never costs more memory."""

ValidationError = CommandAck.ValidationError


class UndecodableEntry(CorruptMessage):
    """The entry can't be read; `validation_error` is what the broker is told."""

    def __init__(self, message: str, validation_error: ValidationError | None) -> None:
        super().__init__(message)
        self.validation_error = validation_error


class Source(Protocol):
    """The partition's consumer that an entry came by."""

    def taken(self, entry: Entry, index: int) -> None:
        """A message of the entry is handed out."""


class Entry:
    """An entry and how far its messages are taken; `indexes` are those that are to be delivered."""

    __slots__ = (
        "ack_set",
        "at",
        "broker_part",
        "entry_id",
        "indexes",
        "ledger_id",
        "metadata",
        "partition",
        "payload",
        "redelivery_count",
        "singles",
        "source",
        "topic",
    )
    source: Source

    def __init__(self, command: CommandMessage, metadata: MessageMetadata, payload: bytes) -> None:
        place = command.message_id
        self.ledger_id = place.ledgerId
        self.entry_id = place.entryId
        self.partition = place.partition
        self.redelivery_count = command.redelivery_count
        self.ack_set: AckSet = tuple(command.ack_set)
        self.metadata = metadata
        self.payload = payload
        self.singles: list[BatchedMessage] | None = None
        self.indexes: Sequence[int] = (-1,)
        self.at = 0
        self.broker_part: bytes = b""
        self.topic = ""

    @property
    def message_count(self) -> int:
        """Messages in the entry, delivered or not."""
        return 1 if self.singles is None else len(self.singles)

    @property
    def may_be_compacted(self) -> bool:
        """Whether messages of the batch may have been taken out: all have keys where compaction
        works.
        """
        singles = self.singles
        return bool(singles and singles[0][0].HasField("partition_key"))

    def broker_metadata(self) -> BrokerEntryMetadata | None:
        """What the broker noted when it stored the entry, None if it doesn't tell."""
        if not self.broker_part:
            return None
        return peek_broker_entry_metadata(memoryview(self.broker_part))


def decode(command: CommandMessage, headers_and_payload: memoryview) -> Entry:
    """Check and open an entry. Its bytes are copied once, so the received chunk is let go.

    Raises UndecodableEntry.
    """
    try:
        body = strip_broker_entry_metadata(headers_and_payload)
        if not verify_checksum(body):
            raise UndecodableEntry("checksum does not fit", CommandAck.ChecksumMismatch)
        parts = split(body)
        metadata = decode_metadata(parts.metadata)
    except RemoteProtocolError as error:
        raise UndecodableEntry(str(error), CommandAck.BatchDeSerializeError) from error
    if metadata.encryption_keys:
        raise UndecodableEntry("the message is encrypted, and there is no key reader", None)
    if metadata.num_chunks_from_msg > 1:
        raise UndecodableEntry("chunked messages are not put together", None)
    payload = bytes(parts.payload)
    if metadata.compression:
        payload = _decompress(metadata, payload)
    entry = Entry(command, metadata, payload)
    if len(body) < len(headers_and_payload):
        entry.broker_part = bytes(headers_and_payload[: len(headers_and_payload) - len(body)])
    if metadata.HasField("num_messages_in_batch"):
        try:
            singles = split_batch(metadata, memoryview(payload))
        except RemoteProtocolError as error:
            raise UndecodableEntry(str(error), CommandAck.BatchDeSerializeError) from error
        entry.singles = singles
        entry.indexes = range(len(singles))
    return entry


def _decompress(metadata: MessageMetadata, payload: bytes) -> bytes:
    size = metadata.uncompressed_size
    if size > UNCOMPRESSED_BYTES_MAX:
        raise UndecodableEntry(
            f"uncompressed size of {size} bytes is above the limit",
            CommandAck.UncompressedSizeCorruption,
        )
    try:
        return bytes(decompress(metadata.compression, payload, size, UNCOMPRESSED_BYTES_MAX))
    except ProtocolError as error:
        # A missing codec is our own lack: the broker must not take the message for damaged.
        told = CommandAck.DecompressionError if isinstance(error, RemoteProtocolError) else None
        raise UndecodableEntry(str(error), told) from error
