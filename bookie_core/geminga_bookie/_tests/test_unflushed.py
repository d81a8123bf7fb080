"""Unflushed data is neither lost nor overtaken."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import (
    KEY,
    OTHER_KEY,
    FaultyDisk,
    SlowFlush,
    add,
    add_by_fives,
    copy_files,
    fail_directory,
    packets,
    read_all,
    small_options,
    three_directories,
    until,
)
from geminga_bookie.errors import LedgerFenced, UnauthorizedAccess
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.storage import checkpoint, ledger_table


async def test_a_fence_that_is_not_flushed_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many ledgers were fenced during a flush, after which some are forgotten to make room."""
    monkeypatch.setattr(ledger_table, "STATES_BYTES_MAX", 2 * ledger_table.STATE_BYTES)
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for ledger_id in range(6):
            await add(port, ledger_id, range(3))
        await bookie.checkpointer.checkpoint()
        for ledger_id in range(5):
            await port.fence(ledger_id, KEY)
        bookie.storage.table.trim()
        assert len(bookie.storage.table.states) == 5, "only the one that is on disk is forgotten"
    async with open_bookie(options) as port:
        for ledger_id in range(5):
            with pytest.raises(LedgerFenced):
                await add(port, ledger_id, [3])
        await add(port, 5, [3])


async def test_a_refusal_waits_behind_adds_that_wait_for_room(tmp_path: Path) -> None:
    """A writer takes answers in order: one that comes too early fails all that wait."""
    disk = FaultyDisk()
    options = small_options(tmp_path, write_cache_bytes=40_000)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        slow = SlowFlush(disk)
        outcomes = add_by_fives(bookie, 60)
        assert bookie.statistics().throttled_adds > 0
        bookie.add(1, OTHER_KEY, 60, packets(1, [60]), outcomes)
        slow.go.set()
        await outcomes.wait_for(61)
        *taken, refused = outcomes.runs
        assert [error for _, _, error in taken if error is not None] == []
        assert refused[0] == 60
        assert isinstance(refused[2], UnauthorizedAccess)


async def test_marks_wait_for_what_came_since_a_flush_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half that failed is flushed at last; what its directory got meanwhile is not, so that a
    kill must find it in the journal.
    """
    monkeypatch.setattr(checkpoint, "RETRY_S", 0.01)
    disk = FaultyDisk()
    async with open_bookie(three_directories(tmp_path / "a"), disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        await add(port, 0, range(20))
        fail_directory(disk, "l1")
        bookie.checkpointer.seal()
        await until(lambda: bookie.health.refusals.stores)
        await add(port, 0, range(20, 25), recovery=True)
        await until(bookie.checkpointer.seal)  # the other halves
        disk.heal()
        await until(lambda: not bookie.health.refusals.stores)
        copy_files(tmp_path / "a", tmp_path / "b")
    async with open_bookie(three_directories(tmp_path / "b")) as port:
        assert await read_all(port, 0, 0, 24) == packets(0, range(25))
