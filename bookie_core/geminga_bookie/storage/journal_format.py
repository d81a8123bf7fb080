"""Bytes of the journal (docs/DATA_FILES.md): pages, records, items. Pure.

A record is one group commit. It starts on a page of its own, so that no acknowledged page is ever
written again, and
names its file and its number there, so that what an older use of a recycled file left behind is
never taken for new.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import fastcrc

from geminga_bookie.storage.disk import Buffer

crc32c = fastcrc.crc32.iscsi

PAGE_BYTES = 4096
FILE_MAGIC = b"GEMJ"
FILE_VERSION = 1
RECORD_MAGIC = b"GREC"
BODY_BYTES_MAX = 256 * 1024 * 1024
"""No record is longer; a longer length is a lie."""

JOIN_MEAN_BYTES_MAX = 8192
"""Parts that are smaller on average are joined for one checksum over all; copying larger ones costs
more."""

_FILE_HEADER = struct.Struct("<4sIQI")
_RECORD_HEADER = struct.Struct("<4sIIIQQ")
_CHECKED = struct.Struct("<IIQQ")
_ITEM = struct.Struct("<BxHIqq")
ITEM_BYTES = _ITEM.size
RECORD_HEADER_BYTES = _RECORD_HEADER.size

ENTRIES = 1
MASTER_KEY = 2
FENCE = 3
EXPLICIT_LAC = 4


class JournalPosition(NamedTuple):
    """A place between records: the file's number and the offset of its next record."""

    journal_id: int
    offset: int


class JournalItem(NamedTuple):
    """One thing that a record says of a ledger.

    ENTRIES: `number` is the first entry's id, `payload` its packets. MASTER_KEY: the key is the one
    payload.
    FENCE has neither. EXPLICIT_LAC: `number` is the LAC.
    """

    kind: int
    ledger_id: int
    number: int
    payload: Sequence[bytes]


class DamagedRecord(Exception):
    """No whole record stands there."""


def page_round(size_bytes: int) -> int:
    """Up to the next page."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def file_header(journal_id: int) -> bytes:
    """The first page of a file."""
    head = _FILE_HEADER.pack(FILE_MAGIC, FILE_VERSION, journal_id, 0)[:-4]
    return (head + crc32c(head).to_bytes(4, "little")).ljust(PAGE_BYTES, b"\0")


def parse_file_header(page: bytes) -> tuple[int, int]:
    """Version and number of a journal file. Raises DamagedRecord."""
    if len(page) < _FILE_HEADER.size:
        raise DamagedRecord("the file is shorter than its header")
    magic, version, journal_id, checksum = _FILE_HEADER.unpack_from(page)
    if magic != FILE_MAGIC or crc32c(page[: _FILE_HEADER.size - 4]) != checksum:
        raise DamagedRecord("the file has no valid header")
    return version, journal_id


def encode_item(kind: int, ledger_id: int, number: int, payload: Sequence[bytes]) -> list[bytes]:
    """Parts of one item: its head, and what it carries."""
    if kind == ENTRIES:
        count = len(payload)
        head = _ITEM.pack(kind, 0, count, ledger_id, number)
        return [head + struct.pack(f"<{count}I", *map(len, payload)), *payload]
    if kind == MASTER_KEY:
        return [_ITEM.pack(kind, len(payload[0]), 0, ledger_id, 0), payload[0]]
    return [_ITEM.pack(kind, 0, 0, ledger_id, number)]


def encode_record(
    journal_id: int, sequence: int, parts: list[bytes]
) -> tuple[Sequence[Buffer], int]:
    """Buffers to write, padded to whole pages, and their size."""
    size = sum(map(len, parts))
    if size < JOIN_MEAN_BYTES_MAX * len(parts):
        parts = [b"".join(parts)]
    checksum = 0
    for part in parts:
        checksum = crc32c(part, checksum)
    checked = _CHECKED.pack(size, checksum, journal_id, sequence)
    header = RECORD_MAGIC + crc32c(checked).to_bytes(4, "little") + checked
    total = page_round(RECORD_HEADER_BYTES + size)
    padding = bytes(total - RECORD_HEADER_BYTES - size)
    return [header, *parts, padding], total


class RecordHead(NamedTuple):
    """A record's header, its own checksum verified."""

    body_bytes: int
    body_checksum: int
    journal_id: int
    sequence: int


def parse_record_head(data: bytes) -> RecordHead:
    """Raises DamagedRecord."""
    if len(data) < RECORD_HEADER_BYTES or data[:4] != RECORD_MAGIC:
        raise DamagedRecord("no record")
    checked = data[8:RECORD_HEADER_BYTES]
    if crc32c(checked) != int.from_bytes(data[4:8], "little"):
        raise DamagedRecord("the record's header does not fit its checksum")
    head = RecordHead(*_CHECKED.unpack(checked))
    if head.body_bytes > BODY_BYTES_MAX:
        raise DamagedRecord("the record is longer than any can be")
    return head


def check_body(head: RecordHead, body: bytes) -> None:
    """Raises DamagedRecord if the body is short or its checksum another one."""
    if len(body) != head.body_bytes:
        raise DamagedRecord("the record is cut short")
    if crc32c(body) != head.body_checksum:
        raise DamagedRecord("the record's bytes do not fit its checksum")


def decode_items(body: bytes) -> Iterator[JournalItem]:
    """Items of a body whose checksum was right. Raises DamagedRecord if it was written wrongly."""
    offset, end = 0, len(body)
    while offset < end:
        if end - offset < ITEM_BYTES:
            raise DamagedRecord("an item is cut short")
        kind, key_bytes, count, ledger_id, number = _ITEM.unpack_from(body, offset)
        offset += ITEM_BYTES
        payload: list[bytes] = []
        if kind == ENTRIES:
            if end - offset < 4 * count:
                raise DamagedRecord("an item is cut short")
            lengths = struct.unpack_from(f"<{count}I", body, offset)
            offset += 4 * count
            for length in lengths:
                payload.append(body[offset : offset + length])
                offset += length
        elif kind == MASTER_KEY:
            payload.append(body[offset : offset + key_bytes])
            offset += key_bytes
        if offset > end:
            raise DamagedRecord("an item is cut short")
        yield JournalItem(kind, ledger_id, number, payload)
