"""Encodes single messages and batches to frames (spec SDK-04, SDK-05, SDK-06, SDK-09; ProducerImpl
and BatchMessageContainerImpl of the Java client). Pure except for the passed wall clock.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from typing import Protocol

from geminga._entries.crypto import TAG_BYTES, Sealer
from geminga.errors import InvalidArgumentError, MessageTooBigError
from geminga.options import BatchingType, ProducerOptions
from geminga_protocol.buffers import Buffer
from geminga_protocol.chunking import Chunk, cut, mark
from geminga_protocol.compression import compress
from geminga_protocol.encode import LAST_BYTES, MORE_BYTES, send, varint
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.frames import FRAME_PADDING_BYTES
from geminga_protocol.payload import headers
from geminga_protocol.pb.pulsar_api_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata
from geminga_protocol.single import SendHeader

MAX_MESSAGE_SIZE_DEFAULT = 5 * 1024 * 1024
_SIZE = struct.Struct(">I")
LOCAL_CLUSTER_ONLY = ("__local__",)
"""`replicate_to` of a message that must not be replicated (as in TypedMessageBuilder)."""


class Extras:
    """A message's options beside its payload; most messages have none."""

    __slots__ = (
        "context",
        "deliver_at_ms",
        "event_time_ms",
        "is_null",
        "key_is_base64",
        "ordering_key",
        "partition_key",
        "properties",
        "replication_clusters",
        "schema_version",
    )

    context: Context
    """The caller's, for interceptors that are called in another thread; not set otherwise."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: bytes | None = None,
        event_time_ms: int | None = None,
        deliver_at_ms: int | None = None,
        replication_clusters: Sequence[str] = (),
        *,
        key_is_base64: bool = False,
        schema_version: bytes | None = None,
    ) -> None:
        self.properties = properties
        self.partition_key = partition_key
        self.ordering_key = ordering_key
        self.event_time_ms = event_time_ms
        self.deliver_at_ms = deliver_at_ms
        self.replication_clusters = replication_clusters
        self.key_is_base64 = key_is_base64
        self.schema_version = schema_version
        self.is_null = False

    @property
    def batchable(self) -> bool:
        """False for delayed messages and those with their own clusters: the broker reads both from
        the entry.
        """
        return self.deliver_at_ms is None and not self.replication_clusters


Item = tuple[int, bytes, Extras | None]
"""A message: sequence id, payload, options."""


class Encodable(Protocol):
    """An entry to be encoded. Its messages are `items`, or, if that is None, plain `payloads` with
    ascending sequence ids from `sequence_id` on.
    """

    payloads: list[bytes]
    items: list[Item] | None
    count: int
    sequence_id: int
    highest_sequence_id: int
    frame: tuple[Buffer, Buffer]


Frame = tuple[Buffer, Buffer]
"""A SEND frame in two parts, to avoid copying a large payload."""


class Encoder:
    """Makes SEND frames of one producer. The driver sets name and limits when it connects."""

    def __init__(
        self,
        producer_id: int,
        topic: str,
        options: ProducerOptions,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._producer_id = producer_id
        self._topic = topic
        self._compression = options.compression_type
        self._chunk_bytes_max = options.chunk_max_message_size_bytes or sys.maxsize
        self._keyed = options.batching_type is BatchingType.KEY_BASED
        self._wall_clock_ms = wall_clock_ms
        self.sealer = Sealer(options, wall_clock_ms) if options.encryption_keys else None
        """Encrypts compressed payloads; None without encryption."""
        self.chunking = options.chunking_enabled and topic.startswith("persistent://")
        """Whether large messages are chunked; only on persistent topics can they be assembled."""
        self._name = ""
        self._header: SendHeader | None = None
        """Builds frames of plain messages by hand, if possible."""
        self.max_message_size_bytes = MAX_MESSAGE_SIZE_DEFAULT
        self.schema_version = b""
        """Version of the messages' schema, if any; set before the name."""

    @property
    def producer_name(self) -> str:
        """The producer's name; "" until it is known."""
        return self._name

    @producer_name.setter
    def producer_name(self, name: str) -> None:
        """Set when the producer connects."""
        self._name = name
        encoded = name.encode()
        self._header = None
        is_plain = not self._compression and not self.chunking and self.sealer is None
        if is_plain and len(encoded) < 128:
            self._header = SendHeader(self._producer_id, encoded, self.schema_version)

    def single(self, sequence_id: int, data: bytes) -> Frame | None:
        """The frame of a message with a payload only; None if `encode` must make it, or raise its
        error.
        """
        header = self._header
        if header is None or len(data) > self.max_message_size_bytes:
            return None
        return header.build(sequence_id, self._wall_clock_ms(), data), data

    def encode(self, outgoing: Encodable) -> Sequence[Frame]:
        """Fill in the frame. Raises MessageTooBigError, InvalidArgumentError for a missing codec,
        and CryptoError.

        A batch of one is sent as a single message. Returns the chunks to be sent before it, none
        if it isn't chunked.
        """
        count = outgoing.count
        if count == 1:
            sequence_id, data, extras = _only(outgoing)
            frame = self.single(sequence_id, data) if extras is None else None
            if frame is not None:
                outgoing.frame = frame
                return ()
        highest_sequence_id = 0
        if count > 1:
            front, payload = self._batch(outgoing)
            if outgoing.highest_sequence_id > outgoing.sequence_id:
                highest_sequence_id = outgoing.highest_sequence_id
        elif self.chunking:
            *leading, outgoing.frame = self._chunks(outgoing)
            return leading
        else:
            front, payload = self._build(*self._single(outgoing))
        size = len(front) + len(payload)
        head = send(self._producer_id, outgoing.sequence_id, count, size, highest_sequence_id)
        self._check_frame(len(head) + size)
        outgoing.frame = (head + front, payload)
        return ()

    def _single(self, outgoing: Encodable) -> tuple[MessageMetadata, bytes]:
        sequence_id, data, extras = _only(outgoing)
        metadata = self._metadata(sequence_id, len(data))
        if extras is not None:
            _describe(metadata, extras)
            if extras.deliver_at_ms is not None:
                metadata.deliver_at_time = extras.deliver_at_ms
            metadata.replicate_to.extend(extras.replication_clusters)
            if extras.schema_version is not None:
                metadata.schema_version = extras.schema_version
        return metadata, data

    def _chunks(self, outgoing: Encodable) -> list[Frame]:
        """The message's frames, one if it is small enough.

        A chunk's bound is the limit minus the metadata without the chunk's numbers; brokers accept
        the difference (ProducerImpl.sendAsync).
        """
        metadata, data = self._single(outgoing)
        payload = memoryview(self._compress(metadata, data))
        sequence_id = outgoing.sequence_id
        # Each chunk is encrypted separately, with its own IV.
        sealing = None if self.sealer is None else self.sealer.begin(metadata)
        overhead = metadata.ByteSize() + (0 if sealing is None else TAG_BYTES)
        room = min(self.max_message_size_bytes - overhead, self._chunk_bytes_max)
        if room <= 0:
            raise MessageTooBigError("the message's properties leave no room", topic=self._topic)
        is_whole = len(payload) <= room
        parts: Iterable[tuple[Chunk | None, memoryview]]
        if is_whole:
            parts = [(None, payload)]
        else:
            parts = cut(payload, f"{self.producer_name}-{sequence_id}", room)
        frames: list[Frame] = []
        for chunk, part in parts:
            if chunk is not None:
                mark(metadata, chunk)
            sealed = part if sealing is None else sealing.seal(metadata, part)
            front = headers(metadata, sealed)
            size = len(front) + len(sealed)
            head = send(self._producer_id, sequence_id, 1, size, is_chunk=not is_whole)
            frames.append((head + front, sealed))
        return frames

    def _batch(self, outgoing: Encodable) -> tuple[bytes, bytes]:
        items = outgoing.items
        if items is None:
            payload = b"".join(_plain_parts(outgoing.sequence_id, outgoing.payloads))
        else:
            payload = b"".join(_batch_parts(items))
        metadata = self._metadata(outgoing.sequence_id, len(payload))
        metadata.num_messages_in_batch = outgoing.count
        if not self._keyed:
            metadata.highest_sequence_id = outgoing.highest_sequence_id
        elif items is not None and (extras := items[0][2]) is not None:
            # The broker reads a batch's key from the entry, as for a single message.
            if extras.partition_key is not None:
                metadata.partition_key = extras.partition_key
                if extras.key_is_base64:
                    metadata.partition_key_b64_encoded = True
            if extras.ordering_key is not None:
                metadata.ordering_key = extras.ordering_key
        return self._build(metadata, payload)

    def _metadata(self, sequence_id: int, uncompressed_size_bytes: int) -> MessageMetadata:
        return MessageMetadata(
            producer_name=self.producer_name,
            sequence_id=sequence_id,
            publish_time=self._wall_clock_ms(),
            uncompressed_size=uncompressed_size_bytes,
            schema_version=self.schema_version or None,
        )

    def _compress(self, metadata: MessageMetadata, payload: bytes) -> bytes:
        if not self._compression:
            return payload
        try:
            compressed = compress(self._compression, payload)
        except LocalProtocolError as error:
            raise InvalidArgumentError(f"compression_type: {error}", topic=self._topic) from error
        metadata.compression = self._compression.value  # type: ignore[assignment]
        return compressed

    def _build(self, metadata: MessageMetadata, payload: bytes) -> tuple[bytes, bytes]:
        """The bytes after the command: headers, and the sent form of the payload."""
        compressed = self._compress(metadata, payload)
        self._check_size(compressed)
        if self.sealer is not None:
            compressed = self.sealer.seal(metadata, compressed)
        return headers(metadata, compressed), compressed

    def _check_size(self, payload: bytes) -> None:
        if len(payload) > self.max_message_size_bytes:
            raise MessageTooBigError(
                f"message of {len(payload)} bytes is above the broker's limit of"
                f" {self.max_message_size_bytes} bytes",
                topic=self._topic,
            )

    def _check_frame(self, size_bytes: int) -> None:
        """The broker would close the connection at a longer frame, and at each time that it is sent
        again, which all other producers and consumers of the connection would suffer from.
        """
        limit = self.max_message_size_bytes + FRAME_PADDING_BYTES
        if size_bytes > limit:
            raise MessageTooBigError(
                f"message of {size_bytes} bytes with its properties and keys is above the broker's"
                f" limit of {limit} bytes",
                topic=self._topic,
            )


