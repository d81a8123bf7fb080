"""Records of journal files of version 1, for reading only (docs/DATA_FILES.md).

They have no salt, and their file's header has no earlier content, so content after the last whole
record can't be distinguished from an earlier use of the file with certainty.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from geminga_bookie.storage.disk import DiskFile
from geminga_bookie.storage.journal_findings import Doubt, FileFindings
from geminga_bookie.storage.journal_format import (
    BODY_BYTES_MAX,
    ENTRIES,
    ITEM,
    ITEM_BYTES,
    MASTER_KEY,
    PAGE_BYTES,
    RECORD_MAGIC,
    DamagedRecord,
    JournalItem,
    crc32c,
    page_round,
)

_CHECKED = struct.Struct("<IIQQ")
RECORD_HEADER_BYTES = 8 + _CHECKED.size
_SEARCH_BYTES = 1024 * 1024


def scan(
    file: DiskFile, path: Path, journal_id: int, offset: int, findings: FileFindings
) -> Iterator[JournalItem]:
    """Items of every whole record from `offset` on; damage goes to `findings`. Raises OSError."""
    size = file.size()
    sequence = -1
    while offset < size:
        try:
            sequence_read, body = _read_record(file, offset, journal_id, sequence)
            items = list(_items(body))
        except DamagedRecord as damage:
            found = _find_record(file, offset + PAGE_BYTES, size, journal_id, sequence)
            if found is None:
                if _is_record_start(file, offset, journal_id):
                    text = f"{path} at {offset}: {damage}"
                    findings.doubts.append(Doubt(offset, offset, text, damaged=False))
                return
            findings.damages.append(
                f"{path}: {found - offset} bytes at {offset} are damaged ({damage}), "
                "later records are whole"
            )
            offset = found
            continue
        sequence = sequence_read
        findings.record_at = offset
        offset += page_round(RECORD_HEADER_BYTES + len(body))
        findings.records += 1
        findings.proven_end = offset
        yield from items


def places(file: DiskFile, offset: int) -> Iterator[tuple[int, int]]:
    """For each item of the whole record at `offset`: where it is, and where its payload is."""
    body_bytes = _parse_head(file.read(RECORD_HEADER_BYTES, offset))[0]
    offset += RECORD_HEADER_BYTES
    for item in _items(file.read(body_bytes, offset)):
        payload_at = offset + ITEM_BYTES + (4 * len(item.payload) if item.kind == ENTRIES else 0)
        yield offset, payload_at
        offset = payload_at + sum(map(len, item.payload))


def starts_with_record(file: DiskFile, journal_id: int) -> bool:
    """Whether the first record's header is of this version and that file."""
    try:
        return _parse_head(file.read(RECORD_HEADER_BYTES, PAGE_BYTES))[2] == journal_id
    except DamagedRecord:
        return False


def _parse_head(data: bytes) -> tuple[int, int, int, int]:
    """Size of the body, its checksum, the file's number, the sequence number."""
    if len(data) < RECORD_HEADER_BYTES or data[:4] != RECORD_MAGIC:
        raise DamagedRecord("no record")
    checked = data[8:RECORD_HEADER_BYTES]
    if crc32c(checked) != int.from_bytes(data[4:8], "little"):
        raise DamagedRecord("the record's header fails its checksum")
    body_bytes, checksum, journal_id, sequence = _CHECKED.unpack(checked)
    if body_bytes > BODY_BYTES_MAX:
        raise DamagedRecord("the record's length is out of range")
    return body_bytes, checksum, journal_id, sequence


def _read_record(
    file: DiskFile, offset: int, journal_id: int, after_sequence: int
) -> tuple[int, bytes]:
    head = _parse_head(file.read(RECORD_HEADER_BYTES, offset))
    body_bytes, checksum, written_id, sequence = head
    if written_id != journal_id or sequence <= after_sequence:
        raise DamagedRecord("a record of an older use of the file")
    body = file.read(body_bytes, offset + RECORD_HEADER_BYTES)
    if len(body) != body_bytes:
        raise DamagedRecord("the record is cut short")
    if crc32c(body) != checksum:
        raise DamagedRecord("the record fails its checksum")
    return sequence, body


def _is_record_start(file: DiskFile, offset: int, journal_id: int) -> bool:
    """Whether a write was begun there: neither zeros nor a record of an older use."""
    data = file.read(PAGE_BYTES, offset)
    if not data.strip(b"\0"):
        return False
    try:
        return _parse_head(data)[2] == journal_id
    except DamagedRecord:
        return True


def _find_record(
    file: DiskFile, offset: int, size: int, journal_id: int, after_sequence: int
) -> int | None:
    """Offset of the next whole record of this file on a later page."""
    while offset < size:
        chunk = file.read(_SEARCH_BYTES, offset)
        for place in range(0, len(chunk), PAGE_BYTES):
            if chunk[place : place + 4] != RECORD_MAGIC:
                continue
            try:
                _read_record(file, offset + place, journal_id, after_sequence)
            except DamagedRecord:
                continue
            return offset + place
        offset += _SEARCH_BYTES
    return None


def _items(body: bytes) -> Iterator[JournalItem]:
    """Items of a body with a correct checksum. Raises DamagedRecord if it is invalid."""
    offset, end = 0, len(body)
    while offset < end:
        if end - offset < ITEM_BYTES:
            raise DamagedRecord("an item is cut short")
        kind, key_bytes, count, ledger_id, number = ITEM.unpack_from(body, offset)
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
