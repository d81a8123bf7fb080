"""Ledgers in doubt on a bookie whose ledgers have copies elsewhere (BK-02, BK-07): they answer
"unknown" and take no ordinary adds."""

from __future__ import annotations

import errno
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from geminga_bookie._tests.support import (
    KEY,
    FaultyDisk,
    add,
    copy_files,
    lac_in,
    ledgers,
    packets,
    read_all,
    small_options,
)
from geminga_bookie.errors import (
    BookkeeperError,
    DataDirError,
    LedgerFenced,
    NoSuchEntry,
    UnknownLedgerState,
)
from geminga_bookie.host import Host
from geminga_bookie.inprocess import open_bookie, open_on_disk
from geminga_bookie.options import BookieOptions, JournalOptions
from geminga_bookie.port import BookiePort

UNSYNCED = JournalOptions(sync_data=False, segment_bytes=262144, first_segment_bytes=65536)


async def in_doubt(tmp_path: Path) -> BookieOptions:
    """A bookie without synced journal that was killed; ledger 1 is flushed, 2 in the journal."""
    options = replace(small_options(tmp_path / "a", journal=UNSYNCED), replicas_elsewhere=True)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(5))
    async with open_bookie(options) as bookie:
        await add(bookie, 2, range(5))
        copy_files(tmp_path / "a", tmp_path / "b")
    return replace(small_options(tmp_path / "b"), replicas_elsewhere=True)


async def refused(bookie: BookiePort, ledger_id: int, first: int) -> type[BookkeeperError] | None:
    try:
        await add(bookie, ledger_id, [first])
    except BookkeeperError as error:
        return type(error)
    return None


async def test_a_ledger_in_doubt_takes_recovery_adds_only(tmp_path: Path) -> None:
    options = await in_doubt(tmp_path)
    for _ in range(3):
        async with open_bookie(options) as bookie:
            for ledger_id in (1, 2, 99):
                assert await refused(bookie, ledger_id, 5) is LedgerFenced
                with pytest.raises(UnknownLedgerState):
                    await bookie.read(ledger_id, 5, entries_max=1, bytes_max=1)
            assert await read_all(bookie, 1, 0, 4) == packets(1, range(5))
            assert await read_all(bookie, 2, 0, 4) == packets(2, range(5))
    async with open_bookie(options) as bookie:
        await add(bookie, 1, [5], recovery=True)
        assert await read_all(bookie, 1, 0, 5) == packets(1, range(6))


async def test_a_ledger_first_heard_of_in_doubt_stays_so_after_a_kill(tmp_path: Path) -> None:
    options = await in_doubt(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 50, range(3), recovery=True)
        copy_files(tmp_path / "b", tmp_path / "c")
    killed = replace(small_options(tmp_path / "c"), replicas_elsewhere=True)
    async with open_bookie(killed) as bookie:
        with pytest.raises(UnknownLedgerState):
            await bookie.read(50, 3, entries_max=1, bytes_max=1)
        assert await refused(bookie, 50, 3) is LedgerFenced


async def test_new_ledgers_are_not_in_doubt_nor_after_another_start(tmp_path: Path) -> None:
    options = await in_doubt(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 50, [0])
    for first in (1, 2):
        async with open_bookie(options) as bookie:
            assert await refused(bookie, 50, first) is None
            with pytest.raises(NoSuchEntry):
                await bookie.read(50, 9, entries_max=1, bytes_max=1)


async def test_a_ledger_that_metadata_knew_may_have_been_fenced(tmp_path: Path) -> None:
    """Its fence, the only thing that this bookie had of it, was lost."""
    options = await in_doubt(tmp_path)
    async with open_bookie(options, ledgers(1, 2, 7)) as bookie:
        assert await refused(bookie, 7, 0) is LedgerFenced
        assert await refused(bookie, 8, 0) is None


async def test_a_sole_copy_is_never_in_doubt(tmp_path: Path) -> None:
    options = replace(await in_doubt(tmp_path), replicas_elsewhere=False)
    async with open_bookie(options) as bookie:
        assert await refused(bookie, 1, 5) is None
        with pytest.raises(NoSuchEntry):
            await bookie.read(1, 6, entries_max=1, bytes_max=1)


@pytest.mark.parametrize("step", ["rename limbo", "write index", "remove unsynced"])
async def test_a_start_that_is_killed_leaves_the_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whatever comes first, what told of the doubt goes last."""
    options = await in_doubt(tmp_path)
    disk = FaultyDisk()
    with monkeypatch.context() as patch:
        if step == "write index":

            def fail(*_: object, **__: object) -> None:
                raise OSError(errno.EIO, "injected")

            patch.setattr("geminga_bookie.storage.location_index.LocationIndex.write", fail)
        else:
            operation, name = step.split()
            disk.fault = lambda done, path: (
                errno.EIO if (done, path.name) == (operation, name) else 0
            )
        with pytest.raises(DataDirError):
            async with open_bookie(options, disk=disk):
                raise AssertionError("it must not open")
    async with open_bookie(options) as bookie:
        assert await refused(bookie, 1, 5) is LedgerFenced
        assert await refused(bookie, 2, 5) is LedgerFenced


async def test_a_lost_index_leaves_the_doubt(tmp_path: Path) -> None:
    options = await in_doubt(tmp_path)
    async with open_bookie(options):
        pass
    shutil.rmtree(tmp_path / "b" / "ledgers" / "index")
    async with open_bookie(options) as bookie:
        for ledger_id in (1, 2):
            assert await refused(bookie, ledger_id, 5) is LedgerFenced
            with pytest.raises(UnknownLedgerState):
                await bookie.read(ledger_id, 5, entries_max=1, bytes_max=1)


async def test_metadata_that_are_away_keep_a_bookie_in_doubt_from_starting(tmp_path: Path) -> None:
    options = await in_doubt(tmp_path)

    async def away() -> AsyncIterator[int]:
        raise ConnectionError("away")
        yield 0

    with pytest.raises(ConnectionError):
        async with open_bookie(options, away):
            raise AssertionError("it must not open")
    async with open_bookie(options, ledgers(1, 2)) as bookie:
        with pytest.raises(UnknownLedgerState):
            await bookie.read(1, 5, entries_max=1, bytes_max=1)
        assert lac_in(await bookie.fence(1, KEY)) == 3


@pytest.mark.parametrize("refused_by", ["identity", "journal"])
async def test_a_refused_start_without_syncing_leaves_no_doubt(
    tmp_path: Path, refused_by: str
) -> None:
    options = replace(small_options(tmp_path, journal=UNSYNCED), replicas_elsewhere=True)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, range(5))
    disk = FaultyDisk()
    if refused_by == "journal":
        disk.fault = lambda _, path: errno.EIO if path.name == "next.tmp" else 0

    async def refuse(_instance_id: str, _is_new: bool, _in_doubt: bool) -> None:
        if refused_by == "identity":
            raise DataDirError("not this one")

    for _ in range(2):
        with pytest.raises(DataDirError):
            async with open_on_disk(options, Host(disk), check_identity=refuse):
                raise AssertionError("it must not open")
    async with open_bookie(options) as bookie:
        assert await refused(bookie, 1, 5) is None
        with pytest.raises(NoSuchEntry):
            await bookie.read(1, 6, entries_max=1, bytes_max=1)
