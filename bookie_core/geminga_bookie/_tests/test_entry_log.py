"""Entry logs and indexes: bytes, damage, lookups (BK-04, BK-12)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import RdictIter

from geminga_bookie._tests.support import packets
from geminga_bookie.errors import DataDirError
from geminga_bookie.storage.disk import PAGE_BYTES, OsDisk, OsFile
from geminga_bookie.storage.entry_logs.files import EntryLogs, EntryLogWriter
from geminga_bookie.storage.entry_logs.format import (
    BLOCK_ENTRIES_MAX,
    FILE_HEADER_BYTES,
    HEADER_COPY_BYTES,
    KIND_ENTRIES,
    KIND_FILLER,
    NO_SALT,
    DamagedBlock,
    LogHeader,
    check_head,
    decode_entries,
    encode_block,
    encode_ledger_map,
    file_header,
    parse_file_header,
    parse_head,
    parse_trailer,
)
from geminga_bookie.storage.entry_logs.reading import (
    check_version,
    ledger_map,
    parse_block,
    scan_blocks,
)
from geminga_bookie.storage.journal_format import crc32c
from geminga_bookie.storage.location_index import LedgerRecord, Location, LocationIndex
from geminga_protocol.buffers import Buffer

SALT = b"pepper.."
SALTS = pytest.mark.parametrize("salt", [SALT, NO_SALT])


@given(
    st.lists(st.binary(max_size=50), max_size=20),
    st.integers(0, 1 << 60),
    st.sampled_from([SALT, NO_SALT]),
)
def test_blocks_come_back(group: list[bytes], first: int, salt: bytes) -> None:
    buffers, size = encode_block(KIND_ENTRIES, 9, first, group, salt)
    data = b"".join(buffers)
    head = parse_head(data, salt)
    assert len(data) == size == head.total_bytes
    assert (head.ledger_id, head.first_entry_id, head.entries) == (9, first, len(group))
    assert decode_entries(head, check_head(head, data, salt), data) == group


@SALTS
def test_every_byte_of_a_block_is_under_a_checksum(salt: bytes) -> None:
    group = packets(1, range(4), 20)
    buffers, size = encode_block(KIND_ENTRIES, 1, 5, group, salt)
    good = b"".join(buffers)
    location = Location(1, 5, 1, 0, size, 4)
    for place in range(size):
        data = bytearray(good)
        data[place] ^= 0x10
        try:
            found = parse_block(bytes(data), 0, location, salt)
        except DamagedBlock:
            continue
        assert found.count(None) == 1, place
        assert all(item in (None, expected) for item, expected in zip(found, group, strict=True))
    for cut in range(size):
        with pytest.raises(DamagedBlock):
            found = parse_block(good[:cut], 0, location, salt)
            if None in found:
                raise DamagedBlock


def test_file_headers() -> None:
    header = file_header(7, 3, SALT)
    assert len(header) == FILE_HEADER_BYTES == 2 * PAGE_BYTES
    for start in (0, PAGE_BYTES):
        copy = header[start : start + HEADER_COPY_BYTES]
        assert parse_file_header(copy) == LogHeader(2, 7, 3, SALT)
        for place in range(len(copy)):
            damaged = bytearray(copy)
            damaged[place] ^= 1
            with pytest.raises(DamagedBlock):
                parse_file_header(bytes(damaged))
            with pytest.raises(DamagedBlock):
                parse_file_header(copy[:place])


def write_log(tmp_path: Path, *, seal: bool = True) -> tuple[EntryLogs, list[Location]]:
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    locations = [
        writer.append(KIND_ENTRIES, ledger_id, 0, packets(ledger_id, range(3)))
        for ledger_id in (1, 2, 1)
    ]
    writer.sync()
    if seal:
        writer.seal()
    else:
        writer.abandon()
    return logs, locations


@pytest.mark.parametrize("seal", [True, False])
def test_the_ledger_map_is_the_same_sealed_or_read(tmp_path: Path, seal: bool) -> None:
    logs, locations = write_log(tmp_path, seal=seal)
    sizes = [location.size_bytes for location in locations]
    with logs.reading(1) as file:
        assert ledger_map(file) == {1: sizes[0] + sizes[2], 2: sizes[1]}
    logs.close()


def test_a_damaged_map_is_replaced_by_reading(tmp_path: Path) -> None:
    logs, locations = write_log(tmp_path)
    path = logs.path(1)
    data = bytearray(path.read_bytes())
    data[-20] ^= 0xFF
    path.write_bytes(data)
    with logs.reading(1) as file:
        assert ledger_map(file)[2] == locations[1].size_bytes
    logs.close()


def test_a_scan_goes_on_behind_damage(tmp_path: Path) -> None:
    logs, locations = write_log(tmp_path, seal=False)
    path = logs.path(1)
    data = bytearray(path.read_bytes())
    data[locations[1].offset + 20] ^= 0xFF
    end = locations[2].offset + locations[2].size_bytes
    path.write_bytes(data[: end - 1])
    with logs.reading(1) as file:
        assert [offset for offset, _ in scan_blocks(file)] == [locations[0].offset]
    path.write_bytes(data)
    with logs.reading(1) as file:
        found = list(scan_blocks(file))
    assert [offset for offset, _ in found] == [locations[0].offset, locations[2].offset, end]
    assert found[-1][1].kind == KIND_FILLER
    logs.close()


@pytest.mark.parametrize("size", [1, 4096, 70_000])
def test_each_page_is_written_once(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that was read must not change behind the reader's back; all but the ledger map are
    whole ones, which can be written past the system's memory.
    """
    written: list[tuple[int, int]] = []
    write = OsFile.write

    def watched(self: OsFile, buffers: Sequence[Buffer], offset: int) -> None:
        written.append((offset, sum(map(len, buffers))))
        write(self, buffers, offset)

    monkeypatch.setattr(OsFile, "write", watched)
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    known: list[Location] = []
    for flush in range(20):
        for number in range(flush):
            group = packets(1, [flush * 100 + number], size + flush)
            known.append(writer.append(KIND_ENTRIES, 1, flush * 100 + number, group))
        if flush:
            writer.sync()
    pages, end = list(written), 0
    writer.seal()
    for offset, length in pages:
        assert (offset, length % PAGE_BYTES) == (end, 0)
        end += length
    assert [offset for offset, _ in written[len(pages) :]] == [end]
    data = logs.path(1).read_bytes()
    for location in known:
        (packet,) = parse_block(data, location.offset, location, writer.salt)
        assert [packet] == packets(1, [location.first], size + location.first // 100)
    assert len(data) < 1.1 * sum(each.size_bytes for each in known) + 20 * PAGE_BYTES
    logs.close()


def test_another_version_is_refused(tmp_path: Path) -> None:
    logs, _ = write_log(tmp_path)
    path = logs.path(1)
    header = bytearray(file_header(1, 0, SALT))
    header[4] = 9
    header[24:28] = crc32c(bytes(header[:24])).to_bytes(4, "little")
    path.write_bytes(bytes(header) + path.read_bytes()[len(header) :])
    with logs.reading(1) as file, pytest.raises(DataDirError, match="version 9"):
        check_version(file)
    logs.close()


@SALTS
def test_trailers(salt: bytes) -> None:
    data = b"".join(encode_ledger_map({1: 2, 3: 4}, 4711, salt))
    assert parse_trailer(data[-16:], salt) == 4711
    assert parse_trailer(data[-15:], salt) is None
    assert parse_trailer(data[-16:-1] + b"x", salt) is None
    assert parse_trailer(data[-16:], b"another.") is None


def test_lookups(tmp_path: Path) -> None:
    index = LocationIndex(tmp_path / "index")
    assert not index.is_complete()
    blocks = [
        Location(1, 0, 1, 32, 10, 100),
        Location(1, 100, 1, 42, 10, 100),
        Location(1, 50, 2, 32, 10, 10),
        Location(2, 0, 1, 52, 10, 5),
        Location(1, 0, 3, 32, 10, 20),
    ]
    index.write(blocks, [LedgerRecord(1, b"key", True, False, b"a LAC's packet")])
    assert not index.is_complete()
    index.write(completes=True)
    assert index.is_complete()
    assert list(index.find(1, 10)) == [blocks[4], blocks[0]]
    assert list(index.find(1, 55)) == [blocks[2], blocks[0]]
    assert list(index.find(1, 99)) == [blocks[0]]
    assert list(index.find(1, 199)) == [blocks[1]]
    assert list(index.find(1, 200)) == []
    assert list(index.find(3, 0)) == []
    assert list(index.following(blocks[0])) == [blocks[2], blocks[1]]
    assert index.ledger(1) == LedgerRecord(1, b"key", True, False, b"a LAC's packet")
    assert index.ledger(2) is None
    index.write(removed=[blocks[0]])
    assert list(index.find(1, 99)) == []
    index.delete_ledgers([1])
    assert list(index.find(1, 150)) == []
    assert list(index.find(2, 0)) == [blocks[3]]
    assert list(index.ledgers()) == []
    index.close()


def test_a_lookup_goes_no_further_back_than_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = LocationIndex(tmp_path / "index")
    blocks = [Location(1, n, 1, 32 + n, 1, 1) for n in range(2 * BLOCK_ENTRIES_MAX)]
    index.write(blocks)
    looked_at: list[int] = []
    look = LocationIndex._location

    def counted(self: LocationIndex, cursor: RdictIter, ledger_id: int) -> Location | None:
        looked_at.append(ledger_id)
        return look(self, cursor, ledger_id)

    monkeypatch.setattr(LocationIndex, "_location", counted)
    assert next(index.find(1, len(blocks) - 1)) == blocks[-1]
    assert len(looked_at) == 1
    assert list(index.find(1, len(blocks) - 1)) == [blocks[-1]]
    assert len(looked_at) > BLOCK_ENTRIES_MAX
    index.close()
