"""The files of one journal directory: created, reused, removed before the mark (spec BK-01)."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import struct
import threading
import time
from pathlib import Path

from geminga_bookie.errors import DataDirError
from geminga_bookie.metrics.storage import JournalMetrics
from geminga_bookie.options import JournalOptions
from geminga_bookie.storage.disk import Disk, DiskFile, read_file, replace_file
from geminga_bookie.storage.journal_format import (
    PAGE_BYTES,
    JournalPosition,
    crc32c,
    encode_end_mark,
    page_round,
)
from geminga_bookie.storage.journal_header import (
    FILE_VERSION,
    FileHeader,
    encode_header,
    first_offset,
    sector_checksums,
)
from geminga_bookie.workers import Work, Workers
from geminga_runtime.ballast import is_full

logger = logging.getLogger(__name__)

SUFFIX = ".journal"
MARK_NAME = "lastMark"
_MARK = struct.Struct("<4sIQQI")
_MARK_HEAD = struct.Struct("<4sI")
_MARK_MAGIC = b"GMRK"
_MARK_VERSION = 1
_READ_BYTES = 256 * 1024
"""Bytes of a used file read at once, so that no thread waits long for the interpreter lock."""
_DRAFT_NAME = "next.tmp"
SPARE_BYTES = 4 * 1024 * 1024
"""Space that must remain free beside a prepared file."""
CACHED_FILE_BYTES_MAX = 64 * 1024 * 1024
"""Files up to this size stay in the system's memory: before they are used again, they are read."""
DROP_BYTES = 1024 * 1024
"""So much at a time is dropped from there, and as much stays behind the end: the kernel may still
be busy with pages written just now."""

SMALL_RECORD_BYTES_MAX = 16 * 1024
"""Above it no zeros go behind a record: of so few records to the zeros these cost more than they
save. Where they go, one sync in a hundred or so takes longer for them.
"""


def journal_name(journal_id: int) -> str:
    """File name of a journal."""
    return f"{journal_id:016x}{SUFFIX}"


def journal_ids(disk: Disk, directory: Path) -> list[int]:
    """Numbers of the journal files in a directory, ascending."""
    names = (name for name in disk.names(directory) if name.endswith(SUFFIX))
    return sorted(int(name.removesuffix(SUFFIX), 16) for name in names)


def read_mark(disk: Disk, directory: Path) -> JournalPosition | None:
    """The position up to which entries are in entry logs; None if there is no valid mark. Raises
    DataDirError for one of another version, OSError.
    """
    data = read_file(disk, directory / MARK_NAME)
    if data is None or len(data) < _MARK_HEAD.size or crc32c(data[:-4]) != _last_word(data):
        return None
    magic, version = _MARK_HEAD.unpack_from(data)
    if magic != _MARK_MAGIC:
        return None
    if version != _MARK_VERSION:
        raise DataDirError(
            f"{directory / MARK_NAME} is of version {version}, this bookie reads version "
            f"{_MARK_VERSION}"
        )
    if len(data) != _MARK.size:
        return None
    _, _, journal_id, offset, _ = _MARK.unpack(data)
    return JournalPosition(journal_id, offset)


def _last_word(data: bytes) -> int:
    return int.from_bytes(data[-4:], "little")


def write_mark(disk: Disk, directory: Path, mark: JournalPosition) -> None:
    """Write the mark durably. Raises OSError."""
    data = _MARK.pack(_MARK_MAGIC, _MARK_VERSION, *mark, 0)[:-4]
    replace_file(disk, directory / MARK_NAME, data + crc32c(data).to_bytes(4, "little"))


