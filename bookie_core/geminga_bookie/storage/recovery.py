"""Reading journals back (spec BK-02): every whole record behind the mark, and a report of what was
not whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from geminga_bookie.errors import DataDirError
from geminga_bookie.storage.disk import Disk, DiskFile
from geminga_bookie.storage.journal_files import journal_ids, journal_name, read_mark
from geminga_bookie.storage.journal_format import (
    FILE_VERSION,
    PAGE_BYTES,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    DamagedRecord,
    JournalItem,
    RecordHead,
    check_body,
    decode_items,
    page_round,
    parse_file_header,
    parse_record_head,
)

logger = logging.getLogger(__name__)

_SEARCH_BYTES = 1024 * 1024


@dataclass(slots=True)
class ReplayReport:
    """What a replay found."""

    records: int = 0
    items: int = 0
    next_id: int = 1
    torn_tails: list[str] = field(default_factory=list)
    """Files that end in an unfinished record: a crash in mid-write, nothing acknowledged is
    missing."""
    damages: list[str] = field(default_factory=list)
    """Places where something acknowledged may be missing: a hole before later records, a missing
    file."""


def replay(disk: Disk, directory: Path, apply: Callable[[JournalItem], None]) -> ReplayReport:
    """Call `apply` for every item behind the mark, in order. Idempotent; changes nothing on disk.

    Raises DataDirError for a file of another version, OSError.
    """
    report = ReplayReport()
    mark = read_mark(disk, directory)
    ids = journal_ids(disk, directory)
    if ids:
        report.next_id = ids[-1] + 1
    if mark is not None:
        report.next_id = max(report.next_id, mark.journal_id + 1)
        ids = [journal_id for journal_id in ids if journal_id >= mark.journal_id]
        if mark.journal_id > 0 and mark.journal_id not in ids:
            report.damages.append(
                f"{directory}: the journal {journal_name(mark.journal_id)} of the mark is missing"
            )
    report.damages += [
        f"{directory}: {later - earlier - 1} journals before {journal_name(later)} are missing"
        for earlier, later in pairwise(ids)
        if later != earlier + 1
    ]
    for journal_id in ids:
        start = mark.offset if mark is not None and mark.journal_id == journal_id else PAGE_BYTES
        path = directory / journal_name(journal_id)
        file = disk.open(path, writable=False)
        try:
            for item in _read_file(file, path, journal_id, start, report):
                apply(item)
                report.items += 1
        finally:
            file.close()
    return report


def _read_file(
    file: DiskFile, path: Path, journal_id: int, offset: int, report: ReplayReport
) -> Iterator[JournalItem]:
    if not _check_header(file, path, journal_id, report):
        return
    size = file.size()
    sequence = -1
    while offset < size:
        try:
            head, body = _read_record(file, offset, journal_id, sequence)
            items = list(decode_items(body))
        except DamagedRecord as damage:
            found = _find_record(file, offset + PAGE_BYTES, size, journal_id, sequence)
            if found is None:
                if _is_record_start(file, offset, journal_id):
                    report.torn_tails.append(f"{path} at {offset}: {damage}")
                return
            report.damages.append(
                f"{path}: {found - offset} bytes at {offset} are damaged ({damage}), "
                "later records are whole"
            )
            offset = found
            continue
        sequence = head.sequence
        report.records += 1
        yield from items
        offset += page_round(RECORD_HEADER_BYTES + head.body_bytes)


def _check_header(file: DiskFile, path: Path, journal_id: int, report: ReplayReport) -> bool:
    """Whether the file may hold records of that number; a damaged header alone loses nothing."""
    try:
        version, written_id = parse_file_header(file.read(PAGE_BYTES, 0))
    except DamagedRecord as damage:
        report.torn_tails.append(f"{path}: {damage}")
        return True
    if version != FILE_VERSION:
        raise DataDirError(
            f"{path} is of journal version {version}, this bookie reads {FILE_VERSION}"
        )
    return written_id == journal_id


def _read_record(
    file: DiskFile, offset: int, journal_id: int, after_sequence: int
) -> tuple[RecordHead, bytes]:
    head = parse_record_head(file.read(RECORD_HEADER_BYTES, offset))
    if head.journal_id != journal_id or head.sequence <= after_sequence:
        raise DamagedRecord("a record of an older use of the file")
    body = file.read(head.body_bytes, offset + RECORD_HEADER_BYTES)
    check_body(head, body)
    return head, body


def _is_record_start(file: DiskFile, offset: int, journal_id: int) -> bool:
    """Whether something was being written there: not zeros, and not an older use's record."""
    data = file.read(PAGE_BYTES, offset)
    if not data.strip(b"\0"):
        return False
    try:
        return parse_record_head(data).journal_id == journal_id
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


def log_report(report: ReplayReport) -> None:
    """Say what a replay dropped."""
    for text in report.torn_tails:
        logger.warning("journal: an unfinished record was dropped: %s", text)
    for text in report.damages:
        logger.error("journal: acknowledged entries may be lost: %s", text)
