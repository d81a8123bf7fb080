"""The persisted form of a cursor, in Apache's messages (pure; spec BR-05; ManagedCursorImpl).

A few holes are written as ranges, many as one bit set per ledger (PIP-381), so that a million of
them take some hundred kilobytes. A state that is too large for one entry is written as several, in
our own form (docs/DATA_FILES.md): each has the mark-delete position and a part of the rest, and the
last one is also valid for a reader that doesn't support parts. All forms are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from bitarray import bitarray
from pyroaring import BitMap

from geminga_broker.log.ack_state import AckState
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.pb.managed_ledger_pb2 import (
    ManagedCursorInfo,
    NestedPositionInfo,
    PositionInfo,
)

RANGES_MAX = 1000
"""Up to this number, holes are written as ranges, which every reader supports."""

WORDS_MAX = 1 << 15
"""Up to this number of words (two million entries from the first to the last hole), bit sets are
written; above it our own bitmaps, which cost a copy.
"""

PART_BYTES_MAX = 1 << 20
"""Approximate bound of one entry. Larger states are written as several."""

_WINDOW_ENTRIES = (PART_BYTES_MAX - (1 << 16)) * 8
"""Entries of a ledger whose bitmap always fits into one part."""

NO_LEDGER = -1
"""`cursorsLedgerId` of a cursor with its whole state in the metadata store."""


_PIECE_MEMBERS = 1 << 16
_PIECE_BYTES = _PIECE_MEMBERS // 8
_SPARSE_MEMBERS_MAX = 4096
"""In the roaring format, pieces up to this number of members are lists, others are bits."""

_COOKIE = 12346
"""First bytes of a bitmap without run-length encoded pieces."""

_RUN_COOKIE = struct.pack("<H", 12347)
_RUNS_AT = 9
"""Offset of the runs in a bitmap with one run-length encoded piece."""

_HEADER = struct.Struct("<II")
_ONE = bitarray("1")


def to_words(bitmap: BitMap) -> list[int]:
    """The members as words, the last not 0. Copies the bits between first and last member."""
    if not bitmap:
        return []
    size = -(-(bitmap.max() + 1) // 64) * 8
    bits = bytearray(-(-size // _PIECE_BYTES) * _PIECE_BYTES)
    for start in range(0, bitmap.max() + 1, _PIECE_MEMBERS):
        piece = bitmap & BitMap(range(start, start + _PIECE_MEMBERS))
        if piece:
            bits[start // 8 : start // 8 + _PIECE_BYTES] = _bits_of(piece, start)
    return list(struct.unpack(f"<{size // 8}q", bits[:size]))


def from_words(words: Iterable[int]) -> BitMap:
    """The inverse of `to_words`."""
    values = list(words)
    data = struct.pack(f"<{len(values)}q", *values)
    keys: list[tuple[int, int]] = []
    pieces: list[bytes] = []
    for key in range(-(-len(data) // _PIECE_BYTES)):
        bits = data[key * _PIECE_BYTES : (key + 1) * _PIECE_BYTES]
        members = int.from_bytes(bits, "little").bit_count()
        if members:
            keys.append((key, members - 1))
            pieces.append(_piece(bits, members))
    return _joined(keys, pieces)


def _bits_of(piece: BitMap, start: int) -> bytes:
    """8 KiB: the bits of one piece."""
    bits = bitarray(_PIECE_MEMBERS, endian="little")
    bits.setall(0)
    if len(piece) <= _SPARSE_MEMBERS_MAX:
        bits[[member - start for member in piece]] = 1
        return bits.tobytes()
    data = piece.serialize()
    if data[:2] != _RUN_COOKIE:
        return data[-_PIECE_BYTES:]
    (runs,) = struct.unpack_from("<H", data, _RUNS_AT)
    for first, more in struct.iter_unpack("<HH", data[_RUNS_AT + 2 : _RUNS_AT + 2 + 4 * runs]):
        bits[first : first + more + 1] = 1
    return bits.tobytes()


def _piece(bits: bytes, members: int) -> bytes:
    """One container of the roaring format."""
    if members > _SPARSE_MEMBERS_MAX:
        return bits.ljust(_PIECE_BYTES, b"\0")
    found = bitarray(endian="little")
    found.frombytes(bits)
    return struct.pack(f"<{members}H", *found.search(_ONE))


def _joined(keys: list[tuple[int, int]], pieces: list[bytes]) -> BitMap:
    if not pieces:
        return BitMap()
    offset = _HEADER.size + 8 * len(pieces)
    offsets: list[int] = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece)
    head = _HEADER.pack(_COOKIE, len(pieces))
    table = b"".join(struct.pack("<HH", *key) for key in keys)
    places = struct.pack(f"<{len(offsets)}I", *offsets)
    return BitMap.deserialize(b"".join((head, table, places, *pieces)))


class CursorSnapshot(NamedTuple):
    """A cursor's durable state, as read back."""

    mark_delete: Position
    ranges: list[tuple[Position, Position]]
    bitmaps: list[tuple[int, BitMap]]
    partial: list[tuple[Position, tuple[int, ...]]]
    properties: dict[str, int]
    last_active_ms: int | None
    """When the cursor was last used; None: unknown."""


