from __future__ import annotations

import errno
from pathlib import Path

import pytest

from geminga_runtime.directories import OsDirectories, make_durable_directory


class Noted(OsDirectories):
    """Notes what is made and synced; a sync of `refused` fails."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Path]] = []
        self.refused: dict[Path, int] = {}

    def make_directory(self, directory: Path) -> None:
        super().make_directory(directory)
        self.steps.append(("make", directory))

    def sync_directory(self, directory: Path) -> None:
        if directory in self.refused:
            raise OSError(self.refused[directory], "refused", str(directory))
        super().sync_directory(directory)
        self.steps.append(("sync", directory))


def test_a_parents_name_is_durable_before_anything_is_made_in_it(tmp_path: Path) -> None:
    system = Noted()
    make_durable_directory(system, tmp_path / "a" / "b")
    assert system.steps == [
        ("sync", tmp_path.parent),
        ("make", tmp_path / "a"),
        ("sync", tmp_path),
        ("make", tmp_path / "a" / "b"),
        ("sync", tmp_path / "a"),
    ]
    make_durable_directory(system, tmp_path / "a" / "b")
    assert system.steps[5:] == [("sync", tmp_path / "a")], "its maker may have been killed"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL, errno.EROFS])
def test_a_directory_of_others_that_can_not_be_synced(tmp_path: Path, code: int) -> None:
    system = Noted()
    system.refused[tmp_path.parent] = code
    make_durable_directory(system, tmp_path)
    make_durable_directory(system, tmp_path / "new")
    system.refused[tmp_path] = code
    make_durable_directory(system, tmp_path / "new")
    with pytest.raises(OSError, match="refused"):
        make_durable_directory(system, tmp_path / "other")


def test_a_failing_disk_is_told(tmp_path: Path) -> None:
    system = Noted()
    system.refused[tmp_path.parent] = errno.EIO
    with pytest.raises(OSError, match="refused"):
        make_durable_directory(system, tmp_path)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_durable_directory(OsDirectories(), tmp_path / "file")
