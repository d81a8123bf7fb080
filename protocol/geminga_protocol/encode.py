"""Frames out: commands to bytes (spec PR-01, PR-02, PR-05).

`frame` and `framed` encode any command through protobuf. The few commands on the hot path have
hand-written encoders, whose bytes equal those of protobuf and Apache's LightProto (fields in order
of their numbers).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from google.protobuf.message import EncodeError, Message

from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

_LENGTHS = struct.Struct(">II")
_pack_lengths = _LENGTHS.pack
_U64 = (1 << 64) - 1
LAST_BYTES = [bytes((n,)) for n in range(128)]
"""The last byte of a varint, or its only one, by its seven bits."""
MORE_BYTES = [bytes((n | 128,)) for n in range(128)]
"""The other bytes."""


def varint(value: int) -> bytes:
    """Base-128 encoding of an unsigned number; a negative one as its 64-bit two's complement."""
    if value < 0:
        value &= _U64
    if value < 0x80:
        return LAST_BYTES[value]
    if value < 0x4000:
        return bytes((value & 127 | 128, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    if value < 0x1000_0000:
        return bytes(
            (value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21)
        )
    # In two parts: a timestamp in milliseconds takes six groups.
    low = value & 0xFFF_FFFF
    return _continued(low) + varint(value >> 28)


def _continued(value: int) -> bytes:
    """Four groups, each with the continuation bit."""
    return bytes(
        (
            value & 127 | 128,
            value >> 7 & 127 | 128,
            value >> 14 & 127 | 128,
            value >> 21 | 128,
        )
    )


steady_varint = lru_cache(maxsize=4096)(varint)
"""`varint` for repeated numbers: ids of producers and ledgers, timestamps."""


def frame(command: BaseCommand) -> bytes:
    """A simple frame, with nothing after the command. Raises LocalProtocolError if required
    fields are missing.
    """
    body = _serialise(command)
    size = len(body)
    return _pack_lengths(size + 4, size) + body


_FRONTS = {
    each.message_type.full_name: b"\x08" + varint(each.number) + varint(each.number << 3 | 2)
    for each in BaseCommand.DESCRIPTOR.fields
    if each.message_type is not None
}
"""Bytes of a BaseCommand before the length of its only field, by type."""


def framed(body: Message) -> bytes:
    """A simple frame of one of BaseCommand's fields, such as a CommandFlow. Raises
    LocalProtocolError if required fields are missing.
    """
    inner = _serialise(body)
    command = _FRONTS[body.DESCRIPTOR.full_name] + varint(len(inner)) + inner
    return _pack_lengths(len(command) + 4, len(command)) + command


def _serialise(command: Message) -> bytes:
    try:
        return command.SerializeToString()
    except EncodeError as error:
        raise LocalProtocolError(f"command is incomplete: {error}") from error


def send_receipt(
    producer_id: int,
    sequence_id: int,
    ledger_id: int,
    entry_id: int,
    highest_sequence_id: int = 0,
) -> bytes:
    """SEND_RECEIPT as Apache's broker writes it: always with message id and highest sequence id.

    A ledger or entry id of -1 (non-persistent topics) is encoded as Java's long.
    """
    place = b"\x08" + steady_varint(ledger_id) + b"\x10" + varint(entry_id)
    body = b"".join(
        (
            b"\x08",
            steady_varint(producer_id),
            b"\x10",
            varint(sequence_id),
            b"\x1a",
            LAST_BYTES[len(place)],
            place,
            b"\x20\x00" if highest_sequence_id == 0 else b"\x20" + varint(highest_sequence_id),
        )
    )
    # The length fits in one byte: at most 11 + 11 + 2 + 22 + 11.
    size = len(body) + 4
    return _pack_lengths(size + 4, size) + b"\x08\x07\x3a" + LAST_BYTES[size - 4] + body


def send(
    producer_id: int,
    sequence_id: int,
    num_messages: int,
    payload_size: int,
    highest_sequence_id: int = 0,
    is_chunk: bool = False,
) -> bytes:
    """The front of a SEND frame; `payload_size` bytes of headers and payload must follow.

    As Apache's client: a single message has no count, only batches have a highest sequence id.
    """
    body = b"\x08" + steady_varint(producer_id) + b"\x10" + varint(sequence_id)
    if num_messages > 1:
        body += b"\x18" + varint(num_messages)
    if highest_sequence_id:
        body += b"\x30" + varint(highest_sequence_id)
    if is_chunk:
        body += b"\x38\x01"
    size = len(body) + 4
    return (
        _pack_lengths(size + 4 + payload_size, size) + b"\x08\x06\x32" + LAST_BYTES[size - 4] + body
    )


def individual_acks(consumer_id: int, ids: Iterable[tuple[int, int, Sequence[int]]]) -> bytes:
    """An ACK frame for single entries: ledger, entry, and the ack set of its batch (PIP-54), empty
    for a whole entry.
    """
    parts: list[bytes] = []
    append = parts.append
    known_ledger_id: int | None = None  # an id may be (-1, -1): the earliest one
    known_high = 0
    ledger = front = behind = b""
    lows = LAST_BYTES
    for ledger_id, entry_id, ack_set in ids:
        high = entry_id >> 7
        if ledger_id != known_ledger_id or high != known_high:
            # Entries mostly follow one another: only the lowest seven bits differ then.
            known_ledger_id, known_high = ledger_id, high
            ledger = b"\x08" + varint(ledger_id) + b"\x10"
            lows, behind = (
                (MORE_BYTES, varint((entry_id & _U64) >> 7)) if high else (LAST_BYTES, b"")
            )
            front = b"\x1a" + varint(len(ledger) + 1 + len(behind)) + ledger
        if not ack_set:
            append(front + lows[entry_id & 127] + behind)
            continue
        place = ledger + varint(entry_id)
        place += b"".join([b"\x28" + varint(word) for word in ack_set])
        append(b"\x1a" + varint(len(place)) + place)
    return ack_frame(consumer_id, b"".join(parts))


def ack_frame(consumer_id: int, ids: bytes) -> bytes:
    """An ACK frame for encoded ids of single entries."""
    body = b"\x08" + varint(consumer_id) + b"\x10\x00" + ids
    command = b"\x08\x0a\x52" + varint(len(body)) + body
    return _pack_lengths(len(command) + 4, len(command)) + command


class MessageHeader:
    """Builds the fronts of one consumer's MESSAGE frames; constant parts are encoded once."""

    __slots__ = (
        "_after", "_before", "_bytes", "_consumer", "_ledger", "_ledger_id", "_pack", "_partition",
        "_shaped",
    )  # fmt: skip

    def __init__(self, consumer_id: int, partition: int) -> None:
        self._consumer = b"\x08" + varint(consumer_id) + b"\x12"
        self._partition = b"\x18" + varint(partition)
        self._ledger_id = 0
        self._ledger = b"\x08\x00\x10"
        self._shaped: tuple[int, int, int | None] = (-1, -1, None)
        """Ledger, entry without its lowest seven bits, and epoch of these bytes."""
        self._before = self._after = b""
        self._bytes = 0
        self._pack = _pack_lengths

    def plain(
        self, ledger_id: int, entry_id: int, payload_size: int, epoch: int | None = None
    ) -> bytes:
        """The same as `build` for an entry that is sent whole and for the first time; of up to 128
        neighbours only one byte and the length differ.
        """
        shape = (ledger_id, entry_id >> 7, epoch)
        if shape != self._shaped:
            if entry_id < 128:
                return self.build(ledger_id, entry_id, payload_size, epoch=epoch)
            whole = self.build(ledger_id, entry_id, 0, epoch=epoch)
            self._shaped = shape
            rest = varint(entry_id >> 7) + self._partition
            if epoch is not None and epoch >= 0:
                rest += b"\x28" + varint(epoch)
            self._after = rest
            self._before = whole[8 : -len(rest) - 1]
            self._bytes = len(whole) - 8
            self._pack = struct.Struct(f">II{len(self._before)}sB{len(rest)}s").pack
        return self._pack(
            self._bytes + 4 + payload_size,
            self._bytes,
            self._before,
            entry_id & 127 | 128,
            self._after,
        )

    def build(
        self,
        ledger_id: int,
        entry_id: int,
        payload_size: int,
        redelivery_count: int = 0,
        ack_set: Sequence[int] = (),
        epoch: int | None = None,
    ) -> bytes:
        """The front of a MESSAGE frame; `payload_size` bytes of headers and payload must follow.

        As Apache's broker: the partition always, the redelivery count if above 0, the epoch if
        there is one. `ack_set` holds the batch's unacknowledged messages (PIP-54).
        """
        if ledger_id != self._ledger_id:
            self._ledger_id = ledger_id
            self._ledger = b"\x08" + varint(ledger_id) + b"\x10"
        place = self._ledger + varint(entry_id) + self._partition
        body = self._consumer + LAST_BYTES[len(place)] + place
        if redelivery_count > 0:
            body += b"\x18" + varint(redelivery_count)
        if ack_set:
            body += b"".join([b"\x20" + varint(word) for word in ack_set])
        if epoch is not None and epoch >= 0:
            body += b"\x28" + varint(epoch)
        length = varint(len(body))
        size = len(body) + len(length) + 3
        return _pack_lengths(size + 4 + payload_size, size) + b"\x08\x09\x4a" + length + body
