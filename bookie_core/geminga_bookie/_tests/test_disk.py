from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from geminga_bookie.storage import disk
from geminga_bookie.storage.disk import IOV_MAX, OsDisk


@pytest.mark.parametrize("way", ["whole", "short", "refused", "many"])
def test_write_durably(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short writes, kernels without the flag and long lists end in fdatasync; none is lost."""
    synced: list[int] = []
    real_write, real_sync = os.pwritev, os.fdatasync

    def pwritev(fd: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
        if flags and way == "short":
            return real_write(fd, [b"".join(buffers)[:3]], offset)
        if flags and way == "refused":
            raise OSError(errno.EOPNOTSUPP, "no such flag")
        return real_write(fd, buffers, offset, flags)

    def fdatasync(fd: int) -> None:
        synced.append(fd)
        real_sync(fd)

    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    file = OsDisk().open(tmp_path / "f", create=True)
    parts = [b"ab", b"", b"cdef"] * (IOV_MAX if way == "many" else 1)
    file.write_durably(parts, 2)
    file.close()
    assert (tmp_path / "f").read_bytes() == b"\0\0" + b"".join(parts)
    assert bool(synced) == (way != "whole" or not hasattr(os, "RWF_DSYNC"))


def test_write_durably_tells_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    file = OsDisk().open(tmp_path / "f", create=True)
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="full"):
        file.write_durably([b"x"], 0)
    file.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_room_is_reserved_by_zeros_where_there_is_no_call_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(*_arguments: object) -> None:
        raise OSError(code, "not here")

    monkeypatch.setattr(disk, "_RESERVE", refused)
    file = OsDisk().open(tmp_path / "f", create=True)
    file.reserve(600_001)
    assert file.size() == 600_001
    assert file.read(600_001, 0) == bytes(600_001)
    file.close()


def test_a_full_disk_reserves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(disk, "_RESERVE", full)
    file = OsDisk().open(tmp_path / "f", create=True)
    with pytest.raises(OSError, match="full"):
        file.reserve(1000)
    file.close()


def test_a_sync_is_one_of_that_file_or_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []
    inode = os.stat(tmp_path).st_ino
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(
            os, name, lambda fd, name=name: synced.append((name, os.fstat(fd).st_ino))
        )
    system = OsDisk()
    system.sync_directory(tmp_path)
    assert synced == [("fsync", inode)]
    file = system.open(tmp_path / "f", create=True)
    file.write([b"x"], 0)
    file.sync()
    assert synced[1:] == [("fdatasync", os.stat(tmp_path / "f").st_ino)]
    file.close()


def test_what_is_dropped_from_memory_is_read_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no such call, and where it fails."""
    advised: list[tuple[int, int, int]] = []

    def advise(fd: int, begin: int, size: int, advice: int) -> None:
        advised.append((begin, size, advice))
        os.posix_fadvise(fd, begin, size, advice)

    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_durably([b"a" * 4096, b"b" * 4096, b"c" * 4096], 0)
    monkeypatch.setattr(disk, "_ADVISE", advise)
    file.drop_cached(4096, 12288)
    assert advised == [(4096, 8192, os.POSIX_FADV_DONTNEED)]
    monkeypatch.setattr(disk, "_ADVISE", None)
    file.drop_cached(0, 4096)
    assert file.read(12288, 0) == b"a" * 4096 + b"b" * 4096 + b"c" * 4096
    file.close()
    monkeypatch.setattr(disk, "_ADVISE", advise)
    file.drop_cached(0, 4096)


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    held = OsDisk().lock(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        OsDisk().lock(tmp_path / "lock")
    held.release()
    held.release()
    OsDisk().lock(tmp_path / "lock").release()
