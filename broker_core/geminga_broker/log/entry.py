"""One stored entry, and what goes before it."""

from __future__ import annotations

import struct

from geminga_protocol import payload
from geminga_protocol.encode import varint
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata

_FRONT = struct.Struct(">HII")
_unpack_front = _FRONT.unpack_from
_BATCH_SIZE_TAG = b"\x58"

_CONTINUED = [bytes((low | 0x80,)) for low in range(128)]


class LogEntry:
    """An entry, parsed on first use, shared by all cursors; `data` is a view of the packet."""

    __slots__ = ("_messages", "_metadata", "data", "position", "size")

    def __init__(self, position: Position, data: memoryview, messages: int = 0) -> None:
        self.position = position
        self.data = data
        self.size = len(data)
        self._messages = messages
        self._metadata: MessageMetadata | None = None

    def __repr__(self) -> str:
        return f"<LogEntry {self.position}, {self.size} bytes>"

    @property
    def metadata(self) -> MessageMetadata:
        """The message metadata. Raises RemoteProtocolError if the entry holds none."""
        if self._metadata is None:
            self._metadata = payload.parse_metadata(self.data)
        return self._metadata

    @property
    def messages(self) -> int:
        """Messages in its batch, 1 when it is none, or no metadata can be read."""
        if not self._messages and _is_single(self.data):
            self._messages = 1
        if not self._messages:
            try:
                self._messages = max(1, self.metadata.num_messages_in_batch)
            except RemoteProtocolError:
                self._messages = 1  # clients judge it; it must not stop dispatch
        return self._messages

    @property
    def broker_metadata(self) -> BrokerEntryMetadata | None:
        """What the broker stored with the entry, if it did: append time and index (PR-03)."""
        return payload.peek_broker_entry_metadata(self.data)

    @property
    def time_ms(self) -> int:
        """When it was published, by the broker's or else the producer's clock; 0 if unreadable."""
        try:
            stored = self.broker_metadata
            if stored is not None and stored.HasField("broker_timestamp"):
                return stored.broker_timestamp
            return self.metadata.publish_time
        except RemoteProtocolError:
            return 0


def _is_single(data: memoryview) -> bool:
    """Whether the metadata can't hold the size of a batch, since the byte of its tag is not in
    them. False may also mean that they must be parsed to know: that byte occurs in names, too.
    """
    if len(data) <= _FRONT.size:
        return False
    magic, _, size = _unpack_front(data)
    if magic != payload.MAGIC_CRC32C:
        return False
    return _BATCH_SIZE_TAG not in bytes(data[_FRONT.size : _FRONT.size + size])


class PrefixMaker:
    """Broker entry metadata for the entries of one append, byte-equal to
    `payload.broker_entry_prefix`.

    Indexes rise slowly, so all but the lowest seven bits of one are encoded once for many entries.
    """

    __slots__ = ("_front", "_high", "_rest", "_timestamp_ms")

    def __init__(self, timestamp_ms: int) -> None:
        self._timestamp_ms = timestamp_ms
        self._high = -1
        self._front = b""
        self._rest = b""

    def prefix(self, index: int) -> bytes:
        """The prefix of an entry whose last message has that index."""
        high = index >> 7
        if high == 0:
            return payload.broker_entry_prefix(self._timestamp_ms, index)
        if high != self._high:
            whole = payload.broker_entry_prefix(self._timestamp_ms, index)
            self._high = high
            self._rest = varint(high)
            self._front = whole[: -1 - len(self._rest)]
        return self._front + _CONTINUED[index & 127] + self._rest
