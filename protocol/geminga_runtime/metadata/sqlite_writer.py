"""The thread that writes: group commit of all waiting requests."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

import trio

from geminga_runtime.ballast import Ballast
from geminga_runtime.metadata.api import (
    MetadataError,
    Notification,
    SessionExpired,
    StoreUnavailable,
)
from geminga_runtime.metadata.sqlite_file import OpenedFile, SqliteRows
from geminga_runtime.observing.slow import SlowOperations
from geminga_runtime.waiters import Promise, taken

_slow = SlowOperations(logging.getLogger(__name__))

T = TypeVar("T")

Operation = Callable[[SqliteRows, int], tuple[T, list[Notification]]]

WAITING_MAX = 4096
"""Requests in the thread's queue; further callers wait for room."""

BALLAST_INTERVAL_S = 10.0
"""Interval of attempts to restore a ballast that a start has used."""

GROUP_MAX = 512
"""Requests in a transaction, which bounds how long the first waits for the last."""


class _Request:
    __slots__ = ("error", "heard", "operation", "promise", "value")

    def __init__(self, operation: Operation[object]) -> None:
        self.operation = operation
        self.promise: Promise[object] = Promise()
        self.value: object = None
        self.error: Exception | None = None
        self.heard: Sequence[Notification] = ()


class SqliteWriter:
    """Owns the writing connection and its thread. Call all methods in the loop's thread."""

    def __init__(self, file: OpenedFile, ballast: Ballast, clock_ms: Callable[[], int]) -> None:
        connection = self._connection = file.connection
        self._checkpoints = file.checkpoints
        self._ballast = ballast
        self._ballast_due_s: float | None = 0.0
        self._clock_ms = clock_ms
        self._rows = SqliteRows(connection)
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._slots = trio.Semaphore(WAITING_MAX)
        self._token = trio.lowlevel.current_trio_token()
        self._closed = False
        self._publish: Callable[[Sequence[Notification]], None] = lambda _: None
        self._thread = threading.Thread(
            target=self._run, name="metadata-sqlite-writer", daemon=True
        )

    def start(self, publish: Callable[[Sequence[Notification]], None]) -> None:
        """Start the thread. `publish` is called in the loop with the changes of each transaction,
        before its callers get their results.
        """
        self._publish = publish
        self._thread.start()

    async def run(self, operation: Operation[T]) -> T:
        """The operation's result once it is on disk.

        Raises the operation's error, SessionExpired after `aclose`, StoreUnavailable if the disk
        fails: the whole transaction is rolled back then.
        """
        await taken(self._slots)
        try:
            if self._closed:
                raise SessionExpired("the store is closed")
            request = _Request(operation)
            self._queue.put(request)
            return await request.promise.wait()  # type: ignore[return-value]
        finally:
            self._slots.release()

    async def aclose(self) -> None:
        """Complete the waiting requests, delete the ephemeral nodes, end the thread."""
        self._closed = True
        self._queue.put(None)
        await trio.to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        open_for_more = True
        while open_for_more:
            group: list[_Request] = []
            request = self._queue.get()
            while request is not None:
                group.append(request)
                if len(group) == GROUP_MAX:
                    break
                try:
                    request = self._queue.get_nowait()
                except Empty:
                    break
            open_for_more = request is not None
            if group:
                self._commit(group)
                self._checkpoints.run_if_due()
            if self._ballast_due_s is not None and time.monotonic() >= self._ballast_due_s:
                due_s = time.monotonic() + BALLAST_INTERVAL_S
                self._ballast_due_s = None if self._ballast.restore() else due_s
        self._end()

    def _commit(self, group: list[_Request]) -> None:
        began_s = time.monotonic()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            now_ms = self._clock_ms()
            for request in group:
                try:
                    request.value, request.heard = request.operation(self._rows, now_ms)
                except MetadataError as error:
                    # It wrote nothing, but that a number is taken: the rest of the group continues.
                    request.error = error
            self._connection.execute("COMMIT")
            _slow.ended(time.monotonic() - began_s, "a commit of %d requests", len(group))
        except sqlite3.Error as error:
            self._fail(group, StoreUnavailable(f"the metadata store can't write: {error}"))
        except Exception as error:  # our defect: fails the callers, not the thread
            self._fail(group, error)
        try:
            self._token.run_sync_soon(self._answer, group)
        except trio.RunFinishedError:  # the loop has ended: no task waits
            pass

    def _fail(self, group: list[_Request], error: Exception) -> None:
        for request in group:
            request.heard = ()
            request.error = error
        try:
            self._connection.rollback()
        except sqlite3.Error:  # SQLite has rolled back already
            pass

    def _answer(self, group: list[_Request]) -> None:
        for request in group:
            self._publish(request.heard)
        for request in group:
            if request.error is None:
                request.promise.resolve(request.value)
            else:
                request.promise.reject(request.error)

    def _end(self) -> None:
        try:
            self._connection.execute("DELETE FROM nodes WHERE owner != 0")
        except sqlite3.Error:  # the next open deletes them
            pass
        self._checkpoints.close()
        self._connection.close()
