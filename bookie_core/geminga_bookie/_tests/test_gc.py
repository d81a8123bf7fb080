"""Garbage collection and compaction (BK-06)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn, cast

import pytest
import trio

from geminga_bookie._tests.support import (
    add,
    ledgers,
    packets,
    read_all,
    read_lac,
    small_options,
    until,
)
from geminga_bookie.errors import DigestMismatch, NoSuchLedger
from geminga_bookie.host import Host
from geminga_bookie.inprocess import InProcessBookie, open_bookie, open_on_disk
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.options import GcOptions
from geminga_bookie.storage import ledger_maps
from geminga_bookie.storage.gc import LogUse, plan_logs
from geminga_bookie.storage.ledger_directory import Sealed
from geminga_bookie.storage.ledger_maps import LedgerMap
from geminga_bookie.storage.write_cache import WriteCache


def test_plan_removes_dead_logs_and_compacts_sparse_ones() -> None:
    maps = {1: {7: 100}, 2: {7: 80, 8: 20}, 3: {7: 50, 8: 50}, 4: {8: 100}, 5: {}}
    packed = {log_id: LedgerMap.of(sizes) for log_id, sizes in maps.items()}

    def plan(live: set[int], threshold: float) -> tuple[list[int], list[int]]:
        logs = {
            log_id: LogUse(found.total, found.live(live.__contains__))
            for log_id, found in packed.items()
        }
        return plan_logs(logs, threshold)

    assert plan({8}, 0.3) == ([1, 5], [2])
    assert plan({8}, 0.6) == ([1, 5], [2, 3])
    assert plan({8}, 0.0) == ([1, 5], [])
    assert plan({7, 8}, 1.0) == ([5], [])


@pytest.mark.parametrize("maps_bytes", [1 << 20, 40, 0])
async def test_maps_of_logs_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maps_bytes: int
) -> None:
    """Those without room are read again; what is collected is the same."""
    monkeypatch.setattr(ledger_maps, "MAPS_BYTES_MAX", maps_bytes)
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for first in range(0, 12, 2):
            await add(bookie, first, range(10))
            await add(bookie, first + 1, range(10))
            await bookie.checkpointer.checkpoint()
        logs = bookie.storage.stores[0].logs
        await bookie.gc.collect(ledgers(*range(12)))
        assert bookie.gc.maps.memory_bytes == min(maps_bytes // 32, 5) * 32
        assert (await bookie.gc.collect(ledgers(4, 5, 7, 11))).ledgers_deleted == [
            0, 1, 2, 3, 6, 8, 9, 10,
        ]  # fmt: skip
        assert logs.ids() == [3, 4, 6]
        assert bookie.gc.maps.memory_bytes <= min(maps_bytes // 32, 2) * 32


async def test_deleted_ledgers_and_their_logs_go(tmp_path: Path) -> None:
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(10))
        await bookie.checkpointer.checkpoint()
        await add(bookie, 2, range(10))
        await bookie.checkpointer.checkpoint()
        await add(bookie, 3, range(10))
        await bookie.checkpointer.checkpoint()
        logs = bookie.storage.stores[0].logs
        assert logs.ids() == [1, 2, 3]
        report = await bookie.gc.collect(ledgers(2))
        assert report.ledgers_deleted == [1, 3]
        assert logs.ids() == [2, 3]  # the third is still being written
        with pytest.raises(NoSuchLedger):
            await bookie.read(1, 0, entries_max=1, bytes_max=1)
        assert await read_all(bookie, 2, 0, 9) == packets(2, range(10))
    async with open_bookie(options) as port:
        with pytest.raises(NoSuchLedger):
            await port.read(3, 0, entries_max=1, bytes_max=1)
        assert await read_all(port, 2, 0, 9) == packets(2, range(10))


async def test_unflushed_ledgers_are_collected_too(tmp_path: Path) -> None:
    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(10))
        await add(bookie, 2, range(10))
        await bookie.gc.collect(ledgers(2))
        with pytest.raises(NoSuchLedger):
            await bookie.read(1, 0, entries_max=1, bytes_max=1)
        assert bookie.statistics().write_cache_bytes == sum(map(len, packets(2, range(10))))


async def test_a_ledger_made_while_metadata_is_read_stays(tmp_path: Path) -> None:
    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)

        async def live():
            await add(bookie, 5, range(3))
            for ledger_id in ():
                yield ledger_id

        assert (await bookie.gc.collect(live)).ledgers_deleted == []
        assert await read_all(bookie, 5, 0, 2) == packets(5, range(3))


async def test_compaction_keeps_live_entries_and_their_keys(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await add(port, 1, range(200), size=2000)
        await add(port, 2, range(20))
    (old,) = (tmp_path / "ledgers").glob("*.log")
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        report = await bookie.gc.collect(ledgers(2), threshold=0.5)
        assert (report.logs_removed, report.logs_compacted) == (0, 1)
        assert not old.exists()
        assert await read_all(bookie, 2, 0, 19) == packets(2, range(20))
        assert (await bookie.gc.collect(ledgers(2), threshold=0.5)).logs_compacted == 0
    (new,) = (tmp_path / "ledgers").glob("*.log")
    assert new.stat().st_size < 20_000
    async with open_bookie(options) as port:
        assert await read_all(port, 2, 0, 19) == packets(2, range(20))
        assert await read_lac(port, 2) == 18


async def test_a_damaged_entry_stays_an_error_through_compaction(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await add(port, 1, range(50))
        await add(port, 2, range(5))
    (path,) = (tmp_path / "ledgers").glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"2:3|2:3|", b"2:3|2:X|"))
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        assert bookie.gc.scrub() == [(2, 3, 1)]
        assert (await bookie.gc.collect(ledgers(2), threshold=0.9)).logs_compacted == 1
        with pytest.raises(DigestMismatch):
            await bookie.read(2, 3, entries_max=1, bytes_max=1)
        assert await read_all(bookie, 2, 0, 2) == packets(2, range(3))


async def test_a_round_that_fails_holds_up_no_check_of_the_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As each round does while the index of one directory is damaged."""
    async with open_bookie(small_options(tmp_path)) as port:
        await add(port, 2, range(5))
    (path,) = (tmp_path / "ledgers").glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"2:3|2:3|", b"2:3|2:X|"))

    async def away() -> AsyncIterator[int]:
        raise OSError("planted")
        yield 0

    options = small_options(tmp_path, gc=GcOptions(gc_interval_s=0.01, scrub_interval_s=0.0))
    async with open_bookie(options, away):
        await until(lambda: "entry 2:3 in" in caplog.text)
    assert "garbage collection failed: planted" in caplog.text


