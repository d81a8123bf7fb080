"""What of a cursor is persisted, in Apache's messages (pure; spec BR-05; ManagedCursorImpl).

Holes are written as ranges while they are few, else as one bit set per ledger (PIP-381), so that a
million of them take some hundred kilobytes. Both forms are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from bitarray import bitarray
from pyroaring import BitMap

from geminga_broker.log.ack_state import AckState
from geminga_protocol.ids import EntryId, LedgerId, Position
from geminga_protocol.pb.managed_ledger_pb2 import (
    ManagedCursorInfo,
    NestedPositionInfo,
    PositionInfo,
)

RANGES_MAX = 1000
"""Up to so many holes are written as ranges, which are small then and any reader knows."""

NO_LEDGER = -1
"""`cursorsLedgerId` of a cursor whose whole state stands in the metadata store."""


class CursorSnapshot(NamedTuple):
    """A cursor's durable state, as read back."""

    mark_delete: Position
    ranges: list[tuple[Position, Position]]
    bitmaps: list[tuple[int, BitMap]]
    partial: list[tuple[Position, tuple[int, ...]]]
    properties: dict[str, int]


def position_info(state: AckState, properties: Mapping[str, int], batches_max: int) -> PositionInfo:
    """An entry of the cursor's ledger."""
    info = PositionInfo(ledgerId=state.mark_delete.ledger_id, entryId=state.mark_delete.entry_id)
    ranges = state.ranges(RANGES_MAX)
    if ranges is None:
        for ledger_id, bitmap in state.bitmaps():
            info.individualDeletedMessageRanges.add(key=ledger_id, values=to_words(bitmap))
    else:
        _add_ranges(info, ranges)
    _add_rest(info, state, properties, batches_max)
    return info


def closed_cursor_info(
    state: AckState, properties: Mapping[str, int], batches_max: int, ranges_max: int
) -> ManagedCursorInfo | None:
    """The whole state for the metadata store; None if there are too many holes for it."""
    ranges = state.ranges(min(ranges_max, RANGES_MAX))
    if ranges is None:
        return None
    info = ManagedCursorInfo(
        cursorsLedgerId=NO_LEDGER,
        markDeleteLedgerId=state.mark_delete.ledger_id,
        markDeleteEntryId=state.mark_delete.entry_id,
    )
    _add_ranges(info, ranges)
    _add_rest(info, state, properties, batches_max)
    return info


def read_position_info(info: PositionInfo) -> CursorSnapshot:
    """The inverse of `position_info`."""
    bitmaps = [
        (entry.key, from_words(entry.values)) for entry in info.individualDeletedMessageRanges
    ]
    return _snapshot(Position(LedgerId(info.ledgerId), EntryId(info.entryId)), info, bitmaps)


def read_cursor_info(info: ManagedCursorInfo) -> CursorSnapshot:
    """What the metadata store alone says."""
    mark = Position(LedgerId(info.markDeleteLedgerId), EntryId(info.markDeleteEntryId))
    return _snapshot(mark, info, [])


def to_words(bitmap: BitMap) -> tuple[int, ...]:
    """The members as words of a java.util.BitSet."""
    bits = bitarray(-(-(bitmap.max() + 1) // 64) * 64, endian="little")
    bits.setall(0)
    bits[list(bitmap)] = 1
    data = bits.tobytes()
    return struct.unpack(f"<{len(data) // 8}q", data)


def from_words(words: Iterable[int]) -> BitMap:
    """The inverse of `to_words`."""
    values = list(words)
    bits = bitarray(endian="little")
    bits.frombytes(struct.pack(f"<{len(values)}q", *values))
    return BitMap(list(bits.search(bitarray("1"))))


def _add_ranges(
    info: PositionInfo | ManagedCursorInfo, ranges: list[tuple[Position, Position]]
) -> None:
    for lower, upper in ranges:
        info.individualDeletedMessages.add(
            lowerEndpoint=NestedPositionInfo(ledgerId=lower[0], entryId=lower[1]),
            upperEndpoint=NestedPositionInfo(ledgerId=upper[0], entryId=upper[1]),
        )


def _add_rest(
    info: PositionInfo | ManagedCursorInfo,
    state: AckState,
    properties: Mapping[str, int],
    batches_max: int,
) -> None:
    for position, words in islice(state.partial(), batches_max):
        info.batchedEntryDeletionIndexInfo.add(
            position=NestedPositionInfo(ledgerId=position[0], entryId=position[1]),
            deleteSet=words,
        )
    for name, value in properties.items():
        info.properties.add(name=name, value=value)


def _snapshot(
    mark_delete: Position,
    info: PositionInfo | ManagedCursorInfo,
    bitmaps: list[tuple[int, BitMap]],
) -> CursorSnapshot:
    return CursorSnapshot(
        mark_delete,
        [
            (_nested(entry.lowerEndpoint), _nested(entry.upperEndpoint))
            for entry in info.individualDeletedMessages
        ],
        bitmaps,
        [
            (_nested(entry.position), tuple(entry.deleteSet))
            for entry in info.batchedEntryDeletionIndexInfo
        ],
        {entry.name: entry.value for entry in info.properties},
    )


def _nested(info: NestedPositionInfo) -> Position:
    return Position(LedgerId(info.ledgerId), EntryId(info.entryId))
