"""BookKeeper's wire protocol v3: frames of protobuf messages (spec BK-08; Apache's
BookieProtoEncoding and PerChannelBookieClient).

Adds and their answers, of which there are many, are written and recognized as bytes; all others are
protobuf messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from geminga_protocol.bookkeeper.framing import LENGTH_BYTES, WireError
from geminga_protocol.buffers import Buffer
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    ADD_ENTRY,
    EOK,
    VERSION_THREE,
    OperationType,
    Request,
    Response,
    StatusCode,
)

TXN_FIRST = 1 << 42
"""A client's first transaction id. Until 2^49 they have seven bytes, which makes the answers to
adds recognizable at fixed places.
"""

DEFERRED_SYNC = 1
"""Bit of an add's writeFlags: answer before the data are on disk."""

HIGH_PRIORITY = 100
"""Priority of requests of recovery and fencing (Apache's DEFAULT_HIGH_PRIORITY_VALUE)."""

JOIN_BYTES_MAX = 16 * 1024
"""Packets under this are joined to one buffer with their requests; larger ones are not copied."""

_LAST = [bytes((low,)) for low in range(128)]
_MORE = [bytes((low | 128,)) for low in range(128)]
_pack_length = struct.Struct(">I").pack

# An answer to an add that succeeded: length; header: message of 12 bytes, version 3, ADD_ENTRY,
# transaction id of seven bytes; status EOK, field addResponse; its length, its status EOK.
_answer_at = struct.Struct(">4x7sB6s4sx2s").unpack_from
_ANSWER_BYTES_MIN = 4 + 7 + 7 + 4 + 3
_ANSWER_HEAD = b"\x0a\x0c\x08\x03\x10\x02\x18"
_ANSWER_OK = b"\x10\x00\xaa\x06"
_INNER_OK = b"\x08\x00"


class Added(NamedTuple):
    """Answers "added" to consecutive transaction ids."""

    first_txn: int
    entries: int


def varint(value: int) -> bytes:
    """Protobuf's encoding of an int64."""
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def encode_adds(
    ledger_id: int,
    master_key: bytes,
    first_entry_id: int,
    packets: Sequence[bytes],
    first_txn: int,
    *,
    recovery: bool = False,
    write_flags: int = 0,
    priority: int = 0,
) -> list[Buffer]:
    """Requests to add consecutive entries, with consecutive transaction ids."""
    ledger = b"\x08" + varint(ledger_id) + b"\x10"
    key = b"\x1a" + varint(len(master_key)) + master_key + b"\x22"
    behind = b"\x28" + varint(write_flags) if write_flags else b""
    if recovery:
        behind += b"\xa0\x06\x01"
    with_priority = b"\x20" + varint(priority) if priority else b""
    made: list[Buffer] = []
    parts: list[bytes] = []
    front = middle = before_body = b""
    size = -1
    txn, entry_id = first_txn, first_entry_id
    low_txn = low_entry = _LAST
    for packet in packets:
        if len(packet) != size or not txn & 127 or not entry_id & 127:
            # What stays the same for up to 128 entries of one size.
            size = len(packet)
            low_txn, rest_of_txn = _split(txn)
            low_entry, rest_of_entry = _split(entry_id)
            before_body = rest_of_entry + key + varint(size)
            add_size = len(ledger) + 1 + len(before_body) + size + len(behind)
            add = b"\xaa\x06" + varint(add_size)
            middle = rest_of_txn + with_priority + add + ledger
            header_size = 6 + len(rest_of_txn) + len(with_priority)
            total = 2 + header_size + len(add) + add_size
            front = _pack_length(total) + b"\x0a" + varint(header_size) + b"\x08\x03\x10\x02\x18"
        head = (front, low_txn[txn & 127], middle, low_entry[entry_id & 127], before_body)
        if size < JOIN_BYTES_MAX:
            parts += head
            parts.append(packet)
        else:
            made.append(b"".join((*parts, *head)))
            made.append(packet)
            parts.clear()
        if behind:
            parts.append(behind)
        txn += 1
        entry_id += 1
    if parts:
        made.append(b"".join(parts))
    return made


def _split(value: int) -> tuple[list[bytes], bytes]:
    """The table of a varint's first byte, and its other bytes."""
    return (_MORE, varint(value >> 7)) if value > 127 else (_LAST, b"")


def request(operation: OperationType, txn: int, *, priority: int = 0) -> Request:
    """A request without its body."""
    made = Request()
    made.header.version = VERSION_THREE
    made.header.operation = operation
    made.header.txnId = txn
    if priority:
        made.header.priority = priority
    return made


