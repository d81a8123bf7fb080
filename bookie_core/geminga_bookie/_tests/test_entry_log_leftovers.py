"""What compaction makes of damaged logs and failed writes, and what names and numbers of logs are
taken for (BK-04, BK-06, BK-12).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import add, ledgers, packets, read_all, small_options
from geminga_bookie._tests.test_entry_log_forgery import log_of_version_1
from geminga_bookie._tests.test_entry_log_headers import Broken, broken, log_names, one_log
from geminga_bookie.errors import StorageFailed
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.storage.disk import OsDisk
from geminga_bookie.storage.entry_logs.compaction import (
    LogDamaged,
    compact_log,
    finish_compactions,
)
from geminga_bookie.storage.entry_logs.files import UNSALTED_NAME, EntryLogs, EntryLogWriter
from geminga_bookie.storage.entry_logs.format import (
    KIND_ENTRIES,
    KIND_LEDGER,
    NO_SALT,
    encode_block,
    file_header,
    parse_file_header,
)
from geminga_bookie.storage.entry_logs.reading import BLOCKS_WITHOUT_SALT, LogFile, scan_blocks
from geminga_bookie.storage.entry_logs.scrub import scrub_log
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.location_index import IndexFailed, LedgerRecord, Location, LocationIndex

__all__ = ["broken"]

FENCED = LedgerRecord(7, b"key", True, False, b"")


def damaged_log(directory: Path, damage: str, *, sealed: bool) -> tuple[EntryLogs, LocationIndex]:
    """Entries of ledger 1, a record of ledger 7 and entries of ledger 2; one of them can't be
    found any more. The index has ledgers 2 and 7.
    """
    logs = EntryLogs(OsDisk(), directory)
    writer = EntryLogWriter(logs)
    dead = writer.append(KIND_ENTRIES, 1, 0, packets(1, range(9)))
    record = writer.append(KIND_LEDGER, 7, 0, [FENCED.encode()])
    live = writer.append(KIND_ENTRIES, 2, 0, packets(2, range(3)))
    torn = writer.append(KIND_ENTRIES, 1, 9, packets(1, range(9, 18)))
    writer.sync()
    if sealed:
        writer.seal()
    else:
        writer.abandon()
    place = {"dead": dead, "record": record, "end": torn}[damage].offset
    data = bytearray(logs.path(1).read_bytes())
    data[place + 9] ^= 1
    if damage == "end":
        del data[place + 100 :]
    logs.path(1).write_bytes(data)
    index = LocationIndex(directory / "index")
    index.write([live], [FENCED])
    return logs, index


@pytest.mark.parametrize("damage", ["record", "dead"])
def test_a_damaged_record_is_written_anew_by_compaction(tmp_path: Path, damage: str) -> None:
    """It may be the only one that tells of the fence once the index is lost."""
    logs, index = damaged_log(tmp_path, damage, sealed=True)
    compact_log(logs, index, 1, lambda _size: None)
    with logs.reading(2) as file:
        found = [(head.kind, head.ledger_id) for _, head in scan_blocks(file)]
    assert found[:2] == [(KIND_ENTRIES, 2), (KIND_LEDGER, 7)]
    index.close()
    logs.close()


@pytest.mark.parametrize("damage", ["record", "dead"])
def test_without_a_map_nobody_knows_what_is_damaged(tmp_path: Path, damage: str) -> None:
    logs, index = damaged_log(tmp_path, damage, sealed=False)
    before = logs.path(1).read_bytes()
    with pytest.raises(LogDamaged, match="no ledger map"):
        compact_log(logs, index, 1, lambda _size: pytest.fail("copied in vain"))
    assert log_files(tmp_path) == ["00000001.log"]
    assert logs.path(1).read_bytes() == before
    index.close()
    logs.close()


def test_damage_that_comes_while_a_log_is_copied_keeps_it(tmp_path: Path) -> None:
    logs, index = EntryLogs(OsDisk(), tmp_path), LocationIndex(tmp_path / "index")
    writer = EntryLogWriter(logs)
    found = [writer.append(KIND_ENTRIES, each, 0, packets(each, range(5))) for each in (1, 2)]
    writer.seal()
    index.write(found, completes=True)

    def damage(_size: int) -> None:
        data = bytearray(logs.path(1).read_bytes())
        data[found[1].offset + 5] ^= 1
        with logs.path(1).open("r+b") as file:
            file.write(data)

    with pytest.raises(LogDamaged, match="while it was copied"):
        compact_log(logs, index, 1, damage)
    assert log_files(tmp_path) == ["00000001.log"]
    assert list(index.in_log(1)) == found
    index.close()
    logs.close()


def log_files(directory: Path) -> list[str]:
    names = (path.name for path in directory.iterdir())
    return sorted(name for name in names if ".log" in name or name.endswith(".compacting"))


def test_an_end_that_was_never_written_stops_no_compaction(tmp_path: Path) -> None:
    logs, index = damaged_log(tmp_path, "end", sealed=False)
    compact_log(logs, index, 1, lambda _size: None)
    assert logs.ids() == [2]
    index.close()
    logs.close()


def test_a_log_without_headers_is_not_compacted(tmp_path: Path) -> None:
    """Nothing in it can be found, nothing of it is in the index: what it has is unknown."""
    logs, index = damaged_log(tmp_path, "dead", sealed=True)
    index.delete_ledgers([2])
    data = bytearray(logs.path(1).read_bytes())
    data[0] ^= 1
    data[4096] ^= 1
    logs.path(1).write_bytes(data)
    with pytest.raises(LogDamaged):
        compact_log(logs, index, 1, lambda _size: None)
    assert log_files(tmp_path) == ["00000001.log"]
    index.close()
    logs.close()


@pytest.mark.parametrize("step", ["rename", "sync_directory", "write"])
async def test_a_move_that_fails_is_not_tried_before_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Each attempt would leave one copy more, which no later start could tell from other logs."""
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await add(port, 1, range(200), size=2000)
        await add(port, 2, range(20))

    def fail(*_arguments: object, **moved: object) -> None:
        if step != "write" or moved:
            raise OSError(errno.EIO, "Input/output error")

    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await bookie.gc.collect(ledgers(2))
        with monkeypatch.context() as patched:
            patched.setattr(LocationIndex if step == "write" else OsDisk, step, fail)
            with pytest.raises(OSError, match="Input/output error"):
                await bookie.gc.collect(ledgers(2), threshold=0.5)
        for _ in range(2):
            assert (await bookie.gc.collect(ledgers(2), threshold=2)).logs_compacted == 0
        assert len(log_files(tmp_path / "ledgers")) == 2
        assert await read_all(port, 2, 0, 19) == packets(2, range(20))
    async with open_bookie(options) as port:
        assert log_names(tmp_path) == ["00000001.log"]
        assert await read_all(port, 2, 0, 19) == packets(2, range(20))