def _only(outgoing: Encodable) -> Item:
    """The only message."""
    if outgoing.items is not None:
        return outgoing.items[0]
    return outgoing.sequence_id, outgoing.payloads[0], None


def _plain_parts(first: int, payloads: Sequence[bytes]) -> list[bytes]:
    """`_batch_parts` for messages with a payload only and ascending sequence ids: without a step
    per message if all have one size.
    """
    sizes = set(map(len, payloads))
    if len(sizes) != 1:
        return _batch_parts([(first + n, data, None) for n, data in enumerate(payloads)])
    parts: list[bytes] = []
    size_field = b"\x18" + varint(sizes.pop()) + b"\x40"
    done = 0
    while done < len(payloads):
        # Up to the next multiple of 128, only the lowest seven bits differ.
        number = first + done
        high, low = number >> 7, number & 127
        count = min(128 - low, len(payloads) - done)
        tail = varint(high) if high else b""
        block = [_SIZE.pack(len(size_field) + 1 + len(tail)) + size_field] * (4 * count)
        block[1::4] = (MORE_BYTES if high else LAST_BYTES)[low : low + count]
        block[2::4] = [tail] * count
        block[3::4] = payloads[done : done + count]
        parts += block
        done += count
    return parts


def _batch_parts(items: Sequence[Item]) -> list[bytes]:
    """The batch's bytes in parts: size of metadata, metadata, payload for each message.

    Metadata of messages with a payload only are built by hand. They mostly have one size and
    sequence ids that differ in the lowest bits only, so the bytes before these are reused.
    """
    parts: list[bytes] = []
    append = parts.append
    known_size = known_high = -1
    head = tail = b""
    for sequence_id, data, extras in items:
        if extras is not None:
            single = SingleMessageMetadata(sequence_id=sequence_id, payload_size=len(data))
            _describe(single, extras)
            encoded = single.SerializeToString()
            append(_SIZE.pack(len(encoded)) + encoded)
            append(data)
            continue
        size = len(data)
        high = sequence_id >> 7
        if size != known_size or high != known_high:
            known_size, known_high = size, high
            metadata = b"\x18" + varint(size) + b"\x40"
            tail = varint(high) if high else b""
            head = _SIZE.pack(len(metadata) + 1 + len(tail)) + metadata
        append(head + (MORE_BYTES if high else LAST_BYTES)[sequence_id & 127] + tail)
        append(data)
    return parts


def _describe(metadata: MessageMetadata | SingleMessageMetadata, extras: Extras) -> None:
    """Write the common fields of both kinds of metadata."""
    if extras.properties:
        metadata.properties.extend(
            [KeyValue(key=key, value=value) for key, value in extras.properties.items()]
        )
    if extras.partition_key is not None:
        metadata.partition_key = extras.partition_key
        if extras.key_is_base64:
            metadata.partition_key_b64_encoded = True
    if extras.ordering_key is not None:
        metadata.ordering_key = extras.ordering_key
    if extras.event_time_ms is not None:
        metadata.event_time = extras.event_time_ms
    if extras.is_null:
        metadata.null_value = True
