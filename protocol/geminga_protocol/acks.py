"""ACKs of neighbouring entries, cut by hand (spec PR-05, BR-33).

Consumers that acknowledge entry by entry send up to a thousand ids in one command, mostly of
entries that follow one another. The ids of such a run differ in the lowest bytes only: so the bytes
that the run would have are made in a few strides, and compared. All other ACKs are left to the
parser.
"""

from __future__ import annotations

from typing import NamedTuple

from geminga_protocol.encode import ack_frame, varint

ACK_BYTES_MIN = 128
"""Smaller commands are parsed as fast."""
ACK_IDS_MAX = 1000
"""Longer runs are left to the parser, and so to a handler that takes them in turns."""

_NUMBER_BYTES_MAX = 9
"""Bytes of the longest number that is read here: nothing negative."""
_FRONT = b"\x08\x0a\x52"
"""Type ACK, and the tag of its body."""
_INDIVIDUAL = b"\x10\x00\x1a"
"""Kind of acknowledgement, and the tag of the first id."""
_LOW = bytes(range(128, 256))
"""First bytes of numbers of two or more bytes, by their lowest seven bits."""
_ONLY = bytes(range(128))
"""Numbers of one byte."""


class AckIds(NamedTuple):
    """An ACK of so many whole entries that follow one another, without a request for a receipt."""

    consumer_id: int
    ledger_id: int
    first_entry_id: int
    entries: int


def ids_of_run(ledger_id: int, first_entry_id: int, count: int) -> bytes:
    """Ids of consecutive entries, as `encode.individual_acks` has them: made by stretches of up to
    128, in which only one byte differs.
    """
    pieces: list[bytes | bytearray] = []
    ledger = b"\x08" + varint(ledger_id) + b"\x10"
    entry_id, end = first_entry_id, first_entry_id + count
    while entry_id < end:
        low = entry_id & 127
        stretch = min(end - entry_id, 128 - low)
        behind = varint(entry_id >> 7) if entry_id > 127 else b""
        one = b"".join((b"\x1a", varint(len(ledger) + 1 + len(behind)), ledger, b"\x00", behind))
        made = bytearray(one * stretch)
        at = len(one) - len(behind) - 1
        lows = _LOW if behind else _ONLY
        made[at :: len(one)] = lows[low : low + stretch]
        pieces.append(made)
        entry_id += stretch
    return b"".join(pieces)


def ack_of_run(consumer_id: int, ledger_id: int, first_entry_id: int, count: int) -> bytes:
    """The frame of an ACK for consecutive whole entries, as `encode.individual_acks` makes it."""
    return ack_frame(consumer_id, ids_of_run(ledger_id, first_entry_id, count))


def cut_ack(data: bytes, start: int, end: int) -> AckIds | None:
    """The ACK command between the two places, None if it isn't one of a run."""
    if data[start : start + 3] != _FRONT:
        return None
    body_bytes, at = _number(data, start + 3, end)
    if at >= end or at + body_bytes != end or data[at] != 0x08:
        return None
    consumer_id, at = _number(data, at + 1, end)
    if data[at : at + 3] != _INDIVIDUAL:
        return None
    at += 2
    if end - at < 5 or data[at + 2] != 0x08:
        return None
    ledger_id, place = _number(data, at + 3, end)
    if place >= end or data[place] != 0x10:
        return None
    entry_id, place = _number(data, place + 1, end)
    count, rest = divmod(end - at, place - at)
    # With another number of bytes in between, the parser has it.
    if rest or count > ACK_IDS_MAX or data[at:end] != ids_of_run(ledger_id, entry_id, count):
        return None
    return AckIds(consumer_id, ledger_id, entry_id, count)


def _number(data: bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned number, and the place behind it; `end` as the place if there is none."""
    value = shift = 0
    for place in range(at, min(at + _NUMBER_BYTES_MAX, end)):
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    return 0, end
