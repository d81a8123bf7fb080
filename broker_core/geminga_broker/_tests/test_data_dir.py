from __future__ import annotations

from pathlib import Path

import pytest

from geminga_broker.data_dir import prepare_data_dir
from geminga_runtime.directories import OsDirectories


def test_a_loss_of_power_takes_no_new_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands below is synced up to this directory only."""
    synced: list[Path] = []
    monkeypatch.setattr(OsDirectories, "sync_directory", lambda _system, path: synced.append(path))
    prepare_data_dir(tmp_path / "new" / "data")
    assert {tmp_path, tmp_path / "new"} <= set(synced)
    assert (tmp_path / "new" / "data").stat().st_mode & 0o777 == 0o700
