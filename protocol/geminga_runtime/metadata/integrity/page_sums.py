"""Checksums of the pages of SQLite's file, kept beside it: what changes a byte is noticed.

SQLite writes to its file from its log only. So each page is either in the log's committed frames,
which have checksums of their own and are read first, or it is as the log's last whole copy to the
file left it. `metadata.sqlite.sums` is of such a copy: the log's salts, how many frames it had, and
a CRC32C for each page of the file.

It counts if the log still is that one, with as many frames or more, or was begun anew once since:
then its new frames haven't come that far, and the last of the old ones is still there, with none of
the old behind it. Otherwise someone else has written (an older version, a program of SQLite's), the
file can't be judged by it, and the sums are made anew.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
from array import array
from pathlib import Path
from typing import NamedTuple

from fastcrc import crc32

from geminga_runtime.metadata.integrity.log_format import FRAME, LogHeader
from geminga_runtime.metadata.sqlite_log import Committed, LogState

SUMS_END = ".sums"
"""Behind the file's name."""
UNKNOWN = 0
"""In the place of a sum: the page was never written."""
WORD = "I"
_MAGIC = b"GMPS"
_VERSION = 1
_HEADER = struct.Struct("<4sIIII8s")
_CHECKSUM = struct.Struct("<I")
_CHUNK_PAGES = 256
_SALTS_AT = 8
_SALT_MASK = 0xFFFFFFFF

_log = logging.getLogger(__name__)


class PageSums(NamedTuple):
    """The file when the log's frames were all in it."""

    page_bytes: int
    salts: bytes
    frames: int
    sums: array[int]
    """Of page 1 and so on."""

    @property
    def committed(self) -> Committed:
        """What it tells of the log."""
        return Committed(self.salts, self.frames, all_in_file=True)


def page_sum(page: bytes | memoryview) -> int:
    """Never UNKNOWN."""
    return int(crc32.iscsi(page)) or 1


def read_sums(path: Path) -> PageSums | None:
    """Those beside the SQLite file at `path`; None if there are none that count. Raises OSError."""
    file = Path(f"{path}{SUMS_END}")
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    try:
        magic, version, page_bytes, pages, frames, salts = _HEADER.unpack_from(data)
        (checksum,) = _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)
    except struct.error:
        magic, version, page_bytes, pages, frames, salts, checksum = b"", 0, 0, 0, 0, b"", 0
    if (magic, version) != (_MAGIC, _VERSION) or crc32.iscsi(data[: -_CHECKSUM.size]) != checksum:
        _log.warning("%s can't be used: it is made anew", file)
        return None
    sums = array(WORD, data[_HEADER.size : _HEADER.size + 4 * pages])
    return PageSums(page_bytes, salts, frames, sums)


def write_sums(path: Path, sums: PageSums) -> None:
    """Durably. Raises OSError."""
    file, draft = Path(f"{path}{SUMS_END}"), Path(f"{path}{SUMS_END}.tmp")
    data = _HEADER.pack(_MAGIC, _VERSION, sums.page_bytes, len(sums.sums), sums.frames, sums.salts)
    data += sums.sums.tobytes()
    data += _CHECKSUM.pack(crc32.iscsi(data))
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(descriptor)
        os.replace(draft, file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def sums_of_file(path: Path, page_bytes: int) -> array[int]:
    """Of the whole pages of a file; UNKNOWN for one that the disk doesn't give. No connection may
    have the file open: on its closing here SQLite would lose its locks. Raises OSError.
    """
    sums = array(WORD)
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = _CHUNK_PAGES * page_bytes
        while data := _read(file, size, len(sums) * page_bytes):
            view = memoryview(data)
            places = range(0, len(data) // page_bytes * page_bytes, page_bytes)
            sums.extend([page_sum(view[at : at + page_bytes]) for at in places])
            if not places:
                break
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        _sum_singly(file, page_bytes, sums)
    finally:
        os.close(file)
    return sums


def _sum_singly(file: int, page_bytes: int, sums: array[int]) -> None:
    """The rest of a file that can't be read everywhere."""
    for number in range(len(sums), os.fstat(file).st_size // page_bytes):
        try:
            sums.append(page_sum(_read(file, page_bytes, number * page_bytes)))
        except OSError:
            sums.append(UNKNOWN)


def _read(file: int, size: int, at: int) -> bytes:
    return os.pread(file, size, at)


def salts_at(log: int, header: LogHeader, number: int) -> bytes:
    """The salts of a frame, valid or not; empty behind the end. Raises OSError."""
    return os.pread(log, len(header.salts), header.offset(number) + _SALTS_AT)


def follows(salts: bytes, earlier: bytes) -> bool:
    """Whether a log with these salts was begun when the one with the earlier ones was done."""
    first, before = (int.from_bytes(each[:4], "big") for each in (salts, earlier))
    return first == (before + 1) & _SALT_MASK


def ended_at(log: int, header: LogHeader, frames: int, salts: bytes, earlier: int) -> bool:
    """Whether the log before this one, with such salts, had so many frames, as far as what is left
    of it shows: `frames` are of this one. Raises OSError.
    """
    return (
        follows(header.salts, salts)
        and frames < earlier
        and salts_at(log, header, earlier) == salts
        and salts_at(log, header, earlier + 1) != salts
    )


def can_judge(path: Path, known: PageSums, state: LogState) -> bool:
    """Whether the file at `path` must have these sums where the log has no page. Raises OSError."""
    header = state.header
    if header is None or not state.is_known or header.page_bytes != known.page_bytes:
        return False
    if header.salts == known.salts:
        return state.frames >= known.frames
    log = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return ended_at(log, header, state.frames, known.salts, known.frames)
    finally:
        os.close(log)


def changed_pages(known: PageSums, found: array[int], state: LogState) -> list[int]:
    """The pages that are not as they were written, or are missing."""
    changed = []
    pages = min(len(known.sums), state.file_pages or len(known.sums))
    for number, expected in enumerate(known.sums[:pages], 1):
        is_there = number <= len(found)
        if (
            expected != UNKNOWN
            and number not in state.pages
            and not (is_there and found[number - 1] == expected)
        ):
            changed.append(number)
    return changed


def apply_frames(sums: array[int], log: int, header: LogHeader, frames: int) -> array[int]:
    """The sums after so many frames were copied to the file. Raises OSError."""
    made = array(WORD, sums)
    file_pages = len(made)
    frame_bytes = FRAME.size + header.page_bytes
    for number in range(1, frames + 1):
        data = os.pread(log, frame_bytes, header.offset(number))
        if len(data) < frame_bytes:
            raise OSError(0, "the log is shorter than SQLite says")
        page, pages_then, *_ = FRAME.unpack_from(data)
        file_pages = pages_then or file_pages
        if page > len(made):
            made.extend([UNKNOWN] * (page - len(made)))
        made[page - 1] = page_sum(memoryview(data)[FRAME.size :])
    del made[file_pages:]
    return made
