"""What the shell prints of entry logs (spec BK-11; Apache's ReadLogCommand and
ReadLogMetadataCommand).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from geminga_bookie.errors import DataDirError
from geminga_bookie.options import BookieOptions
from geminga_bookie.shell.files import file_number
from geminga_bookie.shell.printing import data_lines, entry_head, ledger_name
from geminga_bookie.shell.target import ShellFailed
from geminga_bookie.storage.disk import Disk
from geminga_bookie.storage.entry_logs.files import SUFFIX, EntryLogs, log_name
from geminga_bookie.storage.entry_logs.format import (
    BLOCK_HEAD_BYTES,
    FILE_HEADER_BYTES,
    KIND_ENTRIES,
    DamagedBlock,
    block_table,
)
from geminga_bookie.storage.entry_logs.reading import (
    LogFile,
    check_version,
    ledger_map,
    scan_blocks,
)
from geminga_bookie.storage.journal_format import crc32c

Say = Callable[[str], None]


class Wanted(NamedTuple):
    """Which entries of a log are printed."""

    ledger_id: int = -1
    entry_id: int = -1
    start: int = -1
    end: int = -1
    """Of a range of bytes; -1: to the end of the file."""


class _Entry(NamedTuple):
    ledger_id: int
    entry_id: int
    offset: int
    size_bytes: int
    packet: bytes | None
    """None if it is damaged."""


def find_log(options: BookieOptions, disk: Disk, wanted: str) -> tuple[Path, int]:
    """The path and number of an entry log, given by number or file name. Raises ShellFailed."""
    name, number = Path(wanted), file_number(wanted, SUFFIX, "entry log")
    known = [each.resolve() for each in options.ledger_dirs]
    if name.parent != Path() and name.parent.resolve() in known:
        known = [name.parent.resolve()]
    found = [each / log_name(number) for each in known if log_name(number) in disk.names(each)]
    if not found:
        raise ShellFailed(f"no file {log_name(number)} in {', '.join(map(str, known))}")
    if len(found) > 1:
        listed = " and ".join(map(str, found))
        raise ShellFailed(f"there are {listed}: give the file's whole path")
    return found[0], number


def _entries(file: LogFile, unreadable: list[range]) -> Iterator[_Entry]:
    for offset, head in scan_blocks(file, unreadable):
        if head.kind != KIND_ENTRIES:
            continue
        data = file.read(head.total_bytes, offset)
        table = block_table(head, data)
        place = BLOCK_HEAD_BYTES + head.table_bytes
        for at, (size, checksum) in enumerate(zip(table[::2], table[1::2], strict=True)):
            packet = data[place : place + size]
            whole = packet if crc32c(packet) == checksum else None
            yield _Entry(head.ledger_id, head.first_entry_id + at, offset + place, size, whole)
            place += size


class LogPrinter:
    """Prints one entry log."""

    def __init__(self, say: Say, say_error: Say, ledger_form: str, entry_form: str | None) -> None:
        self._say = say
        self._say_error = say_error
        self._ledger_form = ledger_form
        self._entry_form = entry_form

    def print(self, disk: Disk, path: Path, log_id: int, wanted: Wanted) -> bool:
        """Print the wanted entries; returns False if one of them, or a part of the file, can't be
        read. Raises ShellFailed, OSError.
        """
        with _opened(disk, path, log_id) as file:
            return self._print(file, f"{log_id} ({path.name})", wanted)

    def _print(self, file: LogFile, name: str, wanted: Wanted) -> bool:
        ledger = ledger_name(wanted.ledger_id, self._ledger_form)
        entry = "" if wanted.entry_id < 0 else f" for EntryId {wanted.entry_id}"
        absent = ""
        if wanted.start >= 0:
            self._say(f"Scan entry log {name} for PositionRange: {wanted.start} - {wanted.end}")
            absent = (
                f"Entry log {name} doesn't has any entry in the range {wanted.start} - "
                f"{wanted.end}. Probably the position range, you have provided is lesser than the "
                f"LOGFILE_HEADER_SIZE ({FILE_HEADER_BYTES}) or greater than the current log "
                "filesize."
            )
        elif wanted.ledger_id >= 0:
            self._say(f"Scan entry log {name} for LedgerId {ledger} {entry}")
            which = "" if wanted.entry_id < 0 else f" EntryId {wanted.entry_id}"
            absent = f"LedgerId {ledger} {which} is not available in the entry log {name}"
        else:
            self._say(f"Scan entry log {name}")
        unreadable: list[range] = []
        printed = damaged = 0
        for found in _entries(file, unreadable):
            if not _is_wanted(found, wanted):
                continue
            printed += 1
            damaged += found.packet is None
            self._print_entry(found)
        if not printed and absent:
            self._say(absent)
        for places in unreadable:
            self._say_error(f"Error: no block at {places.start} to {places.stop}")
        return not damaged and not unreadable

    def _print_entry(self, found: _Entry) -> None:
        ledger = ledger_name(found.ledger_id, self._ledger_form)
        self._say(entry_head(ledger, found.entry_id, found.offset, found.size_bytes))
        if found.packet is None:
            self._say("Error:          it fails its checksum")
            self._say("")
            return
        for line in data_lines(found.packet, self._entry_form):
            self._say(line)


def _is_wanted(found: _Entry, wanted: Wanted) -> bool:
    if wanted.start >= 0:
        starts_before = wanted.end < 0 or found.offset <= wanted.end
        return starts_before and wanted.start < found.offset + found.size_bytes
    if wanted.ledger_id >= 0 and found.ledger_id != wanted.ledger_id:
        return False
    return wanted.ledger_id < 0 or wanted.entry_id in (-1, found.entry_id)


def print_metadata(disk: Disk, path: Path, log_id: int, ledger_form: str, say: Say) -> None:
    """Print how much each ledger has in a log. What is garbage is known to a running bookie only,
    so that all of it counts as used, as in Apache's shell. Raises ShellFailed, OSError.
    """
    say(f"Print entryLogMetadata of entrylog {log_id} ({path.name})")
    with _opened(disk, path, log_id) as file:
        sizes = ledger_map(file)
    total = sum(sizes.values())
    usage = 1.0 if total else 0.0
    say(f"entryLogId: {log_id}, remaining size: {total}, total size: {total}, usage: {usage}")
    for ledger_id, size in sizes.items():
        name = ledger_name(ledger_id, ledger_form)
        say(f"--------- Lid={name}, TotalSizeOfEntriesOfLedger={size}  ---------")


@contextmanager
def _opened(disk: Disk, path: Path, log_id: int) -> Iterator[LogFile]:
    """Raises ShellFailed for a log of another version, OSError."""
    logs = EntryLogs(disk, path.parent)
    try:
        with logs.reading(log_id) as file:
            try:
                check_version(file)
            except (DataDirError, DamagedBlock) as error:
                raise ShellFailed(str(error)) from None
            yield file
    finally:
        logs.close()
