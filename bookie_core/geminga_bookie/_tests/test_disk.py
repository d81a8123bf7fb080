from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from geminga_bookie.storage import disk
from geminga_bookie.storage.disk import IOV_MAX, OsDisk
from geminga_protocol.buffers import Buffer


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


PIECES: list[Buffer] = [
    b"a" * 5000, b"", bytearray(b"b" * 1_000_000), memoryview(b"c" * 1_096_248),
]  # fmt: skip
"""Together 513 pages."""


@pytest.mark.parametrize("way", ["direct", "short", "refused", "no such flag", "no such write"])
def test_whole_pages_are_written_past_the_memory(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What isn't whole pages goes through it, and so does all where that is refused."""
    written: list[tuple[bool, int, int]] = []
    real_open, real_one, real_many = os.open, os.pwrite, os.pwritev
    refused = OSError(errno.EINVAL, "not here")

    def is_direct(fd: int) -> bool:
        return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        if way == "refused" and flags & os.O_DIRECT:
            raise refused
        return real_open(path, flags, mode)

    def pwrite(fd: int, data: bytes | memoryview, offset: int) -> int:
        if way == "no such write" and is_direct(fd):
            raise refused
        if way == "short" and len(data) > 8192:
            data = memoryview(data)[:8192]
        written.append((is_direct(fd), offset, len(data)))
        return real_one(fd, data, offset)

    def pwritev(fd: int, buffers: Sequence[bytes], offset: int) -> int:
        written.append((is_direct(fd), offset, sum(map(len, buffers))))
        return real_many(fd, buffers, offset)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "pwritev", pwritev)
    if way == "no such flag":
        monkeypatch.setattr(disk, "_DIRECT", 0)
    before = len(os.listdir("/proc/self/fd"))
    file = OsDisk().open(tmp_path / "f", create=True, direct=True)
    end = sum(map(len, PIECES))
    file.write(PIECES, 0)
    file.write([b"d" * 4096], end)
    file.write([b"the", b"end"], end + 4096)
    file.sync()
    assert file.read(end + 5000, 0) == b"".join(PIECES) + b"d" * 4096 + b"theend"
    assert file.size() == end + 4102
    file.close()
    file.close()
    assert len(os.listdir("/proc/self/fd")) == before
    pages = [size for direct, _, size in written if direct]
    assert sum(pages) == (end + 4096 if way in ("direct", "short") else 0)
    assert written[-1] == (False, end + 4096, 6)
    assert max(size for _, _, size in written) <= (1 << 20 if pages else end)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_file_is_closed_once_also_if_that_fails(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is free then, and may be another file's."""
    closed: list[int] = []
    real = os.close

    def close(fd: int) -> None:
        closed.append(fd)
        real(fd)
        if len(closed) == failing:
            raise OSError(errno.EIO, "a file system that writes at the close")

    file = OsDisk().open(tmp_path / "f", create=True, direct=True)
    monkeypatch.setattr(os, "close", close)
    with pytest.raises(OSError, match="at the close"):
        file.close()
    file.close()
    assert len(closed) == len(set(closed)) == 2


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EINVAL])
def test_without_a_second_descriptor_all_goes_through_the_memory(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(code, "no")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", opened)
    file = OsDisk().open(tmp_path / "f", create=True, direct=True)
    file.write([b"x" * 4096], 0)
    file.close()
    assert (tmp_path / "f").read_bytes() == b"x" * 4096


def test_a_full_disk_refuses_whole_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    file = OsDisk().open(tmp_path / "f", create=True, direct=True)
    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="full"):
        file.write([b"x" * 4096], 0)
    file.close()


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    held = OsDisk().lock(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        OsDisk().lock(tmp_path / "lock")
    held.release()
    held.release()
    OsDisk().lock(tmp_path / "lock").release()
