"""The file of the SQLite store: its lock, its version, its table.

One table, clustered by (parent, name): a listing is one range scan, a node one look-up.
`application_id` and `user_version` mark the file and its version.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from geminga_runtime.ballast import MIB, Ballast
from geminga_runtime.metadata.integrity.check import (
    LOST_PAGES,
    NOT_LOST,
    Checked,
    StoreDamaged,
    StoreOpenError,
    check_file,
    refusals,
)
from geminga_runtime.metadata.integrity.checkpoints import Checkpoints
from geminga_runtime.metadata.paths import split_path
from geminga_runtime.metadata.tree import Row

APPLICATION_ID = 0x47454D49
"""ASCII "GEMI"."""

FORMAT_VERSION = 1
READER_CACHE_KIB = 1024
BALLAST_BYTES = 4 * MIB
START_BYTES = MIB // 2
"""Room for opening the file, and for the first writes."""
BUSY_TIMEOUT_S = 5.0

SCHEMA = (
    """
    CREATE TABLE nodes (
        parent TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
        version INTEGER NOT NULL, ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL,
        owner INTEGER NOT NULL, sequence INTEGER NOT NULL,
        PRIMARY KEY (parent, name)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX ephemeral ON nodes (owner) WHERE owner != 0",
    "INSERT INTO nodes VALUES ('', '', x'', 0, 0, 0, 0, 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT_VERSION}",
)


class OpenedFile(NamedTuple):
    """For writing."""

    connection: sqlite3.Connection
    checkpoints: Checkpoints


class FileLock:
    """The lock of the process that writes; the kernel releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        """Take it. Raises StoreOpenError if another process (or store of this one) has it."""
        self._file = -1
        try:
            self._file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            text = f"{path} is in use by another process: stop that one first"
            raise StoreOpenError(text) from error
        except OSError as error:
            self.release()
            raise StoreOpenError(f"{path} can't be used: {error.strerror}") from error

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class SqliteRows:
    """`tree.Rows` over a connection; for the thread that uses the connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def read(self, path: str) -> Row | None:
        """Rows.read."""
        # fetchall ends the statement: an open one would keep an old snapshot of the file.
        found = self._execute(
            "SELECT value, version, ctime_ms, mtime_ms, owner, sequence FROM nodes"
            " WHERE parent = ? AND name = ?",
            split_path(path),
        ).fetchall()
        return Row._make(found[0]) if found else None

    def insert(self, path: str, row: Row) -> None:
        """Rows.insert."""
        self._execute("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", split_path(path) + row)

    def update(self, path: str, row: Row) -> None:
        """Rows.update."""
        self._execute(
            "UPDATE nodes SET value = ?, version = ?, mtime_ms = ?, sequence = ?"
            " WHERE parent = ? AND name = ?",
            (row.value, row.version, row.mtime_ms, row.sequence, *split_path(path)),
        )

    def remove(self, path: str) -> None:
        """Rows.remove."""
        self._execute("DELETE FROM nodes WHERE parent = ? AND name = ?", split_path(path))

    def has_children(self, path: str) -> bool:
        """Rows.has_children."""
        found = self._execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchall()
        return bool(found)

    def children(self, path: str) -> list[str]:
        """Names of the direct children, sorted."""
        found = self._execute("SELECT name FROM nodes WHERE parent = ? ORDER BY name", (path,))
        return [name for (name,) in found.fetchall()]

    def owned_by(self, owner: int) -> list[str]:
        """Paths of the ephemeral nodes of a session."""
        found = self._execute(
            "SELECT parent, name FROM nodes WHERE owner != 0 AND owner = ?", (owner,)
        )
        return [f"{parent.rstrip('/')}/{name}" for parent, name in found.fetchall()]


def open_writer(path: Path, ballast: Ballast) -> OpenedFile:
    """The only writing connection: creates the table in a new file, deletes old ephemeral nodes.

    On a full disk it takes the space that it needs from the ballast. Raises StoreDamaged for a file
    or log that something else has changed, StoreOpenError.
    """
    _sync_log(path)
    found = check_file(path)
    if found.damage:
        raise StoreDamaged(found.damage)
    ballast.make_room(START_BYTES)
    while True:
        try:
            connection = _open_writer(path, found)
            return OpenedFile(
                connection, Checkpoints(path, connection, found.sums, known=found.is_proven)
            )
        except StoreOpenError as error:
            if not _may_want_room(error.__cause__) or not ballast.release():
                raise


def _sync_log(path: Path) -> None:
    """What a killed process wrote may be in the system's memory only; from now on it is answered
    from, so it is synced. Raises StoreOpenError.
    """
    with refusals(path), suppress(FileNotFoundError):
        sync(Path(f"{path}-wal"))


def _may_want_room(error: BaseException | None) -> bool:
    """Whether SQLite may raise this because of a full disk: for its wal and shm files it reports
    I/O errors then."""
    code = error.sqlite_errorcode if isinstance(error, sqlite3.Error) else sqlite3.SQLITE_OK
    return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def _open_writer(path: Path, found: Checked) -> sqlite3.Connection:
    try:
        connection = _connect(f"{path.absolute().as_uri()}?mode=rwc")
    except sqlite3.Error as error:
        raise _refusal(path, error) from error
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):
            for statement in SCHEMA:
                connection.execute(statement)
        _check_version(path, connection)
        if not found.is_proven:
            _check_structure(path, connection)
        connection.execute("DELETE FROM nodes WHERE owner != 0")
        connection.execute("COMMIT")
        sync(path.absolute().parent)
    except sqlite3.Error as error:
        connection.close()
        raise _refusal(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check_structure(path: Path, connection: sqlite3.Connection) -> None:
    """Of a file whose pages have no checksums. 100 000 nodes take 45 ms."""
    found = connection.execute("PRAGMA integrity_check(1)").fetchall()[0][0]
    if found != "ok":
        text = " ".join(str(found).split())
        raise StoreDamaged(f"{path} is damaged ({text}); {LOST_PAGES}")


def _refusal(path: Path, error: sqlite3.Error) -> StoreOpenError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return StoreDamaged(f"{path} is not a database; all topics and policies in it are lost")
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreDamaged(f"{path} is damaged ({error}); {LOST_PAGES}")
    if code == sqlite3.SQLITE_READONLY:
        return StoreOpenError(f"{path} can't be written to; {NOT_LOST}")
    return StoreOpenError(f"{path} can't be opened: {error}")


def open_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection, beside the process that writes. Raises StoreOpenError."""
    if not path.is_file():
        raise StoreOpenError(f"{path} is not there")
    try:
        connection = _connect(f"{path.absolute().as_uri()}?mode=ro")
        try:
            connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
            _check_version(path, connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise StoreOpenError(f"{path} can't be read: {error}") from error
    return connection


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
    )


def _is_empty(connection: sqlite3.Connection) -> bool:
    tables = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    return not tables and not connection.execute("PRAGMA user_version").fetchall()[0][0]


def _check_version(path: Path, connection: sqlite3.Connection) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchall()[0]
    (version,) = connection.execute("PRAGMA user_version").fetchall()[0]
    if application_id != APPLICATION_ID:
        raise StoreDamaged(
            f"{path} is not a Geminga metadata store; all topics and policies in it are lost"
        )
    if version != FORMAT_VERSION:
        raise StoreOpenError(
            f"{path} is of format version {version}, this Geminga reads version {FORMAT_VERSION}: "
            "start the Geminga that wrote it, or put a backup back (docs/UPGRADING.md)"
        )


def sync(path: Path) -> None:
    """fsync a file, or a directory: without it, a new file may be missing after a power cut. Raises
    OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