def position_infos(
    state: AckState, properties: Mapping[str, int], batches_max: int
) -> list[PositionInfo]:
    """The entries of the cursor's ledger for the state: one, unless it is very large."""
    ranges = state.ranges(RANGES_MAX)
    words = 0
    if ranges is None:
        words = sum(bitmap.max() // 64 + 1 for _, bitmap in state.bitmaps())
    if words <= WORDS_MAX:
        info = _empty(state)
        if ranges is not None:
            _add_ranges(info, ranges)
        else:
            for ledger_id, bitmap in state.bitmaps():
                info.individualDeletedMessageRanges.add(key=ledger_id, values=to_words(bitmap))
        _add_rest(info, state, properties, batches_max)
        if info.ByteSize() <= PART_BYTES_MAX:
            return [info]
    return _parts(state, properties, batches_max)


def entries_of_state(last: PositionInfo) -> int:
    """The number of entries of the state that ends with this one; 0 if this one is not the end of a
    state, because the broker died while writing it.
    """
    if not last.HasField("part"):
        return 1
    return last.part.count if last.part.index == last.part.count - 1 else 0


def read_position_infos(infos: Sequence[PositionInfo]) -> CursorSnapshot:
    """The inverse of `position_infos`. Raises RemoteProtocolError if they are not one state."""
    last = infos[-1]
    merged = PositionInfo()
    bitmaps: list[tuple[int, BitMap]] = []
    for index, info in enumerate(infos):
        if info.HasField("part") and (info.part.index, info.part.count) != (index, len(infos)):
            raise RemoteProtocolError("parts of a cursor's state don't belong together")
        bitmaps += [(entry.ledgerId, _roaring(entry.roaring)) for entry in info.ledgerBitmaps]
        bitmaps += [
            (entry.key, from_words(entry.values)) for entry in info.individualDeletedMessageRanges
        ]
        merged.individualDeletedMessages.extend(info.individualDeletedMessages)
        merged.batchedEntryDeletionIndexInfo.extend(info.batchedEntryDeletionIndexInfo)
        merged.properties.extend(info.properties)
    if last.HasField("lastActive"):
        merged.lastActive = last.lastActive
    return _snapshot(Position(last.ledgerId, last.entryId), merged, bitmaps)


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


def read_cursor_info(info: ManagedCursorInfo) -> CursorSnapshot:
    """The state in the metadata store."""
    mark = Position(info.markDeleteLedgerId, info.markDeleteEntryId)
    return _snapshot(mark, info, [])


def _empty(state: AckState) -> PositionInfo:
    mark_delete = state.mark_delete
    return PositionInfo(ledgerId=mark_delete.ledger_id, entryId=mark_delete.entry_id)


def _parts(state: AckState, properties: Mapping[str, int], batches_max: int) -> list[PositionInfo]:
    """The state as several entries of about PART_BYTES_MAX at most."""
    infos = [_empty(state)]
    size = 0
    for ledger_id, data in _windows(state):
        if size + len(data) > PART_BYTES_MAX:
            infos.append(_empty(state))
            size = 0
        infos[-1].ledgerBitmaps.add(ledgerId=ledger_id, roaring=data)
        size += len(data)
    for position, words in islice(state.partial(), batches_max):
        if size > PART_BYTES_MAX:
            infos.append(_empty(state))
            size = 0
        _add_batch(infos[-1], position, words)
        size += 24 + 11 * len(words)
    for name, value in properties.items():
        infos[-1].properties.add(name=name, value=value)
    for index, info in enumerate(infos):
        info.part.index = index
        info.part.count = len(infos)
    return infos


def _windows(state: AckState) -> Iterator[tuple[int, bytes]]:
    """Serialized bitmaps, each small enough for one part."""
    for ledger_id, bitmap in state.bitmaps():
        if bitmap.max() - bitmap.min() < _WINDOW_ENTRIES:
            yield ledger_id, bitmap.serialize()
            continue
        for start in range(bitmap.min(), bitmap.max() + 1, _WINDOW_ENTRIES):
            window = bitmap & BitMap(range(start, start + _WINDOW_ENTRIES))
            if window:
                yield ledger_id, window.serialize()


def _roaring(data: bytes) -> BitMap:
    try:
        return BitMap.deserialize(data)
    except ValueError as error:
        raise RemoteProtocolError(f"a bitmap of a cursor's state is damaged: {error}") from error


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
        _add_batch(info, position, words)
    for name, value in properties.items():
        info.properties.add(name=name, value=value)


def _add_batch(
    info: PositionInfo | ManagedCursorInfo, position: Position, words: tuple[int, ...]
) -> None:
    added = info.batchedEntryDeletionIndexInfo.add(deleteSet=words)
    added.position.ledgerId, added.position.entryId = position


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
        info.lastActive if info.HasField("lastActive") else None,
    )


def _nested(info: NestedPositionInfo) -> Position:
    return Position(info.ledgerId, info.entryId)
