"""One full or failing directory of several: new ledgers go to the others (BK-10)."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import trio

from geminga_bookie._tests.support import (
    KEY,
    FaultyDisk,
    add,
    copy_files,
    fail_directory,
    ledgers,
    packets,
    read_all,
    three_directories,
    until,
)
from geminga_bookie.errors import (
    BookieReadOnly,
    LedgerFenced,
    NoSuchLedger,
    StorageFailed,
    UnauthorizedAccess,
)
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.offline import OfflineBookie
from geminga_bookie.options import BookieOptions, DiskOptions
from geminga_bookie.port import BookiePort
from geminga_bookie.storage import checkpoint
from geminga_bookie.storage.disk import DiskUsage


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga_bookie.inprocess.FAILED_RETRY_S", 0.01)
    monkeypatch.setattr(checkpoint, "RETRY_S", 0.01)


class _Disk(FaultyDisk):
    """Directories of these names are full."""

    def __init__(self) -> None:
        super().__init__()
        self.full: set[str] = set()

    def usage(self, directory: Path) -> DiskUsage:
        return DiskUsage(1000 << 20, (40 if directory.name in self.full else 900) << 20)


def _options(directory: Path, **changes: object) -> BookieOptions:
    disk = DiskOptions(check_interval_s=0.01, ballast_bytes=0)
    return three_directories(directory, disk=disk, write_cache_bytes=400_000, **changes)


async def _until(disk: _Disk, port: BookiePort, *names: str) -> InProcessBookie:
    """Fill those directories and wait until the bookie has seen it."""
    bookie = cast(InProcessBookie, port)
    disk.full = set(names)
    journals = {int(name[1]) - 1 for name in names if name[0] == "j"}
    stores = {int(name[1]) - 1 for name in names if name[0] in "li"}
    refusals = bookie.health.refusals
    await until(lambda: (set(refusals.journals), set(refusals.stores)) == (journals, stores))
    return bookie


async def test_new_ledgers_go_to_directories_with_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = _Disk()
    options = _options(tmp_path / "a")
    async with open_bookie(options, disk=disk) as port:
        for ledger_id in range(6):
            await add(port, ledger_id, range(20))
        bookie = await _until(disk, port, "l1", "j2")
        assert bookie.health.error is None, "the others take writes"
        for ledger_id in range(6):  # of l1, or of j2
            if ledger_id % 3 == 0 or ledger_id % 2 == 1:
                with pytest.raises(BookieReadOnly, match="full"):
                    await add(bookie, ledger_id, range(20, 25))
            else:
                await add(bookie, ledger_id, range(20, 25))
        for ledger_id in range(6, 12):
            await add(bookie, ledger_id, range(20))
        await bookie.fence(9, KEY)
        assert await read_all(bookie, 0, 0, 19) == packets(0, range(20))
        await bookie.checkpointer.checkpoint()
        for ledger_id in range(6, 12):
            await add(bookie, ledger_id, range(20, 25), recovery=True)
        copy_files(tmp_path / "a", tmp_path / "b")
        await _until(disk, port)
        assert caplog.text.count("l1 is read-only, others are writable") == 1
        assert caplog.text.count("l1 is writable again") == 1
        await add(bookie, 0, range(20, 25))
        await add(bookie, 6, range(25, 30), recovery=True)
    for directory, last in ((tmp_path / "a", 29), (tmp_path / "b", 24)):
        offline = OfflineBookie(_options(directory))
        assert offline.entry_ids(9) == list(range(25))
        offline.close()
        async with open_bookie(_options(directory)) as port:
            bookie = cast(InProcessBookie, port)
            for ledger_id in range(6, 12):
                end = last if ledger_id == 6 else 24
                assert await read_all(bookie, ledger_id, 0, end) == packets(
                    ledger_id, range(end + 1)
                )
                assert await bookie.list_entries(ledger_id) == list(range(end + 1))
            with pytest.raises(LedgerFenced):
                await add(bookie, 9, [25])
            with pytest.raises(UnauthorizedAccess):
                await add(bookie, 6, [30], key=b"x")
            report = await bookie.gc.collect(ledgers(6, 7))
            assert report.ledgers_deleted == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]
            assert await read_all(bookie, 6, 0, 24) == packets(6, range(25))
            with pytest.raises(NoSuchLedger):
                await bookie.read(9, 0, entries_max=1, bytes_max=1)


async def test_read_only_when_none_of_a_kind_is_left(tmp_path: Path) -> None:
    disk = _Disk()
    async with open_bookie(_options(tmp_path), disk=disk) as port:
        assert (await port.info()).read_only == ""
        bookie = await _until(disk, port, "l1", "i2", "l3")
        assert isinstance(bookie.health.error, BookieReadOnly)
        assert "full" in (await port.info()).read_only
        with pytest.raises(BookieReadOnly):
            await add(bookie, 50, [0])
        await _until(disk, port, "l1", "i2")
        assert bookie.health.error is None
        assert (await port.info()).read_only == ""
        await add(bookie, 51, [0])
        await _until(disk, port, "j1", "j2")
        assert isinstance(bookie.health.error, BookieReadOnly)


async def test_read_only_as_soon_as_one_is_full(tmp_path: Path) -> None:
    """With `readOnlyModeOnAnyDiskFullEnabled`; who asks is told of both changes."""
    disk = _Disk()
    options = _options(tmp_path)
    options = replace(options, disk=replace(options.disk, any_full=True))
    async with open_bookie(options, disk=disk) as port:
        modes: list[bool] = []
        health = cast(InProcessBookie, port).health
        health.on_change = lambda: modes.append(health.error is None)
        bookie = await _until(disk, port, "l3")
        assert isinstance(bookie.health.error, BookieReadOnly)
        await _until(disk, port)
        assert modes == [False, True]


async def test_its_room_is_that_of_each_file_system_once(tmp_path: Path) -> None:
    """Of the ledger directories; the journals' don't count."""

    class Disk(_Disk):
        def usage(self, directory: Path) -> DiskUsage:
            device = {"l1": 1, "l2": 1, "l3": 2}.get(directory.name, 3)
            return DiskUsage(900 << 20, 500 << 20, device, 1000 << 20)

    async with open_bookie(_options(tmp_path), disk=Disk()) as port:
        assert await port.info() == (2000 << 20, 1000 << 20, "")


async def test_a_directory_that_can_not_be_flushed_does_not_hold_up_the_others(
    tmp_path: Path,
) -> None:
    """Many times the write cache goes to the others; after a kill, all of it is there."""
    disk = _Disk()
    async with open_bookie(_options(tmp_path / "a"), disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 0, range(20))
        fail_directory(disk, "l1")
        bookie.checkpointer.seal()
        await until(lambda: bookie.health.refusals.stores)
        assert bookie.health.error is None
        with pytest.raises(BookieReadOnly, match="flush failed"):
            await add(bookie, 0, [20])
        with trio.fail_after(60):
            for first in range(0, 2000, 50):
                await add(bookie, 3, range(first, first + 50), size=1000)
                await add(bookie, 1, range(first, first + 50), size=1000)
        await add(bookie, 0, range(18, 22), recovery=True)
        assert await read_all(bookie, 0, 0, 21) == packets(0, range(22))
        copy_files(tmp_path / "a", tmp_path / "b")
        disk.heal()
        await until(lambda: not bookie.health.refusals.stores)
        await add(bookie, 0, [22])
        await bookie.checkpointer.checkpoint()
    for directory, last in ((tmp_path / "a", 22), (tmp_path / "b", 21)):
        async with open_bookie(_options(directory)) as port:
            assert await read_all(port, 0, 0, last) == packets(0, range(last + 1))
            for ledger_id in (1, 3):
                assert await read_all(port, ledger_id, 0, 1999) == packets(
                    ledger_id, range(2000), 1000
                )


async def test_a_journal_that_fails_does_not_stop_the_other(tmp_path: Path) -> None:
    disk = _Disk()
    async with open_bookie(_options(tmp_path), disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 0, range(5))
        await add(bookie, 1, range(5))
        disk.fault = lambda operation, path: (
            errno.EIO if path.parent.name == "j1" and operation != "remove" else 0
        )
        with pytest.raises(StorageFailed, match="journal"):
            await add(bookie, 0, [5])
        with pytest.raises(BookieReadOnly):
            await add(bookie, 0, [5])
        await add(bookie, 1, range(5, 10))
        await add(bookie, 2, range(5))  # its id names the journal that failed
        disk.heal()
        await until(lambda: not bookie.health.refusals.journals)
        await add(bookie, 0, [5])
    async with open_bookie(_options(tmp_path)) as port:
        assert await read_all(port, 1, 0, 9) == packets(1, range(10))
        assert await read_all(port, 2, 0, 4) == packets(2, range(5))
        assert await read_all(port, 0, 0, 4) == packets(0, range(5))
