"""What the shell prints of journals (spec BK-11; Apache's ReadJournalCommand, LastMarkCommand)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from geminga_bookie.errors import DataDirError
from geminga_bookie.options import BookieOptions
from geminga_bookie.shell.files import file_number
from geminga_bookie.shell.printing import data_lines, entry_head, ledger_name
from geminga_bookie.shell.target import ShellFailed
from geminga_bookie.storage import journal_v1
from geminga_bookie.storage.disk import Disk, DiskFile
from geminga_bookie.storage.journal_files import SUFFIX, journal_ids, journal_name, read_mark
from geminga_bookie.storage.journal_findings import FileFindings
from geminga_bookie.storage.journal_format import (
    ENTRIES,
    EXPLICIT_LAC,
    FENCE,
    IN_DOUBT,
    ITEM_BYTES,
    MASTER_KEY,
    PREDECESSOR,
    RECORD_HEADER_BYTES,
    JournalItem,
    JournalPosition,
    decode_index,
    parse_record_head,
)
from geminga_bookie.storage.journal_header import OLD_VERSION
from geminga_bookie.storage.journal_scan import scan

META_IDS = {MASTER_KEY: -0x1000, FENCE: -0x2000, EXPLICIT_LAC: -0x8000, IN_DOUBT: -0x10000}
"""Apache's journals keep facts as entries of these ids; the last one is ours."""

Say = Callable[[str], None]


def last_marks(options: BookieOptions, disk: Disk, say: Say) -> None:
    """Print up to where each journal is in entry logs. Raises ShellFailed."""
    for directory in options.journal_dirs:
        try:
            mark = read_mark(disk, directory) or JournalPosition(0, 0)
        except DataDirError as error:
            raise ShellFailed(str(error)) from None
        say(
            f"LastLogMark : Journal Id - {mark.journal_id}({journal_name(mark.journal_id)}), "
            f"Pos - {mark.offset}"
        )


def find_journal(
    options: BookieOptions, disk: Disk, wanted: str, directory: Path | None
) -> tuple[Path, int]:
    """The directory and number of a journal, given by number or file name. Raises ShellFailed."""
    name, number = Path(wanted), file_number(wanted, SUFFIX, "journal")
    known = [each.resolve() for each in options.journal_dirs]
    if directory is None and name.parent.resolve() in known:
        directory = name.parent
    if directory is None:
        if len(known) > 1:
            raise ShellFailed("there are several journal directories: choose one by -dir")
        directory = known[0]
    elif directory.resolve() not in known:
        raise ShellFailed(f"{directory} is no journal directory of this bookie")
    if number not in journal_ids(disk, directory):
        raise ShellFailed(f"no file {journal_name(number)} in {directory}")
    return directory, number


class JournalPrinter:
    """Prints one journal file."""

    def __init__(self, say: Say, say_error: Say, ledger_form: str, entry_form: str | None) -> None:
        self._say = say
        self._say_error = say_error
        self._ledger_form = ledger_form
        self._entry_form = entry_form

    def print(self, disk: Disk, directory: Path, journal_id: int) -> bool:
        """Print every entry and fact; returns False if something that was written can't be read.
        Raises ShellFailed.
        """
        name = journal_name(journal_id)
        self._say(f"Scan journal {journal_id} ({name})")
        file = disk.open(directory / name, writable=False)
        try:
            return self._scan(file, FileFindings(journal_id, directory / name))
        except DataDirError as error:
            raise ShellFailed(str(error)) from None
        finally:
            file.close()

    def _scan(self, file: DiskFile, findings: FileFindings) -> bool:
        record_at = -1
        places: Iterator[tuple[int, int]] = iter(())
        for item in scan(file, findings.journal_id, 0, findings):
            if findings.record_at != record_at:
                if record_at < 0:
                    self._say(f"Journal Version : {findings.version}")
                record_at = findings.record_at
                places = _places(file, findings)
            self._print_item(item, *next(places))
        for torn in findings.judge(None):
            self._say_error(f"Unfinished: {torn}")
        for text in (*findings.notes, *findings.damages):
            self._say_error(f"Error: {text}")
        return not findings.damages

    def _print_item(self, item: JournalItem, index_at: int, body_at: int) -> None:
        ledger = ledger_name(item.ledger_id, self._ledger_form)
        if item.kind == ENTRIES:
            for entry_id, packet in enumerate(item.payload, item.number):
                self._say(entry_head(ledger, entry_id, body_at, len(packet)))
                for line in data_lines(packet, self._entry_form):
                    self._say(line)
                body_at += len(packet)
            return
        size = ITEM_BYTES + sum(map(len, item.payload))
        self._say(entry_head(ledger, META_IDS[item.kind], index_at, size))
        self._say("Type:           META")
        if item.kind == MASTER_KEY:
            self._say(f"MasterKey:      {item.payload[0].hex()}")
        elif item.kind == EXPLICIT_LAC:
            self._say(f"ExplicitLac:    {item.number}")
        else:
            self._say("Fenced" if item.kind == FENCE else "InDoubt")
        self._say("")


def _places(file: DiskFile, findings: FileFindings) -> Iterator[tuple[int, int]]:
    """For each item of the record that was read last: where it is, and where its packets are."""
    if findings.version == OLD_VERSION:
        yield from journal_v1.places(file, findings.record_at)
        return
    index_at = findings.record_at + RECORD_HEADER_BYTES
    head = parse_record_head(file.read(RECORD_HEADER_BYTES, findings.record_at))
    body_at = index_at + head.index_bytes
    for item in decode_index(file.read(head.index_bytes, index_at)):
        if item.kind != PREDECESSOR:
            yield index_at, body_at
        index_at += ITEM_BYTES + 4 * len(item.lengths) + len(item.key)
        body_at += sum(item.lengths)
