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
from contextlib import suppress
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
    Write,
    Writes,
)
from geminga_runtime.metadata.embedded import Listeners
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
from geminga_runtime.metadata.tree import (
    PERSISTENT,
    Put,
    Row,
    apply_delete,
    apply_numbered,
    apply_put,
    apply_skip,
    apply_writes,
    check_put,
    checked_writes,
)
from geminga_runtime.metadata.watches import WatchHub

READS_A_TURN = 16
"""Reads after which other tasks have a turn, which costs more than a read of a page or two."""


class _File:
    """What the sessions of a file share."""

    def __init__(
        self,
        lock: FileLock | None,
        writer: SqliteWriter | None,
        readers: tuple[sqlite3.Connection, sqlite3.Connection],
    ) -> None:
        self._lock = lock
        self.writer = writer
        self._connection, self.list_connection = readers
        self.rows = SqliteRows(self._connection)
        self.list_limiter = trio.CapacityLimiter(1)
        self.since_turn = 0
        """Reads since other tasks had a turn."""
        self.hubs: list[WatchHub] = []
        self.listeners = Listeners()
        self.sessions = PERSISTENT
        """Owner of the newest session's nodes. An open deletes those of a dead process."""
        self.is_open = True
        if writer is not None:
            writer.start(self._publish)

    def _publish(self, notifications: Sequence[Notification]) -> None:
        for hub in self.hubs:
            hub.publish(notifications)
        self.listeners.publish(notifications)

    async def aclose(self) -> None:
        """Complete what waits to be written, then close."""
        self.is_open = False
        if self.writer is not None:
            await self.writer.aclose()
        async with self.list_limiter:
            self.list_connection.close()
        self._connection.close()
        if self._lock is not None:
            self._lock.release()


