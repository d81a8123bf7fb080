"""Journal files on disk, for tests that damage them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

PAGE_BYTES = 4096


def last_record(path: Path) -> int:
    """Offset of the last record; an end mark, which has a header only, is none."""
    data = path.read_bytes()
    pages = [data[offset : offset + PAGE_BYTES] for offset in range(0, len(data), PAGE_BYTES)]
    used = [n for n, page in enumerate(pages) if page[:4] == b"GREC" and page[48:].strip(b"\0")]
    number = int.from_bytes(data[8:16], "little").to_bytes(8, "little")
    return max(n for n in used if number in pages[n][16:32]) * PAGE_BYTES


def used_journal(directory: Path) -> Path:
    """The newest journal file that holds a record of its own."""

    def holds_record(path: Path) -> bool:
        try:
            return last_record(path) > 0
        except ValueError:
            return False

    return max(path for path in (directory / "journal").glob("*.journal") if holds_record(path))


def patch(path: Path, offset: int, piece: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[offset : offset + len(piece)] = piece
    path.write_bytes(data)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
