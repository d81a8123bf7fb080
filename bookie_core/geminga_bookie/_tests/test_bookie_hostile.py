"""Faults other than a full disk: failing threads, a damaged index, unreachable metadata,
kills at bad moments (BK-01, BK-02, BK-06, BK-12)."""

from __future__ import annotations

import errno
import gc
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing

from geminga_bookie._tests.support import (
    KEY,
    FaultyDisk,
    Outcomes,
    add,
    copy_files,
    damage_tables,
    fill_tables,
    ledgers,
    packets,
    read_all,
    small_options,
    until,
    until_writable,
)
from geminga_bookie.errors import DataDirError, StorageFailed
from geminga_bookie.host import Host
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.options import GcOptions, JournalOptions
from geminga_bookie.storage import checkpoint, journal
from geminga_bookie.storage.entry_logs.files import EntryLogs, EntryLogWriter
from geminga_bookie.storage.journal_files import journal_ids
from geminga_runtime.metadata.api import StoreUnavailable


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga_bookie.inprocess.FAILED_RETRY_S", 0.01)
    monkeypatch.setattr(checkpoint, "RETRY_S", 0.01)


async def test_any_error_of_the_journal_thread_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bookie(small_options(tmp_path)) as bookie:
        await add(bookie, 1, range(3))

        def out_of_memory(*_: object) -> None:
            raise MemoryError("no memory")

        with monkeypatch.context() as patch, trio.fail_after(60):
            patch.setattr(journal, "encode_record", out_of_memory)
            with pytest.raises(StorageFailed, match="no memory"):
                await add(bookie, 1, [3])
        await until_writable(bookie)
        await add(bookie, 2, range(3))


async def test_a_full_disk_leaves_no_hole_in_the_journals_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    options = small_options(tmp_path)
    async with open_bookie(options, disk=disk) as bookie:
        disk.fail("write", "next.tmp", errno.ENOSPC)
        with pytest.raises(Exception, match="journal"):
            for first in range(20):
                await add(bookie, 1, [first], size=60_000)
        await until(lambda: ("remove", tmp_path / "journal" / "next.tmp") in disk.steps)
        disk.heal()
        await until_writable(bookie)
        await add(bookie, 2, range(3))
        copy_files(tmp_path, tmp_path / "copy")
    found = journal_ids(disk, tmp_path / "copy" / "journal")
    assert found == list(range(found[0], found[-1] + 1))
    async with open_bookie(small_options(tmp_path / "copy")) as bookie:
        assert await read_all(bookie, 2, 0, 2) == packets(2, range(3))
    assert "may be lost" not in caplog.text


@pytest.mark.slow
async def test_repeated_kills_do_not_accumulate_journals(tmp_path: Path) -> None:
    counts = []
    for round_number in range(12):
        directory = tmp_path / str(round_number)
        async with open_bookie(small_options(directory)) as port:
            bookie = cast(InProcessBookie, port)
            await add(bookie, round_number, range(3))
            if round_number:
                await until(partial(getattr, bookie.checkpointer, "checkpoints"))
            copy_files(directory, tmp_path / str(round_number + 1))
        counts.append(len(list((directory / "journal").glob("*.journal"))))
    assert max(counts) <= 11
    async with open_bookie(small_options(tmp_path / "12")) as port:
        for ledger_id in range(12):
            assert await read_all(port, ledger_id, 0, 2) == packets(ledger_id, range(3))


@pytest.mark.slow
async def test_a_recycled_journal_that_was_closed_in_order_has_no_unfinished_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = small_options(
        tmp_path, journal=JournalOptions(segment_bytes=64 * 1024, first_segment_bytes=64 * 1024)
    )
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for first in range(40):
            await add(port, 1, [first], size=20_000 if first < 39 else 100)
            await bookie.checkpointer.checkpoint()
    async with open_bookie(options):
        pass
    assert "unfinished" not in caplog.text


async def test_a_file_is_made_ready_by_few_writes(tmp_path: Path) -> None:
    """Written full of zeros, it took a second under load, and all publishes waited for it."""
    disk = FaultyDisk()
    options = small_options(
        tmp_path, journal=JournalOptions(segment_bytes=16 << 20, first_segment_bytes=1 << 20)
    )
    async with open_bookie(options, disk=disk) as port:
        await add(port, 1, range(3))
    assert len(journal_ids(disk, tmp_path / "journal")) == 2
    # Of each file the room and the header; one record; the mark of the end.
    assert 4 < disk.steps.count(("write", tmp_path / "journal" / "next.tmp")) <= 6


async def test_adds_that_waited_for_a_collection_go_on_after_it(tmp_path: Path) -> None:
    async with open_bookie(small_options(tmp_path, write_cache_bytes=4000)) as port:
        bookie = cast(InProcessBookie, port)
        outcomes = Outcomes()
        async with bookie.checkpointer.paused():
            for first in range(4):
                bookie.add(1, KEY, first, packets(1, [first], 1500), outcomes)
            assert bookie.statistics().throttled_adds > 0
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(60):
            await outcomes.wait_for(4)
        assert not outcomes.errors


