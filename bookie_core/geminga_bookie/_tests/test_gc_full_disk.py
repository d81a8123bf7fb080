"""Deleting topics frees a full disk, although nothing can be flushed there (BK-06, BK-10)."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import cast

import pytest
import trio

from geminga_bookie._tests.support import (
    FaultyDisk,
    add,
    ledgers,
    packets,
    read_all,
    small_options,
    until_writable,
)
from geminga_bookie.errors import NoSuchLedger
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.storage import checkpoint
from geminga_bookie.storage.location_index import IndexFailed, LocationIndex


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga_bookie.inprocess.FAILED_RETRY_S", 0.01)
    monkeypatch.setattr(checkpoint, "RETRY_S", 0.01)


async def _fill(bookie: InProcessBookie, disk: FaultyDisk) -> None:
    """Two logs, a ledger in each; then the disk is full and a flush of both waits."""
    for ledger_id in (1, 2):
        await add(bookie, ledger_id, range(10))
        await bookie.checkpointer.checkpoint()
    disk.fault = lambda operation, path: (
        errno.ENOSPC if operation != "remove" and path.name.endswith(".log") else 0
    )
    for ledger_id in (1, 2):
        await add(bookie, ledger_id, range(10, 20))
    assert bookie.checkpointer.seal()
    await until_writable(bookie, False)


async def test_collection_does_not_wait_for_the_flush(tmp_path: Path) -> None:
    disk = FaultyDisk()
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        await _fill(bookie, disk)
        with trio.fail_after(60):
            report = await bookie.gc.collect(ledgers(2))
        assert (report.ledgers_deleted, report.logs_removed) == ([1], 1)
        assert bookie.health.error is not None, "the flush has not succeeded"
        with pytest.raises(NoSuchLedger):
            await bookie.read(1, 10, entries_max=1, bytes_max=1)
        assert await read_all(bookie, 2, 0, 19) == packets(2, range(20))
        disk.heal()
        await until_writable(bookie)
        with pytest.raises(NoSuchLedger):
            await bookie.read(1, 10, entries_max=1, bytes_max=1)
    async with open_bookie(options) as port:
        assert await read_all(port, 2, 0, 19) == packets(2, range(20))
        with pytest.raises(NoSuchLedger):
            await port.read(1, 10, entries_max=1, bytes_max=1)


async def test_logs_go_although_the_index_can_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyDisk()
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        await _fill(bookie, disk)

        def full(_index: LocationIndex, _ids: list[int]) -> None:
            raise IndexFailed("no space left")

        monkeypatch.setattr(LocationIndex, "delete_ledgers", full)
        with trio.fail_after(60), pytest.raises(OSError, match="no space"):
            await bookie.gc.collect(ledgers(2))
        assert bookie.storage.stores[0].logs.ids() == [2]
        monkeypatch.undo()
        disk.heal()
        with trio.fail_after(60):
            report = await bookie.gc.collect(ledgers(2))
        assert report.ledgers_deleted == [1]
        with pytest.raises(NoSuchLedger):
            await bookie.read(1, 0, entries_max=1, bytes_max=1)
        assert await read_all(bookie, 2, 0, 19) == packets(2, range(20))
