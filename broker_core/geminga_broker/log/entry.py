"""One stored entry, and its broker metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

import msgspec

from geminga_protocol import payload
from geminga_protocol.encode import MORE_BYTES, varint
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.payload import (
    FRONT_BYTES,
    MAGIC_CRC32C,
    SMALL_BYTES_MAX,
    decode_head,
    parse_head,
    unpack_front,
)
from geminga_protocol.pb.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata

_data_of = attrgetter("data")
_BATCH_SIZE_TAG = 0x58
_DELIVER_AT_TAG = b"\x98\x01"
_MARKER_TAG = b"\xa0\x01"
_CHUNK_TAG = b"\xe8\x01"


class LogEntry(msgspec.Struct, gc=False, eq=False):
    """An entry, parsed on first use, shared by all cursors; `data` is a view of the packet."""

    position: Position
    data: memoryview
    _messages: int = 0
    """0: not known yet."""
    _is_plain: bool = False
    """Known to be no marker, not delayed and no chunk."""
    _metadata: MessageMetadata | None = None

    def __repr__(self) -> str:
        return f"<LogEntry {self.position}, {self.size} bytes>"

    @property
    def size(self) -> int:
        """Bytes of `data`."""
        return len(self.data)

    @property
    def metadata(self) -> MessageMetadata:
        """All of the message metadata. Raises RemoteProtocolError if the entry holds none."""
        return self._metadata or self._parse(payload.decode_metadata)

    @property
    def head(self) -> MessageMetadata:
        """The metadata that brokers look at (see `decode_head`). Raises RemoteProtocolError."""
        return self._metadata or self._parse(decode_head)

    def _parse(self, decode: Callable[[memoryview], MessageMetadata]) -> MessageMetadata:
        """Parse, and keep small metadata, as the cache doesn't count them."""
        encoded = payload.encoded_metadata(self.data)
        found = decode(encoded)
        if len(encoded) <= SMALL_BYTES_MAX:
            self._metadata = found
        return found

    @property
    def messages(self) -> int:
        """Messages in its batch; 1 if it is not a batch, or its metadata is unreadable."""
        if not self._messages:
            self._look()
        if not self._messages:
            try:
                self._messages = max(1, self.head.num_messages_in_batch)
            except RemoteProtocolError:
                self._messages = 1  # must not stop dispatch: clients check the entry
        return self._messages

    @property
    def special(self) -> MessageMetadata | None:
        """`head` if the entry may be a marker, delayed or a chunk; None for all others.

        An unparsable entry counts as plain: clients check it, as with Apache.
        """
        if self._is_plain:
            return None
        if self._look():
            try:
                # Not cached: most such entries are used once, but stay in the cache for long.
                return self._metadata or parse_head(self.data)
            except RemoteProtocolError:
                pass
        return None

    def _look(self) -> bool:
        """Whether it may be special; also sets `_messages` if it is surely not a batch.

        Searches the encoded metadata for tags instead of parsing it; a false match only costs the
        parse.
        """
        data = self.data
        if len(data) <= FRONT_BYTES:
            self._is_plain = True
            return False
        magic, _, size = unpack_front(data)
        if magic == MAGIC_CRC32C:
            encoded = data[FRONT_BYTES : FRONT_BYTES + size].tobytes()
        else:
            try:
                encoded = bytes(payload.split(data).metadata)
            except RemoteProtocolError:
                encoded = bytes((_BATCH_SIZE_TAG,))
        if not self._messages and _BATCH_SIZE_TAG not in encoded:
            self._messages = 1
        # All three tags end with 1, a byte that most metadata don't contain.
        if 1 in encoded and (
            _MARKER_TAG in encoded or _DELIVER_AT_TAG in encoded or _CHUNK_TAG in encoded
        ):
            return True
        self._is_plain = True
        return False

    @property
    def broker_metadata(self) -> BrokerEntryMetadata | None:
        """The broker's metadata of the entry, if stored: append time and index (PR-03)."""
        return payload.peek_broker_entry_metadata(self.data)

    @property
    def time_ms(self) -> int:
        """The publish time, by the broker's or else the producer's clock; 0 if unreadable."""
        try:
            stored = self.broker_metadata
            if stored is not None and stored.HasField("broker_timestamp"):
                return stored.broker_timestamp
            return self.head.publish_time
        except RemoteProtocolError:
            return 0


def total_size(entries: Iterable[LogEntry]) -> int:
    """Bytes of all entries together."""
    return sum(map(len, map(_data_of, entries)))


class PrefixMaker:
    """Broker entry metadata for the entries of one append, byte-equal to
    `payload.broker_entry_prefix`.

    Indexes rise slowly, so all but an index's lowest seven bits are encoded once for many entries.
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
        return self._front + MORE_BYTES[index & 127] + self._rest
