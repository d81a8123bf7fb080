"""A bookie that starts on a full disk: read-only, but able to serve reads (BK-10)."""

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
    damage_tables,
    fill_tables,
    lac_in,
    packets,
    read_all,
    small_options,
    until_writable,
    write_lac,
)
from geminga_bookie.errors import BookieReadOnly, DataDirError
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.options import BookieOptions, DiskOptions
from geminga_bookie.storage import checkpoint
from geminga_bookie.storage.disk import DiskUsage

_MIB = 1024 * 1024
_ROOMY = DiskUsage(1000 * _MIB, 500 * _MIB)
_FULL = DiskUsage(1000 * _MIB, 0)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga_bookie.inprocess.FAILED_RETRY_S", 0.01)
    monkeypatch.setattr(checkpoint, "RETRY_S", 0.01)


def _options(directory: Path) -> BookieOptions:
    disk = DiskOptions(check_interval_s=0.01, ballast_bytes=_MIB)
    return small_options(directory, disk=disk, write_cache_bytes=200_000)


def _ballasts(directory: Path) -> list[int]:
    return [(directory / name / "ballast").stat().st_size for name in ("journal", "ledgers")]


class _FullDisk(FaultyDisk):
    """Only the ballast's space can be written."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.room = _FULL
        self.fault = lambda operation, _path: (
            errno.ENOSPC
            if operation in ("create", "write") and sum(_ballasts(directory)) > 3 * _MIB // 2
            else 0
        )


async def _killed(tmp_path: Path, entries: int) -> BookieOptions:
    """A bookie with unflushed entries, killed."""
    async with open_bookie(_options(tmp_path / "a")) as port:
        for first in range(0, entries, 50):
            await add(port, 1, range(first, first + 50), size=1000)
        copy_files(tmp_path / "a", tmp_path / "b")
    assert _ballasts(tmp_path / "b") == [_MIB, _MIB]
    return _options(tmp_path / "b")


@pytest.mark.parametrize("entries", [50, 400])
async def test_starts_read_only_with_room_from_its_ballast(
    tmp_path: Path, entries: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With 400 entries more is replayed than the write cache takes."""
    options = await _killed(tmp_path, entries)
    caplog.clear()
    disk = _FullDisk(tmp_path / "b")
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        assert bookie.health.error is not None, "before the first add may come"
        with pytest.raises(BookieReadOnly, match="full"):
            await add(bookie, 1, [entries])
        assert await read_all(bookie, 1, 0, entries - 1) == packets(1, range(entries), 1000)
        await trio.sleep(0.2)
        assert caplog.text.count("bookie is read-only") == 1
        assert "ERROR" not in caplog.text
        disk.room = _ROOMY
        disk.heal()
        await until_writable(bookie)
        assert _ballasts(tmp_path / "b") == [_MIB, _MIB]
        await add(bookie, 1, [entries])
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, entries - 1) == packets(1, range(entries), 1000)


async def test_without_ballast_it_says_why_it_can_not_start(tmp_path: Path) -> None:
    options = await _killed(tmp_path, 50)
    disk = _FullDisk(tmp_path / "b")
    disk.fault = lambda operation, _path: errno.ENOSPC if operation == "create" else 0
    with pytest.raises(DataDirError, match="create"):
        async with open_bookie(options, disk=disk):
            raise AssertionError("it must not open")
    assert _ballasts(tmp_path / "b") == [0, 0]
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 49) == packets(1, range(50), 1000)


async def test_recovery_goes_on_while_it_is_read_only(tmp_path: Path) -> None:
    """Without it the open ledgers of a killed broker could not be closed, and so not be read."""
    disk = FaultyDisk()
    options = replace(_options(tmp_path), write_cache_bytes=8 * _MIB)
    async with open_bookie(options, disk=disk) as port:
        await add(port, 1, range(5))
        disk.room = _FULL
        await until_writable(port, False)
        assert lac_in(await port.fence(1, KEY)) == 3
        await add(port, 1, range(3, 6), recovery=True)
        await write_lac(port, 1, 5)
        with pytest.raises(BookieReadOnly):
            await add(port, 2, [0])
        assert await read_all(port, 1, 0, 5) == packets(1, range(6))


@pytest.mark.slow
async def test_an_index_gives_way_on_a_full_disk(tmp_path: Path) -> None:
    """Of damage that is met behind the opening: the ballast was not asked for there."""
    options = _options(tmp_path)
    await fill_tables(options)
    damage_tables(tmp_path / "ledgers" / "index", upto=-4000)
    disk = FaultyDisk()
    disk.fault = lambda _operation, path: (
        errno.ENOSPC
        if path.name == "index.damaged" and sum(_ballasts(tmp_path)) > 3 * _MIB // 2
        else 0
    )
    async with open_bookie(options, disk=disk) as port:
        assert await read_all(port, 399, 0, 1) == packets(399, range(2))
    assert (tmp_path / "ledgers" / "index.damaged").exists()
