"""Damage in the index's own files: what a start makes of it (BK-02, BK-04)."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import NoReturn, cast

import pytest

from geminga_bookie._tests.support import (
    KEY,
    BadSector,
    add,
    copy_files,
    damage_tables,
    fill_tables,
    ledgers,
    packets,
    read_all,
    small_options,
    three_directories,
)
from geminga_bookie.errors import DataDirError, LedgerFenced, NoSuchLedger, StorageFailed
from geminga_bookie.host import Host
from geminga_bookie.inprocess import InProcessBookie, open_bookie, open_on_disk
from geminga_bookie.storage.entry_logs.format import TRAILER_BYTES, TRAILER_MAGIC
from geminga_bookie.storage.entry_logs.index_rebuild import ORDER
from geminga_bookie.storage.key_value import RocksStores
from geminga_bookie.storage.location_index import IndexFailed, Location, LocationIndex


def _write_ahead_log(index: Path) -> Path:
    return max(index.glob("*.log"), key=lambda path: path.stat().st_size)


async def test_damage_within_the_indexs_log_costs_nothing(tmp_path: Path) -> None:
    """By default RocksDB opens without all that stands behind it; the journals' marks are past
    that, and compaction keeps only what the index names."""
    async with open_bookie(small_options(tmp_path / "of")) as port:
        bookie = cast(InProcessBookie, port)
        for ledger_id in (1, 9, 2):
            await add(bookie, ledger_id, range(40))
        await bookie.checkpointer.checkpoint()
        at = _write_ahead_log(tmp_path / "of" / "ledgers" / "index").stat().st_size + 12
        await add(bookie, 1, range(40, 42))
        await bookie.checkpointer.checkpoint()
        await bookie.fence(1, KEY)
        await bookie.checkpointer.checkpoint()
        copy_files(tmp_path / "of", tmp_path / "killed")
    index = tmp_path / "killed" / "ledgers" / "index"
    log = _write_ahead_log(index)
    data = bytearray(log.read_bytes())
    data[at] ^= 0xFF
    log.write_bytes(data)
    async with open_bookie(small_options(tmp_path / "killed")) as port:
        bookie = cast(InProcessBookie, port)
        await bookie.gc.collect(ledgers(1, 2), threshold=0.99)
        assert await read_all(bookie, 1, 0, 41) == packets(1, range(42))
        with pytest.raises(LedgerFenced):
            await add(bookie, 1, [42])
    assert index.with_name("index.damaged").exists()


def test_an_end_of_the_indexs_log_that_is_cut_off_is_none(tmp_path: Path) -> None:
    """A crash in mid-write leaves one, also where the record has several parts (of 32 KiB); the
    file may have room of zeros behind it."""
    index = LocationIndex(tmp_path / "of")
    index.write(completes=True)
    log = _write_ahead_log(tmp_path / "of")
    begin = log.stat().st_size
    index.write([Location(1, first, 1, first, 5, 1) for first in range(2000)])
    shutil.copytree(tmp_path / "of", tmp_path / "killed")
    index.close()
    log = tmp_path / "killed" / log.name
    data = log.read_bytes()
    assert len(data) > 2 * 32768
    cuts = [begin, begin + 3, begin + 12, 32767, 32768, 32775, 65536, 65540, len(data) - 1]
    for number, cut in enumerate([*cuts, len(data)]):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "killed", copy)
        room = bytes(8192) if cut in (begin, len(data)) else b""
        (copy / log.name).write_bytes(data[:cut] + room)
        index = LocationIndex(copy)
        assert index.is_complete()
        assert len([*index.locations(1)]) == (2000 if cut == len(data) else 0)
        index.close()


@pytest.mark.slow
async def test_damage_that_only_the_check_of_identity_meets_ends_no_start(tmp_path: Path) -> None:
    """A cluster's bookie asks whether it is empty, and each start ended there."""
    options = small_options(tmp_path)
    await fill_tables(options)
    damage_tables(tmp_path / "ledgers" / "index", upto=-4000)
    told: list[bool] = []

    async def check(_instance_id: str, is_new: bool, _in_doubt: bool) -> None:
        told.append(is_new)

    async with open_on_disk(options, Host(), check_identity=check) as bookie:
        for ledger_id in (1, 399):
            assert await read_all(bookie, ledger_id, 0, 1) == packets(ledger_id, range(2))
    assert told == [False]
    assert (tmp_path / "ledgers" / "index.damaged").exists()


