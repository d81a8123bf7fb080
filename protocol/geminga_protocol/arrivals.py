"""What a client mostly receives, cut by hand: SEND_RECEIPT and MESSAGE in the form in which brokers
write them (spec PR-05). All else goes by protobuf, as in `frames`.

Neighbouring frames of one producer or consumer differ in a few bytes only: so each is compared with
the one before it, and the numbers that differ are read. The first of a kind is parsed by protobuf
and becomes the shape for those to come, if `encode` would write the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from geminga_protocol.ack_set import AckSet
from geminga_protocol.encode import MessageHeader, send_receipt, varint
from geminga_protocol.frames import Frame, FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandMessage, CommandSendReceipt

_SHAPES_MAX = 4096
"""Producers and consumers of one connection whose frames' shapes are remembered."""
_WIDTH_MAX = 4
"""Bytes of the longest number that is read by hand."""
_COMMAND_BYTES_MAX = 128
"""Of the longest MESSAGE that is remembered: longer ones have sets of what is left of a batch."""

_NOWHERE = (1 << 64) - 1
"""-1, on the wire."""
_NO_COMMAND = BaseCommand()
_SEND_RECEIPT = int(BaseCommand.SEND_RECEIPT)
_MESSAGE = int(BaseCommand.MESSAGE)
_COUNTING = bytes(range(256))
_unpack_lengths = struct.Struct(">II").unpack_from


class ReceiptRun(Frame, gc=False, eq=False, kw_only=True):
    """SEND_RECEIPTs of one producer: `count` of them, for sequence ids and entries that follow one
    another.
    """

    producer_id: int
    sequence_id: int
    ledger_id: int
    entry_id: int
    count: int = 1


class MessageRun(Frame, gc=False, eq=False, kw_only=True):
    """MESSAGEs of one consumer that differ in entry and payload only. `places` tell of each its
    entry id, and where in `data` its headers and payload begin and end.
    """

    consumer_id: int
    ledger_id: int
    redelivery_count: int
    ack_set: AckSet
    epoch: int | None
    """The consumer's epoch, if the broker tells it."""
    data: bytes
    places: Sequence[tuple[int, int, int]]


class _ReceiptShape(NamedTuple):
    """A receipt's bytes, and where the lowest bytes of its sequence id and entry id are."""

    frame: bytes
    sequence_at: int
    entry_at: int
    sequence_id: int
    entry_id: int
    producer_id: int
    ledger_id: int


class _MessageShape(NamedTuple):
    """The command of a MESSAGE: what stands before the lowest byte of its entry id, and after."""

    before: bytes
    after: bytes
    entry_high: int
    has_more: bool
    """Whether the entry id has more bytes than that one."""
    size: int
    first: MessageRun


