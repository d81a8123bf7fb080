"""BookKeeper's wire protocol v2: frames of fixed binary layouts (spec BK-08; Apache's
BookieProtocol and BookieProtoEncoding).

A frame begins with its length, then version << 24 | operation << 16 | flags. Behind that:

    add               master key, 20 bytes | packet
    read              ledger i64 | entry i64 | master key, if the read fences
    read many         ledger i64 | first entry i64 | request i64 | entries i32 | bytes i64 | key,
                      as above
    answer            code i32 | ledger i64 | entry i64 | the packet, of a read that found it
    read many answer  code i32 | ledger i64 | entry i64 | request i64 | for each: size i32, packet
    authentication    a protobuf message, both ways
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from geminga_protocol.bookkeeper.framing import LENGTH_BYTES, WireError
from geminga_protocol.bookkeeper.v3 import JOIN_BYTES_MAX
from geminga_protocol.buffers import Buffer
from geminga_protocol.pb.bookkeeper_protocol_pb2 import AuthMessage, StatusCode

VERSION = 2
ADD = 1
READ = 2
AUTH = 3
READ_MANY = 7

FENCE = 1
RECOVERY_ADD = 2
HIGH_PRIORITY = 4
"""Flags of a request."""

MASTER_KEY_BYTES = 20
LAST_ENTRY = -1
"""Entry id that stands for the last one."""

_HEAD = struct.Struct(">I")
_FRONT = struct.Struct(">II")
_IDS = struct.Struct(">qq")
_READ = struct.Struct(">IIqq")
_READ_MANY = struct.Struct(">IIqqqiq")
_ANSWER = struct.Struct(">IIiqq")
_REQUEST_ID = struct.Struct(">q")

CODES: dict[int, int] = {
    0: StatusCode.EOK,
    1: StatusCode.ENOLEDGER,
    2: StatusCode.ENOENTRY,
    100: StatusCode.EBADREQ,
    101: StatusCode.EIO,
    102: StatusCode.EUA,
    103: StatusCode.EBADVERSION,
    104: StatusCode.EFENCED,
    105: StatusCode.EREADONLY,
    106: StatusCode.ETOOMANYREQUESTS,
    107: StatusCode.EUNKNOWNLEDGERSTATE,
}
"""Codes of answers, and their status in v3."""

CODE_OF = {status: code for code, status in CODES.items()}


class V2Request(NamedTuple):
    """A request; what its kind doesn't have is empty, or 0."""

    version: int
    operation: int
    flags: int
    ledger_id: int
    entry_id: int
    master_key: bytes
    packet: bytes
    request_id: int
    entries_max: int
    bytes_max: int
    auth: AuthMessage | None


class V2Answer(NamedTuple):
    """An answer; `packets` are those of a read."""

    operation: int
    code: int
    ledger_id: int
    entry_id: int
    packets: list[bytes]
    request_id: int
    auth: AuthMessage | None


def _word(operation: int, flags: int = 0, version: int = VERSION) -> int:
    return version << 24 | operation << 16 | flags


def encode_adds(master_key: bytes, packets: Sequence[bytes], *, flags: int = 0) -> list[Buffer]:
    """Requests to add packets, whose headers say which entries they are."""
    assert len(master_key) == MASTER_KEY_BYTES
    behind = _HEAD.pack(_word(ADD, flags)) + master_key
    made: list[Buffer] = []
    parts: list[bytes] = []
    front, size = b"", -1
    for packet in packets:
        if len(packet) != size:
            size = len(packet)
            front = _HEAD.pack(len(behind) + size) + behind
        if size < JOIN_BYTES_MAX:
            parts += (front, packet)
        else:
            made += (b"".join((*parts, front)), packet)
            parts.clear()
    if parts:
        made.append(b"".join(parts))
    return made


def encode_read(ledger_id: int, entry_id: int, *, flags: int = 0, master_key: bytes = b"") -> bytes:
    """A request to read an entry, `LAST_ENTRY` for the last one; FENCE needs the master key."""
    size = _READ.size - LENGTH_BYTES + len(master_key)
    return _READ.pack(size, _word(READ, flags), ledger_id, entry_id) + master_key


def encode_read_many(
    ledger_id: int, first_entry_id: int, request_id: int, entries_max: int, bytes_max: int
) -> bytes:
    """A request to read consecutive entries, of which at least one comes if it is there."""
    return _READ_MANY.pack(
        _READ_MANY.size - LENGTH_BYTES, _word(READ_MANY),
        ledger_id, first_entry_id, request_id, entries_max, bytes_max,
    )  # fmt: skip


def encode_auth(message: AuthMessage) -> bytes:
    """An authentication message, of either side."""
    data = message.SerializeToString()
    return _FRONT.pack(LENGTH_BYTES + len(data), _word(AUTH)) + data


def encode_answer(
    operation: int, code: int, ledger_id: int, entry_id: int, packet: bytes = b"", *,
    version: int = VERSION,
) -> list[Buffer]:  # fmt: skip
    """The answer to an add, or to a read."""
    size = _ANSWER.size - LENGTH_BYTES + len(packet)
    word = _word(operation, version=version) if version else operation
    head = _ANSWER.pack(size, word, code, ledger_id, entry_id)
    return [head, packet] if packet else [head]


def encode_add_answers(ledger_id: int, entry_ids: Iterable[int], code: int = 0) -> bytes:
    """The same answer to adds of one ledger."""
    pack, size, word = _ANSWER.pack, _ANSWER.size - LENGTH_BYTES, _word(ADD)
    return b"".join([pack(size, word, code, ledger_id, entry_id) for entry_id in entry_ids])