def response(operation: OperationType, txn: int, status: StatusCode) -> Response:
    """A response without its body."""
    made = Response()
    made.header.version = VERSION_THREE
    made.header.operation = operation
    made.header.txnId = txn
    made.status = status
    return made


def frame(message: Request | Response) -> bytes:
    """The message with its length before it."""
    data = message.SerializeToString()
    return _pack_length(len(data)) + data


def encode_reads(ledger_id: int, first_entry_id: int, count: int, first_txn: int) -> bytes:
    """Requests to read consecutive entries, with consecutive transaction ids."""
    ledger = b"\x08" + varint(ledger_id) + b"\x10"
    parts: list[bytes] = []
    for at in range(count):
        entry = varint(first_entry_id + at)
        head = b"\x08\x03\x10\x01\x18" + varint(first_txn + at)
        body = ledger + entry
        message = b"\x0a" + varint(len(head)) + head + b"\xa2\x06" + varint(len(body)) + body
        parts += (_pack_length(len(message)), message)
    return b"".join(parts)


def encode_add_answers(ledger_id: int, entry_ids: Iterable[int], txns: Iterable[int]) -> bytes:
    """Answers "added" to single adds of one ledger."""
    ledger = b"\x08\x00\x10" + varint(ledger_id) + b"\x18"
    parts: list[bytes] = []
    front = middle = rest_of_txn = rest_of_entry = b""
    high_txn = high_entry = -1
    low_txn = low_entry = _LAST
    for entry_id, txn in zip(entry_ids, txns, strict=True):
        if txn >> 7 != high_txn or entry_id >> 7 != high_entry:
            # What stays the same for up to 128 answers.
            high_txn, high_entry = txn >> 7, entry_id >> 7
            low_txn, rest_of_txn = _split(txn)
            low_entry, rest_of_entry = _split(entry_id)
            header_size = 6 + len(rest_of_txn)
            body_size = len(ledger) + 1 + len(rest_of_entry)
            total = 2 + header_size + 5 + body_size
            front = _pack_length(total) + b"\x0a" + _LAST[header_size] + b"\x08\x03\x10\x02\x18"
            middle = rest_of_txn + _ANSWER_OK + _LAST[body_size] + ledger
        parts += (front, low_txn[txn & 127], middle, low_entry[entry_id & 127], rest_of_entry)
    return b"".join(parts)


def decode_answers(buffer: bytes, bounds: Sequence[int]) -> list[Added | Response]:
    """What a bookie's frames say, in order. Neighbouring answers "added" come as one.

    Raises WireError.
    """
    found: list[Added | Response] = []
    first_txn = next_txn = -1
    rest, high = b"", 0
    start = bounds[0]
    for stop in bounds[1:]:
        if stop - start >= _ANSWER_BYTES_MIN:
            head, low, rest_here, ok, inner = _answer_at(buffer, start)
            if ok == _ANSWER_OK and head == _ANSWER_HEAD and inner == _INNER_OK:
                if rest_here != rest:
                    rest, high = rest_here, _value_of(rest_here) << 7
                txn = high | low & 127
                if txn != next_txn:
                    if next_txn > first_txn:
                        found.append(Added(first_txn, next_txn - first_txn))
                    first_txn = txn
                next_txn = txn + 1
                start = stop
                continue
        if next_txn > first_txn:
            found.append(Added(first_txn, next_txn - first_txn))
            first_txn = next_txn = -1
        answer = _parsed(Response(), buffer, start, stop)
        if (
            answer.header.operation == ADD_ENTRY
            and answer.status == EOK == answer.addResponse.status
        ):
            found.append(Added(answer.header.txnId, 1))
        else:
            found.append(answer)
        start = stop
    if next_txn > first_txn:
        found.append(Added(first_txn, next_txn - first_txn))
    return found


def decode_requests(buffer: bytes, bounds: Sequence[int]) -> list[Request]:
    """A client's requests, in order. Raises WireError."""
    found: list[Request] = []
    start = bounds[0]
    for stop in bounds[1:]:
        found.append(_parsed(Request(), buffer, start, stop))
        start = stop
    return found


M = TypeVar("M", Request, Response)


def _parsed(message: M, buffer: bytes, start: int, stop: int) -> M:
    try:
        message.ParseFromString(buffer[start + LENGTH_BYTES : stop])
    except DecodeError as error:
        raise WireError(f"frame of {stop - start} bytes: {error}") from None
    if not message.IsInitialized():
        # Also a status that isn't known: it must not be taken for the default, which is success.
        raise WireError(f"frame of {stop - start} bytes lacks a field, or has an unknown value")
    return message


def _value_of(data: bytes) -> int:
    value = 0
    for at, byte in enumerate(data):
        value |= (byte & 127) << (7 * at)
    return value
