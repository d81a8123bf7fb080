"""Bytes of entry logs (docs/DATA_FILES.md): header, blocks, ledger map. Pure.

A block has consecutive entries of one ledger. Its head and table have a checksum, and each entry
has one, so that damage affects only the damaged entries (spec BK-12). A log has a salt: without it
nobody can write a payload that reads as a block, a ledger map or a trailer of the log it is in.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from geminga_bookie.storage.journal_format import PAGE_BYTES, crc32c

FILE_MAGIC = b"GEML"
FILE_VERSION = 2
"""Version 1, without salt, is read too."""
_HEADER_BYTES_1 = 32
HEADER_COPY_BYTES = 40
FILE_HEADER_BYTES = 2 * PAGE_BYTES
"""The header stands there twice, on pages of its own: without its salt a log can't be scanned."""
SALT_BYTES = 8
NO_SALT = b""
"""Of a log of version 1."""
MAGIC_BYTES = 4
BLOCK_MAGIC = b"GBLK"
"""In version 1; later blocks begin with the first bytes of their log's salt."""
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


class LogHeader(NamedTuple):
    """What the header of a log says."""

    version: int
    log_id: int
    compacted_from: int
    """The log that it replaces, 0 for none."""
    salt: bytes

    @property
    def size_bytes(self) -> int:
        return FILE_HEADER_BYTES if self.salt else _HEADER_BYTES_1


def file_header(log_id: int, compacted_from: int, salt: bytes) -> bytes:
    """The header of a log. Its first 28 bytes are as in version 1, so that older code tells the
    version.
    """
    head = _FILE_HEADER.pack(FILE_MAGIC, FILE_VERSION, log_id, compacted_from)
    head += _sum(head) + salt
    return 2 * (head + _sum(head)).ljust(PAGE_BYTES, b"\0")


def parse_file_header(data: bytes) -> LogHeader:
    """The header of a log of any version, from one of its copies. Raises DamagedBlock."""
    start = data[: _FILE_HEADER.size]
    if len(data) < _HEADER_BYTES_1 or start[:4] != FILE_MAGIC:
        raise DamagedBlock("no entry log header")
    end = _FILE_HEADER.size + 4
    if _sum(start) != data[_FILE_HEADER.size : end]:
        raise DamagedBlock("the entry log's header fails its checksum")
    _, version, log_id, compacted_from = _FILE_HEADER.unpack(start)
    salt = NO_SALT
    if version == FILE_VERSION:
        salt, end = data[end : end + SALT_BYTES], end + SALT_BYTES
        if _sum(data[:end]) != data[end : end + 4]:
            raise DamagedBlock("the entry log's header fails its checksum")
    return LogHeader(version, log_id, compacted_from, salt)


def _sum(data: bytes) -> bytes:
    return crc32c(data).to_bytes(4, "little")


def block_magic(salt: bytes) -> bytes:
    """With what each block of a log begins."""
    return salt[:MAGIC_BYTES] or BLOCK_MAGIC


def encode_block(
    kind: int, ledger_id: int, first_entry_id: int, packets: Sequence[bytes], salt: bytes
) -> tuple[list[bytes], int]:
    """Buffers of a block and their size. The head's checksum covers salt, head and table."""
    lengths = list(map(len, packets))
    rows = [0] * (2 * len(lengths))
    rows[::2] = lengths
    rows[1::2] = map(crc32c, packets)
    table = struct.pack(f"<{len(rows)}I", *rows)
    body_bytes = sum(lengths)
    head = _HEAD.pack(BLOCK_MAGIC, 0, kind, len(packets), ledger_id, first_entry_id, body_bytes)
    prefix = _prefix(head[_CHECKED_FROM:] + table, salt)
    return [prefix, *packets], len(prefix) + body_bytes


def _prefix(checked: bytes, salt: bytes) -> bytes:
    return block_magic(salt) + _sum(salt + checked) + checked


def for_other_log(head: BlockHead, data: bytes, salt: bytes) -> bytes:
    """A whole block as another log has it, with that log's salt."""
    end = BLOCK_HEAD_BYTES + head.table_bytes
    return _prefix(data[_CHECKED_FROM:end], salt) + data[end:]


def encode_filler(end: int, salt: bytes) -> tuple[list[bytes], int]:
    """A block behind others that end at that offset, up to the end of a page, and its size; nothing
    if they end there.
    """
    room = -end % PAGE_BYTES
    if not room:
        return [], 0
    head_bytes = BLOCK_HEAD_BYTES + _TABLE_ROW.size
    if room < head_bytes:
        room += PAGE_BYTES
    return encode_block(KIND_FILLER, 0, 0, [bytes(room - head_bytes)], salt)


def parse_head(data: bytes, salt: bytes, offset: int = 0) -> BlockHead:
    """The head only, without verifying its checksum. Raises DamagedBlock."""
    found = data[offset : offset + MAGIC_BYTES]
    if len(data) - offset < BLOCK_HEAD_BYTES or found != block_magic(salt):
        raise DamagedBlock("no block")
    return block_head(data, offset)


def block_head(data: bytes, offset: int = 0) -> BlockHead:
    """What stands where a head is. Raises DamagedBlock for what can't be one."""
    if len(data) - offset < BLOCK_HEAD_BYTES:
        raise DamagedBlock("no block")
    _, _, kind, count, ledger_id, first, body_bytes = _HEAD.unpack_from(data, offset)
    if count > BLOCK_ENTRIES_MAX:
        raise DamagedBlock("no block")
    return BlockHead(kind, count, ledger_id, first, body_bytes)


def check_head(head: BlockHead, data: bytes, salt: bytes, offset: int = 0) -> tuple[int, ...]:
    """The table: length, checksum, length, checksum, ... Raises DamagedBlock."""
    end = offset + BLOCK_HEAD_BYTES + head.table_bytes
    checked = data[offset + _CHECKED_FROM : end]
    if len(data) < end or _sum(salt + checked) != data[offset + 4 : offset + _CHECKED_FROM]:
        raise DamagedBlock("the block's head fails its checksum")
    return block_table(head, data, offset)


def block_table(head: BlockHead, data: bytes, offset: int = 0) -> tuple[int, ...]:
    """What stands where a table is. Raises DamagedBlock if it is cut short."""
    if len(data) < offset + BLOCK_HEAD_BYTES + head.table_bytes:
        raise DamagedBlock("the block is cut short")
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


def encode_ledger_map(sizes: Mapping[int, int], offset: int, salt: bytes) -> list[bytes]:
    """The last block of a sealed log, written at `offset`, and the trailer that points to it."""
    rows = b"".join(_MAP_ROW.pack(*row) for row in sorted(sizes.items()))
    buffers, _ = encode_block(KIND_MAP, 0, 0, [rows], salt)
    where = offset.to_bytes(8, "little")
    trailer = _TRAILER.pack(TRAILER_MAGIC, crc32c(salt + where), offset)
    return [*buffers, trailer]


def parse_trailer(data: bytes, salt: bytes) -> int | None:
    """Offset of the ledger map, or None if the log was not sealed."""
    if len(data) != TRAILER_BYTES:
        return None
    magic, checksum, offset = _TRAILER.unpack(data)
    if magic != TRAILER_MAGIC or crc32c(salt + data[8:]) != checksum:
        return None
    return int(offset)


def decode_ledger_map(packet: bytes) -> dict[int, int]:
    """Bytes of each ledger in a log."""
    return dict(_MAP_ROW.iter_unpack(packet))
