from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from geminga_runtime import ballast
from geminga_runtime.ballast import MIB, SPARE_BYTES, STEP_BYTES, Ballast, disk_free_bytes, is_full


class Disk:
    """So much room, less what the ballast holds."""

    def __init__(self, path: Path, room_bytes: int) -> None:
        self.path = path
        self.room_bytes = room_bytes

    def __call__(self, directory: Path) -> int:
        assert directory == self.path.parent
        held = self.path.stat().st_size if self.path.exists() else 0
        return self.room_bytes - held


def test_is_made_whole_only_with_room_to_spare(tmp_path: Path) -> None:
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


def test_gives_no_more_room_than_is_needed(tmp_path: Path) -> None:
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


def test_a_file_system_that_can_not_hold_it_has_none(
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


def test_none_is_wanted(tmp_path: Path) -> None:
    held = Ballast(tmp_path / "ballast", 0)
    assert held.restore()
    held.make_room(1 << 60)
    assert not list(tmp_path.iterdir())


def test_what_a_full_disk_answers(tmp_path: Path) -> None:
    assert is_full(OSError(errno.ENOSPC, ""))
    assert is_full(OSError(errno.EDQUOT, ""))
    assert not is_full(OSError(errno.EIO, ""))
    assert not is_full(ValueError())
    assert disk_free_bytes(tmp_path) > 0