async def test_an_index_that_does_not_say_whether_it_is_empty_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the disk ends no start; neither is it taken for a new bookie."""
    options = small_options(tmp_path)
    async with open_bookie(options):
        pass
    told: list[bool] = []

    async def check(_instance_id: str, is_new: bool, _in_doubt: bool) -> None:
        told.append(is_new)

    def fail(_index: LocationIndex) -> NoReturn:
        raise IndexFailed("IO error: Input/output error: While pread a file")

    monkeypatch.setattr(LocationIndex, "ledgers", fail)
    async with open_on_disk(options, Host(), check_identity=check) as bookie:
        await add(bookie, 1, [0])
    assert told == [False]


@pytest.mark.slow
async def test_a_damaged_index_stays_while_a_log_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without it nothing could be read of the others, and no start would succeed."""
    options = small_options(tmp_path)
    await fill_tables(options)
    index = tmp_path / "ledgers" / "index"
    damage_tables(index)
    mark = index.with_name("index.unsound")
    mark.touch()
    for live in (range(1, 400), [399]):
        gc.collect()  # cursors of errors keep it locked, in this process
        caplog.clear()
        async with open_bookie(options, host=Host(BadSector(20000))) as port:
            bookie = cast(InProcessBookie, port)
            assert bookie.storage.stores[0].index.is_damaged, "nothing may be compacted"
            assert await read_all(bookie, 399, 0, 1) == packets(399, range(2))
            report = await bookie.gc.collect(ledgers(*live), threshold=0.99)
            assert report.logs_compacted == 0
        assert "00000001.log" in caplog.text
        assert "docs/OPERATIONS.md" in caplog.text
        assert mark.exists()
        assert not index.with_name("index.damaged").exists()
    gc.collect()
    async with open_bookie(options) as port:
        for ledger_id in (1, 200, 399):
            assert await read_all(port, ledger_id, 0, 1) == packets(ledger_id, range(2))
    assert index.with_name("index.damaged").exists()
    assert not mark.exists()


async def test_a_logs_end_that_cannot_be_read_keeps_the_index_too(tmp_path: Path) -> None:
    """A rebuild asks each log whether it is sealed."""
    options = small_options(tmp_path, entry_log_bytes_max=1)
    for entry_id in range(2):
        async with open_bookie(options) as port:
            await add(port, 1, [entry_id])
    log = tmp_path / "ledgers" / "00000001.log"
    assert TRAILER_MAGIC in log.read_bytes()[-TRAILER_BYTES:]
    mark = tmp_path / "ledgers" / "index.unsound"
    mark.touch()
    bad = BadSector(log.stat().st_size - 1)
    for host in (Host(bad), Host(bad), Host()):
        async with open_bookie(options, host=host) as port:
            assert await read_all(port, 1, 0, 1) == packets(1, range(2))
        assert mark.exists() == (host.disk is bad)
        assert mark.with_name("index.damaged").exists() == (host.disk is not bad)


@pytest.mark.slow
@pytest.mark.parametrize("lacks", [False, True])
async def test_damage_that_a_start_meets_keeps_the_index_while_a_log_cannot_be_read(
    tmp_path: Path, lacks: bool
) -> None:
    """No start is told of it before: there is no mark, or one of an index that lacks something."""
    options = small_options(tmp_path)
    await fill_tables(options)
    index = tmp_path / "ledgers" / "index"
    damage_tables(index, upto=-4000)
    if lacks:
        index.with_name("index.unsound").write_bytes(ORDER)
    for host in (Host(BadSector(20000)), Host(BadSector(20000)), Host()):
        gc.collect()  # cursors of errors keep it locked, in this process
        is_kept = type(host.disk) is BadSector
        async with open_on_disk(options, host) as bookie:
            assert bookie.storage.stores[0].index.is_damaged == is_kept
            for ledger_id in () if is_kept else (1, 399):
                assert await read_all(bookie, ledger_id, 0, 1) == packets(ledger_id, range(2))
        assert index.with_name("index.unsound").exists() == is_kept
        assert index.with_name("index.damaged").exists() != is_kept


