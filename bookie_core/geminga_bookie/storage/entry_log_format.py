"""Bytes of entry logs (docs/DATA_FILES.md): header, blocks, ledger map. Pure.

A block has consecutive entries of one ledger. Its head and table have a checksum, and each entry
has one, so that damage affects only the damaged entries (spec BK-12).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from geminga_bookie.storage.journal_format import PAGE_BYTES, crc32c

FILE_MAGIC = b"GEML"
FILE_VERSION = 1
FILE_HEADER_BYTES = 32
BLOCK_MAGIC = b"GBLK"
TRAILER_MAGIC = b"GEMT"

KIND_ENTRIES = 0
KIND_LEDGER = 1
KIND_MAP = 2
KIND_FILLER = 3
"""Zeros, up to the end of a page."""

BLOCK_BYTES_MAX = 256 * 1024
"""Bound of a block; a larger entry has its own block."""
BLOCK_ENTRIES_MAX = 1024
"""Bound of a block's entries, and so of a backward search by entry id."""

_FILE_HEADER = struct.Struct("<4sIQQ")
_HEAD = struct.Struct("<4sIBxxxIQQQ")
_CHECKED_FROM = 8
BLOCK_HEAD_BYTES = _HEAD.size
_TABLE_ROW = struct.Struct("<II")
_MAP_ROW = struct.Struct("<QQ")
_TRAILER = struct.Struct("<4sIQ")
TRAILER_BYTES = _TRAILER.size


class DamagedBlock(Exception):
    """The bytes are damaged."""


class BlockHead(NamedTuple):
    """A block's head. `table_bytes` follow it, then `body_bytes`."""

    kind: int
    entries: int
    ledger_id: int
    first_entry_id: int
    body_bytes: int

    @property
    def table_bytes(self) -> int:
        return self.entries * _TABLE_ROW.size

    @property
    def total_bytes(self) -> int:
        return BLOCK_HEAD_BYTES + self.table_bytes + self.body_bytes


def file_header(log_id: int, compacted_from: int = 0) -> bytes:
    """The header of a log; `compacted_from` is the log that it replaces, 0 for none."""
    head = _FILE_HEADER.pack(FILE_MAGIC, FILE_VERSION, log_id, compacted_from)
    return head + crc32c(head).to_bytes(4, "little") + bytes(4)


def parse_file_header(data: bytes) -> tuple[int, int, int]:
    """Version, log id, id of the log it was compacted from. Raises DamagedBlock."""
    head = data[: _FILE_HEADER.size]
    if len(data) < FILE_HEADER_BYTES or head[:4] != FILE_MAGIC:
        raise DamagedBlock("no entry log header")
    if crc32c(head) != int.from_bytes(data[_FILE_HEADER.size : _FILE_HEADER.size + 4], "little"):
        raise DamagedBlock("the entry log's header fails its checksum")
    _, version, log_id, compacted_from = _FILE_HEADER.unpack(head)
    return version, log_id, compacted_from


def encode_block(
    kind: int, ledger_id: int, first_entry_id: int, packets: Sequence[bytes]
) -> tuple[list[bytes], int]:
    """Buffers of a block and their size. The head's checksum covers head and table."""
    lengths = list(map(len, packets))
    rows = [0] * (2 * len(lengths))
    rows[::2] = lengths
    rows[1::2] = map(crc32c, packets)
    table = struct.pack(f"<{len(rows)}I", *rows)
    body_bytes = sum(lengths)
    head = _HEAD.pack(BLOCK_MAGIC, 0, kind, len(packets), ledger_id, first_entry_id, body_bytes)
    checked = head[_CHECKED_FROM:] + table
    prefix = BLOCK_MAGIC + crc32c(checked).to_bytes(4, "little") + checked
    return [prefix, *packets], len(prefix) + body_bytes


def encode_filler(end: int) -> tuple[list[bytes], int]:
    """A block behind others that end at that offset, up to the end of a page, and its size; nothing
    if they end there.
    """
    room = -end % PAGE_BYTES
    if not room:
        return [], 0
    head_bytes = BLOCK_HEAD_BYTES + _TABLE_ROW.size
    if room < head_bytes:
        room += PAGE_BYTES
    return encode_block(KIND_FILLER, 0, 0, [bytes(room - head_bytes)])


def parse_head(data: bytes, offset: int = 0) -> BlockHead:
    """The head only, without verifying its checksum. Raises DamagedBlock."""
    if len(data) - offset < BLOCK_HEAD_BYTES or data[offset : offset + 4] != BLOCK_MAGIC:
        raise DamagedBlock("no block")
    _, _, kind, count, ledger_id, first, body_bytes = _HEAD.unpack_from(data, offset)
    return BlockHead(kind, count, ledger_id, first, body_bytes)


def check_head(head: BlockHead, data: bytes, offset: int = 0) -> tuple[int, ...]:
    """The table: length, checksum, length, checksum, ... Raises DamagedBlock."""
    end = offset + BLOCK_HEAD_BYTES + head.table_bytes
    checksum = int.from_bytes(data[offset + 4 : offset + 8], "little")
    if len(data) < end or crc32c(data[offset + _CHECKED_FROM : end]) != checksum:
        raise DamagedBlock("the block's head fails its checksum")
    return struct.unpack_from(f"<{2 * head.entries}I", data, offset + BLOCK_HEAD_BYTES)


def decode_entries(
    head: BlockHead, table: Sequence[int], data: bytes, offset: int = 0
) -> list[bytes | None]:
    """Packets of a block; None for a damaged entry."""
    place = offset + BLOCK_HEAD_BYTES + head.table_bytes
    found: list[bytes | None] = []
    for length, checksum in zip(table[::2], table[1::2], strict=True):
        packet = data[place : place + length]
        place += length
        found.append(packet if crc32c(packet) == checksum else None)
    return found


def encode_ledger_map(sizes: Mapping[int, int], offset: int) -> list[bytes]:
    """The last block of a sealed log, written at `offset`, and the trailer that points to it."""
    rows = b"".join(_MAP_ROW.pack(*row) for row in sorted(sizes.items()))
    buffers, _ = encode_block(KIND_MAP, 0, 0, [rows])
    where = offset.to_bytes(8, "little")
    trailer = _TRAILER.pack(TRAILER_MAGIC, crc32c(where), offset)
    return [*buffers, trailer]


def parse_trailer(data: bytes) -> int | None:
    """Offset of the ledger map, or None if the log was not sealed."""
    if len(data) != TRAILER_BYTES:
        return None
    magic, checksum, offset = _TRAILER.unpack(data)
    if magic != TRAILER_MAGIC or crc32c(data[8:]) != checksum:
        return None
    return int(offset)


def decode_ledger_map(packet: bytes) -> dict[int, int]:
    """Bytes of each ledger in a log."""
    return dict(_MAP_ROW.iter_unpack(packet))
