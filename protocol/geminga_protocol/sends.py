"""SEND commands recognised by their bytes, without parsing (spec PR-01, PR-07).

Up to 128 neighbouring SENDs of one producer, one message each, differ only in the lowest seven bits
of their sequence ids: the bytes around these are compared, not parsed. All other bytes are left to
the parser, so that each command has protobuf's meaning.
"""

from __future__ import annotations

import struct

import msgspec
from fastcrc import crc32

from geminga_protocol.encode import varint
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandSend

_crc32c = crc32.iscsi
_FRONT_BYTES = 6
"""Magic and checksum after the command."""
_SEQUENCE_ID_MIN = 128
"""Smaller ids take one byte."""
_SEQUENCE_ID_MAX = 1 << 62
_COMMAND_BYTES_MAX = 100
"""So that the command's length takes one byte, whatever the sequence id."""


class SendRun(msgspec.Struct, gc=False, eq=False):
    """SENDs of one producer with consecutive sequence ids, one message each, without transaction;
    the checksums are verified. `payloads` are views of the bytes after the commands.
    """

    producer_id: int
    first_sequence_id: int
    payloads: list[memoryview]


class SendShape:
    """The bytes of a SEND and its possible successors, which `cut` takes from a stream."""

    __slots__ = ("_after", "_before", "_command_bytes", "_next", "_producer_id", "_rest", "_unpack")

    def __init__(self, producer_id: int, sequence_id: int, rest: bytes) -> None:
        """`rest` is the command after the sequence id. The ids are those of the last SEND."""
        self._producer_id = producer_id
        self._rest = rest
        self._next = sequence_id + 1
        self._shape()

    def _shape(self) -> None:
        """The bytes around the next sequence id's lowest bits."""
        producer = b"\x08" + varint(self._producer_id) + b"\x10"
        self._after = varint(self._next >> 7) + self._rest
        inner_bytes = len(producer) + 1 + len(self._after)
        self._before = b"\x08\x06\x32" + bytes((inner_bytes,)) + producer
        self._command_bytes = inner_bytes + 4
        around = f"{len(self._before)}sB{len(self._after)}s"
        self._unpack = struct.Struct(f">II{around}2xI").unpack_from

    def cut(self, view: memoryview, start: int, total_max: int) -> tuple[int, SendRun | None]:
        """Take the SENDs at `start` that follow the last one. Returns the index of the first other
        byte, and the run; None if there is none.
        """
        end = len(view)
        command_bytes = self._command_bytes
        before, after, unpack = self._before, self._after, self._unpack
        front = 8 + command_bytes
        low = self._next & 127 | 128
        run: list[memoryview] = []
        first = self._next
        crc32c = _crc32c
        while end - start >= front + _FRONT_BYTES:
            total, command, seen_before, seen_low, seen_after, checksum = unpack(view, start)
            stop = start + 4 + total
            if (
                seen_low != low
                or command != command_bytes
                or seen_before != before
                or seen_after != after
                or stop > end
                or total > total_max
                or total < command_bytes + 4 + _FRONT_BYTES
            ):
                break
            payload = view[start + front : stop]
            # Without magic these four bytes are no checksum, and all the rest is equal.
            if crc32c(payload[_FRONT_BYTES:]) != checksum:
                break
            run.append(payload)
            start = stop
            low += 1
            if low == 256:
                self._next = first + len(run)
                self._shape()
                command_bytes = self._command_bytes
                before, after, unpack = self._before, self._after, self._unpack
                front = 8 + command_bytes
                low = 128
        if not run:
            return start, None
        self._next = first + len(run)
        return start, SendRun(self._producer_id, first, run)


def shape_of(command: BaseCommand, send: CommandSend, encoded: bytes) -> SendShape | None:
    """The shape of a SEND's successors; None unless it is a plain one in the usual encoding."""
    sequence_id = send.sequence_id
    if (
        not _SEQUENCE_ID_MIN <= sequence_id < _SEQUENCE_ID_MAX
        or len(encoded) > _COMMAND_BYTES_MAX
        or send.num_messages != 1
        or send.highest_sequence_id
        or send.is_chunk
        or send.HasField("txnid_least_bits")
        or send.HasField("txnid_most_bits")
        or encoded[:3] != b"\x08\x06\x32"
        # Each field once, in order: otherwise a later duplicate may count.
        or command.SerializeToString() != encoded
    ):
        return None
    rest_at = 4 + 1 + len(varint(send.producer_id)) + 1 + len(varint(sequence_id))
    return SendShape(send.producer_id, sequence_id, encoded[rest_at:])


class SendJoiner:
    """Joins the SENDs of one stream, after two consecutive ones were parsed."""

    __slots__ = ("_last", "_shape")

    def __init__(self) -> None:
        self._last = (-1, -1)
        """Producer and sequence id of the last parsed SEND."""
        self._shape: SendShape | None = None

    def parsed(self, command: BaseCommand, encoded: bytes) -> None:
        """A SEND was parsed: its successors may have the same shape."""
        send = command.send
        producer_id, sequence_id = self._last
        self._last = send.producer_id, send.sequence_id
        if self._last == (producer_id, sequence_id + 1):
            self._shape = shape_of(command, send, encoded)

    def cut(self, view: memoryview, start: int, total_max: int) -> tuple[int, SendRun | None]:
        """See `SendShape.cut`."""
        if self._shape is None:
            return start, None
        return self._shape.cut(view, start, total_max)