class Segment:
    """An open journal file with room for records."""

    __slots__ = (
        "_dropped", "_written_to", "_zeros", "capacity_bytes", "file", "journal_id", "offset",
        "salt", "sequence",
    )  # fmt: skip

    def __init__(self, header: FileHeader, file: DiskFile, ahead_bytes: int) -> None:
        """So many zeros go ahead of small records, or up to twice as many; 0 in a file that is used
        again, of which all was written before.
        """
        self.journal_id = header.journal_id
        self.salt = header.salt
        self.file = file
        self.capacity_bytes = header.capacity_bytes
        self.offset = header.first_offset
        self.sequence = 0
        self._dropped = 0
        self._written_to = header.first_offset
        # By chance, so that bookies with the same entries don't all write more at once.
        pages = ahead_bytes // PAGE_BYTES
        self._zeros = memoryview(bytes((pages + header.salt % max(pages, 1)) * PAGE_BYTES))

    def zeros_behind(self, size_bytes: int) -> memoryview:
        """What to write behind a record of that size: zeros, which the file holds there anyway."""
        end = self.offset + size_bytes
        if end <= self._written_to or size_bytes > SMALL_RECORD_BYTES_MAX:
            return self._zeros[:0]
        return self._zeros[: self.capacity_bytes - end]

    def advance(self, size_bytes: int, zeros: int) -> None:
        """A record of that size is on disk, with that many zeros behind it."""
        self.offset += size_bytes
        self.sequence += 1
        self._written_to = max(self._written_to, self.offset + zeros)

    def room_for(self, size_bytes: int) -> bool:
        """Whether that many bytes fit after the last record."""
        return self.offset + size_bytes <= self.capacity_bytes

    def drop_cached(self) -> None:
        """Drop what is on disk from the system's memory: in a large file, nothing reads it again
        soon, and without it each write would take pages that nobody used for long."""
        end = self.offset - DROP_BYTES
        if self.capacity_bytes > CACHED_FILE_BYTES_MAX and end - self._dropped >= DROP_BYTES:
            self.file.drop_cached(self._dropped, end)
            self._dropped = end

    def mark_end(self) -> None:
        """Mark that all records so far are on disk. Not synced, and a failure is not raised:
        without the mark it is just harder to tell a damaged last record from an unfinished one."""
        if not self.room_for(PAGE_BYTES):
            return
        mark = encode_end_mark(self.journal_id, self.salt, self.sequence)
        try:
            self.file.write([mark], self.offset)
        except OSError as error:
            logger.warning("journal %s: no end mark: %s", journal_name(self.journal_id), error)