async def test_a_collection_without_metadata_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = 0

    async def live() -> AsyncIterator[int]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise StoreUnavailable("metadata are away")
        return
        yield

    options = small_options(tmp_path, gc=GcOptions(gc_interval_s=0.01))
    async with open_bookie(options, live) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(3))
        await until(lambda: 1 not in bookie.storage.table.states)
    assert "metadata are away" in caplog.text


def test_a_log_that_grows_is_never_finished(tmp_path: Path) -> None:
    """Else a collection between its making and its first block would take it for empty."""
    logs = EntryLogs(FaultyDisk(), tmp_path)
    writer = EntryLogWriter(logs)
    assert (logs.ids(), logs.finished_ids()) == ([1], [])
    writer.append(0, 7, 0, [b"entry"])
    writer.sync()
    assert logs.finished_ids() == []
    writer.seal()
    assert logs.finished_ids() == [1]


async def test_failed_flushes_leave_no_files(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with open_bookie(small_options(tmp_path), disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(10))
        tries = 0

        def full(operation: str, path: Path) -> int:
            nonlocal tries
            if operation != "sync" or path.suffix != ".log":
                return 0
            tries += 1
            return errno.ENOSPC

        disk.fault = full
        assert bookie.checkpointer.seal()
        await until(lambda: tries >= 5)
        assert len(list((tmp_path / "ledgers").glob("*.log"))) <= 1
        disk.heal()
        await until_writable(bookie)
        assert await read_all(bookie, 1, 0, 9) == packets(1, range(10))


@pytest.mark.slow
async def test_a_damaged_index_is_an_error_and_not_a_missing_entry(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    await fill_tables(options)
    async with open_bookie(options) as port:
        damage_tables(tmp_path / "ledgers" / "index", upto=-4000)  # a start would meet it
        outcomes = Outcomes()
        port.add(200, KEY, 2, packets(200, [2]), outcomes)
        await outcomes.wait_for(1)
        assert isinstance(outcomes.errors[0], StorageFailed)
        with pytest.raises(StorageFailed, match="index"):
            await port.read(200, 0, entries_max=1, bytes_max=1)
        collector = cast(InProcessBookie, port).gc
        with pytest.raises(OSError, match="Corruption"):
            await collector.collect(ledgers(*range(1, 400)))
    gc.collect()  # cursors of errors keep it locked, in this process
    async with open_bookie(options) as port:
        for ledger_id in (1, 200, 399):
            assert await read_all(port, ledger_id, 0, 1) == packets(ledger_id, range(2))
    assert (tmp_path / "ledgers" / "index.damaged").exists()


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["nothing", "the mark", "the next start before it is removed"])
async def test_a_table_of_locations_that_is_damaged_goes_with_the_index(
    tmp_path: Path, fails: str
) -> None:
    """A rebuild in place would not read it, and the next compaction of RocksDB would meet it."""
    disk = FaultyDisk()
    options = small_options(tmp_path)
    await fill_tables(options)
    damage_tables(tmp_path / "ledgers" / "index")
    mark = tmp_path / "ledgers" / "index.unsound"
    async with open_bookie(options, host=Host(disk)) as port:
        with pytest.raises(StorageFailed, match="index"):
            await port.read(1, 0, entries_max=1, bytes_max=1)
        collector = cast(InProcessBookie, port).gc
        if fails == "the mark":
            disk.fail("rename", mark.name)
            await collector.collect(ledgers(*range(1, 400)))
            assert not mark.exists()
            disk.heal()
        await collector.collect(ledgers(*range(1, 400)))
        assert mark.exists()
    gc.collect()  # cursors of errors keep it locked, in this process
    if fails == "the next start before it is removed":
        disk.fail("remove", mark.name)
        with pytest.raises(DataDirError, match="unsound"):
            async with open_bookie(options, host=Host(disk)):
                raise AssertionError("it can't begin")
    for _ in range(2):
        async with open_bookie(options) as port:
            assert not mark.exists()
            for ledger_id in range(1, 400):
                assert await read_all(port, ledger_id, 0, 1) == packets(ledger_id, range(2))
    assert [path.name for path in mark.parent.glob("index.*")] == ["index.damaged"]


@pytest.mark.slow
async def test_a_damaged_index_that_the_journal_needs_is_put_aside_and_rebuilt(
    tmp_path: Path,
) -> None:
    options = small_options(tmp_path / "of")
    async with open_bookie(options) as port:
        for ledger_id in range(1, 400):
            await add(port, ledger_id, range(2))
    async with open_bookie(options) as port:
        await add(port, 3, [2])
        copy_files(tmp_path / "of", tmp_path / "killed")
    damage_tables(tmp_path / "killed" / "ledgers" / "index", upto=-4000)
    async with open_bookie(small_options(tmp_path / "killed")) as port:
        for ledger_id in (1, 399):
            assert await read_all(port, ledger_id, 0, 1) == packets(ledger_id, range(2))
        assert await read_all(port, 3, 0, 2) == packets(3, range(3))
    assert (tmp_path / "killed" / "ledgers" / "index.damaged").exists()
