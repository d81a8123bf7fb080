"""Restarts and crashes of a bookie on disk (BK-02): acknowledged entries survive, whatever the
moment was."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import (
    KEY,
    FaultyDisk,
    add,
    copy_files,
    damage_tables,
    lac_packet,
    ledgers,
    packets,
    read_all,
    read_lac,
    small_options,
    write_lac,
)
from geminga_bookie.errors import (
    DataDirError,
    DigestMismatch,
    EntryLost,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
    UnknownLedgerState,
)
from geminga_bookie.inprocess import BookieOptions, InProcessBookie, open_bookie
from geminga_bookie.options import JournalOptions
from geminga_bookie.port import BookiePort, LacAnswer
from geminga_bookie.storage.journal_format import crc32c


def on_disk(port: BookiePort) -> InProcessBookie:
    return cast(InProcessBookie, port)


def crash_copy(directory: Path, target: Path) -> BookieOptions:
    """The files as a kill would leave them now."""
    copy_files(directory, target)
    return small_options(target)


async def checkpoint(port: BookiePort) -> None:
    await on_disk(port).checkpointer.checkpoint()


async def test_a_clean_stop_leaves_nothing_to_replay(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(100))
        await write_lac(bookie, 1, 99)
        await bookie.fence(1, KEY)
    async with open_bookie(options) as bookie:
        assert on_disk(bookie).storage.reports[0].items == 0
        assert await read_all(bookie, 1, 0, 99) == packets(1, range(100))
        assert await read_lac(bookie, 1) == 99
        assert await bookie.list_entries(1) == list(range(100))
        with pytest.raises(LedgerFenced):
            await add(bookie, 1, [100])
        with pytest.raises(UnauthorizedAccess):
            await add(bookie, 1, [100], key=b"x")


async def test_a_lac_alone_is_not_written(tmp_path: Path) -> None:
    """It stands in the last packet: a checkpoint has no record to write for it."""
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(10))
        await checkpoint(bookie)
        table = on_disk(bookie).storage.table
        await add(bookie, 1, range(10, 20))
        assert not table.states[1].dirty
        await checkpoint(bookie)
        await write_lac(bookie, 1, 19)
        assert table.states[1].dirty
    async with open_bookie(options) as bookie:
        answer = await bookie.read_lac(1)
        assert answer == LacAnswer(packets(1, [19])[0], lac_packet(1, 19))
        assert await bookie.wait_entry(1, 19, 18) == (packets(1, [19])[0], 19)


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_crash_keeps_what_was_acknowledged(tmp_path: Path, flushed: bool) -> None:
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        await add(bookie, 1, range(100))
        await add(bookie, 2, range(10))
        if flushed:
            await checkpoint(bookie)
        await add(bookie, 1, range(100, 150))
        await bookie.fence(2, KEY)
        await write_lac(bookie, 1, 149)
        options = crash_copy(tmp_path / "a", tmp_path / "b")
    async with open_bookie(options) as bookie:
        assert await read_all(bookie, 1, 0, 149) == packets(1, range(150))
        assert await read_lac(bookie, 1) == 149
        assert await read_lac(bookie, 2) == 8
        with pytest.raises(LedgerFenced):
            await add(bookie, 2, [10])
        with pytest.raises(UnauthorizedAccess):
            await add(bookie, 1, [150], key=b"x")
        with pytest.raises(NoSuchEntry):
            await bookie.read(1, 150, entries_max=1, bytes_max=1)
        again = crash_copy(tmp_path / "b", tmp_path / "c")
    async with open_bookie(again) as bookie:
        assert await read_all(bookie, 1, 0, 149) == packets(1, range(150))
        assert await bookie.list_entries(1) == list(range(150))


async def test_a_replay_larger_than_the_write_cache(tmp_path: Path) -> None:
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        for first in range(0, 500, 50):
            await add(bookie, 1, range(first, first + 50), size=2000)
        options = crash_copy(tmp_path / "a", tmp_path / "b")
    async with open_bookie(replace(options, write_cache_bytes=200_000)) as bookie:
        assert await read_all(bookie, 1, 0, 499) == packets(1, range(500), 2000)


@pytest.mark.slow
async def test_crash_at_every_step_of_checkpoint_and_compaction(tmp_path: Path) -> None:
    """Every disk operation of two checkpoints, a collection and a compaction is a moment to crash
    at."""
    disk = FaultyDisk()
    copies: list[tuple[Path, int]] = []
    acknowledged = 0
    async with open_bookie(small_options(tmp_path / "a"), disk=disk) as bookie:

        def crash(operation: str, path: Path) -> int:
            target = tmp_path / f"crash-{len(copies)}-{operation}-{path.name}"
            copy_files(tmp_path / "a", target)
            copies.append((target, acknowledged))
            return 0

        for first in (0, 20):
            await add(bookie, 1, range(first, first + 20))
            await add(bookie, 2, range(first, first + 20), size=1000)
            acknowledged = first + 20
            disk.fault = crash
            await checkpoint(bookie)
            disk.heal()
        on_disk(bookie).storage.stores[0]._log_bytes_max = 1  # the next flush begins a new log
        await add(bookie, 1, range(40, 60))
        acknowledged = 60
        await checkpoint(bookie)
        disk.fault = crash
        report = await on_disk(bookie).gc.collect(ledgers(1), threshold=0.9)
        disk.heal()
        assert (report.ledgers_deleted, report.logs_compacted) == ([2], 1)
        assert await read_all(bookie, 1, 0, 59) == packets(1, range(60))
    kinds = {path.name.split("-", 2)[2] for path, _ in copies}
    assert {"write-lastMark.tmp", "rename-lastMark", "remove-00000001.log"} <= kinds
    assert len(copies) > 10
    for path, count in copies:
        async with open_bookie(small_options(path)) as bookie:
            assert await read_all(bookie, 1, 0, count - 1) == packets(1, range(count)), path


async def test_a_lost_index_is_rebuilt_from_the_entry_logs(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(100))
        await add(bookie, 2, range(5))
        await bookie.fence(2, KEY)
    shutil.rmtree(tmp_path / "ledgers" / "index")
    async with open_bookie(options) as bookie:
        assert await read_all(bookie, 1, 0, 99) == packets(1, range(100))
        assert await read_lac(bookie, 1) == 98
        with pytest.raises(LedgerFenced):
            await add(bookie, 2, [5])
        with pytest.raises(UnauthorizedAccess):
            await add(bookie, 1, [100], key=b"x")


async def test_a_damaged_index_is_put_aside_and_rebuilt(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(100))
    for manifest in (tmp_path / "ledgers" / "index").glob("MANIFEST-*"):
        manifest.write_bytes(b"noise" * 100)
    async with open_bookie(options) as bookie:
        assert await read_all(bookie, 1, 0, 99) == packets(1, range(100))
    assert (tmp_path / "ledgers" / "index.damaged").exists()


async def test_an_index_with_a_damaged_block_is_put_aside_and_rebuilt(tmp_path: Path) -> None:
    """RocksDB opens it: the block is met later."""
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(100))
    damage_tables(tmp_path / "ledgers" / "index")
    for _ in range(2):
        async with open_bookie(options) as bookie:
            assert await read_all(bookie, 1, 0, 99) == packets(1, range(100))
    aside = [path.name for path in (tmp_path / "ledgers").glob("index.damaged*")]
    assert aside == ["index.damaged"]


def entry_log(directory: Path) -> Path:
    (path,) = (directory / "ledgers").glob("*.log")
    return path


async def test_a_damaged_entry_is_an_error_and_its_neighbours_are_not(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(20))
    path = entry_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b"1:10|") + 7] ^= 0xFF
    path.write_bytes(data)
    async with open_bookie(options) as bookie:
        assert await bookie.read(1, 5, entries_max=100, bytes_max=1 << 20) == packets(
            1, range(5, 10)
        )
        with pytest.raises(DigestMismatch):
            await bookie.read(1, 10, entries_max=1, bytes_max=1)
        assert await read_all(bookie, 1, 11, 19) == packets(1, range(11, 20))


@pytest.mark.parametrize("damage", ["cut", "head", "gone"])
async def test_a_damaged_block_never_means_no_such_entry(tmp_path: Path, damage: str) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(20))
    path = entry_log(tmp_path)
    data = path.read_bytes()
    if damage == "cut":
        os.truncate(path, data.index(b"1:3|"))
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:8192] + data[8192:].replace(data[8192:8196], b"KLBG"))
    async with open_bookie(options) as bookie:
        if damage == "cut":
            assert await read_all(bookie, 1, 0, 2) == packets(1, range(3))
        for entry_id in (3 if damage == "cut" else 0, 10, 19):
            with pytest.raises(DigestMismatch):
                await bookie.read(1, entry_id, entries_max=1, bytes_max=1)


def journal_file(directory: Path) -> Path:
    """The only journal file that holds a record."""
    (path,) = (
        path for path in (directory / "journal").glob("*.journal") if b"GREC" in path.read_bytes()
    )
    return path


async def damaged_journal(tmp_path: Path) -> Path:
    """A crashed bookie whose second of three records is noise."""
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        for entry_id in range(3):
            await add(bookie, 1, [entry_id])
        crash_copy(tmp_path / "a", tmp_path / "b")
    path = journal_file(tmp_path / "b")
    data = bytearray(path.read_bytes())
    data[8192 + 40] ^= 0xFF
    path.write_bytes(data)
    return tmp_path / "b"


async def test_a_sole_copy_with_a_damaged_journal_serves_what_is_left(tmp_path: Path) -> None:
    directory = await damaged_journal(tmp_path)
    async with open_bookie(small_options(directory)) as bookie:
        (report,) = on_disk(bookie).storage.reports
        assert len(report.damages) == 1
        assert await read_all(bookie, 1, 0, 0) == packets(1, [0])
        assert await read_all(bookie, 1, 2, 2) == packets(1, [2])
        with pytest.raises(EntryLost):
            await bookie.read(1, 1, entries_max=1, bytes_max=1)


async def test_with_replicas_a_damaged_journal_makes_ledgers_unknown(tmp_path: Path) -> None:
    options = replace(small_options(await damaged_journal(tmp_path)), replicas_elsewhere=True)
    for _ in range(2):  # the second start finds no damage, but remembers
        async with open_bookie(options) as bookie:
            assert await read_all(bookie, 1, 2, 2) == packets(1, [2])
            with pytest.raises(UnknownLedgerState):
                await bookie.read(1, 1, entries_max=1, bytes_max=1)
            with pytest.raises(UnknownLedgerState):
                await bookie.read(99, 0, entries_max=1, bytes_max=1)
    async with open_bookie(options) as bookie:
        await add(bookie, 50, [0])
        with pytest.raises(NoSuchEntry):
            await bookie.read(50, 1, entries_max=1, bytes_max=1)


async def test_a_missing_journal_is_damage(tmp_path: Path) -> None:
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        await add(bookie, 1, range(3))
        options = crash_copy(tmp_path / "a", tmp_path / "b")
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(3, 6))
        await checkpoint(bookie)
        await add(bookie, 1, range(6, 9))
        options = crash_copy(tmp_path / "b", tmp_path / "c")
    for path in (tmp_path / "c" / "journal").glob("*.journal"):
        path.unlink()
    async with open_bookie(replace(options, replicas_elsewhere=True)) as bookie:
        with pytest.raises(UnknownLedgerState):
            await bookie.read(1, 6, entries_max=1, bytes_max=1)
        assert await read_all(bookie, 1, 0, 5) == packets(1, range(6))


async def test_an_unsynced_journal_is_in_doubt_after_an_unclean_stop_only(tmp_path: Path) -> None:
    unsynced = JournalOptions(sync_data=False, segment_bytes=262144, first_segment_bytes=65536)
    options = replace(small_options(tmp_path / "a"), journal=unsynced, replicas_elsewhere=True)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, [0])
    async with open_bookie(options) as bookie:
        with pytest.raises(NoSuchEntry):
            await bookie.read(1, 1, entries_max=1, bytes_max=1)
        with pytest.raises(NoSuchLedger):
            await bookie.read(2, 0, entries_max=1, bytes_max=1)
        crash_copy(tmp_path / "a", tmp_path / "b")
    async with open_bookie(
        replace(small_options(tmp_path / "b"), replicas_elsewhere=True)
    ) as bookie:
        with pytest.raises(UnknownLedgerState):
            await bookie.read(1, 1, entries_max=1, bytes_max=1)


async def test_files_of_another_version_are_refused(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, [0])
    path = tmp_path / "ledgers" / "VERSION"
    path.write_text(path.read_text().replace("geminga-bookie 1", "geminga-bookie 2"))
    with pytest.raises(DataDirError, match="version 2"):
        async with open_bookie(options):
            raise AssertionError("it must not open")


async def test_a_mark_of_another_version_is_refused(tmp_path: Path) -> None:
    """And stays as it is. One whose version was changed by damage is a damaged one."""
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, [0])
    path = tmp_path / "journal" / "lastMark"
    mark = path.read_bytes()
    newer = mark[:4] + b"\2\0\0\0" + mark[8:-4] + b"more"
    path.write_bytes(newer + crc32c(newer).to_bytes(4, "little"))
    for _ in range(2):
        with pytest.raises(DataDirError, match=r"lastMark is of version 2, .* reads version 1"):
            async with open_bookie(options):
                raise AssertionError("it must not open")
        assert path.read_bytes()[:-4] == newer
    path.write_bytes(mark[:4] + b"\2" + mark[5:])
    async with open_bookie(options) as bookie:
        assert await read_all(bookie, 1, 0, 0) == packets(1, [0])


async def test_rotation_and_reuse_of_journals(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        for first in range(0, 1200, 20):
            await add(bookie, 1, range(first, first + 20), size=5000)
            if first % 100 == 0:
                await checkpoint(bookie)
        names = sorted(path.name for path in (tmp_path / "journal").glob("*.journal"))
        # Five and one for reuse behind the mark, those since then, and one made ready.
        assert len(names) <= 11
        assert int(names[-1].partition(".")[0], 16) > 16
        crash = crash_copy(tmp_path, tmp_path.with_name(tmp_path.name + "-crashed"))
    async with open_bookie(crash) as bookie:
        assert on_disk(bookie).storage.reports[0].damages == []
        assert await read_all(bookie, 1, 0, 1199) == packets(1, range(1200), 5000)
