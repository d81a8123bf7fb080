"""Cookies and locks (BK-10)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_nodes import Loss
from geminga_bookie._tests.support import add, small_options
from geminga_bookie.errors import DataDirError
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.data_dirs import (
    COOKIE_NAME,
    Cookie,
    DataDirs,
    check_metadata_cookie,
    roles,
)
from geminga_bookie.storage.disk import OsDisk
from geminga_runtime.metadata.api import StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore


def opened(options: BookieOptions) -> DataDirs:
    directories = DataDirs(OsDisk(), options)
    directories.close()
    return directories


def test_an_instance_keeps_its_id(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    first = opened(options)
    again = opened(options)
    assert first.is_new
    assert not again.is_new
    assert first.instance_id == again.instance_id


def test_directories_can_be_moved(tmp_path: Path) -> None:
    first = opened(small_options(tmp_path / "a"))
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert opened(small_options(tmp_path / "b")).instance_id == first.instance_id


def test_no_name_is_relied_on_that_a_loss_of_power_would_take() -> None:
    """A bookie that was killed may have left some in the system's memory only."""
    disk, options = SimDisk(0), small_options(Path("/data/bookie"))
    DataDirs(disk, options).close()
    folders = [directory for _, directory in roles(options)]
    for directory in folders:
        disk.open(directory / "left", create=True).close()
    disk.start_after_kill()
    DataDirs(disk, options).close()
    disk.start_after_power_loss(Loss(0.0, 0.0))
    assert [directory for directory in folders if "left" not in disk.names(directory)] == []


def test_another_bookie_is_refused(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    opened(options)
    with pytest.raises(DataDirError, match="belongs to bookie bookie-1:3181"):
        opened(replace(options, bookie_id="bookie-2:3181"))


def test_an_empty_disk_under_an_old_id_is_refused(tmp_path: Path) -> None:
    options = small_options(tmp_path)
    opened(options)
    (tmp_path / "journal" / "0000000000000001.journal").touch()
    shutil.rmtree(tmp_path / "ledgers")
    with pytest.raises(DataDirError, match="ledgers is empty although"):
        opened(options)


@pytest.mark.parametrize("written", ["journal", "ledgers"])
def test_a_first_start_that_was_killed_is_taken_up_again(tmp_path: Path, written: str) -> None:
    options = small_options(tmp_path)
    first = opened(options)
    for name in {"journal", "ledgers"} - {written}:
        (tmp_path / name / COOKIE_NAME).unlink()
    again = opened(options)
    assert again.is_new
    assert again.instance_id == first.instance_id
    assert not opened(options).is_new


async def test_a_new_bookie_killed_before_metadata_knew_it_is_taken_up_again(
    tmp_path: Path,
) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options):
        pass
    store = MemoryMetadataStore()
    async with open_bookie(options, metadata=store) as bookie:
        await add(bookie, 1, range(3))
    async with open_bookie(options, metadata=store):
        pass
    with pytest.raises(DataDirError, match="doesn't know it"):
        async with open_bookie(options, metadata=MemoryMetadataStore()):
            raise AssertionError("its ledgers would be garbage")
    await store.aclose()


def test_mixed_directories_are_refused(tmp_path: Path) -> None:
    opened(small_options(tmp_path / "a"))
    opened(small_options(tmp_path / "b"))
    mixed = replace(
        small_options(tmp_path / "a"), ledger_dirs=small_options(tmp_path / "b").ledger_dirs
    )
    with pytest.raises(DataDirError, match="different bookies"):
        opened(mixed)
    swapped = replace(
        small_options(tmp_path / "a"),
        journal_dirs=small_options(tmp_path / "a").ledger_dirs,
        ledger_dirs=small_options(tmp_path / "a").journal_dirs,
    )
    with pytest.raises(DataDirError, match="not 'journal 1/1'"):
        opened(swapped)


def test_a_strangers_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "letter.txt").write_text("dear")
    with pytest.raises(DataDirError, match="not a bookie's and not empty"):
        opened(small_options(tmp_path))


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirError, match="is not writable"):
        opened(small_options(tmp_path / "file" / "beneath"))


def test_a_damaged_cookie(tmp_path: Path) -> None:
    opened(small_options(tmp_path))
    (tmp_path / "journal" / COOKIE_NAME).write_bytes(b"\xff\xfe")
    with pytest.raises(DataDirError, match="damaged"):
        opened(small_options(tmp_path))


def test_cookies_come_back() -> None:
    cookie = Cookie("host:3181", "abc", "journal 1/2")
    assert Cookie.decode(cookie.encode(), Path("x")) == cookie


async def test_metadata_remembers_the_bookie() -> None:
    store = MemoryMetadataStore()
    with pytest.raises(DataDirError, match="doesn't know it"):
        await check_metadata_cookie(store, "b:1", "one", is_new=False)
    await check_metadata_cookie(store, "b:1", "one", is_new=True)
    await check_metadata_cookie(store, "b:1", "one", is_new=False)
    with pytest.raises(DataDirError, match="directories are empty"):
        await check_metadata_cookie(store, "b:1", "two", is_new=True)
    with pytest.raises(DataDirError, match="another instance"):
        await check_metadata_cookie(store, "b:1", "two", is_new=False)
    await store.aclose()


def journals(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.journal"))


async def test_a_start_that_is_refused_leaves_no_files(tmp_path: Path) -> None:
    """Its supervisor tries again each second, perhaps for hours."""
    options = small_options(tmp_path)
    store = MemoryMetadataStore()
    async with open_bookie(options, metadata=store):
        pass
    before = journals(tmp_path)
    store.set_available(False)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            async with open_bookie(options, metadata=store):
                pass
    assert journals(tmp_path) == before