class SqliteMetadataStore:
    """A session on a file. Implements EmbeddedStore. Made by `open`."""

    def __init__(self, file: _File) -> None:
        self._file = file
        file.sessions += 1
        self._owner = file.sessions
        self._owns_file = self._owner == PERSISTENT + 1
        self._hub = WatchHub()
        file.hubs.append(self._hub)
        # A read-only store publishes no changes; the session lives as long as the store.
        self.watch = self._hub.watch
        self.listen = file.listeners.listen
        self._tracker = SessionTracker()
        self.wait_change = self._tracker.wait_change
        self._closed = False
        self._has_ended = False

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        read_only: bool = False,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> SqliteMetadataStore:
        """The store in that file, created if absent (its directory must exist).

        `read_only` works beside the process that writes, and checks nothing. Raises StoreOpenError,
        with one sentence, if another process writes, or the file has another version, is absent
        (read only), not writable or damaged (StoreDamaged; `integrity.aside` is the way on).
        """
        await trio.lowlevel.checkpoint()
        file = Path(path)
        if read_only:
            return cls(_File(None, None, (open_reader(file), open_reader(file))))
        lock = FileLock(file)
        ballast = Ballast(file.with_name(f"{file.name}.ballast"), BALLAST_BYTES)
        try:
            writer = SqliteWriter(open_writer(file, ballast), ballast, clock_ms)
            readers = open_reader(file), open_reader(file)
        except BaseException:
            lock.release()
            raise
        return cls(_File(lock, writer, readers))

    def another_session(self) -> SqliteMetadataStore:
        """EmbeddedStore.another_session."""
        return SqliteMetadataStore(self._file)

    @property
    def session(self) -> Session:
        """MetadataStore.session."""
        return self._tracker.session

    def _check_open(self) -> None:
        if self._closed or not self._file.is_open:
            raise SessionExpired("the store is closed")

    async def get(self, path: str) -> Node | None:
        """MetadataStore.get."""
        row = await self._read(path)
        return None if row is None else Node(row.value, row.stat(self._owner))

    async def exists(self, path: str) -> bool:
        """MetadataStore.exists."""
        return await self._read(path) is not None

    async def _read(self, path: str) -> Row | None:
        check_path(path)
        file = self._file
        file.since_turn += 1
        if file.since_turn < READS_A_TURN:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            file.since_turn = 0
            await trio.lowlevel.checkpoint()
        self._check_open()
        try:
            return file.rows.read(path)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"can't read {path}: {error}") from error

    async def children(self, path: str) -> Sequence[str]:
        """MetadataStore.children."""
        check_path(path)
        self._check_open()
        rows, limiter = SqliteRows(self._file.list_connection), self._file.list_limiter
        try:
            return await trio.to_thread.run_sync(rows.children, path, limiter=limiter)
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
        owner = PERSISTENT if epoch is None else self._owner
        request = Put(path, bytes(value), expected_version, owner, sequential)
        check_put(request)
        self._tracker.check_epoch(epoch)
        made, row = await self._writing().run(partial(_put, request))
        return made, row.stat(self._owner)

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """MetadataStore.put_numbered, in one transaction. A cancelled call may take effect."""
        return await self._writing().run(partial(_put_numbered, at, writes))

    async def put_all(self, writes: Sequence[Write]) -> Sequence[int]:
        """EmbeddedStore.put_all. A cancelled call may still take effect."""
        return await self._writing().run(partial(_put_all, writes))

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """MetadataStore.delete. A cancelled call may still take effect."""
        check_path(path)
        await self._writing().run(partial(_delete, path, expected_version))

    async def next_number(self, parent: str) -> int:
        """EmbeddedStore.next_number."""
        row = await self._read(parent)
        return 0 if row is None else row.sequence

    async def skip_numbers(self, parent: str, number: int) -> None:
        """EmbeddedStore.skip_numbers. A cancelled call may still take effect."""
        check_path(parent)
        await self._writing().run(partial(_skip, parent, number))

    def _writing(self) -> SqliteWriter:
        self._check_open()
        if self._file.writer is None:
            raise MetadataError("the store is open for reading only")
        return self._file.writer

    async def aclose(self) -> None:
        """MetadataStore.aclose: completes earlier requests first. Closes even when cancelled. The
        first session closes the file; see `EmbeddedStore.another_session` for others.
        """
        with trio.CancelScope(shield=True):
            if not self._closed:
                self._closed = True
                self._tracker.close()
                self._hub.close()
                self._file.hubs.remove(self._hub)
            if not self._has_ended:
                await self._end()
                self._has_ended = True
        await trio.lowlevel.checkpoint()

    async def _end(self) -> None:
        if self._owns_file:
            await self._file.aclose()
        elif self._file.writer is not None:
            with suppress(SessionExpired):  # the file was closed, and all ephemeral nodes deleted
                await self._file.writer.run(partial(_delete_owned, self._owner))


def _put(request: Put, rows: SqliteRows, now_ms: int) -> tuple[tuple[str, Row], list[Notification]]:
    path, row, heard = apply_put(rows, request, now_ms)
    return (path, row), heard


def _put_numbered(
    at: str, writes: Writes, rows: SqliteRows, now_ms: int
) -> tuple[tuple[int, Sequence[int]], list[Notification]]:
    number, versions, heard = apply_numbered(rows, at, writes, now_ms)
    return (number, versions), heard


def _put_all(
    writes: Sequence[Write], rows: SqliteRows, now_ms: int
) -> tuple[Sequence[int], list[Notification]]:
    return apply_writes(rows, checked_writes(rows, writes), now_ms)


def _delete(
    path: str, expected_version: int | None, rows: SqliteRows, now_ms: int
) -> tuple[None, list[Notification]]:
    return None, apply_delete(rows, path, expected_version)


def _skip(
    parent: str, number: int, rows: SqliteRows, now_ms: int
) -> tuple[None, list[Notification]]:
    return None, apply_skip(rows, parent, number, now_ms)


def _delete_owned(owner: int, rows: SqliteRows, now_ms: int) -> tuple[None, list[Notification]]:
    heard: list[Notification] = []
    for path in rows.owned_by(owner):
        heard += apply_delete(rows, path, ANY_VERSION)
    return None, heard
