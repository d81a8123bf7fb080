"""Reading journals back (spec BK-02): whole records behind the mark, and a report of the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from geminga_bookie.storage.disk import Disk
from geminga_bookie.storage.journal_files import journal_ids, journal_name, read_mark
from geminga_bookie.storage.journal_findings import FileFindings
from geminga_bookie.storage.journal_format import ENTRIES, JournalItem, JournalPosition
from geminga_bookie.storage.journal_scan import scan

logger = logging.getLogger(__name__)

_LINES_MAX = 50
_GAPS_MAX = 1000


@dataclass(slots=True)
class ReplayReport:
    """What a replay found."""

    records: int = 0
    items: int = 0
    next_id: int = 1
    end: JournalPosition | None = None
    """Behind the last record that was acknowledged; None for a journal without one."""
    torn_tails: list[str] = field(default_factory=list)
    """Unfinished records: a crash in mid-write, nothing acknowledged is missing."""
    damages: list[str] = field(default_factory=list)
    """Unreadable acknowledged records, missing files, and places that may be such records."""
    notes: list[str] = field(default_factory=list)
    """Damage that loses nothing."""
    gaps: list[str] = field(default_factory=list)
    """With damage: entries that are missing between those of one ledger that were read."""


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
        report.end = mark
        report.next_id = max(report.next_id, mark.journal_id + 1)
        ids = [journal_id for journal_id in ids if journal_id >= mark.journal_id]
        if mark.journal_id > 0 and mark.journal_id not in ids:
            report.damages.append(
                f"{directory}: the journal {journal_name(mark.journal_id)} of the mark is missing"
            )
    files: list[FileFindings] = []
    following: dict[int, int] = {}
    for journal_id in ids:
        start = mark.offset if mark is not None and mark.journal_id == journal_id else 0
        findings = FileFindings(journal_id, directory / journal_name(journal_id))
        file = disk.open(findings.path, writable=False)
        try:
            for item in scan(file, journal_id, start, findings):
                apply(item)
                report.items += 1
                if item.kind == ENTRIES:
                    _note_gap(report, following, item)
        finally:
            file.close()
        files.append(findings)
    _judge(report, files)
    report.damages += _missing_files(directory, files)
    if not report.damages:
        report.gaps = []
    return report


def _note_gap(report: ReplayReport, following: dict[int, int], item: JournalItem) -> None:
    expected = following.get(item.ledger_id, item.number)
    if item.number > expected and len(report.gaps) < _GAPS_MAX:
        report.gaps.append(f"ledger {item.ledger_id}: entries {expected} to {item.number - 1}")
    following[item.ledger_id] = max(expected, item.number + len(item.payload))


def _judge(report: ReplayReport, files: list[FileFindings]) -> None:
    """Settle what only the other files can tell."""
    for findings in files:
        torn = findings.judge(_named_end(findings.journal_id, files))
        report.records += findings.records
        report.torn_tails += torn
        report.damages += findings.damages
        report.notes += findings.notes
        if findings.records or findings.damages:
            report.end = JournalPosition(findings.journal_id, findings.proven_end)


def _named_end(journal_id: int, files: list[FileFindings]) -> int | None:
    """Up to where that file was acknowledged, as later ones say; 0 for one that they pass over."""
    for later in files:
        if later.journal_id > journal_id and later.predecessor is not None:
            named, end = later.predecessor
            if named == journal_id:
                return end
            if named < journal_id:
                return 0
    return None


def _missing_files(directory: Path, files: list[FileFindings]) -> Iterator[str]:
    """Gaps in the numbers, but for files that held nothing."""
    for earlier, later in pairwise(files):
        count = later.journal_id - earlier.journal_id - 1
        if count and _named_end(earlier.journal_id + 1, files) != 0:
            yield (f"{directory}: {count} journals before {later.path.name} are missing")


def log_report(report: ReplayReport) -> None:
    """Say what a replay dropped, in a bounded number of lines."""
    for lines, level, text in (
        (report.notes, logging.WARNING, "journal: %s"),
        (report.torn_tails, logging.WARNING, "journal: an unfinished record was dropped: %s"),
        (report.damages, logging.ERROR, "journal: acknowledged entries may be lost: %s"),
        (report.gaps, logging.ERROR, "journal: missing between entries that were read: %s"),
    ):
        for line in lines[:_LINES_MAX]:
            logger.log(level, text, line)
        if len(lines) > _LINES_MAX:
            logger.log(level, text, f"{len(lines) - _LINES_MAX} more")
