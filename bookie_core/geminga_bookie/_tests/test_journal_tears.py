"""The journal's tail cut, overwritten and torn at every byte of its last records (BK-02): what is
read back, and what is called unfinished or lost."""

from __future__ import annotations

import random
import struct
from itertools import product

import pytest

from geminga_bookie._tests.journal_images import (
    COUNTS,
    RECORDS,
    Image,
    build,
    end_mark,
    ids_of,
    patched,
    range_of,
    replayed,
)
from geminga_bookie.storage.journal_format import (
    ENTRIES,
    PAGE_BYTES,
    RECORD_HEADER_BYTES,
    crc32c,
    encode_item,
    encode_record,
)

LONG = 4
"""The record of several pages."""


def old_use() -> bytes:
    """A file full of records whose pages lie elsewhere, the last one not whole."""
    return build(9, counts=[80, 7, 90, 33, 150, 2, 2, 90, 300, 400], entry_bytes=83).data[:131072]


@pytest.fixture(params=["fresh", "recycled"], name="image")
def image_of(request: pytest.FixtureRequest) -> Image:
    return build(earlier=old_use() if request.param == "recycled" else b"")


def without_last(image: Image, records: int = 1) -> bytes:
    """The file before its last records were written."""
    cut = image.starts[RECORDS - records]
    return image.data[:cut] + image.earlier[cut:]


def record_of(offset: int, starts: list[int]) -> int:
    return max(number for number in range(RECORDS) if starts[number] <= offset)


def test_a_whole_file_comes_back_whole(image: Image) -> None:
    ids, report = replayed(image.data)
    assert ids == ids_of(range(RECORDS))
    assert (report.records, report.torn_tails, report.damages) == (RECORDS, [], [])
    assert report.end == (1, image.end)


def test_an_earlier_use_of_the_file_is_neither_new_nor_unfinished() -> None:
    image = build(earlier=old_use())
    for last in range(RECORDS + 1):
        cut = [*image.starts[:-1], image.end][last]
        ids, report = replayed(image.data[:cut] + image.earlier[cut:])
        assert ids == ids_of(range(last))
        assert (report.torn_tails, report.damages) == ([], [])


def test_the_same_records_of_an_earlier_use_are_not_taken_for_new() -> None:
    image = build(earlier=build(2).data)
    for last in range(RECORDS):
        cut = image.starts[last]
        ids, report = replayed(image.data[:cut] + image.earlier[cut:])
        assert ids == ids_of(range(last))
        assert (report.torn_tails, report.damages) == ([], [])


@pytest.mark.slow
def test_a_file_cut_at_every_byte_has_lost_something(image: Image) -> None:
    """A journal file never shrinks by itself."""
    for cut in range(image.starts[3], image.starts[-1]):
        ids, report = replayed(image.data[:cut])
        whole = record_of(cut, image.starts)
        data_end = len(image.data[: image.starts[whole + 1]].rstrip(b"\0"))
        assert ids in (ids_of(range(whole)), ids_of(range(whole + 1))), cut
        assert len(ids) == len(ids_of(range(whole))) or cut >= data_end, cut
        assert report.damages, cut


@pytest.mark.slow
def test_one_byte_overwritten_everywhere_is_damage(image: Image) -> None:
    torn = bytearray(image.data)
    for place in range(image.starts[3], image.starts[-1]):
        torn[place] ^= 0x55
        hit = record_of(place, image.starts)
        ids, report = replayed(bytes(torn))
        torn[place] ^= 0x55
        if ids == ids_of(range(RECORDS)):
            assert image.data[place] == 0, f"byte {place} of a record is under no checksum"
            continue
        assert ids == ids_of([number for number in range(RECORDS) if number != hit]), place
        assert (len(report.damages), report.torn_tails) == (1, []), place
        index_end = image.starts[hit] + RECORD_HEADER_BYTES + 24 + 4 * COUNTS[hit]
        if place >= index_end:
            assert range_of(hit) in report.damages[0]


@pytest.mark.slow
def test_noise_from_every_byte_on_is_damage(image: Image) -> None:
    noise = random.Random(1).randbytes(len(image.data))
    for place in range(image.starts[3], image.starts[-1]):
        ids, report = replayed(image.data[:place] + noise[place:])
        hit = record_of(place, image.starts)
        in_padding = hit < RECORDS - 1 and not any(image.data[place : image.starts[hit + 1]])
        assert ids == ids_of(range(hit + 1 if in_padding else hit)), place
        assert report.damages, place
        assert report.torn_tails == []


