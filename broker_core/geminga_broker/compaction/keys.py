"""Selects the remaining messages, in two passes over the entries (pure; spec BR-50; Apache's
`PublishingOrderCompactor`).

The first pass finds the last message of each key, the second selects the rest of each entry. Both
must see the same entries. Memory depends on the number of keys, not on their values.
"""

from __future__ import annotations

from hashlib import blake2b

from geminga_broker.compaction.batches import is_readable_batch, open_batch, rebatch
from geminga_broker.log.api import Entry
from geminga_protocol import payload
from geminga_protocol.buffers import Buffer
from geminga_protocol.errors import ProtocolError, RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.messages import text
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

MessageId = tuple[int, int, int]
"""Ledger, entry, index in the batch (-1: none)."""
Name = str | bytes
_NAME_MAX = 256
"""Characters; longer texts count by their digest: a key may have 5 MiB."""


class _Chunks:
    """An incomplete chunked message."""

    __slots__ = ("ids", "seen")

    def __init__(self) -> None:
        self.ids: list[MessageId] = []
        self.seen: set[int] = set()


class LatestKeys:
    """The last message of each key. A message without payload deletes its key; messages without
    key remain only with `retain_null_key` (`topicCompactionRetainNullKey`).
    """

    def __init__(self, retain_null_key: bool) -> None:
        self.removed = 0
        """Removed messages, as counted by Apache: replaced, deleting, without key, markers."""
        self._retain_null_key = retain_null_key
        self._latest: dict[Name, MessageId] = {}
        self._earlier: dict[MessageId, list[MessageId]] = {}
        """Last chunk of a message -> its other chunks, which remain with it."""
        self._growing: dict[tuple[Name, Name], _Chunks] = {}
        self._parts: set[MessageId] = set()

    def __len__(self) -> int:
        return len(self._latest)

    def see(self, entry: Entry) -> None:
        """First pass: the next entry in the order of the topic."""
        try:
            metadata = entry.head
        except RemoteProtocolError:
            return
        if metadata.HasField("marker_type"):
            self.removed += 1
        elif is_readable_batch(metadata):
            self._see_batch(entry, metadata)
        else:
            self._see_single(entry, metadata)

    def end_first_pass(self) -> None:
        """End the first pass. Chunks of messages that continue after the end remain."""
        self._parts = {each for ids in self._earlier.values() for each in ids}
        for growing in self._growing.values():
            self._parts.update(growing.ids)

    def keep(self, entry: Entry) -> Buffer | None:
        """Second pass: the part of the entry to write, None if there is none. An unreadable entry
        is kept whole, as its keys are unknown.
        """
        try:
            metadata = entry.head
        except RemoteProtocolError:
            return entry.data
        if metadata.HasField("marker_type"):
            return None
        position = entry.position
        if not is_readable_batch(metadata):
            return entry.data if self._stays(_id(position), metadata) else None

        def keeps(index: int, single: SingleMessageMetadata, size_bytes: int) -> bool:
            if not single.HasField("partition_key"):
                return self._retain_null_key
            latest = self._latest.get(_name(single.partition_key))
            return size_bytes > 0 and latest == _id(position, index)

        try:
            return rebatch(entry, keeps)
        except ProtocolError:
            return entry.data

    def _stays(self, message_id: MessageId, metadata: MessageMetadata) -> bool:
        if not metadata.HasField("partition_key"):
            return self._retain_null_key
        if message_id in self._parts:
            return True
        return self._latest.get(_name(metadata.partition_key)) == message_id

    def _see_batch(self, entry: Entry, metadata: MessageMetadata) -> None:
        try:
            messages = open_batch(metadata, entry.data)
        except ProtocolError:
            return
        for index, (single, body) in enumerate(messages):
            if single.compacted_out:
                continue
            if single.HasField("partition_key"):
                message_id = _id(entry.position, index)
                self._set(_name(single.partition_key), message_id, len(body))
            elif not self._retain_null_key:
                self.removed += 1

    def _see_single(self, entry: Entry, metadata: MessageMetadata) -> None:
        if not metadata.HasField("partition_key"):
            self.removed += not self._retain_null_key
            return
        message_id = _id(entry.position)
        key = _name(metadata.partition_key)
        if metadata.num_chunks_from_msg > 1:
            self._see_chunk(key, message_id, metadata)
        elif metadata.HasField("uncompressed_size"):
            self._set(key, message_id, metadata.uncompressed_size)
        else:
            self._set(key, message_id, len(payload.split(entry.data).payload))

    def _see_chunk(self, key: Name, message_id: MessageId, metadata: MessageMetadata) -> None:
        """A chunked message counts as its key's last when it is complete. Apache's compactor takes
        each chunk for a message, and keeps only the last one.
        """
        whose = _name(metadata.producer_name), _name(metadata.uuid)
        growing = self._growing.setdefault(whose, _Chunks())
        growing.seen.add(metadata.chunk_id)
        if metadata.chunk_id < metadata.num_chunks_from_msg - 1:
            growing.ids.append(message_id)
            return
        del self._growing[whose]
        if len(growing.seen) == metadata.num_chunks_from_msg:
            self._set(key, message_id, 1)
            self._earlier[message_id] = growing.ids
        else:
            # An earlier chunk is missing: no client can read the message.
            self.removed += 1

    def _set(self, key: Name, message_id: MessageId, size_bytes: int) -> None:
        if size_bytes > 0:
            replaced = self._latest.get(key)
            self._latest[key] = message_id
            self.removed += replaced is not None
        else:
            replaced = self._latest.pop(key, None)
            self.removed += 1
        if replaced is not None:
            self._earlier.pop(replaced, None)


def _id(position: Position, index: int = -1) -> MessageId:
    return (position[0], position[1], index)


def _name(value: str | bytes) -> Name:
    """What a text of an unchecked message is remembered by."""
    found = text(value)
    if len(found) <= _NAME_MAX:
        return found
    return blake2b(found.encode("utf-8", "surrogatepass"), digest_size=32).digest()
