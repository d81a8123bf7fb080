"""Full disks, failing disks, a slow flush: refusals, service and recovery (BK-03,
BK-10)."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import cast

import pytest
import trio

from geminga_bookie._tests.support import (
    KEY,
    FaultyDisk,
    SlowFlush,
    add,
    add_by_fives,
    packets,
    read_all,
    small_options,
    three_directories,
    until_writable,
)
from geminga_bookie.errors import (
    BookieReadOnly,
    BookkeeperError,
    DataDirError,
    LedgerFenced,
    StorageFailed,
    TooManyRequests,
)
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.options import BookieOptions, DiskOptions
from geminga_bookie.storage import checkpoint
from geminga_bookie.storage.disk import DiskUsage


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga_bookie.inprocess.FAILED_RETRY_S", 0.01)
    monkeypatch.setattr(checkpoint, "RETRY_S", 0.01)


def quick(directory: Path, **changes: object) -> BookieOptions:
    disk = DiskOptions(usage_max=0.95, usage_low=0.90, check_interval_s=0.01, ballast_bytes=0)
    return small_options(directory, **{"disk": disk, **changes})


async def test_a_failed_journal_fails_its_adds_and_then_heals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    async with open_bookie(quick(tmp_path), disk=disk) as bookie:
        await add(bookie, 1, range(5))
        disk.fail("sync", ".journal")
        disk.fault = lambda name, path: errno.EIO if name in ("sync", "create") else 0
        with pytest.raises(StorageFailed, match="journal"):
            await add(bookie, 1, range(5, 10))
        assert f"{tmp_path / 'journal'}: journal write failed: " in caplog.text
        with pytest.raises(BookieReadOnly):
            await add(bookie, 1, range(5, 10))
        assert await read_all(bookie, 1, 0, 4) == packets(1, range(5))
        disk.heal()
        await until_writable(bookie)
        await add(bookie, 1, range(5, 10))
        assert await read_all(bookie, 1, 0, 9) == packets(1, range(10))
    async with open_bookie(quick(tmp_path)) as bookie:
        assert await read_all(bookie, 1, 0, 9) == packets(1, range(10))


async def test_a_journal_without_room_is_read_only(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with open_bookie(quick(tmp_path), disk=disk) as bookie:
        await add(bookie, 1, range(5))
        disk.fault = lambda _name, path: errno.ENOSPC if "journal" in str(path) else 0
        refused: list[BookkeeperError] = []
        first = 5
        for _ in range(100):
            try:
                await add(bookie, 1, [first], size=60_000)
            except BookieReadOnly as error:
                refused.append(error)
                break
            first += 1
        assert refused
        disk.heal()
        await until_writable(bookie)
        await add(bookie, 1, [first], size=60_000)
        assert await read_all(bookie, 1, 0, 4) == packets(1, range(5))


async def test_usage_over_the_threshold_is_read_only_until_under_the_low_mark(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    disk.room = DiskUsage(1000, 500)
    async with open_bookie(quick(tmp_path), disk=disk) as bookie:
        await add(bookie, 1, range(5))
        disk.room = DiskUsage(1000, 40)
        await until_writable(bookie, False)
        with pytest.raises(BookieReadOnly, match=r"96\.0% full"):
            await add(bookie, 1, [5])
        assert await read_all(bookie, 1, 0, 4) == packets(1, range(5))
        disk.room = DiskUsage(1000, 60)
        await trio.sleep(0.03)
        with pytest.raises(BookieReadOnly):
            await add(bookie, 1, [5])
        disk.room = DiskUsage(1000, 200)
        await until_writable(bookie)
        await add(bookie, 1, [5])


async def test_a_failed_flush_is_repeated_and_loses_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    options = quick(tmp_path)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(50))
        disk.fail("sync", ".log", errno.ENOSPC)
        assert bookie.checkpointer.seal()
        await until_writable(bookie, False)
        with pytest.raises(BookieReadOnly, match="flush failed"):
            await add(bookie, 1, [50])
        assert await read_all(bookie, 1, 0, 49) == packets(1, range(50))
        disk.heal()
        await until_writable(bookie)
        await add(bookie, 1, [50])
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 50) == packets(1, range(51))


async def test_a_stop_with_a_full_disk_leaves_it_to_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    async with open_bookie(quick(tmp_path), disk=disk) as bookie:
        await add(bookie, 1, range(50))
        disk.fail("write", ".log", errno.ENOSPC)
    assert "will replay the journal" in caplog.text
    async with open_bookie(quick(tmp_path)) as bookie:
        assert await read_all(bookie, 1, 0, 49) == packets(1, range(50))


async def test_adds_wait_in_order_while_both_halves_are_full(tmp_path: Path) -> None:
    disk = FaultyDisk()
    options = quick(tmp_path, write_cache_bytes=40_000)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        slow = SlowFlush(disk)
        outcomes = add_by_fives(bookie, 60)
        assert bookie.statistics().throttled_adds > 0
        await outcomes.wait_for(1)
        await trio.sleep(0.05)
        assert 0 < outcomes.total < 60
        assert bookie.statistics().write_cache_bytes < 60_000
        slow.go.set()
        await outcomes.wait_for(60)
        assert outcomes.errors == []
        position = 0
        for first, count, _ in outcomes.runs:
            assert first == position
            position += count
        assert await read_all(bookie, 1, 0, 59) == packets(1, range(60), 1000)


async def test_adds_that_wait_too_long_are_rejected(tmp_path: Path) -> None:
    disk = FaultyDisk()
    options = quick(tmp_path, write_cache_bytes=40_000, throttle_max_s=0.05)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        slow = SlowFlush(disk)
        outcomes = add_by_fives(bookie, 60)
        await outcomes.wait_for(60)
        assert {type(error) for error in outcomes.errors} == {TooManyRequests}
        assert outcomes.runs[0][2] is None
        failed = [error is not None for _, _, error in outcomes.runs]
        assert failed == sorted(failed), "a later add of the ledger was taken after a rejection"
        slow.go.set()
        await until_writable(bookie)


async def test_waiting_adds_are_bounded(tmp_path: Path) -> None:
    disk = FaultyDisk()
    options = quick(tmp_path, write_cache_bytes=40_000, throttle_max_s=5.0)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        slow = SlowFlush(disk)
        outcomes = add_by_fives(bookie, 300)
        assert bookie.statistics().rejected_adds > 0
        slow.go.set()
        await outcomes.wait_for(300)


async def test_a_fence_holds_for_adds_that_wait(tmp_path: Path) -> None:
    disk = FaultyDisk()
    options = quick(tmp_path, write_cache_bytes=40_000)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        slow = SlowFlush(disk)
        outcomes = add_by_fives(bookie, 60)
        await bookie.fence(1, KEY)
        before = outcomes.total
        slow.go.set()
        await outcomes.wait_for(60)
        assert {type(error) for error in outcomes.errors} == {LedgerFenced}
        assert sum(count for _, count, error in outcomes.runs if error is None) == before


async def test_directories_are_for_one_process(tmp_path: Path) -> None:
    async with open_bookie(quick(tmp_path)):
        with pytest.raises(DataDirError, match="in use by another process"):
            async with open_bookie(quick(tmp_path)):
                raise AssertionError("it must not open")


async def test_several_journals_and_ledger_directories(tmp_path: Path) -> None:
    options = three_directories(tmp_path)
    async with open_bookie(options) as bookie:
        for ledger_id in range(6):
            await add(bookie, ledger_id, range(20))
    async with open_bookie(options) as bookie:
        for ledger_id in range(6):
            assert await read_all(bookie, ledger_id, 0, 19) == packets(ledger_id, range(20))
