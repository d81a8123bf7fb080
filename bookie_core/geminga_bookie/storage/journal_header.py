"""The header of a journal file (docs/DATA_FILES.md): number, salt, contents before. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from geminga_bookie.storage.journal_format import PAGE_BYTES, DamagedRecord, crc32c, page_round

FILE_MAGIC = b"GEMJ"
FILE_VERSION = 2
OLD_VERSION = 1
SECTOR_BYTES = 512
"""The bytes compared of each page: a disk writes them atomically, and a record begins there."""
_ZERO_SECTOR = bytes(SECTOR_BYTES)
_START = struct.Struct("<4sIQI")
_REST = struct.Struct("<QQII")
_HEADER_BYTES = _START.size + _REST.size + 4
_TABLE_ENTRY_BYTES = 4


class FileHeader(NamedTuple):
    """A journal file's header."""

    version: int
    journal_id: int
    salt: int
    capacity_bytes: int
    """Size of the file at its creation."""
    first_offset: int
    """Offset of the first record."""
    earlier: Sequence[int] | None
    """CRC32C of each page's first sector before this use; empty: zeros. None: not known."""

    def is_unwritten(self, sector: bytes, offset: int) -> bool:
        """Whether the page at `offset`, which begins with `sector`, is unchanged since before this
        use, or after the file's end. False for content if the earlier content isn't known."""
        if self.earlier and sector:
            number = offset // PAGE_BYTES
            return number < len(self.earlier) and crc32c(sector) == self.earlier[number]
        return sector == _ZERO_SECTOR[: len(sector)]


def first_offset(capacity_bytes: int, *, recycled: bool) -> int:
    """Offset of the first record: after the header's page and, in a reused file, its table."""
    table_bytes = _TABLE_ENTRY_BYTES * (capacity_bytes // PAGE_BYTES) if recycled else 0
    return PAGE_BYTES + page_round(table_bytes)


def sector_checksums(data: bytes) -> list[int]:
    """CRC32C of the first sector of each page."""
    view = memoryview(data)
    return [crc32c(view[place : place + SECTOR_BYTES]) for place in range(0, len(data), PAGE_BYTES)]


def encode_header(header: FileHeader) -> bytes:
    """Whole pages, up to the first record."""
    earlier = header.earlier or ()
    table = struct.pack(f"<{len(earlier)}I", *earlier)
    head = _START.pack(FILE_MAGIC, FILE_VERSION, header.journal_id, 0)[:-4]
    head += crc32c(head).to_bytes(4, "little")
    head += _REST.pack(header.salt, header.capacity_bytes, len(table), crc32c(table))
    page = (head + crc32c(head).to_bytes(4, "little")).ljust(PAGE_BYTES, b"\0")
    return (page + table).ljust(header.first_offset, b"\0")


def parse_version(page: bytes) -> tuple[int, int]:
    """Version and number, which all versions have at the same place. Raises DamagedRecord."""
    if len(page) < _HEADER_BYTES:
        raise DamagedRecord("the file is shorter than its header")
    magic, version, journal_id, checksum = _START.unpack_from(page)
    if magic != FILE_MAGIC or crc32c(page[: _START.size - 4]) != checksum:
        raise DamagedRecord("the file has no valid header")
    return version, journal_id


def parse_header(page: bytes, read: Callable[[int, int], bytes]) -> FileHeader:
    """The header of version 2 whose version was verified; `read` takes a size and an offset.

    A damaged table only means that earlier content isn't known. Raises DamagedRecord.
    """
    head = page[: _HEADER_BYTES - 4]
    if crc32c(head) != int.from_bytes(page[_HEADER_BYTES - 4 : _HEADER_BYTES], "little"):
        raise DamagedRecord("the file has no valid header")
    _, version, journal_id, _ = _START.unpack_from(page)
    salt, capacity, table_bytes, checksum = _REST.unpack_from(page, _START.size)
    table = read(table_bytes, PAGE_BYTES)
    earlier: Sequence[int] | None = None
    if len(table) == table_bytes and crc32c(table) == checksum:
        earlier = struct.unpack(f"<{table_bytes // _TABLE_ENTRY_BYTES}I", table)
    first = PAGE_BYTES + page_round(table_bytes)
    return FileHeader(version, journal_id, salt, capacity, first, earlier)
