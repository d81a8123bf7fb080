"""The way on with a damaged file of the SQLite store: what can be saved of it goes to a new one,
and it is set aside with what belongs to it. Nothing is deleted.

1. All nodes that can be read are written to `metadata.sqlite.saved-N`, under another name first.
2. The file and those beside it get names of `metadata.sqlite.damaged-N`.
3. The saved one gets the name of the file.

While there is one of `saved-N` the store doesn't open; whoever was killed in between goes on where
it was.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from geminga_runtime.metadata.api import NUMBER_DIGITS
from geminga_runtime.metadata.integrity.check import (
    StoreDamaged,
    StoreOpenError,
    aside_begun,
    check_file,
    saved_file,
)
from geminga_runtime.metadata.integrity.page_sums import SUMS_END
from geminga_runtime.metadata.integrity.pages import Found, path_of, read_rows
from geminga_runtime.metadata.paths import parent_path
from geminga_runtime.metadata.sqlite_file import SCHEMA, FileLock, SqliteRows, sync
from geminga_runtime.metadata.tree import Row

_ENDS = ("", "-wal", "-shm", "-journal", SUMS_END)
_DRAFT = ".saving"
_PATHS_NAMED = 10


def set_aside(path: Path) -> list[str]:
    """Do it, for a store that isn't open. Returns what was done and lost, as sentences. Blocks.
    Raises StoreOpenError.
    """
    lock = FileLock(path)
    try:
        said: list[str] = []
        if not aside_begun(path):
            said += _save(path)
        (saved,) = aside_begun(path)
        aside = _aside(path, int(saved.name.rpartition("-")[2]))
        for end in _ENDS:
            if os.path.lexists(f"{path}{end}"):
                os.replace(f"{path}{end}", f"{aside}{end}")
        sync(path.absolute().parent)
        os.replace(saved, path)
        sync(path.absolute().parent)
        return [*said, f"what was there of {path.name} is kept as {aside}"]
    except OSError as error:
        raise StoreOpenError(f"{path} can't be set aside: {error}") from error
    finally:
        lock.release()


def _save(path: Path) -> list[str]:
    try:
        found = read_rows(path, check_file(path))
    except StoreDamaged:  # there is no file
        found = Found({}, set())
    rows = {path_of(names): row for names, row in found.rows.items()}
    rows["/"] = rows.get("/", Row(b"", 0, 0, 0))
    made = _parents(rows)
    draft = path.with_name(f"{path.name}{_DRAFT}")
    draft.unlink(missing_ok=True)
    try:
        _write(draft, rows | made)
    except sqlite3.Error as error:
        draft.unlink(missing_ok=True)
        raise StoreOpenError(f"{draft} can't be written: {error}") from error
    number = 1
    while any(os.path.lexists(f"{_aside(path, number)}{end}") for end in _ENDS):
        number += 1
    os.replace(draft, saved_file(path, number))
    sync(path.absolute().parent)
    said = [f"{len(rows) - 1} nodes of the metadata were saved"]
    lost = sorted(path_of(names) for names in found.lost)
    if lost:
        said.append(f"lost are {_named(lost)}")
    unnamed = sorted(made)
    if unnamed:
        said.append(f"of {_named(unnamed)} only what is beneath was saved")
    return said


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.damaged-{number}")


def _named(paths: list[str]) -> str:
    more = len(paths) - _PATHS_NAMED
    return ", ".join(paths[:_PATHS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _parents(rows: dict[str, Row]) -> dict[str, Row]:
    """Nodes that are missing above others. Numbers of sequential children aren't given twice."""
    made: dict[str, Row] = {}
    for each in rows:
        path, name = each, ""
        while path != "/":
            path, name = parent_path(path), path.rpartition("/")[2]
            if path in rows:
                break
            number = name[-NUMBER_DIGITS:]
            is_number = len(number) == NUMBER_DIGITS and number.isdecimal()
            least = int(number) + 1 if is_number else 0
            row = made.get(path, Row(b"", 0, 0, 0))
            made[path] = row._replace(sequence=max(row.sequence, least))
    return made


def _write(draft: Path, rows: dict[str, Row]) -> None:
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA:
            connection.execute(statement)
        table = SqliteRows(connection)
        table.remove("/")
        for path in sorted(rows):
            table.insert(path, rows[path])
        connection.execute("COMMIT")
    finally:
        connection.close()
    sync(draft)
