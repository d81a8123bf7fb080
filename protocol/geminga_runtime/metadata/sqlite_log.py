"""Whether SQLite's write-ahead log was cut or changed by something else than a crash.

SQLite takes the first frame that isn't valid for the end of the log, without a word. A crash leaves
such a frame too, but only within the last commit, which was not synced and so not answered. Commits
are synced one after the other (synchronous=FULL), which gives two proofs that more was on disk:

- The index beside the log (`-shm`) counts the committed frames, and is changed after their sync
  only. However old the copy of it is that a loss of power has left, as many frames were synced.
- A frame's checksum goes on from that of the frame before. One that goes on from a frame that ends
  a commit was written when that commit was on disk, with all frames before it.

A third one are the page sums of the store (`page_sums`), which count the frames of the log that
were copied to the file. Formats: SQLite's "WAL-mode File Format". Nothing is written.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from geminga_runtime.metadata.integrity.log_format import (
    FORMAT_VERSION,
    FRAME,
    LOG_HEADER,
    SUMMED,
    LogHeader,
    Sum,
    parse_header,
    running_sum,
)

LOG_BYTES_CHECKED_MAX = 128 * 1024 * 1024
"""What is behind is not looked at: SQLite begins the log anew at some 4 MiB, and 128 MiB take three
seconds."""

_log = logging.getLogger(__name__)

_PIECE_BYTES = 64 * 1024
_INDEX = struct.Struct("=I8xBBHI12x8sII")
_BACKFILLED = struct.Struct("=I")


class _Frame(NamedTuple):
    number: int
    """From 1."""
    page: int
    file_pages: int
    """Of the database after the commit that it ends; 0 if it ends none."""
    salts: bytes
    checksum: Sum
    """As it stands in its header."""
    data: bytes
    """What is summed: the first part of its header, and its page."""

    @property
    def ends_commit(self) -> bool:
        return self.file_pages > 0


class Committed(NamedTuple):
    """So many frames of a log were on disk."""

    salts: bytes
    frames: int
    all_in_file: bool
    """Whether all of these frames are in the database's file as well."""


class LogState(NamedTuple):
    """What a log holds."""

    damage: str = ""
    """What was done to it, for the beginning of a sentence; empty if nothing is known."""
    header: LogHeader | None = None
    """None if there is no log that counts."""
    frames: int = 0
    """Up to the end of the last valid commit."""
    pages: Mapping[int, int] = {}
    """Pages of these frames, each with the newest frame that it is in."""
    file_pages: int = 0
    """Of the database after the last valid commit."""
    is_known: bool = True
    """False if the log is longer than what is looked at."""
    file_is_newer: bool = False
    """Whether all that was in the damaged log is known to be in the file."""


def examine(path: Path, known: Committed | None = None) -> LogState:
    """The log of the SQLite file at `path`, of which so much is known beside what its index says.
    Call it before SQLite opens the file. Raises OSError.
    """
    committed = _read_index(Path(f"{path}-shm"))
    log = Path(f"{path}-wal")
    try:
        with log.open("rb") as file:
            data = file.read(LOG_HEADER.size)
            header = parse_header(data)
            if header is not None:
                return _state_of_frames(log, file, header, (committed, known))
            # The header is on disk before the first frame, and within one sector.
            if len(data) == LOG_HEADER.size and (any(data) or any(map(any, _pieces(file)))):
                return LogState(f"{log} has a damaged header")
    except FileNotFoundError:
        pass
    if committed is not None and committed.frames and not committed.all_in_file:
        text = f"{log}, which had {committed.frames} committed pages, is gone or empty"
        return LogState(text)
    return LogState()


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _state_of_frames(
    log: Path, file: BinaryIO, header: LogHeader, known: tuple[Committed | None, ...]
) -> LogState:
    frames = _frames(file, header)
    checksum, valid = header.checksum, 0
    bad: _Frame | None = None
    state = LogState(header=header)
    pages: dict[int, int] = {}
    begun: dict[int, int] = {}
    for frame in frames:
        checksum = running_sum(header.order, frame.data, checksum)
        if frame.salts != header.salts or not frame.page or checksum != frame.checksum:
            bad = frame
            break
        valid = frame.number
        begun[frame.page] = valid
        if frame.ends_commit:
            pages |= begun
            begun.clear()
            state = state._replace(frames=valid, pages=pages, file_pages=frame.file_pages)
    if bad is None and file.tell() >= LOG_BYTES_CHECKED_MAX:
        _log.warning("%s is longer than what is checked for damage", log)
        return state._replace(is_known=False)
    for committed in known:
        if committed is not None and committed.salts == header.salts and committed.frames > valid:
            text = f"{log} has {valid} valid pages of {committed.frames} committed ones"
            return state._replace(damage=text, file_is_newer=committed.all_in_file)
    for later in frames:
        if bad is not None and _was_synced(header, bad, later):
            text = f"{log} is damaged behind its page {valid}, in front of later commits"
            return state._replace(damage=text)
        bad = later
    return state


def _was_synced(header: LogHeader, frame: _Frame, later: _Frame) -> bool:
    """Whether `later` was written after `frame` had ended a commit."""
    if not frame.ends_commit or {frame.salts, later.salts} != {header.salts}:
        return False
    if frame.data == later.data:
        return False  # on some disks the last frame of a commit is repeated up to a whole sector
    return running_sum(header.order, later.data, frame.checksum) == later.checksum


def _frames(file: BinaryIO, header: LogHeader) -> Iterator[_Frame]:
    """All whole frames, valid or not, as far as the log is checked."""
    size = FRAME.size + header.page_bytes
    file.seek(LOG_HEADER.size)
    number = 0
    while file.tell() < LOG_BYTES_CHECKED_MAX and len(found := file.read(size)) == size:
        number += 1
        page, file_pages, salts, *checksum = FRAME.unpack_from(found)
        data = found[:SUMMED] + found[FRAME.size :]
        yield _Frame(number, page, file_pages, salts, (checksum[0], checksum[1]), data)


def _read_index(path: Path) -> Committed | None:
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
    if version != FORMAT_VERSION or not is_set:
        return None
    if running_sum("=", head[: _INDEX.size - 8], (0, 0)) != tuple(checksum):
        return None
    (in_file,) = _BACKFILLED.unpack_from(data, 2 * _INDEX.size)
    return Committed(salts, frames, in_file >= frames)