@pytest.mark.parametrize("start", [0, 1000, 5000])
def test_16_kib_of_noise_in_the_last_record_are_told_as_a_loss(start: int) -> None:
    counts = [3, 1, 300]
    for earlier in (b"", old_use()):
        image = build(earlier=earlier, counts=counts)
        noise = random.Random(2).randbytes(16384)
        ids, report = replayed(patched(image.data, image.starts[2] + start, noise))
        assert ids == [0, 1, 2, 3]
        assert report.torn_tails == []
        assert report.damages
        # The index of 300 entries takes 1224 bytes behind the header of 48.
        assert ("ledger 7: entries 4 to 303" in report.damages[0]) == (start == 5000)


def test_a_write_torn_by_pages_is_unfinished(image: Image) -> None:
    """After a loss of power any of the pages may be there; a kill leaves the first ones."""
    base = image.data[: image.starts[LONG]] + image.earlier[image.starts[LONG] :]
    pages = range(image.starts[LONG], image.starts[LONG + 1], PAGE_BYTES)
    assert len(pages) > 1
    for written in product((False, True), repeat=len(pages)):
        data = base
        for offset, is_written in zip(pages, written, strict=True):
            if is_written:
                data = patched(data, offset, image.data[offset : offset + PAGE_BYTES])
        ids, report = replayed(data)
        assert ids == ids_of(range(LONG + all(written)))
        assert report.damages == [], written
        assert bool(report.torn_tails) == (any(written) and not all(written)), written


def test_a_record_behind_another_proves_it(image: Image) -> None:
    """Even one that is torn: it was begun when the one before was on disk."""
    second_page = image.starts[LONG] + PAGE_BYTES
    data = patched(image.data, image.starts[3] + 100, b"noise")
    data = data[:second_page] + image.earlier[second_page:]
    ids, report = replayed(data)
    assert ids == ids_of(range(3))
    assert (len(report.damages), len(report.torn_tails)) == (1, 1)
    assert range_of(LONG) in report.torn_tails[0]


def test_an_end_mark_proves_what_is_before_it(image: Image) -> None:
    """A page that came back as it was before looks like a crash in mid-write."""
    start = image.starts[LONG]
    lost = patched(
        image.data, start + PAGE_BYTES, image.earlier[start + PAGE_BYTES : start + 2 * PAGE_BYTES]
    )
    lost = lost[: image.starts[5]] + image.earlier[image.starts[5] :]
    ids, report = replayed(lost)
    assert ids == ids_of(range(LONG))
    assert (len(report.torn_tails), report.damages) == (1, [])
    ids, report = replayed(patched(lost, image.starts[5], end_mark(sequence=5)))
    assert ids == ids_of(range(LONG))
    assert report.torn_tails == []
    assert len(report.damages) == 1
    assert range_of(LONG) in report.damages[0]
    header_gone = patched(lost, start, image.earlier[start : start + PAGE_BYTES])
    ids, report = replayed(patched(header_gone, image.starts[5], end_mark(sequence=5)))
    assert ids == ids_of(range(LONG))
    assert (report.torn_tails, len(report.damages)) == ([], 1)


def test_an_end_mark_is_an_end(image: Image) -> None:
    for last in range(1, RECORDS + 1):
        cut = [*image.starts[:-1], image.end][last]
        data = patched(image.data[:cut] + image.earlier[cut:], cut, end_mark(sequence=last))
        ids, report = replayed(data)
        assert ids == ids_of(range(last))
        assert (report.torn_tails, report.damages) == ([], [])
        assert report.end == (1, cut)


def test_records_in_a_payload_are_a_payload() -> None:
    """Page-aligned, whole, of this file's number, with any sequence: only the salt is missing."""
    forged = b""
    for salt, sequence in product((0, 1, 2**64 - 1), (2, 3, 2**63)):
        index = encode_item(ENTRIES, 7, 1000, [b"forged"])
        buffers, _ = encode_record(1, salt, sequence, index, [b"forged"], 6)
        forged += b"".join(buffers)
    index = encode_item(ENTRIES, 7, 4, [forged])
    image = build(counts=[3, 1])
    salt = int.from_bytes(image.data[20:28], "little")
    end = image.end
    index += bytes(-(end + RECORD_HEADER_BYTES + len(index)) % 24)
    # Packets begin wherever the index ends: put them on a page's start.
    shift = PAGE_BYTES - RECORD_HEADER_BYTES - len(index)
    index = encode_item(ENTRIES, 7, 4, [bytes(shift - 4), forged])
    body = [bytes(PAGE_BYTES - RECORD_HEADER_BYTES - len(index)), forged]
    buffers, size = encode_record(1, salt, 2, index, body, sum(map(len, body)))
    record = b"".join(buffers)
    assert record.index(forged) == PAGE_BYTES
    for torn in (record[: PAGE_BYTES * 3], b"noise" + record[5:]):
        ids, report = replayed(patched(image.data, end, torn))
        assert ids == [0, 1, 2, 3]
        assert report.torn_tails or report.damages
    assert size == len(record)


