"""SEND_RECEIPTs for a run of entries, in one buffer (spec BR-24).

The same bytes as `encode.send_receipt`, several times as fast: neighbouring receipts differ in the
lowest seven bits of two numbers, so the bytes around these are made once for up to 128 receipts.
"""

from __future__ import annotations

from collections.abc import Sequence

from geminga_protocol.buffers import Buffer
from geminga_protocol.encode import MORE_BYTES, send_receipt, varint

_LOWS = b"".join(MORE_BYTES)
_FEW = 2
"""So many receipts are made faster one by one."""


def send_receipts(
    producer_id: int,
    sent: Sequence[tuple[int, int, int]],
    ledger_id: int,
    first_entry_id: int,
    entry_step: int = 1,
) -> bytes:
    """Receipts for consecutive entries, each given as (sequence id, highest sequence id, size in
    bytes).

    With `entry_step` 0 all get the same entry id: for non-persistent topics.
    """
    pieces: list[bytes] = []
    add = pieces.extend
    low_of = MORE_BYTES
    highs = (-1, -1)
    before = between = after = b""
    entry_id = first_entry_id
    for sequence_id, highest, _ in sent:
        if highest or sequence_id < 128 or entry_id < 128:
            pieces.append(send_receipt(producer_id, sequence_id, ledger_id, entry_id, highest))
        else:
            if highs != (sequence_id >> 7, entry_id >> 7):
                highs = (sequence_id >> 7, entry_id >> 7)
                before, between, after = _frame_around(producer_id, ledger_id, *highs)
            add((before, low_of[sequence_id & 127], between, low_of[entry_id & 127], after))
        entry_id += entry_step
    return b"".join(pieces)


def joined_receipts(
    producer_id: int, first_sequence_id: int, count: int, ledger_id: int, first_entry_id: int
) -> bytes:
    """As `send_receipts`, for consecutive sequence ids and entries, without highest ids: made by
    stretches of up to 128, in which only two bytes differ.
    """
    pieces: list[Buffer] = []
    sequence_id, entry_id = first_sequence_id, first_entry_id
    end = sequence_id + count
    while sequence_id < end:
        if end - sequence_id <= _FEW or sequence_id < 128 or entry_id < 128:
            pieces.append(send_receipt(producer_id, sequence_id, ledger_id, entry_id))
            sequence_id += 1
            entry_id += 1
            continue
        low, entry_low = sequence_id & 127, entry_id & 127
        stretch = min(end - sequence_id, 128 - max(low, entry_low))
        highs = (sequence_id >> 7, entry_id >> 7)
        before, between, after = _frame_around(producer_id, ledger_id, *highs)
        one = b"".join((before, MORE_BYTES[low], between, MORE_BYTES[entry_low], after))
        made = bytearray(one * stretch)
        at = len(before)
        made[at :: len(one)] = _LOWS[low : low + stretch]
        at += 1 + len(between)
        made[at :: len(one)] = _LOWS[entry_low : entry_low + stretch]
        pieces.append(made)
        sequence_id += stretch
        entry_id += stretch
    return b"".join(pieces)


def _frame_around(
    producer_id: int, ledger_id: int, sequence_high: int, entry_high: int
) -> tuple[bytes, bytes, bytes]:
    """The bytes before, between and after the low bytes of sequence id and entry id."""
    sequence_id, entry_id = sequence_high << 7 | 127, entry_high << 7 | 127
    whole = send_receipt(producer_id, sequence_id, ledger_id, entry_id)
    after = varint(entry_high) + b"\x20\x00"
    place = b"\x08" + varint(ledger_id) + b"\x10"
    # + 2: tag and length of the message id.
    between_size = len(varint(sequence_high)) + 2 + len(place)
    end = len(whole) - len(after) - 1
    start = end - between_size
    return whole[: start - 1], whole[start:end], after
