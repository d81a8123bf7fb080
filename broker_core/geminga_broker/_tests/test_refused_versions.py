"""A start that is refused for a format of another version leaves the data as they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from fastcrc import crc32

from geminga_bookie.errors import DataDirError
from geminga_broker._tests.test_metadata_loss import lived, served
from geminga_broker.data_dir import BOOKIE_DIRECTORY, METADATA_FILE, DataDirUnusable
from geminga_runtime.metadata.integrity.check import StoreOpenError

HOUSEKEEPING = (f"{METADATA_FILE}-shm", f"{BOOKIE_DIRECTORY}/ledgers/index/")
"""What SQLite and RocksDB write when they open their files (docs/UPGRADING.md)."""


def content(data_dir: Path) -> dict[str, bytes]:
    """All but what may change."""
    names = {str(path.relative_to(data_dir)): path for path in data_dir.rglob("*")}
    return {
        name: path.read_bytes()
        for name, path in names.items()
        if path.is_file() and not name.startswith(HOUSEKEEPING)
    }


def another(path: Path, version: int, checksum_at: int) -> None:
    """A number behind the magic, under the checksum of all before it."""
    data = bytearray(path.read_bytes())
    data[4] = version
    end = len(data) - 4 if checksum_at < 0 else checksum_at
    data[end : end + 4] = crc32.iscsi(bytes(data[:end])).to_bytes(4, "little")
    path.write_bytes(data)


def of_metadata(data_dir: Path) -> None:
    database = sqlite3.connect(data_dir / METADATA_FILE)
    database.execute("PRAGMA user_version = 9")
    database.close()


def of_a_directory(data_dir: Path) -> None:
    path = data_dir / BOOKIE_DIRECTORY / "ledgers" / "VERSION"
    path.write_text(path.read_text().replace("geminga-bookie 1", "geminga-bookie 2"))


def of_a_mark(data_dir: Path) -> None:
    another(data_dir / BOOKIE_DIRECTORY / "journal" / "lastMark", 2, -1)


def of_a_journal(data_dir: Path) -> None:
    another(max((data_dir / BOOKIE_DIRECTORY / "journal").glob("*.journal")), 3, 16)


def of_an_entry_log(data_dir: Path) -> None:
    another(min((data_dir / BOOKIE_DIRECTORY / "ledgers").glob("*.log")), 3, 24)


@pytest.mark.parametrize(
    "change", [of_metadata, of_a_directory, of_a_mark, of_a_journal, of_an_entry_log]
)
async def test_a_refused_version_changes_nothing(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    data_dir = tmp_path / "data"
    await lived(data_dir)
    change(data_dir)
    before = content(data_dir)
    for _ in range(2):
        with pytest.raises((DataDirError, DataDirUnusable, StoreOpenError), match="version"):
            async with served(data_dir):
                raise AssertionError("it must not open")
        assert content(data_dir) == before