def test_a_lying_length_is_damage(image: Image) -> None:
    for length in (0xFFFFFFFF, 0x7FFFFFFF, 1, 0):
        for field in (8, 16):
            torn = patched(image.data, image.starts[2] + field, length.to_bytes(4, "little"))
            ids, report = replayed(torn)
            assert ids == ids_of([0, 1, 3, 4, 5])
            assert len(report.damages) == 1


def test_damage_over_several_records_is_one_hole(image: Image) -> None:
    hole = bytes(image.starts[4] - image.starts[1])
    ids, report = replayed(patched(image.data, image.starts[1], hole))
    assert ids == ids_of([0, 4, 5])
    assert len(report.damages) == 1
    assert "3 records" in report.damages[0]
    assert report.gaps == ["ledger 7: entries 3 to 10"]


def test_older_code_tells_the_version() -> None:
    """It reads magic, version, number and their CRC32C, and refuses other versions."""
    page = build().data[:PAGE_BYTES]
    assert struct.unpack_from("<4sIQI", page) == (b"GEMJ", 2, 1, crc32c(page[:16]))


def test_a_damaged_file_header_alone_loses_nothing(image: Image) -> None:
    ids, report = replayed(b"noise" + image.data[5:])
    assert ids == ids_of(range(RECORDS))
    assert (len(report.notes), report.damages) == (1, [])
    # What an earlier use left can't be told from an unfinished record without the header.
    assert len(report.torn_tails) == any(image.earlier[image.end :])


def test_a_damaged_table_of_earlier_content_loses_nothing() -> None:
    image = build(earlier=old_use())
    ids, report = replayed(patched(without_last(image), PAGE_BYTES + 3, b"noise"))
    assert ids == ids_of(range(RECORDS - 1))
    assert report.damages == []


def test_a_file_without_a_readable_header_or_record_is_damage(image: Image) -> None:
    data = bytes(image.starts[1]) + image.data[image.starts[1] :]
    ids, report = replayed(data)
    assert ids == []
    assert (report.torn_tails, len(report.damages)) == ([], 1)


def test_a_file_under_another_number_is_damage(image: Image) -> None:
    ids, report = replayed({5: image.data})
    assert (ids, len(report.damages)) == ([], 1)


class TestSeveralFiles:
    def test_the_next_file_names_the_end(self, image: Image) -> None:
        second = build(2, counts=[], predecessor=None).data
        third = build(3, counts=[1], predecessor=(1, image.end)).data
        for torn in (
            without_last(image),
            patched(image.data, image.starts[5], b"noise"),
            patched(image.data, image.starts[-1] - 20, b"noise"),
        ):
            ids, report = replayed({1: torn, 2: second, 3: third})
            assert ids == [*ids_of(range(5)), 0]
            assert report.torn_tails == []
            assert len(report.damages) == 1
        # The one whose header was whole names its entries.
        assert range_of(5) in report.damages[0]

    def test_behind_the_named_end_nothing_was_acknowledged(self, image: Image) -> None:
        third = build(3, counts=[1], predecessor=(1, image.starts[5])).data
        torn = patched(image.data, image.starts[5] + 60, b"noise")
        ids, report = replayed({1: torn, 2: build(2, counts=[]).data, 3: third})
        assert ids == [*ids_of(range(5)), 0]
        assert (report.torn_tails, report.damages) == ([], [])

    def test_a_file_that_held_nothing_is_not_missed(self, image: Image) -> None:
        third = build(3, counts=[1], predecessor=(1, image.end)).data
        ids, report = replayed({1: image.data, 3: third})
        assert ids == [*ids_of(range(RECORDS)), 0]
        assert report.damages == []

    def test_a_file_that_held_records_is_missed(self, image: Image) -> None:
        fourth = build(4, counts=[1], predecessor=(2, 8192)).data
        _, report = replayed({1: image.data, 4: fourth})
        assert len(report.damages) == 1
        assert "are missing" in report.damages[0]

    def test_what_a_passed_over_file_holds_was_never_acknowledged(self, image: Image) -> None:
        failed = build(2, counts=[300], predecessor=(1, image.end))
        torn = patched(failed.data, failed.starts[0] + 3000, b"noise")
        third = build(3, counts=[1], predecessor=(1, image.end)).data
        _, report = replayed({1: image.data, 2: torn, 3: third})
        assert (report.torn_tails, report.damages) == ([], [])