async def test_a_damaged_entry_with_a_whole_copy_is_no_loss(tmp_path: Path) -> None:
    """As of a flush that a crash tore, and that came again, once the index was rebuilt."""
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 2, range(5))
        await bookie.checkpointer.checkpoint()
        (store,) = bookie.storage.stores
        again, written = WriteCache(), packets(2, range(5))
        again.put(2, 0, written, sum(map(len, written)))
        store.flush(Sealed(again, []))
        copies = list(store.index.find(2, 4))
    (path,) = (tmp_path / "ledgers").glob("*.log")
    for copy, lost in zip(copies, ([], [(2, 4, 1), (2, 4, 1)]), strict=True):
        data = bytearray(path.read_bytes())
        data[copy.offset + copy.size_bytes - 1] ^= 1
        path.write_bytes(data)
        async with open_bookie(options) as port:
            bookie = cast(InProcessBookie, port)
            assert bookie.gc.scrub() == lost
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        bookie.storage.stores[0].index.delete_ledgers([2])
        assert bookie.gc.scrub() == [], "a deleted ledger's are no loss either"


async def test_a_log_that_is_being_read_outlives_its_removal(tmp_path: Path) -> None:
    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(10))
        await bookie.checkpointer.checkpoint()
        store = bookie.storage.stores[0]
        (location,) = store.index.find(1, 0)
        with store.logs.reading(location.log_id) as file:
            store.logs.remove(location.log_id)
            assert len(file.read(location.size_bytes, location.offset)) == location.size_bytes
        with pytest.raises(FileNotFoundError), store.logs.reading(location.log_id):
            raise AssertionError("it must be gone")
        await bookie.gc.collect(ledgers())


async def test_a_stopped_compaction_leaves_everything(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await add(port, 1, range(50))
        await add(port, 2, range(5))
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        bookie.gc.stop()
        report = await bookie.gc.collect(ledgers(2), threshold=0.9)
        assert report.logs_compacted == 0
        assert await read_all(bookie, 2, 0, 4) == packets(2, range(5))
    assert not list((tmp_path / "ledgers").glob("*.compacting"))


async def test_memory_is_collected_too(autojump_clock: trio.testing.MockClock) -> None:
    bookie = MemoryBookie()
    await add(bookie, 1, range(3))
    await add(bookie, 2, range(3))
    with trio.move_on_after(25):
        await bookie.run_gc(ledgers(2), 10.0)
    with pytest.raises(NoSuchLedger):
        await bookie.read(1, 0, entries_max=1, bytes_max=1)
    assert await read_all(bookie, 2, 0, 2) == packets(2, range(3))


async def test_a_check_that_fails_at_the_end_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> NoReturn:
        raise RuntimeError("planted")

    options = small_options(tmp_path)
    with pytest.raises(RuntimeError, match="planted"):
        async with open_on_disk(options, Host()) as bookie:
            monkeypatch.setattr(bookie.gc, "check_damage", fail)
    async with open_bookie(options) as port:
        await add(port, 1, [0])
