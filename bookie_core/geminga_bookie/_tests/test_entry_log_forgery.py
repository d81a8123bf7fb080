"""What clients write is never read as a part of an entry log's own structure, and what can't be
read is told (BK-04, BK-06, BK-12).
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import (
    packets,
    small_options,
)
from geminga_bookie.storage.disk import OsDisk, OsFile
from geminga_bookie.storage.entry_logs.compaction import compact_log
from geminga_bookie.storage.entry_logs.files import EntryLogs, EntryLogWriter
from geminga_bookie.storage.entry_logs.format import (
    KIND_ENTRIES,
    NO_SALT,
    encode_block,
    encode_ledger_map,
)
from geminga_bookie.storage.entry_logs.reading import (
    LogFile,
    is_sealed,
    ledger_map,
    location_of,
    scan_blocks,
)
from geminga_bookie.storage.entry_logs.scrub import scrub_log
from geminga_bookie.storage.journal_format import crc32c
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.location_index import LocationIndex

SALTS = pytest.mark.parametrize("salt", [NO_SALT, b"a guess."])


def forged_block(ledger_id: int, salt: bytes) -> bytes:
    """With an entry that nobody added."""
    return b"".join(encode_block(KIND_ENTRIES, ledger_id, 0, [b"forged"], salt)[0])


def forged_end(end: int, salt: bytes) -> bytes:
    """A ledger map of a single other ledger, for a file that ends there."""
    size = len(b"".join(encode_ledger_map({77: 1}, 0, salt)))
    return b"".join(encode_ledger_map({77: 1}, end - size, salt))


def log_of_version_1(log_id: int, *blocks: bytes) -> bytes:
    """A log of before, not sealed."""
    head = struct.pack("<4sIQQ", b"GEML", 1, log_id, 0)
    return head + crc32c(head).to_bytes(4, "little") + bytes(4) + b"".join(blocks)


def write_version_1(directory: Path, *blocks: bytes) -> EntryLogs:
    """A log of before, the only one."""
    (directory / "00000001.log").write_bytes(log_of_version_1(1, *blocks))
    return EntryLogs(OsDisk(), directory)


@SALTS
def test_the_end_of_a_log_that_is_not_sealed_is_nobodys(tmp_path: Path, salt: bytes) -> None:
    """A payload that ends with a page ends the log; it must not count as its ledger map, or other
    ledgers would be deleted with it.
    """
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    victim = writer.append(KIND_ENTRIES, 1, 0, packets(1, range(9)))
    room = 12288 - writer.size_bytes - 48
    end = forged_end(12288, salt)
    evil = writer.append(KIND_ENTRIES, 2, 0, [bytes(room - len(end)) + end])
    writer.sync()
    writer.abandon()
    assert logs.path(1).read_bytes().endswith(end)
    with logs.reading(1) as file:
        assert ledger_map(file) == {1: victim.size_bytes, 2: evil.size_bytes}
        assert not is_sealed(file)
    logs.close()


def test_nor_is_it_in_a_log_of_before(tmp_path: Path) -> None:
    victim = b"".join(encode_block(KIND_ENTRIES, 1, 0, [bytes(10_000)], NO_SALT)[0])
    begin = 32 + len(victim)
    size = 48 + len(forged_end(1000, NO_SALT))
    end = forged_end(begin + size, NO_SALT)
    evil = b"".join(encode_block(KIND_ENTRIES, 2, 0, [end], NO_SALT)[0])
    logs = write_version_1(tmp_path, victim, evil)
    with logs.reading(1) as file:
        assert ledger_map(file) == {1: len(victim), 2: len(evil)}
    logs.close()


@SALTS
def test_behind_damage_no_blocks_are_found_within_payloads(tmp_path: Path, salt: bytes) -> None:
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    evil = writer.append(KIND_ENTRIES, 8, 0, [forged_block(7, salt)])
    last = writer.append(KIND_ENTRIES, 7, 0, packets(7, range(3)))
    writer.sync()
    writer.abandon()
    data = bytearray(logs.path(1).read_bytes())
    data[evil.offset + 9] ^= 1
    logs.path(1).write_bytes(data)
    unreadable: list[range] = []
    with logs.reading(1) as file:
        found = [location_of(head, 1, offset) for offset, head in scan_blocks(file, unreadable)]
    assert found[0] == last
    assert len(found) == 2, "the other one is the filler"
    assert unreadable == [range(evil.offset, last.offset)]
    logs.close()


def test_many_places_that_may_be_blocks_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log of before, where a client knows with what a block begins."""
    payload = b"GBLK" * 30_000
    block = bytearray(b"".join(encode_block(KIND_ENTRIES, 8, 0, [payload], NO_SALT)[0]))
    block[9] ^= 1
    last = b"".join(encode_block(KIND_ENTRIES, 7, 0, [b"entry"], NO_SALT)[0])
    logs = write_version_1(tmp_path, bytes(block), last)
    read_bytes = 0
    read = LogFile.read

    def counted(self: LogFile, size_bytes: int, offset: int) -> bytes:
        nonlocal read_bytes
        data = read(self, size_bytes, offset)
        read_bytes += len(data)
        return data

    monkeypatch.setattr(LogFile, "read", counted)
    unreadable: list[range] = []
    with logs.reading(1) as file:
        # The damaged first block doesn't say of which version this is; the header does.
        assert [head.ledger_id for _, head in scan_blocks(file, unreadable)] == [7]
    assert unreadable == [range(32, 32 + len(block))], "one part, however many places it has"
    assert read_bytes < 60 * len(payload)
    logs.close()


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("how", ["zeros", "error"])
def test_a_bad_sector_takes_one_header_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int, how: str
) -> None:
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    location = writer.append(KIND_ENTRIES, 1, 0, packets(1, range(3)))
    writer.seal()
    if how == "zeros":
        data = bytearray(logs.path(1).read_bytes())
        data[lost * 4096 : lost * 4096 + 4096] = bytes(4096)
        logs.path(1).write_bytes(data)
    else:
        read = OsFile.read

        def bad(self: OsFile, size_bytes: int, offset: int) -> bytes:
            if offset // 4096 == lost:
                raise OSError(errno.EIO, "Input/output error")
            return read(self, size_bytes, offset)

        monkeypatch.setattr(OsFile, "read", bad)
    with logs.reading(1) as file:
        assert ledger_map(file) == {1: location.size_bytes}
        offset, head = next(scan_blocks(file))
        assert location_of(head, 1, offset) == location
    logs.close()


