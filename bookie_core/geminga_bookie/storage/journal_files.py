"""The files of one journal directory: made, reused, dropped behind the mark (spec BK-01)."""

from __future__ import annotations

import logging
import struct
import threading
import time
from pathlib import Path

from geminga_bookie.options import JournalOptions
from geminga_bookie.storage.disk import Disk, DiskFile, read_file, replace_file
from geminga_bookie.storage.journal_format import (
    PAGE_BYTES,
    JournalPosition,
    crc32c,
    file_header,
    page_round,
)

logger = logging.getLogger(__name__)

SUFFIX = ".journal"
MARK_NAME = "lastMark"
_MARK = struct.Struct("<4sIQQI")
_MARK_MAGIC = b"GMRK"
_MARK_VERSION = 1
_FILL_BYTES = 256 * 1024
"""Zeros are synced in pieces of this size: a large sync would hold up the journal's own."""
_FILL_PAUSE_S = 0.001
_DRAFT_NAME = "next.tmp"


def journal_name(journal_id: int) -> str:
    """File name of a journal."""
    return f"{journal_id:016x}{SUFFIX}"


def journal_ids(disk: Disk, directory: Path) -> list[int]:
    """Numbers of the journal files in a directory, ascending."""
    names = (name for name in disk.names(directory) if name.endswith(SUFFIX))
    return sorted(int(name.removesuffix(SUFFIX), 16) for name in names)


def read_mark(disk: Disk, directory: Path) -> JournalPosition | None:
    """Up to where everything is in its place beside the journal; None if there is no valid mark."""
    data = read_file(disk, directory / MARK_NAME)
    if data is None or len(data) != _MARK.size:
        return None
    magic, version, journal_id, offset, checksum = _MARK.unpack(data)
    if magic != _MARK_MAGIC or version != _MARK_VERSION or crc32c(data[:-4]) != checksum:
        return None
    return JournalPosition(journal_id, offset)


def write_mark(disk: Disk, directory: Path, mark: JournalPosition) -> None:
    """Durably. Raises OSError."""
    data = _MARK.pack(_MARK_MAGIC, _MARK_VERSION, *mark, 0)[:-4]
    replace_file(disk, directory / MARK_NAME, data + crc32c(data).to_bytes(4, "little"))


class Segment:
    """An open journal file with room for records."""

    __slots__ = ("capacity_bytes", "file", "journal_id", "offset", "sequence")

    def __init__(self, journal_id: int, file: DiskFile, capacity_bytes: int) -> None:
        self.journal_id = journal_id
        self.file = file
        self.capacity_bytes = capacity_bytes
        self.offset = PAGE_BYTES
        self.sequence = 0


class JournalFiles:
    """Hands out segments; makes the next one ready in a thread of its own while the last is being
    filled."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        options: JournalOptions,
        next_id: int,
        mark: JournalPosition,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._options = options
        self._next_id = next_id
        self._mark = mark
        self._lock = threading.Lock()
        self._ready: Segment | None = None
        self._maker: threading.Thread | None = None
        self._closed = False

    def take(self, needed_bytes: int) -> Segment:
        """A segment with room for `needed_bytes`: the one made ready, or a small one at once.
        Raises OSError."""
        if self._maker is not None:
            self._maker.join()
            self._maker = None
        segment, self._ready = self._ready, None
        if segment is not None and segment.capacity_bytes < needed_bytes + PAGE_BYTES:
            segment.file.close()
            segment = None
        if segment is None:
            size = max(self._options.first_segment_bytes, needed_bytes + PAGE_BYTES)
            segment = self._make(page_round(size))
        self._maker = threading.Thread(
            target=self._make_ready, name="bookie-journal-fill", daemon=True
        )
        self._maker.start()
        return segment

    def _make_ready(self) -> None:
        try:
            self._ready = self._make(self._options.segment_bytes, _FILL_PAUSE_S)
        except OSError as error:
            logger.warning("no journal file made ready in %s: %s", self._directory, error)

    def _make(self, size_bytes: int, pause_s: float = 0.0) -> Segment:
        journal_id = self._next_id
        draft = self._directory / _DRAFT_NAME
        recycled = self._recycle(draft, size_bytes)
        file = self._disk.open(draft, create=not recycled)
        try:
            offset = PAGE_BYTES if recycled else 0
            size_bytes = file.size() if recycled else size_bytes
            zeros = bytes(_FILL_BYTES)
            while offset < size_bytes and not recycled:
                chunk = min(_FILL_BYTES, size_bytes - offset)
                file.write([zeros[:chunk]], offset)
                offset += chunk
                if self._closed:
                    break
                if pause_s:
                    file.sync()
                    time.sleep(pause_s)
            file.write([file_header(journal_id)], 0)
            file.sync()
            self._disk.rename(draft, self._directory / journal_name(journal_id))
            self._disk.sync_directory(self._directory)
        except OSError:
            file.close()
            # What is left of it would keep the room that others need on a full disk.
            self._disk.remove(draft)
            raise
        # Only now: a number that no file has would look like a lost journal at the next start.
        self._next_id = journal_id + 1
        return Segment(journal_id, file, size_bytes)

    def _recycle(self, draft: Path, size_bytes: int) -> bool:
        """Turn the oldest file behind the mark and beyond the backups into a draft, if it is big
        enough."""
        with self._lock:
            behind = self._behind_mark()
            if len(behind) <= self._options.backups_max:
                return False
            path = self._directory / journal_name(behind[0])
            self._disk.rename(path, draft)
        file = self._disk.open(draft)
        try:
            return file.size() >= size_bytes
        finally:
            file.close()

    def _behind_mark(self) -> list[int]:
        ids = journal_ids(self._disk, self._directory)
        return [journal_id for journal_id in ids if journal_id < self._mark.journal_id]

    def set_mark(self, mark: JournalPosition) -> None:
        """Write the mark, then remove what is behind it but for the backups and one for reuse.
        Raises OSError."""
        write_mark(self._disk, self._directory, mark)
        with self._lock:
            self._mark = mark
            behind = self._behind_mark()
            for journal_id in behind[: max(0, len(behind) - self._options.backups_max - 2)]:
                self._disk.remove(self._directory / journal_name(journal_id))

    def close(self) -> None:
        """Wait for the maker and close what was made ready."""
        self._closed = True
        if self._maker is not None:
            self._maker.join()
        if self._ready is not None:
            self._ready.file.close()
