"""Entry logs of one directory (spec BK-04, BK-06): flushes write, readers and compaction read."""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from geminga_bookie.storage.disk import Disk, read_file, replace_file
from geminga_bookie.storage.entry_logs.format import (
    FILE_HEADER_BYTES,
    SALT_BYTES,
    encode_block,
    encode_filler,
    encode_ledger_map,
    file_header,
)
from geminga_bookie.storage.entry_logs.reading import LogFile, named
from geminga_bookie.storage.location_index import Location

logger = logging.getLogger(__name__)

SUFFIX = ".log"
COMPACTING_SUFFIX = ".compacting"
UNREAD_SUFFIX = ".unread"
_NAME = re.compile(r"([0-9a-f]{8})\.log(\.unread_*)?")
"""Of a log, and of one that was set aside."""
LOG_ID_MAX = (1 << 32) - 1
"""As wide as the index has them."""
UNSALTED_NAME = "unsalted"
"""In a ledger directory: the highest number that a log of version 1 may have."""
OPEN_FILES_MAX = 64
WRITE_BYTES = 1024 * 1024
SYNC_BYTES = 2 * 1024 * 1024
"""A flush syncs after this size: one large sync at its end would delay the journal's."""
WRITE_BUFFERS_MAX = 16 * 1024
"""So many are written at once, or a filler behind few small ones would be much of them."""


def log_name(log_id: int) -> str:
    """File name of an entry log."""
    return f"{log_id:08x}{SUFFIX}"


class _OpenLog:
    __slots__ = ("file", "readers", "removed")

    def __init__(self, file: LogFile) -> None:
        self.file = file
        self.readers = 0
        self.removed = False


class EntryLogs:
    """The set of logs. A removed log's file stays open until its last reader is done."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self.disk = disk
        self.directory = directory
        self._lock = threading.Lock()
        self._open: dict[int, _OpenLog] = {}
        names = [found for name in disk.names(directory) if (found := _NAME.fullmatch(name))]
        self._ids = {int(found[1], 16) for found in names if not found[2]}
        # What names a log by its number must not meet another one with it: also not one that was
        # set aside, or has gone.
        self._last_id = max((int(found[1], 16) for found in names), default=0)
        self._is_noted = True
        self._unsalted_max = self._last_id
        self._note_failure: OSError | None = None
        try:
            noted = _unsalted(disk, directory)
        except OSError as error:  # what stands there stays: it may be read again
            logger.warning("%s can't be read: %s", directory / UNSALTED_NAME, error)
            self._note_failure = named(error, directory / UNSALTED_NAME)
        else:
            self._is_noted = noted is not None
            self._unsalted_max = self._last_id if noted is None else noted
            self._last_id = max(self._last_id, self._unsalted_max)
        self._growing: set[int] = set()

    def note_unsalted(self) -> None:
        """Once for each directory, before logs are written: those after this one have a salt. Until
        that is noted all that are there may be without.
        """
        if self._is_noted:
            return
        try:
            text = f"{self._unsalted_max}\n".encode()
            replace_file(self.disk, self.directory / UNSALTED_NAME, text)
        except OSError as error:  # perhaps the disk is full: the next start does it
            logger.warning("%s can't be written: %s", self.directory / UNSALTED_NAME, error)
        else:
            self._is_noted = True

    def check_note(self) -> None:
        """Before a log counts as one without a header. Raises OSError if the note couldn't be read:
        perhaps the log's second one counts.
        """
        if self._note_failure is not None:
            raise self._note_failure

    def found_unsalted(self, log_id: int) -> None:
        """A log is of version 1: an older version of the bookie has run since that was noted."""
        if log_id > self._unsalted_max:
            self._unsalted_max, self._is_noted = log_id, False
            self.note_unsalted()
            with self._lock:
                # Below it a header may be another one than was taken for it.
                self._close_idle(0)

    def ids(self) -> list[int]:
        """Numbers of all logs, ascending."""
        with self._lock:
            return sorted(self._ids)

    def finished_ids(self) -> list[int]:
        """Numbers of completed logs, ascending."""
        with self._lock:
            return sorted(self._ids - self._growing)

    def new_id(self) -> int:
        """An unused number."""
        with self._lock:
            self._last_id += 1
            return self._last_id

    def path(self, log_id: int) -> Path:
        """A log's path."""
        return self.directory / log_name(log_id)

    def created(self, log_id: int, *, growing: bool = False) -> None:
        """Add a new log; a growing one is appended to until `finished`."""
        with self._lock:
            self._ids.add(log_id)
            if growing:
                self._growing.add(log_id)

    def finished(self, log_id: int) -> None:
        """The log is complete."""
        with self._lock:
            self._growing.discard(log_id)

    def remove(self, log_id: int) -> None:
        """Unlink a log; readers that have it open can continue. Raises OSError."""
        self.disk.remove(self.path(log_id))
        with self._lock:
            self._ids.discard(log_id)
            opened = self._open.pop(log_id, None)
            if opened is not None:
                opened.removed = True
                if not opened.readers:
                    opened.file.close()

    def set_aside(self, log_id: int) -> Path:
        """Give a log that can't be read another name, under which nobody uses or removes it; and
        return it. Durable. Raises OSError.
        """
        path = self.path(log_id)
        aside = path.with_name(path.name + UNREAD_SUFFIX)
        while aside.name in self.disk.names(self.directory):
            aside = aside.with_name(aside.name + "_")
        self.disk.rename(path, aside)
        self.disk.sync_directory(self.directory)
        with self._lock:
            self._ids.discard(log_id)
            opened = self._open.pop(log_id, None)
        if opened is not None:
            opened.file.close()
        return aside

    @contextmanager
    def reading(self, log_id: int) -> Iterator[LogFile]:
        """The open file of a log. Raises FileNotFoundError if it was removed, OSError."""
        with self._lock:
            opened = self._open.pop(log_id, None)
            if opened is None:
                path = self.path(log_id)
                salted_id = log_id if log_id > self._unsalted_max else None
                opened = _OpenLog(LogFile(self.disk.open(path, writable=False), path, salted_id))
            self._open[log_id] = opened
            opened.readers += 1
            self._close_idle(OPEN_FILES_MAX)
        try:
            yield opened.file
        finally:
            with self._lock:
                opened.readers -= 1
                if opened.removed and not opened.readers:
                    opened.file.close()

    def _close_idle(self, most: int) -> None:
        """Close files above the bound, the least recently used first (the dict's order)."""
        idle = [log_id for log_id, opened in self._open.items() if not opened.readers]
        for log_id in idle[: max(0, len(self._open) - most)]:
            self._open.pop(log_id).file.close()

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            for opened in self._open.values():
                opened.file.close()
            self._open.clear()