def without_headers(path: Path) -> None:
    """Both are gone."""
    data = path.read_bytes()
    path.write_bytes(bytes(8192) + data[8192:])


def test_without_its_headers_a_log_is_read_by_its_index_only(tmp_path: Path) -> None:
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    location = writer.append(KIND_ENTRIES, 1, 0, packets(1, range(3)))
    writer.seal()
    without_headers(logs.path(1))
    unreadable: list[range] = []
    with logs.reading(1) as file:
        assert ledger_map(file, unreadable) == {}
        assert unreadable == [range(file.size())]
    index = LocationIndex(tmp_path / "index")
    index.write([location])
    store = LedgerDirectory(OsDisk(), tmp_path, index, small_options(tmp_path), 0)
    (block,) = store.load(1, 0, 1000, 10)
    assert block.packets == packets(1, range(3))
    store.close()
    logs.close()


def test_a_compacted_log_of_before_has_a_salt(tmp_path: Path) -> None:
    group = packets(1, range(3))
    old = b"".join(encode_block(KIND_ENTRIES, 1, 0, group, NO_SALT)[0])
    logs = write_version_1(tmp_path, old)
    index = LocationIndex(tmp_path / "index")
    with logs.reading(1) as file:
        assert file.salt == NO_SALT
        index.write([location_of(head, 1, offset) for offset, head in scan_blocks(file)])
    compact_log(logs, index, 1, lambda _size: None)
    store = LedgerDirectory(OsDisk(), tmp_path, index, small_options(tmp_path), 0)
    (block,) = store.load(1, 0, 1000, 10)
    assert block.packets == group
    with logs.reading(2) as file:
        assert file.salt
        assert is_sealed(file)
        assert len(list(scan_blocks(file))) == 3, "entries, filler and map"
    store.close()
    logs.close()


@pytest.mark.parametrize("missing", ["head", "end"])
def test_a_scrub_tells_of_blocks_that_are_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    locations = [
        writer.append(KIND_ENTRIES, 1, n * 10, packets(1, range(10), 500)) for n in range(3)
    ]
    writer.seal()
    index = LocationIndex(tmp_path / "index")
    index.write(locations)
    data = bytearray(logs.path(1).read_bytes())
    if missing == "head":
        data[locations[2].offset + 9] ^= 1
    else:
        del data[locations[2].offset :]
    logs.path(1).write_bytes(data)
    found = list(scrub_log(logs, index, 1))
    assert [each.entry_id for each in found] == list(range(20, 30))
    assert caplog.messages == [f"entry 1:20 to 29 (10 entries) in {logs.path(1)} is damaged"]
    index.close()
    logs.close()


def test_bytes_missing_from_the_middle_stop_no_collection(tmp_path: Path) -> None:
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    first = writer.append(KIND_ENTRIES, 1, 0, packets(1, range(3)))
    writer.append(KIND_ENTRIES, 2, 0, [bytes(10_000)])
    writer.seal()
    data = logs.path(1).read_bytes()
    logs.path(1).write_bytes(data[:12288] + data[16384:])
    with logs.reading(1) as file:
        assert ledger_map(file)[1] == first.size_bytes
    logs.close()


def test_a_closed_file_takes_no_direct_writes(tmp_path: Path) -> None:
    file = cast(OsFile, OsDisk().open(tmp_path / "x", create=True, direct=True))
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write([bytes(4096)], 0)
