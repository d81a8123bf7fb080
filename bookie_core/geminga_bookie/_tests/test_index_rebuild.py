"""A rebuild of the index that is killed (BK-04), and collection under an index that misses ledgers
(BK-06)."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest
import trio

from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_nodes import Loss
from geminga_bookie._tests.sim_stores import SimStores
from geminga_bookie._tests.support import (
    KEY,
    BadSector,
    FaultyDisk,
    add,
    copy_files,
    ledgers,
    packets,
    read_all,
    read_lac,
    small_options,
)
from geminga_bookie.errors import DataDirError, LedgerFenced, UnauthorizedAccess
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.offline import OfflineBookie
from geminga_bookie.port import BookiePort
from geminga_bookie.storage.disk import DiskFile, OsDisk, replace_file
from geminga_bookie.storage.entry_logs import index_rebuild
from geminga_bookie.storage.entry_logs.index_rebuild import order_rebuild, put_aside
from geminga_bookie.storage.location_index import LedgerRecord, Location, LocationIndex

LEDGERS = (1, 2, 3)


async def _fill(directory: Path) -> None:
    """Three logs; ledger 2 is fenced, ledger 3 is fenced and has no entries."""
    async with open_bookie(small_options(directory, entry_log_bytes_max=1)) as port:
        bookie = cast(InProcessBookie, port)
        for first in (0, 10, 20):
            await add(bookie, 1, range(first, first + 10))
            await add(bookie, 2, range(first, first + 10))
            await bookie.checkpointer.checkpoint()
        await bookie.fence(2, KEY)
        await bookie.fence(3, KEY)


async def _check(port: BookiePort) -> None:
    for ledger_id in (1, 2):
        assert await read_all(port, ledger_id, 0, 29) == packets(ledger_id, range(30))
    assert await read_lac(port, 1) == 28
    for ledger_id in (2, 3):
        with pytest.raises(LedgerFenced):
            await add(port, ledger_id, [30])
    with pytest.raises(UnauthorizedAccess):
        await add(port, 1, [30], key=b"x")


async def test_a_rebuild_killed_before_any_batch_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(tmp_path / "a")
    shutil.rmtree(tmp_path / "a" / "ledgers" / "index")
    killed: list[Path] = []
    written: list[int] = []
    write = LocationIndex.write

    def kill_before(
        self: LocationIndex,
        locations: Iterable[Location] = (),
        records: Iterable[LedgerRecord] = (),
        removed: Iterable[Location] = (),
        **more: bool,
    ) -> None:
        target = tmp_path / f"killed-{len(killed)}"
        copy_files(tmp_path / "a", target)
        killed.append(target)
        locations = list(locations)
        written.append(len(locations))
        write(self, locations, records, removed, **more)

    monkeypatch.setattr(index_rebuild, "BATCH_BLOCKS_MAX", 1)
    monkeypatch.setattr(LocationIndex, "write", kill_before)
    async with open_bookie(small_options(tmp_path / "a")) as port:
        monkeypatch.undo()
        await _check(port)
    assert max(written) == 1
    assert len(killed) >= 7, "six blocks are six batches, and one more ends the rebuild"
    for directory in killed:
        with pytest.raises(DataDirError, match="rebuilt"):
            OfflineBookie(small_options(directory))
        async with open_bookie(small_options(directory)) as port:
            bookie = cast(InProcessBookie, port)
            await _check(bookie)
            logs = bookie.storage.stores[0].logs.ids()
            assert (await bookie.gc.collect(ledgers(*LEDGERS))).logs_removed == 0
            assert bookie.storage.stores[0].logs.ids() == logs


async def test_an_index_that_misses_a_ledger_stays_while_a_log_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Starts would not succeed without it. Nothing is compacted meanwhile, also not once something
    of the ledger is in the index again; and what only the index knows is there to the end.
    """
    await _fill(tmp_path)
    options = small_options(tmp_path)
    disk = BadSector((tmp_path / "ledgers" / "00000001.log").stat().st_size - 1)
    mark = tmp_path / "ledgers" / "index.unsound"
    for number in range(3):
        async with open_bookie(options, disk=disk) as port:
            bookie = cast(InProcessBookie, port)
            (store,) = bookie.storage.stores
            with pytest.raises(LedgerFenced):
                await add(bookie, 3, [0])
            if not number:
                record = store.index.ledger(3)
                assert record is not None
                store.index.write(records=[record._replace(limbo=True)])
                store.index.delete_ledgers([1])
                bookie.storage.table.states.clear()
            before = store.logs.ids()
            await bookie.gc.collect(ledgers(1, 3), threshold=0.99)
            assert ("misses ledger 1" in caplog.text) == (not number), "it is said once"
            await bookie.fence(1, KEY)
            await bookie.checkpointer.checkpoint()
            await bookie.gc.collect(ledgers(1, 3), threshold=0.99)
            assert set(before) <= set(store.logs.ids())
            assert store.index.is_complete()
        caplog.clear()
        assert mark.exists()
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 29) == packets(1, range(30))
        record = cast(InProcessBookie, port).storage.stores[0].index.ledger(3)
        assert record is not None
        assert record.limbo
    assert not mark.exists()
    assert not mark.with_name("index.damaged").exists()


