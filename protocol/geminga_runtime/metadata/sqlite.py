"""The durable metadata store of a standalone process, in one SQLite file (spec CL-01).

One thread writes. It takes all waiting puts and deletes in one transaction with one fsync (WAL,
synchronous=FULL), and completes them together. `get` and `exists` read one or two b-tree pages by
a second connection in the loop's own thread, which costs less than a switch to another; listings,
which may be long, run in a thread.

Only one process writes: it holds a lock file while the store is open for writing. A third file is
ballast, so that the store can be opened on a full disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path

import trio

from geminga_runtime.ballast import Ballast
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import (
    ANY_VERSION,
    MetadataError,
    Node,
    Notification,
    Session,
    SessionExpired,
    Stat,
    StoreUnavailable,
)
from geminga_runtime.metadata.paths import check_path
from geminga_runtime.metadata.session import SessionTracker
from geminga_runtime.metadata.sqlite_file import (
    BALLAST_BYTES,
    FileLock,
    SqliteRows,
    open_reader,
    open_writer,
)
from geminga_runtime.metadata.sqlite_writer import SqliteWriter
from geminga_runtime.metadata.tree import PERSISTENT, Put, Row, apply_delete, apply_put, check_put
from geminga_runtime.metadata.watches import WatchHub

SESSION = 1
"""Owner of ephemeral nodes. There is one session; an open deletes the nodes of a dead process."""


class SqliteMetadataStore:
    """One session on a file. Implements MetadataStore. Made by `open`."""

    def __init__(
        self,
        lock: FileLock | None,
        writer: SqliteWriter | None,
        readers: tuple[sqlite3.Connection, sqlite3.Connection],
    ) -> None:
        self._lock = lock
        self._writer = writer
        self._connection, self._list_connection = readers
        self._rows = SqliteRows(self._connection)
        self._list_limiter = trio.CapacityLimiter(1)
        self._hub = WatchHub()
        # A read-only store publishes no changes; the session lives as long as the store.
        self.watch = self._hub.watch
        self._tracker = SessionTracker()
        self.wait_change = self._tracker.wait_change
        self._closed = False
        if writer is not None:
            writer.start(self._hub.publish)

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        read_only: bool = False,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> SqliteMetadataStore:
        """The store in that file, created if absent (its directory must exist).

        `read_only` works beside the process that writes. Raises StoreOpenError, with one sentence,
        if another process writes, or the file has another version, is damaged, absent (read only)
        or not writable.
        """
        await trio.lowlevel.checkpoint()
        file = Path(path)
        if read_only:
            return cls(None, None, (open_reader(file), open_reader(file)))
        lock = FileLock(file)
        ballast = Ballast(file.with_name(f"{file.name}.ballast"), BALLAST_BYTES)
        try:
            writer = SqliteWriter(open_writer(file, ballast), ballast, clock_ms)
            readers = open_reader(file), open_reader(file)
        except BaseException:
            lock.release()
            raise
        return cls(lock, writer, readers)

    @property
    def session(self) -> Session:
        """MetadataStore.session."""
        return self._tracker.session

    def _check_open(self) -> None:
        if self._closed:
            raise SessionExpired("the store is closed")

    async def get(self, path: str) -> Node | None:
        """MetadataStore.get."""
        row = await self._read(path)
        return None if row is None else Node(row.value, row.stat(SESSION))

    async def exists(self, path: str) -> bool:
        """MetadataStore.exists."""
        return await self._read(path) is not None

    async def _read(self, path: str) -> Row | None:
        check_path(path)
        await trio.lowlevel.checkpoint()
        self._check_open()
        try:
            return self._rows.read(path)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"can't read {path}: {error}") from error

    async def children(self, path: str) -> Sequence[str]:
        """MetadataStore.children."""
        check_path(path)
        self._check_open()
        rows = SqliteRows(self._list_connection)
        try:
            return await trio.to_thread.run_sync(rows.children, path, limiter=self._list_limiter)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"can't list {path}: {error}") from error

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """MetadataStore.put. A cancelled call may still take effect."""
        owner = PERSISTENT if epoch is None else SESSION
        request = Put(path, bytes(value), expected_version, owner, sequential)
        check_put(request)
        self._tracker.check_epoch(epoch)
        made, row = await self._writing().run(partial(_put, request))
        return made, row.stat(SESSION)

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """MetadataStore.delete. A cancelled call may still take effect."""
        check_path(path)
        await self._writing().run(partial(_delete, path, expected_version))

    def _writing(self) -> SqliteWriter:
        self._check_open()
        if self._writer is None:
            raise MetadataError("the store is open for reading only")
        return self._writer

    async def aclose(self) -> None:
        """MetadataStore.aclose: completes earlier requests first. Closes even when
        cancelled.
        """
        with trio.CancelScope(shield=True):
            if not self._closed:
                self._closed = True
                self._tracker.close()
                self._hub.close()
                if self._writer is not None:
                    await self._writer.aclose()
                async with self._list_limiter:
                    self._list_connection.close()
                self._connection.close()
                if self._lock is not None:
                    self._lock.release()
        await trio.lowlevel.checkpoint()


def _put(request: Put, rows: SqliteRows, now_ms: int) -> tuple[tuple[str, Row], list[Notification]]:
    path, row, heard = apply_put(rows, request, now_ms)
    return (path, row), heard


def _delete(
    path: str, expected_version: int | None, rows: SqliteRows, now_ms: int
) -> tuple[None, list[Notification]]:
    return None, apply_delete(rows, path, expected_version)
