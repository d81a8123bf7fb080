"""The journal's tail cut and overwritten at every byte of its last three records (BK-02)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from geminga_bookie._tests.support import packets
from geminga_bookie.storage.disk import Disk
from geminga_bookie.storage.journal_files import journal_name
from geminga_bookie.storage.journal_format import (
    ENTRIES,
    PAGE_BYTES,
    encode_item,
    encode_record,
    file_header,
)
from geminga_bookie.storage.recovery import ReplayReport, replay

DIRECTORY = Path("/journal")
RECORDS = 6
COUNTS = [3, 1, 5, 2, 45, 1]
"""Entries of each record; the fifth is longer than a page."""


class BytesFile:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size_bytes: int, offset: int) -> bytes:
        return self.data[offset : offset + size_bytes]

    def size(self) -> int:
        return len(self.data)

    def close(self) -> None: ...


class OneFileDisk:
    """A journal directory with one file, in memory."""

    def __init__(self, data: bytes, journal_id: int = 1) -> None:
        self.data = data
        self.journal_id = journal_id

    def names(self, directory: Path) -> list[str]:
        return [journal_name(self.journal_id)]

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> BytesFile:
        if path.name == "lastMark":
            raise FileNotFoundError
        return BytesFile(self.data)


def build(journal_id: int = 1, tail: bytes = bytes(4 * PAGE_BYTES)) -> tuple[bytes, list[int]]:
    """A file of six records, and where each starts; the last number is where the last one's body
    ends."""
    data = file_header(journal_id)
    starts = []
    first = 0
    for sequence, count in enumerate(COUNTS):
        starts.append(len(data))
        parts = encode_item(ENTRIES, 7, first, packets(7, range(first, first + count)))
        buffers, _ = encode_record(journal_id, sequence, parts)
        end = len(data) + sum(map(len, buffers[:-1]))
        data += b"".join(buffers)
        first += count
    return data + tail, [*starts, end]


def replayed(data: bytes, journal_id: int = 1) -> tuple[list[int], ReplayReport]:
    """Entry ids that come back, their bytes checked."""
    ids: list[int] = []

    def apply(item: object) -> None:
        kind, ledger_id, first, payload = item
        assert (kind, ledger_id) == (ENTRIES, 7)
        assert payload == packets(7, range(first, first + len(payload)))
        ids.extend(range(first, first + len(payload)))

    disk: Disk = OneFileDisk(data, journal_id)
    report = replay(disk, DIRECTORY, apply)
    return ids, report


def ids_of(records: range | list[int]) -> list[int]:
    """Entry ids in those records."""
    starts = [sum(COUNTS[:number]) for number in range(RECORDS)]
    return [
        entry_id
        for number in records
        for entry_id in range(starts[number], starts[number] + COUNTS[number])
    ]


def test_a_whole_file_comes_back_whole() -> None:
    data, _ = build()
    ids, report = replayed(data)
    assert ids == ids_of(range(RECORDS))
    assert (report.records, report.torn_tails, report.damages) == (RECORDS, [], [])


def test_an_older_use_of_the_file_is_not_taken_for_new() -> None:
    old, _ = build(journal_id=1)
    new, starts = build(journal_id=2)
    for kept in range(RECORDS):
        cut = starts[kept]
        ids, report = replayed(new[:cut] + old[cut:], journal_id=2)
        assert ids == ids_of(range(kept))
        assert (report.torn_tails, report.damages) == ([], [])


def record_of(offset: int, starts: list[int]) -> int:
    return max(number for number in range(RECORDS) if starts[number] <= offset)


@pytest.mark.slow
def test_cut_at_every_byte() -> None:
    data, starts = build()
    for cut in range(starts[3], starts[-1]):
        ids, report = replayed(data[:cut])
        whole = record_of(cut, starts)
        in_padding = not any(data[cut : starts[whole + 1]]) and whole < RECORDS - 1
        kept = range(whole + 1) if in_padding and cut > starts[whole] else range(whole)
        assert ids == ids_of(kept), cut
        assert report.damages == []
        assert bool(report.torn_tails) == (cut > starts[whole] and not in_padding), cut


@pytest.mark.slow
def test_one_byte_overwritten_everywhere() -> None:
    data, starts = build()
    torn = bytearray(data)
    for place in range(starts[3], starts[-1]):
        torn[place] ^= 0x55
        hit = record_of(place, starts)
        ids, report = replayed(bytes(torn))
        torn[place] ^= 0x55
        others = [number for number in range(RECORDS) if number != hit]
        if ids == ids_of(range(RECORDS)):
            assert data[place] == 0, f"byte {place} of a record is under no checksum"
            continue
        assert ids == ids_of(others), place
        assert bool(report.damages) == (hit < RECORDS - 1), place
        assert bool(report.torn_tails) == (hit == RECORDS - 1), place


@pytest.mark.slow
def test_noise_from_every_byte_on() -> None:
    data, starts = build()
    noise = random.Random(1).randbytes(len(data))
    for place in range(starts[3], starts[-1]):
        ids, report = replayed(data[:place] + noise[place:])
        hit = record_of(place, starts)
        padding = hit < RECORDS - 1 and not any(data[place : starts[hit + 1]])
        assert ids == ids_of(range(hit + 1 if padding else hit)), place
        assert report.torn_tails, place
        assert report.damages == []


def test_a_lying_length_is_damage() -> None:
    data, starts = build()
    for length in (0xFFFFFFFF, 0x7FFFFFFF, 1, 0):
        torn = bytearray(data)
        torn[starts[2] + 8 : starts[2] + 12] = length.to_bytes(4, "little")
        ids, report = replayed(bytes(torn))
        assert ids == ids_of([0, 1, 3, 4, 5])
        assert len(report.damages) == 1


def test_damage_over_several_records_is_one_hole() -> None:
    data, starts = build()
    hole = data[: starts[1]] + bytes(starts[4] - starts[1]) + data[starts[4] :]
    ids, report = replayed(hole)
    assert ids == ids_of([0, 4, 5])
    assert len(report.damages) == 1


def test_a_damaged_file_header_alone_loses_nothing() -> None:
    data, _ = build()
    ids, report = replayed(b"noise" + data[5:])
    assert ids == ids_of(range(RECORDS))
    assert len(report.torn_tails) == 1
