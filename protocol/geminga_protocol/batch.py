"""Batches: many messages in one entry (spec PR-08; Apache's BatchMessageContainerImpl).

(metadataSize u32 | SingleMessageMetadata | payload) repeated, then compressed as a whole
"""

from __future__ import annotations

import struct

from google.protobuf.message import DecodeError, EncodeError

from geminga_protocol.buffers import Buffer
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.messages import missing_fields, parser
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

_SIZE = struct.Struct(">I")
_unpack_size = _SIZE.unpack_from
_pack_size = _SIZE.pack
_parse_single = parser(SingleMessageMetadata)

Message = tuple[SingleMessageMetadata, memoryview]


class BatchBuilder:
    """Collects the messages of one batch, bounded by count and bytes.

    Payloads are referred to, and copied once by `build`.
    """

    __slots__ = ("_parts", "bytes_max", "messages", "messages_max", "size_bytes")

    def __init__(self, messages_max: int = 1000, bytes_max: int = 128 * 1024) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.messages = 0
        self.size_bytes = 0
        self._parts: list[Buffer] = []

    def fits(self, payload_size: int) -> bool:
        """Whether a message of that size still fits; an empty batch takes any size."""
        if not self.messages:
            return True
        return (
            self.messages < self.messages_max and self.size_bytes + payload_size <= self.bytes_max
        )

    @property
    def full(self) -> bool:
        """Whether the batch must be sent now."""
        return self.messages >= self.messages_max or self.size_bytes >= self.bytes_max

    def add(self, metadata: SingleMessageMetadata, payload: Buffer) -> int:
        """Add a message and return its index; sets `payload_size`.

        Raises LocalProtocolError if metadata can't be encoded.
        """
        size = memoryview(payload).nbytes
        metadata.payload_size = size
        try:
            encoded = metadata.SerializeToString()
        except EncodeError as error:
            raise LocalProtocolError(f"message metadata is incomplete: {error}") from error
        self.add_encoded(encoded, payload, size)
        return self.messages - 1

    def add_encoded(self, metadata: bytes, payload: Buffer, payload_size: int) -> None:
        """Add a message with encoded metadata, which must contain `payload_size`."""
        self._parts += (_pack_size(len(metadata)) + metadata, payload)
        self.messages += 1
        self.size_bytes += payload_size + len(metadata) + 4

    def build(self) -> bytes:
        """The batch's uncompressed payload; empties the builder."""
        payload = b"".join(self._parts)
        self._parts.clear()
        self.messages = 0
        self.size_bytes = 0
        return payload


def split_batch(metadata: MessageMetadata, payload: memoryview) -> list[Message]:
    """The messages of an uncompressed batch, payloads as views.

    Messages removed by compaction (`compacted_out`) are included, so that indexes stay right.
    Raises RemoteProtocolError if sizes don't add up (ValidationError BatchDeSerializeError).
    """
    messages: list[Message] = []
    count = metadata.num_messages_in_batch
    end = len(payload)
    at = 0
    # Allocate nothing by the announced count: with a wrong one, the bytes end first.
    while len(messages) < count:
        if end - at < 4:
            raise RemoteProtocolError(f"batch of {count} messages ends after {len(messages)}")
        (size,) = _unpack_size(payload, at)
        start = at + 4 + size
        if start > end:
            raise RemoteProtocolError(f"metadata of message {len(messages)} are cut off")
        try:
            single = _parse_single(payload[at + 4 : start])
        except DecodeError as error:
            raise RemoteProtocolError(f"batched metadata can't be decoded: {error}") from error
        if not single.HasField("payload_size"):
            raise RemoteProtocolError(f"batched metadata lack {missing_fields(single)}")
        at = start + single.payload_size
        if not start <= at <= end:
            raise RemoteProtocolError(f"payload of message {len(messages)} is cut off")
        messages.append((single, payload[start:at]))
    return messages