def encode_read_many_answer(
    code: int, ledger_id: int, entry_id: int, request_id: int, packets: Sequence[bytes]
) -> list[Buffer]:
    """The answer to a request to read consecutive entries."""
    parts: list[Buffer] = []
    for packet in packets:
        parts += (_HEAD.pack(len(packet)), packet)
    size = _ANSWER.size - LENGTH_BYTES + _REQUEST_ID.size + sum(map(len, parts))
    head = _ANSWER.pack(size, _word(READ_MANY), code, ledger_id, entry_id)
    return [head + _REQUEST_ID.pack(request_id), *parts]


def decode_requests(buffer: bytes, bounds: Sequence[int]) -> list[V2Request]:
    """A client's requests, in order. Raises WireError."""
    found: list[V2Request] = []
    start = bounds[0]
    for stop in bounds[1:]:
        try:
            found.append(_request(buffer, start + LENGTH_BYTES, stop))
        except (struct.error, DecodeError) as error:
            raise WireError(f"request of {stop - start} bytes: {error}") from None
        start = stop
    return found


def _request(buffer: bytes, start: int, stop: int) -> V2Request:
    if stop - start < LENGTH_BYTES:
        raise WireError("a request has no header")
    (word,) = _HEAD.unpack_from(buffer, start)
    version, operation, flags = word >> 24, word >> 16 & 0xFF, word & 0xFFFF
    if version == 0:
        # The first clients sent the operation alone.
        operation, flags = word & 0xFF, 0
    at = start + LENGTH_BYTES
    key = packet = b""
    ledger_id = entry_id = request_id = entries_max = bytes_max = 0
    auth = None
    if operation == ADD:
        key = buffer[at : at + MASTER_KEY_BYTES]
        packet = buffer[at + MASTER_KEY_BYTES : stop]
        ledger_id, entry_id = _IDS.unpack_from(packet)
    elif operation in (READ, READ_MANY):
        body = buffer[at:stop]
        ledger_id, entry_id = _IDS.unpack_from(body)
        used = _IDS.size
        if operation == READ_MANY:
            request_id, entries_max, bytes_max = struct.unpack_from(">qiq", body, used)
            used += 20
        if flags & FENCE and version >= VERSION:
            key = body[used : used + MASTER_KEY_BYTES]
            if len(key) < MASTER_KEY_BYTES:
                raise WireError("a fencing read has no master key")
    elif operation == AUTH:
        auth = AuthMessage()
        auth.ParseFromString(buffer[at:stop])
    else:
        raise WireError(f"unknown operation {operation}")
    return V2Request(
        version, operation, flags, ledger_id, entry_id, key, packet,
        request_id, entries_max, bytes_max, auth,
    )  # fmt: skip


class AddAnswers(NamedTuple):
    """The same answer to adds of consecutive entries of a ledger."""

    ledger_id: int
    first_entry_id: int
    entries: int
    code: int


def decode_add_answers(buffer: bytes, bounds: Sequence[int]) -> list[AddAnswers]:
    """A bookie's answers to adds, in order, neighbours as one. Raises WireError, also for an answer
    to anything else.
    """
    found: list[AddAnswers] = []
    first_entry_id = next_entry_id = ledger_id = code = -1
    start = bounds[0]
    for stop in bounds[1:]:
        if stop - start < _ANSWER.size:
            raise WireError(f"answer of {stop - start} bytes")
        _, word, code_here, ledger_here, entry_id = _ANSWER.unpack_from(buffer, start)
        if word >> 16 & 0xFF != ADD:
            raise WireError(f"answer of operation {word >> 16 & 0xFF} on a connection for adds")
        if entry_id != next_entry_id or ledger_here != ledger_id or code_here != code:
            if next_entry_id > first_entry_id:
                entries = next_entry_id - first_entry_id
                found.append(AddAnswers(ledger_id, first_entry_id, entries, code))
            ledger_id, first_entry_id, code = ledger_here, entry_id, code_here
        next_entry_id = entry_id + 1
        start = stop
    if next_entry_id > first_entry_id:
        found.append(AddAnswers(ledger_id, first_entry_id, next_entry_id - first_entry_id, code))
    return found


def decode_answers(buffer: bytes, bounds: Sequence[int]) -> list[V2Answer]:
    """A bookie's answers, in order. Raises WireError."""
    found: list[V2Answer] = []
    start = bounds[0]
    for stop in bounds[1:]:
        try:
            found.append(_answer(buffer, start, stop))
        except (struct.error, DecodeError) as error:
            raise WireError(f"answer of {stop - start} bytes: {error}") from None
        start = stop
    return found


def _answer(buffer: bytes, start: int, stop: int) -> V2Answer:
    data = buffer[start:stop]
    _, word = _FRONT.unpack_from(data)
    operation = word >> 16 & 0xFF
    if operation == AUTH:
        auth = AuthMessage()
        auth.ParseFromString(data[_FRONT.size :])
        return V2Answer(operation, 0, -1, -1, [], 0, auth)
    if operation not in (ADD, READ, READ_MANY):
        raise WireError(f"answer of the unknown operation {operation}")
    _, _, code, ledger_id, entry_id = _ANSWER.unpack_from(data)
    packets: list[bytes] = []
    request_id = 0
    at = _ANSWER.size
    if operation == READ:
        packets = [data[at:]] if len(data) > at else []
    elif operation == READ_MANY:
        (request_id,) = _REQUEST_ID.unpack_from(data, at)
        at += _REQUEST_ID.size
        while at < len(data):
            (size,) = _HEAD.unpack_from(data, at)
            at += LENGTH_BYTES
            if size > len(data) - at:
                raise WireError(f"an entry of {size} bytes doesn't fit into its answer")
            packets.append(data[at : at + size])
            at += size
    return V2Answer(operation, code, ledger_id, entry_id, packets, request_id, None)