@pytest.mark.slow
async def test_an_index_that_cannot_be_opened_waits_for_all_logs(tmp_path: Path) -> None:
    """A disk that gives them again later has lost nothing."""
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await add(port, 1, range(2))
    (manifest,) = (tmp_path / "ledgers" / "index").glob("MANIFEST-*")
    manifest.write_bytes(b"noise" * 100)
    end = (tmp_path / "ledgers" / "00000001.log").stat().st_size - 1
    for _ in range(2):
        gc.collect()
        with pytest.raises(DataDirError, match="Corruption"):
            async with open_bookie(options, host=Host(BadSector(end))):
                raise AssertionError("it can't begin")
        assert manifest.exists()
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 1) == packets(1, range(2))
    assert (tmp_path / "ledgers" / "index.damaged").exists()


@pytest.mark.parametrize("lacks", ["MANIFEST-*", "CURRENT", "*.sst"])
async def test_an_index_that_lacks_one_of_its_files_is_made_anew(
    tmp_path: Path, lacks: str
) -> None:
    """RocksDB calls some of that an error of the disk, which ended every start."""
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await add(port, 1, range(2))
    async with open_bookie(options):
        pass
    index = tmp_path / "ledgers" / "index"
    if lacks == "CURRENT":
        (index / lacks).write_text("MANIFEST-030013\n")
    else:
        next(index.glob(lacks)).unlink()
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 1) == packets(1, range(2))
    assert index.with_name("index.damaged").exists()


async def test_an_index_without_its_list_of_files_is_not_begun_anew(tmp_path: Path) -> None:
    """RocksDB refuses, but leaves a list: the next time it removes the tables."""
    options = small_options(tmp_path / "of", entry_log_bytes_max=1)
    async with open_bookie(options) as port:
        await add(port, 1, range(2))
    async with open_bookie(options) as port:
        await add(port, 2, range(2))
        await port.fence(1, KEY)
        await cast(InProcessBookie, port).checkpointer.checkpoint()
        copy_files(tmp_path / "of", tmp_path / "killed")
    options = small_options(tmp_path / "killed")
    path = tmp_path / "killed" / "ledgers" / "index"
    disk = BadSector(path.with_name("00000001.log").stat().st_size - 1)
    assert _write_ahead_log(path).stat().st_size
    (path / "CURRENT").unlink()
    files = {*path.iterdir()}
    for _ in range(2):
        with pytest.raises(DataDirError, match="has no CURRENT"):
            async with open_bookie(options, disk=disk):
                raise AssertionError("it can't begin")
        assert {*path.iterdir()} == files
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 1) == packets(1, range(2))
        assert await read_all(port, 2, 0, 1) == packets(2, range(2))
        with pytest.raises(LedgerFenced):
            await add(port, 1, [2])
    assert path.with_name("index.damaged").exists()


class Failing(RocksStores):
    """RocksDB on a disk that fails."""

    def __init__(self, failure: str) -> None:
        self._failure = failure

    def open(self, directory: Path, *, read_only: bool = False) -> NoReturn:
        raise Exception(f"IO error: {self._failure}: While open a file")


