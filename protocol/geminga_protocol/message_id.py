"""Message ids (spec PR-10, PR-11): ordered, hashable, and serialised to the official clients' bytes
(MessageIdImpl).
"""

from __future__ import annotations

from functools import total_ordering
from typing import ClassVar

from google.protobuf.message import DecodeError

from geminga_protocol.ack_set import AckSet
from geminga_protocol.encode import varint
from geminga_protocol.errors import InvalidMessageId
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import MessageIdData

_SIGN = 1 << 63
_TWO_64 = 1 << 64


@total_ordering
class MessageId:
    """The place of a message: entry, partition and index in the batch.

    Ids are compared by ledger, entry, partition and batch index (MessageIdAdv.compareTo), not by
    ack set and batch size. A chunked message has the id of its last chunk; `first_chunk` is the id
    of its first.
    """

    __slots__ = (
        "ack_set",
        "batch_index",
        "batch_size",
        "entry_id",
        "first_chunk",
        "ledger_id",
        "partition",
    )

    EARLIEST: ClassVar[MessageId]
    """Before every message."""
    LATEST: ClassVar[MessageId]
    """After every message."""

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        partition: int = -1,
        batch_index: int = -1,
        batch_size: int = 0,
        ack_set: AckSet = (),
        first_chunk: MessageId | None = None,
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.partition = partition
        self.batch_index = batch_index
        self.batch_size = batch_size
        self.ack_set = ack_set
        self.first_chunk = first_chunk

    def _key(self) -> tuple[int, int, int, int]:
        return self.ledger_id, self.entry_id, self.partition, self.batch_index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageId) and self._key() == other._key()

    def __lt__(self, other: MessageId) -> bool:
        if not isinstance(other, MessageId):
            return NotImplemented
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        tail = f":{self.batch_index}" if self.batch_index >= 0 else ""
        return f"{self.ledger_id}:{self.entry_id}:{self.partition}{tail}"

    @property
    def position(self) -> Position:
        """The entry alone."""
        return Position(self.ledger_id, self.entry_id)

    def serialize(self) -> bytes:
        """The bytes of MessageId.toByteArray in the Java client; all official clients read them."""
        data = self._place()
        if self.first_chunk is not None:
            first = self.first_chunk._place()
            data += b"\x3a" + varint(len(first)) + first
        return data

    def _place(self) -> bytes:
        """As the Java client: without unset values, except the batch size, and without ack set."""
        data = b"\x08" + varint(self.ledger_id) + b"\x10" + varint(self.entry_id)
        if self.partition >= 0:
            data += b"\x18" + varint(self.partition)
        if self.batch_index != -1:
            data += b"\x20" + varint(self.batch_index)
        return data + b"\x30" + varint(self.batch_size)

    @classmethod
    def deserialize(cls, data: bytes) -> MessageId:
        """The id from any official client's bytes. Raises ValueError."""
        try:
            parsed = MessageIdData.FromString(data)
        except DecodeError as error:
            raise InvalidMessageId(f"message id can't be decoded: {error}") from error
        if not parsed.IsInitialized():
            raise InvalidMessageId("message id lacks its ledger or entry")
        return cls.from_wire(parsed)

    @classmethod
    def from_wire(cls, data: MessageIdData) -> MessageId:
        """The id from a command."""
        first = None
        if data.HasField("first_chunk_message_id"):
            first = cls.from_wire(data.first_chunk_message_id)
        return cls(
            signed(data.ledgerId),
            signed(data.entryId),
            data.partition,
            data.batch_index,
            data.batch_size,
            tuple(data.ack_set),
            first,
        )

    def to_wire(self, data: MessageIdData) -> None:
        """Fill in a command's message id, ack set included."""
        data.ledgerId = self.ledger_id % _TWO_64
        data.entryId = self.entry_id % _TWO_64
        if self.partition >= 0:
            data.partition = self.partition
        if self.batch_index != -1:
            data.batch_index = self.batch_index
            if self.batch_size > 0:
                data.batch_size = self.batch_size
        if self.ack_set:
            data.ack_set.extend(self.ack_set)
        if self.first_chunk is not None:
            self.first_chunk.to_wire(data.first_chunk_message_id)


def signed(value: int) -> int:
    """A uint64 of the wire as Java's long: ids of -1 come as 2^64 - 1."""
    return value - _TWO_64 if value & _SIGN else value


EARLIEST_ID = MessageId(-1, -1)
"""Before every message."""

LATEST_ID = MessageId((1 << 63) - 1, (1 << 63) - 1)
"""After every message."""

MessageId.EARLIEST = EARLIEST_ID
MessageId.LATEST = LATEST_ID
