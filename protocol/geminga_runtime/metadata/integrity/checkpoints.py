"""When the log of the SQLite store goes to its file, and the sums of the pages that are there then
(`page_sums`).

SQLite does it by itself, within some commit. Here the thread that writes does it behind one, and
writes the sums before the log can begin anew, which is with the next commit. Whatever fails with
the sums costs nothing but what they are good for.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from array import array
from contextlib import suppress
from pathlib import Path

from geminga_runtime.metadata.integrity.log_format import LOG_HEADER, LogHeader, parse_header
from geminga_runtime.metadata.integrity.page_sums import (
    PageSums,
    apply_frames,
    ended_at,
    salts_at,
    write_sums,
)

LOG_PAGES = 1000
"""The log is copied when it has so many, as SQLite does by itself."""
RETRY_PAGES = 100
"""And again after as many more, while a reader keeps it from being copied, or begun anew."""

_log = logging.getLogger(__name__)


class Checkpoints:
    """For the thread that uses the writing connection."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, sums: array[int], known: bool
    ) -> None:
        """`sums` are those of the file as it was found; `known` that they were on disk."""
        self._path = path
        self._connection = connection
        self._sums: array[int] | None = sums
        self._is_kept = known
        self._has_warned = False
        self._file = -1
        self._header: LogHeader | None = None
        self._due = LOG_PAGES
        self._copied = 0
        """Frames of the log, all there were, when it was last copied."""
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()

    def run_if_due(self) -> None:
        """Behind each commit. Doesn't raise."""
        try:
            if self._is_due():
                self._run()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Behind the last commit. Doesn't raise."""
        try:
            if not self._is_kept and self._look():
                self._run()
        except OSError as error:
            self._give_up(error)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _look(self) -> bool:
        """Whether there is a log; sees when it is begun anew."""
        if self._file < 0:
            try:
                self._file = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        data = os.pread(self._file, LOG_HEADER.size, 0)
        before = self._header
        if before is not None and data[16:24] == before.salts:
            return True
        header = parse_header(data)
        if header is None:
            return False
        if before is not None and not ended_at(self._file, header, 0, before.salts, self._copied):
            self._sums = None  # someone else has copied a part of it: the next start makes them
        self._header, self._due, self._copied = header, LOG_PAGES, 0
        return True

    def _is_due(self) -> bool:
        if not self._look():
            return False
        assert self._header is not None
        return salts_at(self._file, self._header, self._due) == self._header.salts

    def _run(self) -> None:
        assert self._header is not None
        try:
            result = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:  # e.g. a full disk; the log has it all
            _log.debug("%s isn't written yet: %s", self._path, error)
            self._due += RETRY_PAGES
            return
        _, frames, copied = result[0]
        self._due = max(self._due, frames + RETRY_PAGES)
        if copied < frames or frames <= 0:
            return
        self._copied = frames
        if self._sums is not None:
            self._sums = apply_frames(self._sums, self._file, self._header, frames)
            self._write(PageSums(self._header.page_bytes, self._header.salts, frames, self._sums))

    def _write(self, sums: PageSums) -> None:
        try:
            write_sums(self._path, sums)
        except OSError as error:  # those that are there don't count when the log has begun anew
            if not self._has_warned:
                _log.warning("%s has no new checksums: %s", self._path, error)
            self._has_warned = True
        else:
            self._is_kept, self._has_warned = True, False

    def _give_up(self, error: OSError) -> None:
        """SQLite goes on by itself."""
        _log.warning("the log of %s can't be read: %s", self._path, error)
        self._sums, self._is_kept = None, True
        with suppress(sqlite3.Error):
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}").fetchall()