async def test_an_index_whose_disk_is_not_there_stays(tmp_path: Path) -> None:
    """It is a link to another one, which isn't mounted."""
    options = small_options(tmp_path / "of")
    async with open_bookie(options) as port:
        await add(port, 1, range(2))
    index, disk = tmp_path / "of" / "ledgers" / "index", tmp_path / "mounted" / "disk"
    disk.parent.mkdir()
    index.rename(disk)
    index.symlink_to(disk)
    disk.parent.rename(tmp_path / "away")
    for host in (Host(), Host(stores=Failing("No such file or directory"))):
        with pytest.raises(DataDirError, match="can't be opened"):
            async with open_bookie(options, host=host):
                raise AssertionError("it can't begin")
        assert index.is_symlink()
    (tmp_path / "away").rename(disk.parent)
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 1) == packets(1, range(2))
    assert not index.with_name("index.damaged").exists()


async def test_an_index_that_the_disk_does_not_give_stays(tmp_path: Path) -> None:
    """An error of the disk is no damage: it may be read again."""
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await add(port, 1, range(2))

    with pytest.raises(DataDirError, match="Input/output"):
        async with open_bookie(options, host=Host(stores=Failing("Input/output error"))):
            raise AssertionError("it can't begin")
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 1) == packets(1, range(2))
    assert not (tmp_path / "ledgers" / "index.damaged").exists()


@pytest.mark.slow
@pytest.mark.parametrize("meets_it", ["a read", "the last round"])
async def test_damage_that_is_met_before_the_end_is_told_to_the_next_start(
    tmp_path: Path, meets_it: str
) -> None:
    options = small_options(tmp_path)
    await fill_tables(options)
    index = tmp_path / "ledgers" / "index"
    mark = index.with_name("index.unsound")
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        damage_tables(index, upto=-4000)
        if meets_it == "a read":
            with pytest.raises(StorageFailed, match="index"):
                await bookie.read(200, 0, entries_max=1, bytes_max=1)
        else:
            with pytest.raises(OSError, match="Corruption"):
                await bookie.gc.collect(ledgers(*range(1, 400)))
            assert mark.exists(), "the process may be killed"
    assert mark.exists()


@pytest.mark.slow
async def test_a_round_that_met_damage_keeps_the_index_from_nothing(tmp_path: Path) -> None:
    """After a full disk it could neither be written nor read any more, for its own lock."""
    options = small_options(tmp_path)
    await fill_tables(options)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        index = bookie.storage.stores[0].index
        damage_tables(index.directory, upto=-4000)
        gc.disable()
        try:
            with pytest.raises(OSError, match="Corruption"):
                await bookie.gc.collect(ledgers(*range(1, 400)))
            index._is_broken = True
            index.write()
        finally:
            gc.enable()
        assert index.ledger(399) is not None


@pytest.mark.slow
async def test_a_damaged_index_holds_up_no_other_directory(tmp_path: Path) -> None:
    """Neither is anything taken of the ledgers beside it, whose index tells nothing."""
    options = three_directories(tmp_path)
    ids = range(1, 1200)
    await fill_tables(options, ids.stop)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        bad, other, _ = bookie.storage.stores
        mine = [ledger_id for ledger_id in ids if ledger_id % 3 == bad.number]
        kept = next(ledger_id for ledger_id in ids if ledger_id % 3 == other.number)
        await add(bookie, mine[0], [2])
        damage_tables(bad.index.directory, upto=-4000)
        logs = bad.logs.ids()
        gone = other.logs.ids()
        with pytest.raises(OSError, match="Corruption"):
            await bookie.gc.collect(ledgers(*mine[1:]), threshold=0.99)
        assert [*other.index.ledgers()] == []
        assert not {*gone} & {*other.logs.ids()}
        assert bad.logs.ids() == logs
        assert mine[0] in bookie.storage.table.states
        with pytest.raises(NoSuchLedger):
            await bookie.read(kept, 0, entries_max=1, bytes_max=1)
    gc.collect()  # cursors of errors keep it locked, in this process
    async with open_bookie(options) as port:
        for ledger_id in mine[1:]:
            assert await read_all(port, ledger_id, 0, 1) == packets(ledger_id, range(2))
        assert await read_all(port, mine[0], 0, 2) == packets(mine[0], range(3))
