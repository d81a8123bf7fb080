"""Bitmaps as words of a java.util.BitSet, and back, at the speed of copying (pure; spec BR-06).

Both are cut into pieces of 65536 members, of which a roaring bitmap keeps the crowded ones as the
very bits that the words hold. So only sparse pieces are walked member by member, and none of them
has more than 4096: what blocks the loop is a fraction of what a million members would cost one by
one. (Format: RoaringFormatSpec; the few parts of it that `BitMap.serialize` writes and reads.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from bitarray import bitarray
from pyroaring import BitMap

_PIECE_MEMBERS = 1 << 16
_PIECE_BYTES = _PIECE_MEMBERS // 8
_SPARSE_MEMBERS_MAX = 4096
"""Pieces up to so many members are lists of them in the roaring format, others are bits."""

_COOKIE = 12346
"""Begins a bitmap that has no run-length encoded piece."""

_RUN_COOKIE = struct.pack("<H", 12347)
_RUNS_AT = 9
"""Where the runs of a bitmap with one piece begin, that is run-length encoded."""

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
