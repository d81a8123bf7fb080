"""Reads one journal file: every whole record, and findings about the others (spec BK-02)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from geminga_bookie.errors import DataDirError
from geminga_bookie.storage import journal_v1
from geminga_bookie.storage.disk import DiskFile
from geminga_bookie.storage.journal_findings import Doubt, FileFindings
from geminga_bookie.storage.journal_format import (
    PAGE_BYTES,
    PREDECESSOR,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    DamagedRecord,
    JournalItem,
    JournalPosition,
    RecordHead,
    checked_part,
    decode_index,
    decode_items,
    describe,
    parse_record_head,
)
from geminga_bookie.storage.journal_header import (
    FILE_VERSION,
    OLD_VERSION,
    SECTOR_BYTES,
    FileHeader,
    first_offset,
    parse_header,
    parse_version,
)

_SEARCH_BYTES = 1024 * 1024


def scan(
    file: DiskFile, journal_id: int, start: int, findings: FileFindings
) -> Iterator[JournalItem]:
    """Items of every whole record from `start` on (0: from the first); other content is noted in
    `findings`. Raises DataDirError for a file of another version, OSError."""
    header = _header(file, journal_id, findings)
    if header is None:
        return
    start = max(start, header.first_offset)
    findings.proven_end = start
    findings.version = header.version
    if header.journal_id != journal_id:
        text = f"{findings.path}: it is journal {header.journal_id}"
        findings.doubts.append(Doubt(start, file.size(), text, damaged=True))
        return
    if header.version == OLD_VERSION:
        yield from journal_v1.scan(file, findings.path, journal_id, start, findings)
    else:
        yield from _Scan(file, header, findings).items(start)


def _header(file: DiskFile, journal_id: int, findings: FileFindings) -> FileHeader | None:
    page = file.read(PAGE_BYTES, 0)
    try:
        version, written_id = parse_version(page)
        if version == FILE_VERSION:
            return parse_header(page, file.read)
    except DamagedRecord as damage:
        return _header_by_records(file, journal_id, findings, damage)
    if version != OLD_VERSION:
        raise DataDirError(
            f"{findings.path} is of journal version {version}, "
            f"this bookie reads up to {FILE_VERSION}"
        )
    return FileHeader(version, written_id, 0, 0, PAGE_BYTES, None)


def _header_by_records(
    file: DiskFile, journal_id: int, findings: FileFindings, damage: DamagedRecord
) -> FileHeader | None:
    """The first record also has file number and salt, so that a damaged header loses nothing."""
    size = file.size()
    note = f"{findings.path}: {damage}; its records are read without"
    for recycled in (False, True):
        first = first_offset(size, recycled=recycled)
        try:
            head = parse_record_head(file.read(RECORD_HEADER_BYTES, first))
        except DamagedRecord:
            continue
        if head.journal_id == journal_id and head.sequence == 0:
            findings.notes.append(note)
            return FileHeader(FILE_VERSION, journal_id, head.salt, size, first, None)
    if journal_v1.starts_with_record(file, journal_id):
        findings.notes.append(note)
        return FileHeader(OLD_VERSION, journal_id, 0, size, PAGE_BYTES, None)
    text = f"{findings.path}: {damage}, nor a first record"
    findings.doubts.append(Doubt(PAGE_BYTES, size, text, damaged=True))
    return None


class _Rest(NamedTuple):
    """The content after a place without a record."""

    found: tuple[int, RecordHead] | None
    """The next record header of this file, with its offset."""
    is_written: bool
    """Whether any page before it, or before the end, was written."""


class _Scan:
    """One scan of a file of version 2."""

    def __init__(self, file: DiskFile, header: FileHeader, findings: FileFindings) -> None:
        self._file = file
        self._header = header
        self._findings = findings
        self._path = findings.path
        self._size = file.size()
        self._next_sequence = 0
        self._knows_next = False
        """Whether the record at the next place has that number; at the mark it isn't known."""

    def items(self, offset: int) -> Iterator[JournalItem]:
        """From the record at `offset` on."""
        self._knows_next = offset == self._header.first_offset
        while offset < self._size:
            head = self._head_at(offset)
            if head is None or head.is_end_mark:
                rest = self._look_behind(offset)
                if rest.found is None:
                    self._judge_end(offset, head, rest)
                    return
                self._findings.doubts.append(self._hole(offset, rest.found))
                offset, head = rest.found
                self._next_sequence = head.sequence
                continue
            # A record is begun after all before it are on disk.
            self._findings.prove(offset)
            self._next_sequence = head.sequence + 1
            self._knows_next = True
            end = offset + head.total_bytes
            try:
                items = self._read(offset, head)
            except DamagedRecord as damage:
                self._findings.doubts.append(self._bad_record(offset, head, damage))
            else:
                self._findings.records += 1
                self._findings.record_at = offset
                self._findings.prove(end)
                for item in items:
                    if item.kind == PREDECESSOR:
                        self._findings.predecessor = JournalPosition(item.ledger_id, item.number)
                    else:
                        yield item
            offset = end
        self._check_size()

    def _head_at(self, offset: int) -> RecordHead | None:
        return self._own_head(self._file.read(RECORD_HEADER_BYTES, offset), 0)

    def _own_head(self, data: bytes, pages_between: int) -> RecordHead | None:
        """A record header of this file that may follow those read, so many pages behind them."""
        try:
            head = parse_record_head(data)
        except DamagedRecord:
            return None
        if (head.journal_id, head.salt) != (self._header.journal_id, self._header.salt):
            return None
        between = head.sequence - self._next_sequence
        # Each record takes a page at least: this one was copied here from further behind.
        is_misplaced = self._knows_next and between > pages_between
        return None if between < 0 or is_misplaced else head

    def _read(self, offset: int, head: RecordHead) -> list[JournalItem]:
        index = self._index(offset, head)
        body = self._file.read(head.body_bytes, offset + RECORD_HEADER_BYTES + head.index_bytes)
        checked_part(body, head.body_bytes, head.body_checksum, "body")
        return list(decode_items(index, body))

    def _index(self, offset: int, head: RecordHead) -> bytes:
        data = self._file.read(head.index_bytes, offset + RECORD_HEADER_BYTES)
        return checked_part(data, head.index_bytes, head.index_checksum, "index")

    def _look_behind(self, bad: int) -> _Rest:
        """Search the pages that follow a bad one for a header of this file."""
        is_written = False
        offset = bad + PAGE_BYTES
        while offset < self._size:
            chunk = self._file.read(_SEARCH_BYTES, offset)
            for place in range(0, len(chunk), PAGE_BYTES):
                if chunk[place : place + 4] == RECORD_MAGIC:
                    pages = (offset + place - bad) // PAGE_BYTES
                    head = self._own_head(chunk[place : place + RECORD_HEADER_BYTES], pages)
                    if head is not None:
                        return _Rest((offset + place, head), is_written)
                if not is_written:
                    is_written = not self._header.is_unwritten(
                        chunk[place : place + SECTOR_BYTES], offset + place
                    )
            offset += _SEARCH_BYTES
        return _Rest(None, is_written)

    def _judge_end(self, offset: int, mark: RecordHead | None, rest: _Rest) -> None:
        """There is no record at or after `offset`."""
        if mark is not None:
            self._findings.prove(offset)
            return
        sector = self._file.read(SECTOR_BYTES, offset)
        doubts = self._findings.doubts
        if not self._header.is_unwritten(sector, offset):
            text = f"{self._path} at {offset}: neither a record nor what the file held before"
            known = self._header.earlier is not None
            doubts.append(Doubt(offset, offset + PAGE_BYTES, text, damaged=known))
        elif rest.is_written and self._header.earlier is not None:
            text = f"{self._path} at {offset}: the record's first page was not written"
            doubts.append(Doubt(offset, offset, text, damaged=False))
        self._check_size()

    def _check_size(self) -> None:
        missing = self._header.capacity_bytes - self._size
        if missing > 0:
            text = f"{self._path}: {missing} bytes at its end are missing"
            end = self._header.capacity_bytes
            self._findings.doubts.append(Doubt(self._size, end, text, damaged=True))

    def _hole(self, offset: int, found: tuple[int, RecordHead]) -> Doubt:
        end, head = found
        records = head.sequence - self._next_sequence
        what = f"{records} records" if records > 0 else "damage"
        text = f"{self._path}: {what} at {offset} to {end}, of ledgers and entries not known"
        return Doubt(offset, end, text, damaged=True)

    def _bad_record(self, offset: int, head: RecordHead, damage: DamagedRecord) -> Doubt:
        try:
            items = describe(list(decode_index(self._index(offset, head))))
        except DamagedRecord:
            items = "ledgers and entries not known"
        end = offset + head.total_bytes
        text = f"{self._path} at {offset}, {head.total_bytes} bytes: {damage} ({items})"
        return Doubt(offset, end, text, damaged=not self._has_unwritten_page(offset, end))

    def _has_unwritten_page(self, offset: int, end: int) -> bool:
        """Whether a crash during the write may have left it so."""
        if self._header.earlier is None:
            return True
        return any(
            self._header.is_unwritten(self._file.read(SECTOR_BYTES, place), place)
            for place in range(offset, end, PAGE_BYTES)
        )