class ArrivalReader(FrameReader):
    """A FrameReader whose frames of type SEND_RECEIPT and MESSAGE are ReceiptRun and MessageRun.
    A MESSAGE without payload comes as a plain Frame.
    """

    __slots__ = ("_messages", "_receipts")

    def __init__(self) -> None:
        super().__init__()
        self._messages: dict[bytes, _MessageShape] = {}
        self._receipts: dict[bytes, _ReceiptShape] = {}

    def _split(self, data: bytes, start: int, end: int, frames: list[Frame]) -> int:
        while end - start >= 8:
            began = start
            # The type, the length and the first number: of one producer or consumer mostly.
            key = data[start + 8 : start + 15]
            if key in self._messages:
                start = self._cut_messages(data, start, end, frames, self._messages[key])
            elif key in self._receipts:
                start = self._cut_receipts(data, start, end, frames, self._receipts[key])
            if start > began:
                continue
            # One frame, which says by itself where it ends; `super` judges the lengths.
            size = max(8, 4 + _unpack_lengths(data, start)[0])
            start = super()._split(data, start, min(start + size, end), frames)
            if start == began:
                break
            self._note(key, data, began, frames)
        return start

    def _cut_messages(
        self, data: bytes, start: int, end: int, frames: list[Frame], shape: _MessageShape
    ) -> int:
        before, after, entry_high, has_more, size, first = shape
        low_at = 8 + len(before)
        after_at = low_at + 1
        begin_at = 8 + size
        total_max = self._size_max
        same = data.startswith
        places: list[tuple[int, int, int]] = []
        append = places.append
        while end - start > begin_at:
            total, command_size = _unpack_lengths(data, start)
            stop = start + 4 + total
            begin = start + begin_at
            if (
                command_size != size
                or total > total_max
                or not begin < stop <= end
                or not same(before, start + 8)
                or not same(after, start + after_at)
            ):
                break
            low = data[start + low_at]
            if (low > 127) is not has_more:
                break
            append((entry_high | low & 127, begin, stop))
            start = stop
        if places:
            frames.append(_message_run(first, data, places))
        return start

    def _cut_receipts(
        self, data: bytes, start: int, end: int, frames: list[Frame], shape: _ReceiptShape
    ) -> int:
        frame, sequence_at, entry_at, sequence_id, entry_id, producer_id, ledger_id = shape
        size = len(frame)
        if end - start < size:
            return start
        low, entry_low = data[start + sequence_at], data[start + entry_at]
        count = min((end - start) // size, 128 - (low & 127), 128 - (entry_low & 127))
        expected = bytearray(frame * count)
        expected[sequence_at::size] = _COUNTING[low : low + count]
        expected[entry_at::size] = _COUNTING[entry_low : entry_low + count]
        stop = start + count * size
        if data[start:stop] != expected:
            count = _common(data[start:stop], expected) // size
        is_wide = (low > 127) is (sequence_id > 127) and (entry_low > 127) is (entry_id > 127)
        if not count or not is_wide:
            return start
        frames.append(
            ReceiptRun(
                _SEND_RECEIPT,
                _NO_COMMAND,
                None,
                producer_id=producer_id,
                sequence_id=sequence_id & -128 | low & 127,
                ledger_id=ledger_id,
                entry_id=entry_id & -128 | entry_low & 127,
                count=count,
            )
        )
        return start + count * size

    def _note(self, key: bytes, data: bytes, began: int, frames: list[Frame]) -> None:
        """Replace the newest frame, which came by protobuf, and remember its shape."""
        frame = frames[-1]
        if frame.type == _MESSAGE and frame.payload is not None:
            run = _message_of(frame.command.message, frame.payload, data, began)
            frames[-1] = run
            message_shape = _message_shape(frame.command.message, run, began)
            if message_shape is not None:
                if len(self._messages) >= _SHAPES_MAX:
                    self._messages.clear()
                self._messages[key] = message_shape
        elif frame.type == _SEND_RECEIPT:
            receipt = frame.command.send_receipt
            frames[-1] = _receipt_of(receipt)
            receipt_shape = _receipt_shape(receipt, data, began)
            if receipt_shape is not None:
                if len(self._receipts) >= _SHAPES_MAX:
                    self._receipts.clear()
                self._receipts[key] = receipt_shape


def _common(one: bytes, other: bytes | bytearray) -> int:
    """How many bytes at the beginning of both, which differ, are the same."""
    different = int.from_bytes(one, "little") ^ int.from_bytes(other, "little")
    return ((different & -different).bit_length() - 1) // 8


def _message_run(
    first: MessageRun, data: bytes, places: Sequence[tuple[int, int, int]]
) -> MessageRun:
    return MessageRun(
        _MESSAGE,
        _NO_COMMAND,
        None,
        consumer_id=first.consumer_id,
        ledger_id=first.ledger_id,
        redelivery_count=first.redelivery_count,
        ack_set=first.ack_set,
        epoch=first.epoch,
        data=data,
        places=places,
    )


def _message_of(
    message: CommandMessage, payload: memoryview, data: bytes, began: int
) -> MessageRun:
    """One that was parsed."""
    stop = began + 4 + _unpack_lengths(data, began)[0]
    return MessageRun(
        _MESSAGE,
        _NO_COMMAND,
        None,
        consumer_id=message.consumer_id,
        ledger_id=message.message_id.ledgerId,
        redelivery_count=message.redelivery_count,
        ack_set=tuple(message.ack_set) if message.ack_set else (),
        epoch=message.consumer_epoch if message.HasField("consumer_epoch") else None,
        data=data,
        places=((message.message_id.entryId, stop - len(payload), stop),),
    )


def _message_shape(message: CommandMessage, run: MessageRun, began: int) -> _MessageShape | None:
    """The shape of one that was parsed; None if it isn't written as brokers do."""
    entry_id, begin, stop = run.places[0]
    number = varint(entry_id)
    if len(number) > _WIDTH_MAX or (run.epoch is not None and run.epoch < 0):
        return None
    header = MessageHeader(run.consumer_id, message.message_id.partition)
    written = header.build(
        run.ledger_id, entry_id, stop - begin, run.redelivery_count, run.ack_set, run.epoch
    )
    if len(written) > _COMMAND_BYTES_MAX or run.data[began:begin] != written:
        return None
    size = len(written) - 8
    body_size = size - 3 - len(varint(size - 4))
    # Lengths, type, length of the body; tag and consumer, tag and length of the place; two tags and
    # the ledger.
    at = 8 + 3 + len(varint(body_size)) + 1 + len(varint(run.consumer_id)) + 2
    at += 1 + len(varint(run.ledger_id)) + 1
    return _MessageShape(
        written[8:at],
        written[at + 1 :],
        entry_id & -128,
        len(number) > 1,
        size,
        _message_run(run, b"", ()),
    )


def _receipt_of(receipt: CommandSendReceipt) -> ReceiptRun:
    """One that was parsed; without an id, as in Apache's client, of a message stored nowhere."""
    is_stored = receipt.HasField("message_id")
    return ReceiptRun(
        _SEND_RECEIPT,
        _NO_COMMAND,
        None,
        producer_id=receipt.producer_id,
        sequence_id=receipt.sequence_id,
        ledger_id=receipt.message_id.ledgerId if is_stored else _NOWHERE,
        entry_id=receipt.message_id.entryId if is_stored else _NOWHERE,
    )


def _receipt_shape(receipt: CommandSendReceipt, data: bytes, began: int) -> _ReceiptShape | None:
    """The shape of one that was parsed; None if it is of a batch, whose sequence ids don't count
    up, or isn't written as brokers do.
    """
    place = receipt.message_id
    sequence, entry = varint(receipt.sequence_id), varint(place.entryId)
    if receipt.highest_sequence_id or max(len(sequence), len(entry)) > _WIDTH_MAX:
        return None
    written = send_receipt(receipt.producer_id, receipt.sequence_id, place.ledgerId, place.entryId)
    if data[began : began + len(written)] != written:
        return None
    entry_at = len(written) - 2 - len(entry)
    ledger_size = len(varint(place.ledgerId))
    sequence_at = entry_at - 1 - ledger_size - 1 - 2 - len(sequence)
    return _ReceiptShape(
        written,
        sequence_at,
        entry_at,
        receipt.sequence_id,
        place.entryId,
        receipt.producer_id,
        place.ledgerId,
    )