@pytest.mark.parametrize("ends", [False, True])
async def test_an_order_to_rebuild_that_fails_is_given_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ends: bool
) -> None:
    """By the next round, or by the bookie's end. Meanwhile nothing is compacted, also not once
    something of the ledger is in the index.
    """
    await _fill(tmp_path)
    disk = FaultyDisk()
    async with open_bookie(small_options(tmp_path), disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        (store,) = bookie.storage.stores
        store.index.delete_ledgers([1])
        bookie.storage.table.states.clear()
        before = store.logs.ids()
        disk.fail("create", "index.unsound.tmp", errno.ENOSPC)
        await bookie.gc.collect(ledgers(1, 3), threshold=0.99)
        assert "the order to rebuild an index failed" in caplog.text
        await bookie.fence(1, KEY)
        await bookie.checkpointer.checkpoint()
        disk.heal()
        if not ends:
            await bookie.gc.collect(ledgers(1, 3), threshold=0.99)
        assert set(before) <= set(store.logs.ids())
    async with open_bookie(small_options(tmp_path)) as port:
        assert await read_all(port, 1, 0, 29) == packets(1, range(30))


async def test_a_full_disk_that_takes_no_order_is_made_room_on(tmp_path: Path) -> None:
    """Logs of deleted ledgers go, though the index that misses a ledger can't be marked."""
    await _fill(tmp_path)
    disk = FaultyDisk()
    async with open_bookie(small_options(tmp_path, entry_log_bytes_max=1), disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        (store,) = bookie.storage.stores
        for ledger_id in (9, 10):  # in a log of its own each
            await add(bookie, ledger_id, range(10))
            await bookie.checkpointer.checkpoint()
        store.index.delete_ledgers([1])
        bookie.storage.table.states.clear()
        disk.fail("create", "index.unsound.tmp", errno.ENOSPC)
        report = await bookie.gc.collect(ledgers(1, 10))
        assert report.logs_removed
        disk.heal()
    async with open_bookie(small_options(tmp_path)) as port:
        assert await read_all(port, 1, 0, 29) == packets(1, range(30))


async def test_a_log_of_a_ledger_that_metadata_knows_is_never_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The index misses ledger 1: its logs stay, and the next start rebuilds the index."""
    await _fill(tmp_path)
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        (store,) = bookie.storage.stores
        store.index.delete_ledgers([1, 2])
        bookie.storage.table.states.clear()
        before = store.logs.ids()
        report = await bookie.gc.collect(ledgers(1, 3), threshold=0.99)
        assert (report.logs_removed, report.logs_compacted) == (0, 0)
        assert set(before) <= set(store.logs.ids())
        assert "the index misses ledger" in caplog.text
        caplog.clear()
        await bookie.gc.collect(ledgers(1, 3))
        assert "the index misses ledger" not in caplog.text, "it is said once"
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 29) == packets(1, range(30))
        bookie = cast(InProcessBookie, port)
        await bookie.gc.collect(ledgers(1, 3))
        assert await read_all(port, 1, 0, 29) == packets(1, range(30))
        report = await bookie.gc.collect(ledgers())
        assert report.logs_removed > 0


async def test_a_log_with_a_fence_only_is_not_removed(tmp_path: Path) -> None:
    """Without the record in the log, a rebuilt index would not know the fence."""
    copy = tmp_path / "b"
    async with open_bookie(small_options(tmp_path / "a")) as port:
        bookie = cast(InProcessBookie, port)
        await bookie.fence(5, KEY)
        await bookie.checkpointer.checkpoint()
        copy_files(tmp_path / "a", copy)  # killed: the log has no ledger map
    async with open_bookie(small_options(copy)) as port:
        bookie = cast(InProcessBookie, port)
        assert (await bookie.gc.collect(ledgers(5))).logs_removed == 0
    shutil.rmtree(copy / "ledgers" / "index")
    for path in (copy / "journal").glob("*"):
        if path.suffix == ".journal":
            path.unlink()
    async with open_bookie(small_options(copy)) as port:
        with pytest.raises(LedgerFenced), trio.fail_after(30):
            await add(port, 5, [0])


async def test_a_log_with_unreadable_blocks_is_kept(tmp_path: Path) -> None:
    """The ledgers of its damaged blocks are unknown."""
    copy = tmp_path / "b"
    async with open_bookie(small_options(tmp_path / "a")) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(5))
        await add(bookie, 2, range(5))
        await bookie.checkpointer.checkpoint()
        copy_files(tmp_path / "a", copy)
    (path,) = (copy / "ledgers").glob("*.log")
    data = path.read_bytes()
    start = data.rindex(data[8192:8196], 0, data.index(b"1:0|"))
    path.write_bytes(data[:start] + b"KLBG" + data[start + 4 :])
    async with open_bookie(small_options(copy)) as port:
        bookie = cast(InProcessBookie, port)
        await bookie.gc.collect(ledgers(1), threshold=0.99)
        assert path.exists()
        await bookie.gc.collect(ledgers())
        assert not path.exists(), "with no ledger left there is nothing to keep"


def test_the_marks_removal_is_durable() -> None:
    """Else a loss of power brings it back, and the next start puts a sound index aside."""
    directory = Path("/ledgers")
    disk = SimDisk(0)
    disk.make_directory(directory)
    disk.sync_directory(directory.parent)
    SimStores(disk).open(directory / "index")
    replace_file(disk, directory / "index.unsound", b"")
    put_aside(disk, directory / "index", "a test")
    disk.root.lose(Loss(0.0, 0.0), disk.chance)
    assert disk.names(directory) == ["index.damaged"]


async def test_a_mark_that_cannot_be_read_is_not_guessed(tmp_path: Path) -> None:
    """Put aside would be what no log has: here that a ledger is fenced."""
    await _fill(tmp_path)
    options = small_options(tmp_path)

    class Unread(OsDisk):
        def open(
            self, path: Path, *, create: bool = False, writable: bool = True, direct: bool = False
        ) -> DiskFile:
            if path.name == "index.unsound":
                raise OSError(errno.EIO, "Input/output error", str(path))
            return super().open(path, create=create, writable=writable, direct=direct)

    order_rebuild(OsDisk(), tmp_path / "ledgers" / "index")
    with pytest.raises(DataDirError, match=r"index\.unsound"):
        async with open_bookie(options, disk=Unread()):
            raise AssertionError("it can't begin")
    async with open_bookie(options) as port:
        await _check(port)
    assert not any(each.suffix for each in (tmp_path / "ledgers").glob("index*"))