def _unsalted(disk: Disk, directory: Path) -> int | None:
    """What `note_unsalted` has noted. Raises OSError."""
    text = read_file(disk, directory / UNSALTED_NAME) or b""
    if not re.fullmatch(rb"[0-9]{1,10}\n", text) or int(text) > LOG_ID_MAX:
        return None
    return int(text)


class EntryLogWriter:
    """Appends blocks to a new log. Nothing is durable before `sync` returns. One thread."""

    def __init__(self, logs: EntryLogs, *, compacted_from: int = 0, suffix: str = SUFFIX) -> None:
        self._logs = logs
        self.log_id = logs.new_id()
        self.path = logs.path(self.log_id).with_suffix(suffix)
        self._file = logs.disk.open(self.path, create=True, direct=True)
        self.salt = secrets.token_bytes(SALT_BYTES)
        self._buffers: list[bytes] = [file_header(self.log_id, compacted_from, self.salt)]
        self._buffered = FILE_HEADER_BYTES
        self._written = 0
        self.ledger_bytes: dict[int, int] = {}
        if suffix == SUFFIX:
            logs.created(self.log_id, growing=True)
        self._promised = False

    @property
    def size_bytes(self) -> int:
        return self._written + self._buffered

    def append(self, kind: int, ledger_id: int, first: int, packets: Sequence[bytes]) -> Location:
        """Queue a block; may write queued ones. Raises OSError."""
        buffers, size = encode_block(kind, ledger_id, first, packets, self.salt)
        return self.append_raw(buffers, size, ledger_id, first, len(packets))

    def append_raw(
        self, buffers: Sequence[bytes], size: int, ledger_id: int, first: int, count: int
    ) -> Location:
        """Queue a block that is encoded with the log's salt. Raises OSError."""
        location = Location(ledger_id, first, self.log_id, self.size_bytes, size, count)
        self._buffers += buffers
        self._buffered += size
        self.ledger_bytes[ledger_id] = self.ledger_bytes.get(ledger_id, 0) + size
        if self._buffered >= WRITE_BYTES or len(self._buffers) >= WRITE_BUFFERS_MAX:
            self._write()
        return location

    def _write(self) -> None:
        """Whole pages: none is written twice, so that what was read of a log stays true."""
        try:
            self._write_pages()
        except OSError as error:
            raise named(error, self.path) from error

    def _write_pages(self) -> None:
        if self._buffers:
            filler, size = encode_filler(self.size_bytes, self.salt)
            self._buffers += filler
            self._buffered += size
            self._file.write(self._buffers, self._written)
            if self._written // SYNC_BYTES != (self._written + self._buffered) // SYNC_BYTES:
                self._file.sync()
            self._written += self._buffered
            self._buffers = []
            self._buffered = 0

    def sync(self) -> None:
        """Return when all appended blocks are on disk. Raises OSError."""
        self._write()
        self._sync()
        self._promised = True

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            raise named(error, self.path) from error

    def seal(self) -> None:
        """Write the ledger map and close. Raises OSError, but is closed in any case."""
        try:
            self._write()
            end = encode_ledger_map(self.ledger_bytes, self._written, self.salt)
            self._file.write(end, self._written)
            self._sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without a map: after an error, or before the file's removal."""
        try:
            self._file.close()
        finally:
            self._logs.finished(self.log_id)

    def give_up(self) -> None:
        """After an error, close, and remove the file if no block in it was promised durable, so
        that repeated attempts don't fill the disk. Raises OSError."""
        self.abandon()
        if not self._promised:
            self._logs.remove(self.log_id)
