from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from geminga_runtime import ballast
from geminga_runtime.ballast import MIB, SPARE_BYTES, STEP_BYTES, Ballast, disk_free_bytes, is_full


class Disk:
    """A disk with that much room, minus the ballast's size."""

    def __init__(self, path: Path, room_bytes: int) -> None:
        self.path = path
        self.room_bytes = room_bytes

    def __call__(self, directory: Path) -> int:
        assert directory == self.path.parent
        held = self.path.stat().st_size if self.path.exists() else 0
        return self.room_bytes - held


def test_is_restored_only_with_spare_room(tmp_path: Path) -> None:
    path = tmp_path / "ballast"
    disk = Disk(path, 2 * MIB + SPARE_BYTES - 1)
    held = Ballast(path, 2 * MIB, disk)
    assert not held.restore()
    assert held.held_bytes() == 0
    disk.room_bytes += 1
    assert held.restore()
    assert path.stat().st_size == 2 * MIB
    assert path.stat().st_blocks * 512 >= 2 * MIB, "the room must be taken, not promised"
    disk.room_bytes = 2 * MIB
    assert held.restore(), "what is whole needs no room"


def test_frees_no_more_room_than_needed(tmp_path: Path) -> None:
    path = tmp_path / "ballast"
    disk = Disk(path, 100 * MIB)
    held = Ballast(path, 2 * MIB, disk)
    held.restore()
    disk.room_bytes = 2 * MIB
    held.make_room(STEP_BYTES + 1)
    assert held.held_bytes() == 2 * MIB - 2 * STEP_BYTES
    held.make_room(STEP_BYTES)
    assert held.held_bytes() == 2 * MIB - 2 * STEP_BYTES
    held.make_room(50 * MIB)
    assert held.held_bytes() == 0
    assert not held.release()
    disk.room_bytes = 100 * MIB
    assert held.restore()
    assert held.held_bytes() == 2 * MIB


def test_no_ballast_if_the_file_cannot_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = Ballast(tmp_path / "ballast", MIB)
    code = errno.ENOSPC

    def refuse(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(ballast.os, "posix_fallocate", refuse)
    assert not held.restore()
    assert not caplog.text
    code = errno.EOPNOTSUPP
    assert held.restore()
    assert held.restore()
    assert caplog.text.count("so no ballast is kept") == 1


def test_size_zero_means_no_ballast(tmp_path: Path) -> None:
    held = Ballast(tmp_path / "ballast", 0)
    assert held.restore()
    held.make_room(1 << 60)
    assert not list(tmp_path.iterdir())


def test_errors_of_a_full_disk(tmp_path: Path) -> None:
    assert is_full(OSError(errno.ENOSPC, ""))
    assert is_full(OSError(errno.EDQUOT, ""))
    assert not is_full(OSError(errno.EIO, ""))
    assert not is_full(ValueError())
    assert disk_free_bytes(tmp_path) > 0
