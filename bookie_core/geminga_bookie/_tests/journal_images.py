"""Journal files made in memory, byte by byte, and replayed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, cast

from geminga_bookie._tests.support import packets
from geminga_bookie.storage.disk import Disk
from geminga_bookie.storage.journal_files import journal_name
from geminga_bookie.storage.journal_format import (
    ENTRIES,
    PAGE_BYTES,
    PREDECESSOR,
    JournalItem,
    encode_end_mark,
    encode_item,
    encode_record,
)
from geminga_bookie.storage.journal_header import (
    FILE_VERSION,
    FileHeader,
    encode_header,
    first_offset,
    sector_checksums,
)
from geminga_bookie.storage.journal_replay import ReplayReport, replay

DIRECTORY = Path("/journal")
COUNTS = [3, 1, 5, 2, 45, 1]
"""Entries of each record; the fifth is longer than a page."""
RECORDS = len(COUNTS)
FREE_BYTES = 8 * PAGE_BYTES
SALT = 0x1234_5678_9ABC_DEF0


class Image(NamedTuple):
    """A file, and where its records start; the last number is where the last one's body ends."""

    data: bytes
    starts: list[int]
    earlier: bytes
    """The file before this use, its header already written."""

    @property
    def end(self) -> int:
        """Behind the last record's padding."""
        return -(-self.starts[-1] // PAGE_BYTES) * PAGE_BYTES


class BytesFile:
    """A `DiskFile` to read."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size_bytes: int, offset: int) -> bytes:
        return self.data[offset : offset + size_bytes]

    def size(self) -> int:
        return len(self.data)

    def close(self) -> None: ...


class FilesDisk:
    """A journal directory in memory, without a mark."""

    def __init__(self, files: dict[int, bytes]) -> None:
        self._files = {journal_name(number): data for number, data in files.items()}

    def names(self, directory: Path) -> list[str]:
        return list(self._files)

    def open(
        self, path: Path, *, create: bool = False, writable: bool = True, direct: bool = False
    ) -> BytesFile:
        if path.name not in self._files:
            raise FileNotFoundError
        return BytesFile(self._files[path.name])


def build(
    journal_id: int = 1,
    *,
    earlier: bytes = b"",
    predecessor: tuple[int, int] | None = None,
    counts: list[int] | None = None,
    size_bytes: int = 128 * 1024,
    entry_bytes: int = 100,
) -> Image:
    """A file of six records, or of `counts`; in a file that held `earlier`, else zeros."""
    counts = COUNTS if counts is None else counts
    salt = SALT + journal_id
    size_bytes = len(earlier) or size_bytes
    table = sector_checksums(earlier) if earlier else []
    first = first_offset(size_bytes, recycled=bool(earlier))
    header = encode_header(FileHeader(FILE_VERSION, journal_id, salt, size_bytes, first, table))
    before = header + (earlier or bytes(size_bytes))[len(header) :]
    data = header
    starts = []
    entry_id = 0
    for sequence, count in enumerate(counts):
        starts.append(len(data))
        run = packets(7, range(entry_id, entry_id + count), entry_bytes)
        index = encode_item(ENTRIES, 7, entry_id, run)
        if predecessor is not None and not sequence:
            index = encode_item(PREDECESSOR, *predecessor, ()) + index
        size = sum(map(len, run))
        buffers, _ = encode_record(journal_id, salt, sequence, index, run, size)
        end = len(data) + sum(map(len, buffers[:-1]))
        data += b"".join(buffers)
        entry_id += count
    starts.append(end if counts else len(data))
    return Image(data + before[len(data) :], starts, before)


def end_mark(journal_id: int = 1, sequence: int = RECORDS) -> bytes:
    """The page behind the last record of an idle journal."""
    return encode_end_mark(journal_id, SALT + journal_id, sequence)


def patched(data: bytes, offset: int, piece: bytes) -> bytes:
    """With other bytes at a place."""
    return data[:offset] + piece + data[offset + len(piece) :]


def replayed(
    files: bytes | dict[int, bytes], journal_id: int = 1, entry_bytes: int = 100
) -> tuple[list[int], ReplayReport]:
    """Entry ids that come back, their bytes checked."""
    ids: list[int] = []

    def apply(item: JournalItem) -> None:
        assert (item.kind, item.ledger_id) == (ENTRIES, 7)
        run = range(item.number, item.number + len(item.payload))
        assert item.payload == packets(7, run, entry_bytes)
        ids.extend(run)

    files = {journal_id: files} if isinstance(files, bytes) else files
    report = replay(cast(Disk, FilesDisk(files)), DIRECTORY, apply)
    return ids, report


def ids_of(records: range | list[int]) -> list[int]:
    """Entry ids in those records."""
    firsts = [sum(COUNTS[:number]) for number in range(RECORDS)]
    return [
        entry_id
        for number in records
        for entry_id in range(firsts[number], firsts[number] + COUNTS[number])
    ]


def range_of(record: int) -> str:
    """How a log line names the entries of a record."""
    first = sum(COUNTS[:record])
    return f"ledger 7: entries {first} to {first + COUNTS[record] - 1}"
