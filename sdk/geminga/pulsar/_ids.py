"""`MessageId` of the official client."""

from __future__ import annotations

from contextlib import suppress
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

from geminga_protocol.encode import varint
from geminga_protocol.errors import InvalidMessageId
from geminga_protocol.message_id import EARLIEST_ID, LATEST_ID
from geminga_protocol.message_id import MessageId as Place

if TYPE_CHECKING:
    from geminga.message import Message

_PARTITION, _BATCH_INDEX, _BATCH_SIZE, _FIRST_CHUNK = b"\x18", b"\x20", b"\x30", b"\x3a"
"""Tags of MessageIdData."""


class PlaceOfTopic(Place):
    """A place whose topic, or partition, is known: a consumer of several finds it by that."""

    __slots__ = ("topic",)
    topic: str

    @classmethod
    def made(cls, place: Place, topic: str) -> PlaceOfTopic:
        """The place with its topic."""
        made = cls(
            place.ledger_id,
            place.entry_id,
            place.partition,
            place.batch_index,
            place.batch_size,
            place.ack_set,
            place.first_chunk,
        )
        made.topic = topic
        return made


class MessageId:
    """The place of a message in its topic. Unlike the official client's it is hashable."""

    __slots__ = ("_consumer", "_message", "_place")

    earliest: ClassVar[MessageId]
    """Before every message."""
    latest: ClassVar[MessageId]
    """After every message."""

    def __init__(
        self, partition: int = -1, ledger_id: int = -1, entry_id: int = -1, batch_index: int = -1
    ) -> None:
        self._place = Place(
            _checked("ledger_id", ledger_id, 63),
            _checked("entry_id", entry_id, 63),
            _checked("partition", partition, 31),
            _checked("batch_index", batch_index, 31),
        )
        self._message: Message | None = None
        """The message that it was taken from; `_consumer` has received it."""
        self._consumer: object = None

    @classmethod
    def _of(cls, place: Place, topic: str = "") -> MessageId:
        made = cls()
        made._place = PlaceOfTopic.made(place, topic) if topic else place
        return made

    def ledger_id(self) -> int:
        """The ledger."""
        return self._place.ledger_id

    def entry_id(self) -> int:
        """The entry's number in the ledger; for a chunked message that of its last chunk."""
        return self._place.entry_id

    def batch_index(self) -> int:
        """The index in the batch, -1 if it is not of a batch."""
        return self._place.batch_index

    def partition(self) -> int:
        """The topic's partition, -1 if it has none."""
        return self._place.partition

    def serialize(self) -> bytes:
        """Bytes to be stored, from which `deserialize` makes the id; the same as those of the
        official Python and C++ clients.
        """
        data = _data(self._place)
        if self._place.first_chunk is not None:
            first = _data(self._place.first_chunk)
            data += _FIRST_CHUNK + varint(len(first)) + first
        return data

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """The id from the bytes of any official client. Consumers of several topics need the
        `topic` to find the message. Raises ValueError.
        """
        try:
            place = Place.deserialize(message_id_bytes)
        except InvalidMessageId as error:
            raise ValueError(str(error)) from None
        return MessageId._of(place, topic or "")

    @classmethod
    def wrap(cls, msg_id: MessageId) -> MessageId:
        """The same id: there is no other class of ids here."""
        return msg_id

    def __str__(self) -> str:
        first = self._place.first_chunk
        return _text(self._place) if first is None else f"{_text(first)};{_text(self._place)}"

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self._place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageId) and self._place == other._place

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: MessageId) -> bool:
        return _order(self._place) < _order(other._place)

    def __le__(self, other: MessageId) -> bool:
        return self < other or self == other

    def __gt__(self, other: MessageId) -> bool:
        return not self <= other

    def __ge__(self, other: MessageId) -> bool:
        return not self < other


def _checked(name: str, number: Any, bits: int) -> int:
    """It as an int; NumPy's and others' whole numbers are. Raises TypeError for a number that no
    message id of the wire can hold.
    """
    with suppress(TypeError):
        whole = index(number)
        if -(1 << bits) <= whole < 1 << bits:
            return whole
    raise TypeError(f"{name} must be a number of {bits + 1} bits with its sign, not {number!r}")


def _order(place: Place) -> tuple[int, int, int]:
    """As the C++ client compares: without the partition."""
    return place.ledger_id, place.entry_id, place.batch_index


def _text(place: Place) -> str:
    return f"({place.ledger_id},{place.entry_id},{place.partition},{place.batch_index})"


def _data(place: Place) -> bytes:
    """As the C++ client: without unset values."""
    data = b"\x08" + varint(place.ledger_id) + b"\x10" + varint(place.entry_id)
    if place.partition != -1:
        data += _PARTITION + varint(place.partition)
    if place.batch_index != -1:
        data += _BATCH_INDEX + varint(place.batch_index)
    return data + _BATCH_SIZE + varint(place.batch_size) if place.batch_size else data


MessageId.earliest = MessageId._of(EARLIEST_ID)
MessageId.latest = MessageId._of(LATEST_ID)