def test_a_header_that_fails_is_not_asked_for_with_each_block(
    tmp_path: Path, broken: Broken
) -> None:
    """A bad sector may take seconds to say so."""
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    locations = [writer.append(KIND_ENTRIES, 1, n, packets(1, [n])) for n in range(50)]
    writer.seal()
    index = LocationIndex(tmp_path / "index")
    index.write(locations)
    asked: list[int] = []

    def is_header(offset: int) -> bool:
        if offset < 8192:
            asked.append(offset)
        return offset < 8192

    broken(logs.path(1), is_header)
    store = LedgerDirectory(OsDisk(), tmp_path, index, small_options(tmp_path), 0)
    for number in range(50):
        (block,) = store.load(1, number, 1, 1)
        assert block.packets[:1] == packets(1, [number])
    assert len(asked) == 2, "one for each place where a header may stand"
    broken(logs.path(1), lambda _: False)
    with store.logs.reading(1) as file:
        assert {file.salt for _ in range(BLOCKS_WITHOUT_SALT)} == {None, writer.salt}
    store.close()
    logs.close()


@pytest.mark.parametrize("failing", ["block", "index", "first"])
def test_a_later_block_that_fails_costs_no_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Which is read with it, ahead."""
    logs = EntryLogs(OsDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    locations = [writer.append(KIND_ENTRIES, 1, n, packets(1, [n])) for n in range(3)]
    writer.seal()
    logs.close()
    index = LocationIndex(tmp_path / "index")
    index.write(locations)
    store = LedgerDirectory(OsDisk(), tmp_path, index, small_options(tmp_path), 0)
    read = LogFile.read
    bad_place = locations[0 if failing == "first" else 2].offset

    def bad(self: LogFile, size_bytes: int, offset: int) -> bytes:
        if offset <= bad_place < offset + size_bytes:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, size_bytes, offset)

    def fail(_self: LocationIndex, _start: Location) -> Iterator[Location]:
        raise IndexFailed("Corruption: block checksum mismatch")
        yield  # a generator, as `following` is

    with monkeypatch.context() as patched:
        if failing == "index":
            patched.setattr(LocationIndex, "following", fail)
        else:
            patched.setattr(LogFile, "read", bad)
        if failing == "first":
            with pytest.raises(StorageFailed, match="Input/output error"):
                store.load(1, 0, 1 << 20, 100)
        else:
            (block,) = store.load(1, 0, 1 << 20, 100)
            assert (block.first, block.packets) == (0, packets(1, [0]))
        if failing == "block":
            with pytest.raises(StorageFailed, match="Input/output error"):
                store.load(1, 2, 1 << 20, 100)
    assert [block.first for block in store.load(1, 0, 1 << 20, 100)] == [0, 1, 2]
    store.close()


def test_a_copy_that_cannot_be_read_ends_no_scrub(tmp_path: Path, broken: Broken) -> None:
    logs = EntryLogs(OsDisk(), tmp_path)
    found = []
    for _ in range(2):
        writer = EntryLogWriter(logs)
        found.append(writer.append(KIND_ENTRIES, 1, 0, packets(1, range(3))))
        found.append(writer.append(KIND_ENTRIES, 1, 3, packets(1, range(3, 5))))
        writer.seal()
    index = LocationIndex(tmp_path / "index")
    index.write(found[:3])
    data = bytearray(logs.path(1).read_bytes())
    for location in found[:2]:
        data[location.offset + location.size_bytes - 1] ^= 1
    logs.path(1).write_bytes(data)
    broken(logs.path(2), lambda _: True)
    assert list(scrub_log(logs, index, 1)) == [(1, 2, 1), (1, 4, 1)]
    index.close()
    logs.close()


@pytest.mark.parametrize(
    ("note", "following"),
    [(b"9\n", 10), (b"0\n", 2), (b"4294967296\n", 2), (b"99999999999\n", 2), (b"", 2)],
)
def test_numbers_of_logs_that_have_gone_are_not_given_again(
    tmp_path: Path, note: bytes, following: int
) -> None:
    """A log with a number of the note's may be of version 1. Past what the index can name there is
    no number: the note is damaged.
    """
    (tmp_path / UNSALTED_NAME).write_bytes(note)
    (tmp_path / "00000001.log").touch()
    logs = EntryLogs(OsDisk(), tmp_path)
    assert logs.new_id() == following
    logs.close()


@pytest.mark.parametrize("name", ["foo.log", "2.log", "000000002.log", "00000001.log.old"])
async def test_other_files_are_no_logs(tmp_path: Path, name: str) -> None:
    options = small_options(tmp_path)
    await one_log(options)
    stranger = tmp_path / "ledgers" / name
    stranger.write_text("notes")
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await bookie.gc.collect(ledgers(1))
        assert 2 not in bookie.storage.stores[0].logs.ids()
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))
    assert stranger.read_text() == "notes"


def test_which_header_counts_is_known_before_a_log_is_removed(tmp_path: Path) -> None:
    """An older version ran since the note: where log 2 would have its second header, a client wrote
    one. Log 3 tells.
    """
    (tmp_path / UNSALTED_NAME).write_bytes(b"0\n")
    copy = file_header(2, 1, b"a guess.")[:40]
    assert parse_file_header(copy).compacted_from == 1
    block = b"".join(encode_block(KIND_ENTRIES, 1, 0, [b"x" * (4096 - 32 - 48) + copy], NO_SALT)[0])
    assert log_of_version_1(2, block).index(copy) == 4096
    for log_id in (1, 2, 3):
        (tmp_path / f"{log_id:08x}.log").write_bytes(log_of_version_1(log_id, block))
    second = bytearray(log_of_version_1(2, block))
    second[0] ^= 1
    (tmp_path / "00000002.log").write_bytes(second)
    logs = EntryLogs(OsDisk(), tmp_path)
    finish_compactions(logs, None)
    assert logs.ids() == [1, 2, 3]
    with logs.reading(2) as file:
        assert isinstance(file, LogFile)
        assert len(list(scan_blocks(file))) == 1
    logs.close()