class JournalFiles:
    """Provides segments; the next one is prepared in the background while the last is filled."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        options: JournalOptions,
        next_id: int,
        mark: JournalPosition,
        workers: Workers,
    ) -> None:
        self._disk = disk
        self._workers = workers
        self.metrics = JournalMetrics()
        self._directory = directory
        self._options = options
        self._draft = directory / _DRAFT_NAME
        self._next_id = next_id
        self._mark = mark
        self._lock = threading.Lock()
        self._ready: Segment | None = None
        self._spoiled: set[int] = set()
        self._maker: Work | None = None

    @property
    def directory(self) -> Path:
        return self._directory

    def take(self, needed_bytes: int) -> Segment:
        """A segment with room for `needed_bytes`: the prepared one, or a small one at once. Raises
        OSError."""
        if self._maker is not None:
            self._maker.join()
            self._maker = None
        segment, self._ready = self._ready, None
        if segment is not None and not segment.room_for(needed_bytes):
            segment.file.close()
            segment = None
        if segment is None:
            size = max(self._options.first_segment_bytes, needed_bytes + PAGE_BYTES)
            segment = self._make(page_round(size), needed_bytes)
        self._maker = self._workers.start("bookie-journal-fill", self._make_ready)
        return segment

    def spoil(self, journal_id: int) -> None:
        """A write or sync of that file failed: its readable content may not be on disk. So it is
        not reused, as the next use would record content that a power failure may remove."""
        with self._lock:
            self._spoiled.add(journal_id)

    def _make_ready(self) -> None:
        try:
            draft, size_bytes = self._draft, self._options.segment_bytes
            if self._recycle(size_bytes, 0, self._options.backups_max):
                self._ready = self._prepare(self._disk.open(draft), 0)
            else:
                self._check_room(size_bytes)
                self._ready = self._make(size_bytes, 0)
        except OSError as error:
            if not is_full(error):  # the disk check reports that
                logger.warning("no journal file prepared in %s: %s", self._directory, error)

    def _make(self, size_bytes: int, needed_bytes: int) -> Segment:
        """A new file; on a full disk an old one before the mark, even a backup."""
        try:
            file = self._disk.open(self._draft, create=True)
            return self._prepare(file, size_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._recycle(0, needed_bytes, 0):
                raise
            return self._prepare(self._disk.open(self._draft), 0)

    def _prepare(self, file: DiskFile, reserve_bytes: int) -> Segment:
        """Turn the draft into a journal file with room for that many bytes; 0: its size."""
        began_s = time.perf_counter()
        try:
            earlier: list[int] = []
            if reserve_bytes:
                file.reserve(reserve_bytes)
                size_bytes = reserve_bytes
            else:
                size_bytes = file.size() // PAGE_BYTES * PAGE_BYTES
                earlier = self._read_earlier(file, size_bytes)
            header = FileHeader(
                FILE_VERSION,
                self._next_id,
                secrets.randbits(64),
                size_bytes,
                first_offset(size_bytes, recycled=not reserve_bytes),
                earlier,
            )
            file.write([encode_header(header)], 0)
            file.sync()
            self._disk.rename(self._draft, self._directory / journal_name(header.journal_id))
            self._disk.sync_directory(self._directory)
        except OSError:
            self.metrics.creations.add(time.perf_counter() - began_s, failed=True)
            file.close()
            # On a full disk others need the draft's space.
            self._disk.remove(self._draft)
            raise
        # Only now: a number without a file would look like a lost journal at the next start.
        self._next_id = header.journal_id + 1
        self.metrics.creations.add(time.perf_counter() - began_s)
        # What an earlier use left behind the end must stay: the header has its checksums.
        return Segment(header, file, self._options.ahead_bytes if reserve_bytes else 0)

    def _read_earlier(self, file: DiskFile, size_bytes: int) -> list[int]:
        """Checksums of an earlier use's content, so that the next start can tell it from damage.

        Without pauses: a journal with 200 MB/s would wait for its next file. Each read releases the
        interpreter lock.
        """
        earlier: list[int] = []
        for offset in range(0, size_bytes, _READ_BYTES):
            chunk = min(_READ_BYTES, size_bytes - offset)
            earlier += sector_checksums(file.read(chunk, offset))
        return earlier

    def _check_room(self, size_bytes: int) -> None:
        """A prepared file must not fill the disk: others need the space more urgently."""
        if self._disk.usage(self._directory).free_bytes < size_bytes + SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._directory))

    def _recycle(self, size_bytes: int, needed_bytes: int, backups: int) -> bool:
        """Turn the oldest file before the mark, except backups, into the draft; False if there is
        none, or if it is too small: then it is removed."""
        with self._lock:
            behind = self._behind_mark()
            while len(behind) > backups and behind[0] in self._spoiled:
                self._remove(behind.pop(0))
            if len(behind) <= backups:
                return False
            self._disk.rename(self._directory / journal_name(behind[0]), self._draft)
        file = self._disk.open(self._draft)
        try:
            size = file.size()
        finally:
            file.close()
        if size >= size_bytes and size - first_offset(size, recycled=True) >= needed_bytes:
            return True
        self._disk.remove(self._draft)
        return False

    def _behind_mark(self) -> list[int]:
        ids = journal_ids(self._disk, self._directory)
        return [journal_id for journal_id in ids if journal_id < self._mark.journal_id]

    def set_mark(self, mark: JournalPosition) -> None:
        """Write the mark; remove older files, except backups and one for reuse. Raises OSError."""
        write_mark(self._disk, self._directory, mark)
        with self._lock:
            self._mark = mark
            behind = self._behind_mark()
            for journal_id in behind[: max(0, len(behind) - self._options.backups_max - 1)]:
                self._remove(journal_id)

    def _remove(self, journal_id: int) -> None:
        self._disk.remove(self._directory / journal_name(journal_id))
        self._spoiled.discard(journal_id)

    def close(self) -> None:
        """Wait for the preparing task, and close the prepared file."""
        if self._maker is not None:
            self._maker.join()
        if self._ready is not None:
            self._ready.file.close()
