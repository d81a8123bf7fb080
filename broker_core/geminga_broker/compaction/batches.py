"""Compaction of single batches (pure; spec BR-50; Apache's `RawBatchConverter`).

A removed message leaves an empty one marked `compacted_out`: the batch's number of messages, and
their indexes, don't change.
"""

from __future__ import annotations

from collections.abc import Callable

from geminga_broker.log.api import Entry
from geminga_protocol import compression, payload
from geminga_protocol.batch import BatchBuilder, Message, split_batch
from geminga_protocol.buffers import Buffer
from geminga_protocol.errors import ProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

UNCOMPRESSED_BYTES_MAX = 64 << 20
"""A batch with a larger announced size is not opened, but kept whole."""

Keeps = Callable[[int, SingleMessageMetadata, int], bool]
"""(index in the batch, metadata, payload bytes) -> whether the message stays."""


def is_readable_batch(metadata: MessageMetadata) -> bool:
    """Whether it is a batch that the broker can read, which isn't encrypted."""
    return metadata.HasField("num_messages_in_batch") and not metadata.encryption_keys


def open_batch(metadata: MessageMetadata, data: memoryview) -> list[Message]:
    """The messages of an entry. Raises ProtocolError if they can't be read."""
    packed = payload.split(data).payload
    plain = packed
    if metadata.compression:
        plain = compression.decompress(
            metadata.compression, packed, metadata.uncompressed_size, UNCOMPRESSED_BYTES_MAX
        )
    return split_batch(metadata, plain)


def rebatch(entry: Entry, keeps: Keeps) -> Buffer | None:
    """The entry with the remaining messages; None without any. Raises ProtocolError."""
    metadata = entry.metadata
    messages = open_batch(metadata, entry.data)
    stays = [
        not single.compacted_out and keeps(index, single, len(body))
        for index, (single, body) in enumerate(messages)
    ]
    if not any(stays):
        return None
    if all(stays):
        return entry.data
    builder = BatchBuilder(messages_max=len(messages), bytes_max=UNCOMPRESSED_BYTES_MAX)
    for (single, body), stay in zip(messages, stays, strict=True):
        if stay:
            builder.add(single, body)
        else:
            builder.add(SingleMessageMetadata(compacted_out=True), b"")
    plain = builder.build()
    changed = MessageMetadata()
    changed.CopyFrom(metadata)
    changed.uncompressed_size = len(plain)
    packed = compression.compress(metadata.compression, plain) if metadata.compression else plain
    rest = payload.strip_broker_entry_metadata(entry.data)
    prefix = entry.data[: len(entry.data) - len(rest)]
    return b"".join((prefix, payload.build(changed, packed)))


def last_index(entry: Entry) -> int:
    """Index of a batch's last message that is not compacted out; -1 if it is no batch, or can't be
    opened. Raises RemoteProtocolError for an entry without metadata.
    """
    metadata = entry.head
    if not metadata.HasField("num_messages_in_batch"):
        return -1
    count = metadata.num_messages_in_batch
    if not is_readable_batch(metadata):
        return count - 1
    try:
        messages = open_batch(metadata, entry.data)
    except ProtocolError:
        return count - 1
    left = [index for index, (single, _) in enumerate(messages) if not single.compacted_out]
    return left[-1] if left else count - 1
