"""Whether SQLite's write-ahead log was cut or changed by something else than a crash.

SQLite takes the first frame that isn't valid for the end of the log, without a word. A crash leaves
such a frame too, but only within the last commit, which was not synced and so not answered. Commits
are synced one after the other (synchronous=FULL), which gives two proofs that more was on disk:

- The index beside the log (`-shm`) counts the committed frames, and is changed after their sync
  only. However old the copy of it is that a loss of power has left, as many frames were synced.
- A frame's checksum goes on from that of the frame before. One that goes on from a frame that ends
  a commit was written when that commit was on disk, with all frames before it.

Formats: SQLite's "WAL-mode File Format". Nothing is written.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

LOG_BYTES_CHECKED_MAX = 128 * 1024 * 1024
"""What is behind is not looked at: SQLite begins the log anew at some 4 MiB, and 128 MiB take three
seconds."""

_log = logging.getLogger(__name__)

_HEADER = struct.Struct(">III4x8sII")
_FRAME = struct.Struct(">II8sII")
_PIECE_BYTES = 64 * 1024
_SUMMED = 8
"""Bytes of a frame's header that its checksum covers."""
_MAGIC = 0x377F0682
_VERSION = 3007000
_INDEX = struct.Struct("=I8xBBHI12x8sII")
_BACKFILLED = struct.Struct("=I")
_MASK = 0xFFFFFFFF

_Sum = tuple[int, int]


class _Header(NamedTuple):
    page_bytes: int
    order: str
    """Of the words that are summed, as in `struct`."""
    salts: bytes
    checksum: _Sum


class _Frame(NamedTuple):
    number: int
    """From 1."""
    page: int
    ends_commit: bool
    salts: bytes
    checksum: _Sum
    """As it stands in its header."""
    data: bytes
    """What is summed: the first part of its header, and its page."""


class _Committed(NamedTuple):
    """What the index says."""

    salts: bytes
    frames: int
    all_in_file: bool
    """Whether all of these frames are in the database's file as well."""


def find_damage(path: Path) -> str:
    """What was done to the log of the SQLite file at `path`, for the end of a sentence; empty if
    nothing is known. Call it before SQLite opens the file. Raises OSError.
    """
    committed = _read_index(Path(f"{path}-shm"))
    log = Path(f"{path}-wal")
    try:
        with log.open("rb") as file:
            data = file.read(_HEADER.size)
            header = _parse_header(data)
            if header is not None:
                return _damage_of_frames(log, file, header, committed)
            # The header is on disk before the first frame, and within one sector.
            if len(data) == _HEADER.size and (any(data) or any(map(any, _pieces(file)))):
                return f"{log} has a damaged header"
    except FileNotFoundError:
        pass
    if committed is not None and committed.frames and not committed.all_in_file:
        return f"{log}, which had {committed.frames} committed pages, is gone or empty"
    return ""


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _damage_of_frames(
    log: Path, file: BinaryIO, header: _Header, committed: _Committed | None
) -> str:
    frames = _frames(file, header)
    checksum, valid = header.checksum, 0
    bad: _Frame | None = None
    for frame in frames:
        checksum = _sum(header.order, frame.data, checksum)
        if frame.salts != header.salts or not frame.page or checksum != frame.checksum:
            bad = frame
            break
        valid = frame.number
    if bad is None and file.tell() >= LOG_BYTES_CHECKED_MAX:
        _log.warning("%s is longer than what is checked for damage", log)
        return ""
    if committed is not None and committed.salts == header.salts and committed.frames > valid:
        return f"{log} has {valid} valid pages of {committed.frames} committed ones"
    for later in frames:
        if bad is not None and _was_synced(header, bad, later):
            return f"{log} is damaged behind its page {valid}, in front of later commits"
        bad = later
    return ""


def _was_synced(header: _Header, frame: _Frame, later: _Frame) -> bool:
    """Whether `later` was written after `frame` had ended a commit."""
    if not frame.ends_commit or {frame.salts, later.salts} != {header.salts}:
        return False
    if frame.data == later.data:
        return False  # on some disks the last frame of a commit is repeated up to a whole sector
    return _sum(header.order, later.data, frame.checksum) == later.checksum


def _frames(file: BinaryIO, header: _Header) -> Iterator[_Frame]:
    """All whole frames, valid or not, as far as the log is checked."""
    size = _FRAME.size + header.page_bytes
    file.seek(_HEADER.size)
    number = 0
    while file.tell() < LOG_BYTES_CHECKED_MAX and len(found := file.read(size)) == size:
        number += 1
        page, database_pages, salts, *checksum = _FRAME.unpack_from(found)
        data = found[:_SUMMED] + found[_FRAME.size :]
        yield _Frame(number, page, database_pages > 0, salts, (checksum[0], checksum[1]), data)


def _parse_header(data: bytes) -> _Header | None:
    if len(data) < _HEADER.size:
        return None
    magic, version, page_bytes, salts, *checksum = _HEADER.unpack(data)
    if magic & ~1 != _MAGIC or version != _VERSION:
        return None
    order = ">" if magic & 1 else "<"
    found = _sum(order, data[: _HEADER.size - 8], (0, 0))
    if found != tuple(checksum) or page_bytes < 512 or page_bytes & (page_bytes - 1):
        return None
    return _Header(page_bytes, order, salts, found)


def _read_index(path: Path) -> _Committed | None:
    """What the index says; None if it can't be used."""
    try:
        with path.open("rb") as file:
            data = file.read(2 * _INDEX.size + _BACKFILLED.size)
    except FileNotFoundError:
        return None
    head = data[: _INDEX.size]
    if len(data) < 2 * _INDEX.size + _BACKFILLED.size or head != data[_INDEX.size :][: _INDEX.size]:
        return None
    version, is_set, _, _, frames, salts, *checksum = _INDEX.unpack(head)
    if version != _VERSION or not is_set:
        return None
    if _sum("=", head[: _INDEX.size - 8], (0, 0)) != tuple(checksum):
        return None
    (in_file,) = _BACKFILLED.unpack_from(data, 2 * _INDEX.size)
    return _Committed(salts, frames, in_file >= frames)


def _sum(order: str, data: bytes, start: _Sum) -> _Sum:
    one, two = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & _MASK
        two = (two + second + one) & _MASK
    return one, two
