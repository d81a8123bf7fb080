"""Entries of any kind of producer, for tests: every field set or not, batches or single messages,
compressed or not, with messages removed by compaction; and the fields of received ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from geminga import EntryBatch, Message
from geminga.options import CompressionType
from geminga_protocol.compression import compress
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


@dataclass(frozen=True)
class Made:
    """One message."""

    payload: bytes = b""
    key: str | None = None
    key_is_base64: bool = False
    ordering_key: bytes | None = None
    event_time: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    sequence_id: int | None = None
    is_null: bool = False
    is_compacted_out: bool = False

    def describe(self, metadata: MessageMetadata | SingleMessageMetadata) -> None:
        if self.key is not None:
            metadata.partition_key = self.key
        if self.key_is_base64:
            metadata.partition_key_b64_encoded = True
        if self.ordering_key is not None:
            metadata.ordering_key = self.ordering_key
        if self.event_time:
            metadata.event_time = self.event_time
        for key, value in self.properties.items():
            metadata.properties.add(key=key, value=value)
        if self.is_null:
            metadata.null_value = True

    def in_batch(self) -> bytes:
        """Size, metadata and payload."""
        single = SingleMessageMetadata(payload_size=len(self.payload))
        self.describe(single)
        if self.sequence_id is not None:
            single.sequence_id = self.sequence_id
        if self.is_compacted_out:
            single.compacted_out = True
        encoded = single.SerializeToString()
        return len(encoded).to_bytes(4, "big") + encoded + self.payload


def batch(
    messages: list[Made], *, sequence_id: int = 0, compression: CompressionType | None = None
) -> bytes:
    """An entry that is a batch."""
    metadata = MessageMetadata(
        producer_name="maker",
        sequence_id=sequence_id,
        publish_time=1000 + sequence_id,
        num_messages_in_batch=len(messages),
    )
    return _entry(metadata, b"".join(each.in_batch() for each in messages), compression)


def single(
    message: Made, *, sequence_id: int = 0, compression: CompressionType | None = None
) -> bytes:
    """An entry that is one message."""
    metadata = MessageMetadata(
        producer_name="maker", sequence_id=sequence_id, publish_time=1000 + sequence_id
    )
    message.describe(metadata)
    return _entry(metadata, message.payload, compression)


def _entry(metadata: MessageMetadata, payload: bytes, compression: CompressionType | None) -> bytes:
    if compression is not None and compression is not CompressionType.NONE:
        metadata.compression = int(compression)
        metadata.uncompressed_size = len(payload)
        payload = compress(compression, payload)
    return build(metadata, payload)


PLAIN = st.builds(Made, st.binary(max_size=70))
NUMBERED = st.builds(Made, st.binary(max_size=70), sequence_id=st.integers(0, 1 << 40))
KEYED = st.builds(
    Made,
    st.binary(max_size=70),
    key=st.sampled_from([None, "", "k", "key-1", "ü" * 70]),
    sequence_id=st.none() | st.integers(0, 300),
)
ANY = st.builds(
    Made,
    st.binary(max_size=300),
    key=st.sampled_from([None, "", "a2V5", "AAECAw=="]),
    key_is_base64=st.booleans(),
    ordering_key=st.none() | st.binary(max_size=5),
    event_time=st.sampled_from([0, 1, 1 << 41]),
    properties=st.dictionaries(st.sampled_from("abc"), st.text(max_size=3), max_size=2),
    sequence_id=st.none() | st.integers(0, 1 << 40),
    is_null=st.booleans(),
    is_compacted_out=st.booleans(),
)
COMPRESSIONS = st.sampled_from([None, CompressionType.LZ4, CompressionType.ZLIB])


def chunks_of(uuid: str, *parts: bytes) -> list[bytes]:
    """One message as several entries."""
    return [
        build(
            MessageMetadata(
                producer_name="maker",
                sequence_id=1,
                publish_time=1000,
                uuid=uuid,
                chunk_id=n,
                num_chunks_from_msg=len(parts),
                total_chunk_msg_size=sum(map(len, parts)),
                partition_key="key",
            ),
            part,
        )
        for n, part in enumerate(parts)
    ]


@st.composite
def entries(draw: st.DrawFn, *, chunked_max: int = 2) -> list[bytes]:
    """Some entries of a topic, with up to `chunked_max` chunked messages between them."""
    made: list[bytes] = []
    for n in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from([PLAIN, NUMBERED, KEYED, ANY]))
        compression = draw(COMPRESSIONS)
        if draw(st.booleans()):
            messages = draw(st.lists(kind, min_size=1, max_size=8))
            if all(each.is_compacted_out for each in messages):
                # Compaction removes empty batches.
                messages.append(Made(b"left"))
            made.append(batch(messages, sequence_id=100 * n, compression=compression))
        else:
            made.append(single(draw(kind), sequence_id=100 * n, compression=compression))
    for uuid in "ab"[: draw(st.integers(0, chunked_max))]:
        parts = [b"part"] * draw(st.integers(2, 3))
        places = sorted(draw(st.integers(0, len(made))) for _ in parts)
        for at, chunk in reversed(list(zip(places, chunks_of(uuid, *parts), strict=True))):
            made.insert(at, chunk)
    return made


Told = tuple[object, ...]
"""All fields of a message."""


def told_by_message(message: Message) -> Told:
    return (
        message.topic_name,
        message.message_id,
        message.message_id.batch_size,
        message.data,
        message.is_null,
        message.partition_key,
        message.ordering_key,
        message.event_time_ms,
        message.properties,
        message.sequence_id,
        message.publish_time_ms,
        message.producer_name,
        message.redelivery_count,
        message.schema_version,
    )


def told_by_entry(entry: EntryBatch) -> list[Told]:
    of_messages: list[Sequence[object]] = [
        [entry.topic_name] * len(entry),
        entry.message_ids(),
        [each.batch_size for each in entry.message_ids()],
        entry.payloads(),
        entry.nulls(),
        entry.keys(),
        entry.ordering_keys(),
        entry.event_times_ms(),
        entry.properties(),
        entry.sequence_ids(),
        *(
            [each] * len(entry)
            for each in (
                entry.publish_time_ms,
                entry.producer_name,
                entry.redelivery_count,
                entry.schema_version,
            )
        ),
    ]
    assert sum(map(len, entry.payloads())) == entry.size_bytes
    return list(zip(*of_messages, strict=True))


def told_by(entries: list[EntryBatch]) -> list[Told]:
    return [each for entry in entries for each in told_by_entry(entry)]
