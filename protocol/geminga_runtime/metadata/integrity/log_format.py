"""SQLite's write-ahead log: its header, its frames, their checksums ("WAL-mode File Format")."""

from __future__ import annotations

import struct
from typing import NamedTuple

LOG_HEADER = struct.Struct(">III4x8sII")
"""Magic, version, size of a page, salts, checksum."""
FRAME = struct.Struct(">II8sII")
"""In front of each page: its number, the file's pages if it ends a commit, salts, checksum."""
SUMMED = 8
"""Bytes of a frame's header that its checksum covers."""
FORMAT_VERSION = 3007000
_MAGIC = 0x377F0682
_MASK = 0xFFFFFFFF

Sum = tuple[int, int]


class LogHeader(NamedTuple):
    """The log's."""

    page_bytes: int
    order: str
    """Of the words that are summed, as in `struct`."""
    salts: bytes
    checksum: Sum

    def offset(self, number: int) -> int:
        """Where a frame begins; the first is 1."""
        return LOG_HEADER.size + (number - 1) * (FRAME.size + self.page_bytes)


def parse_header(data: bytes) -> LogHeader | None:
    """None if it isn't whole."""
    if len(data) < LOG_HEADER.size:
        return None
    magic, version, page_bytes, salts, *checksum = LOG_HEADER.unpack_from(data)
    if magic & ~1 != _MAGIC or version != FORMAT_VERSION:
        return None
    order = ">" if magic & 1 else "<"
    found = running_sum(order, data[: LOG_HEADER.size - 8], (0, 0))
    if found != tuple(checksum) or page_bytes < 512 or page_bytes & (page_bytes - 1):
        return None
    return LogHeader(page_bytes, order, salts, found)


def running_sum(order: str, data: bytes, start: Sum) -> Sum:
    """Of what was summed before and this."""
    one, two = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & _MASK
        two = (two + second + one) & _MASK
    return one, two
