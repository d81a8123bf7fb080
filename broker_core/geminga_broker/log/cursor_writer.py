"""Persisting a cursor: throttled, in order, with its waiters (spec BR-05).

Acknowledgements change the cursor in memory. A timer persists them, or `persist` does at once. Only
one write runs at a time; it has the state of its beginning.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_broker.log.ack_state import AckState
from geminga_broker.log.api import LogClosed, LogError, LogFenced, LogWriteFailed
from geminga_broker.log.context import Spawn
from geminga_broker.log.cursor_store import CursorStore
from geminga_broker.log.cursor_use import CursorUse
from geminga_broker.log.options import CursorOptions
from geminga_broker.log.position_info import closed_cursor_info, position_infos
from geminga_broker.log.state import CURSOR_TRANSITIONS, CursorEvent, CursorState
from geminga_protocol.ids import Position
from geminga_protocol.pb.managed_ledger_pb2 import PositionInfo
from geminga_runtime.metadata.api import MetadataError
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)

_SNAPSHOT_SHARE_MAX = 0.05
"""Maximal share of time for writing a cursor's holes: with many holes, writes are rarer."""


class _Persisted(Protocol):
    """The persisted part of a cursor."""

    name: str
    state: AckState
    properties: dict[str, int]
    use: CursorUse


class _Paced(Protocol):
    """Says how often a cursor may be written."""

    flush_interval_s: float


class CursorWriter:
    """Writes one cursor's state; for a cursor without a store it does nothing."""

    def __init__(
        self,
        cursor: _Persisted,
        store: CursorStore | None,
        options: CursorOptions,
        pace: _Paced,
        spawn: Spawn,
        fence: Callable[[str], None],
    ) -> None:
        """`fence` is called with the cause if another broker is found to own the log."""
        self.changes = 0
        """Counts changes of the cursor."""
        self._cursor = cursor
        self._store = store
        self.named: tuple[str, str] = store.key if store else ("-", cursor.name)  # in the log
        self._options = options
        self._pace = pace
        self._spawn = spawn
        self._fence = fence
        self._fenced: LogFenced | None = None
        """Why it is not written any more, if another broker owns the log."""
        self._state = CursorState.KEPT if store is not None else CursorState.RELEASED
        self._persisted = 0
        self._writing: trio.Event | None = None
        """Set at the end of the running write; None if none runs."""
        self._waiters: list[tuple[int, Promise[None]]] = []
        self._turn = trio.Lock()
        """Held during writes of the node: of properties, or of the whole state."""
        self._next_write_s = 0.0
        self._flushed_s = -math.inf

    @property
    def cursor_properties(self) -> Mapping[str, str]:
        """Properties of the subscription, as stored."""
        store = self._kept
        return store.cursor_properties if store is not None else {}

    @property
    def written(self) -> Position | None:
        """See `CursorStatistics.written`."""
        return None if self._store is None else self._store.written

    @property
    def is_dirty(self) -> bool:
        """Whether something is not persisted."""
        return self._state is CursorState.KEPT and self._persisted < self.changes

    def flush(self, tick_s: float) -> None:
        """Start to persist changes, unless it is too early or a write is running. The caller comes
        each `tick_s`.
        """
        if not self.is_dirty or self._writing is not None:
            return
        now_s, interval_s = trio.current_time(), self._pace.flush_interval_s
        # The tick that is nearest to the interval's end; with the timer's own interval each one.
        is_early = interval_s > tick_s and now_s - self._flushed_s < interval_s - tick_s / 2
        if now_s >= self._next_write_s and not is_early:
            self._flushed_s = now_s
            self._start()

    async def persist(self) -> None:
        """Return when earlier changes are durable. Raises LogWriteFailed, LogFenced, and LogClosed
        if the cursor is deleted or its log closed.
        """
        if self._persisted < self.changes:
            self._check_not_released()
        if not self.is_dirty:
            await trio.lowlevel.checkpoint()
            return
        promise: Promise[None] = Promise()
        self._waiters.append((self.changes, promise))
        if self._writing is None:
            self._start()
        await promise.wait()

    async def persist_to_node(self) -> None:
        """Write the whole state to the metadata store, or, with too many holes, to the ledger,
        which is closed. This is the last write: the cursor may be another broker's after it. Raises
        LogFenced, LogWriteFailed.
        """
        async with self._alone() as store:
            if store is not None:
                await self._write_whole(store)
                self._enter(CursorEvent.HANDED_OVER)

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties, durably. Raises LogFenced, LogWriteFailed,
        LogClosed.
        """
        async with self._alone() as store:
            self._check_not_released()
            if store is not None:
                store.cursor_properties = dict(properties)
                await self._write_properties(store)

    @property
    def side_ledgers(self) -> tuple[int, ...]:
        """Ledgers of the cursor's `SnapshotLog`."""
        store = self._kept
        return store.side_ledgers if store is not None else ()

    @property
    def ledger_ids(self) -> list[int]:
        """All ledgers of the cursor, while we may write it."""
        store = self._store
        return [] if store is None or self._state is CursorState.RELEASED else store.ledger_ids

    @property
    def has_leftovers(self) -> bool:
        """Whether ledgers of the cursor are to be deleted."""
        store = self._kept
        return store is not None and store.has_leftovers

    def fenced(self, why: str) -> None:
        """Another broker owns the log: write nothing any more, and confirm nothing."""
        self._fenced = LogFenced(f"cursor {self._cursor.name}: {why}")
        if self._store is not None:
            self._enter(CursorEvent.FENCED)
        self._refuse(self._fenced)

    async def delete_leftovers(self) -> None:
        """Delete ledgers that a crash or a failure left. Raises LogWriteFailed, LogFenced."""
        async with self._alone() as store:
            if store is None:
                return
            if await store.find_leftovers():
                await self._write_properties(store)
            await store.delete_leftovers()

    async def set_side_ledgers(self, ids: tuple[int, ...]) -> None:
        """Replace the side ledgers; durable on return. Raises LogWriteFailed, LogFenced."""
        async with self._alone() as store:
            if store is None:
                raise LogWriteFailed(f"cursor {self._cursor.name} is deleted")
            before, store.side_ledgers = store.side_ledgers, ids
            try:
                await self._write_properties(store)
            except BaseException:
                store.side_ledgers = before
                raise

    async def drop_side_ledgers(self, ids: Collection[int]) -> None:
        """Take these side ledgers off the node, then delete them. After a failure the rest is
        deleted with other leftovers. Raises LogWriteFailed, LogFenced.

        The node is written first, as that write fails if another broker needs them.
        """
        async with self._alone() as store:
            if store is None:
                self._check_not_released()
                return
            store.drop_side_ledgers(ids)
            await self._write_properties(store)
            await store.find_leftovers()
            await store.delete_leftovers()

    async def take_back(self) -> None:
        """Delete the node that was just made; logs a failure."""
        if self._store is not None:
            try:
                await self._store.take_back()
            except MetadataError as error:
                _log.warning("log=%s cursor=%s stays behind: %s", *self.named, error)

    async def remove(self, listed: Callable[[Sequence[int]], Awaitable[None]]) -> None:
        """Delete the cursor's node; see `CursorStore.remove`. Raises LogWriteFailed, LogFenced:
        then it may be called again.

        Callers that wait for a write get an error.
        """
        store = self._kept
        if store is None:
            return
        self._enter(CursorEvent.REMOVE)
        end = CursorEvent.REMOVE_FAILED
        try:
            await store.remove(listed)
            end = CursorEvent.REMOVED
        except (BookkeeperError, MetadataError) as error:
            raise LogWriteFailed(f"cursor {self._cursor.name}: {error}") from error
        except LogFenced as error:
            self._fence(str(error))
            raise
        finally:
            self._enter(end)
            self._settle()

    @property
    def _kept(self) -> CursorStore | None:
        """The store, while we may write it."""
        return self._store if self._state is CursorState.KEPT else None

    def _check_not_released(self) -> None:
        """Raises LogClosed or LogFenced if it has a store that we may no longer write."""
        if self._store is not None and self._state is CursorState.RELEASED:
            gone = LogClosed(f"cursor {self._cursor.name} is deleted or unloaded")
            raise self._fenced or gone

    def _enter(self, event: CursorEvent) -> None:
        self._state = CURSOR_TRANSITIONS[event][self._state]

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[CursorStore | None]:
        """Exclude other writes. Maps errors of the storage to LogWriteFailed."""
        try:
            async with self._turn:
                while self._writing is not None:
                    await self._writing.wait()
                self._writing = trio.Event()
                try:
                    yield self._kept
                except (BookkeeperError, MetadataError) as error:
                    raise LogWriteFailed(f"cursor {self._cursor.name}: {error}") from error
                except LogFenced as error:
                    self._fence(str(error))
                    raise
                finally:
                    self._writing = None
        finally:
            self._settle()

    def _take_use(self, store: CursorStore | None) -> int:
        """The last use, for the current write."""
        use = self._cursor.use
        use.written_ms = use.last_ms
        if store is not None:
            store.last_active_ms = use.written_ms
        return use.written_ms

    async def _write_properties(self, store: CursorStore) -> None:
        self._take_use(store)
        if store.has_ledger:
            await store.write_properties(self._cursor.state.mark_delete)
        else:
            self.changes += 1
            await self._write_whole(store)

    async def _write_whole(self, store: CursorStore) -> None:
        cursor, options = self._cursor, self._options
        changes = self.changes
        dirty = self.is_dirty or cursor.use.is_stale(0)
        info = closed_cursor_info(
            cursor.state, cursor.properties, options.batches_max, options.ranges_to_store_max
        )
        if info is None:
            if dirty:
                await self._write_to_ledger(store)
            await store.close_ledger()
        elif dirty or not store.is_closed:
            self._take_use(store)
            await store.write_closed(info)
        self._persisted = max(self._persisted, changes)

    async def _write_to_ledger(self, store: CursorStore) -> None:
        infos = self._infos()
        if not store.has_room:
            await store.write_to_new_ledger(infos)
            return
        written: Promise[None] = Promise()

        def done(error: BookkeeperError | None) -> None:
            if error is None:
                written.resolve(None)
            else:
                written.reject(error)

        store.append(infos, done)
        await written.wait()

    def _start(self) -> None:
        """Write to the open ledger, or spawn a task that creates one."""
        store = self._kept
        assert store is not None
        assert self._writing is None
        changes = self.changes
        if store.has_room:
            infos = self._infos()
            self._writing = trio.Event()
            store.append(infos, lambda error: self._written(changes, error))
        else:
            self._writing = trio.Event()
            self._spawn(self._write_to_new_ledger)

    async def _write_to_new_ledger(self) -> None:
        store = self._kept
        changes = self.changes
        failure: Exception | None = LogWriteFailed("deleted or cancelled")
        try:
            if store is not None:
                await store.write_to_new_ledger(self._infos())
                failure = None
        except (BookkeeperError, MetadataError, LogError) as error:
            failure = error
        finally:
            self._written(changes, failure)

    def _infos(self) -> list[PositionInfo]:
        started_s = time.perf_counter()
        cursor = self._cursor
        infos = position_infos(cursor.state, cursor.properties, self._options.batches_max)
        infos[-1].lastActive = self._take_use(self._kept)
        cost_s = time.perf_counter() - started_s
        self._next_write_s = trio.current_time() + cost_s / _SNAPSHOT_SHARE_MAX
        return infos

    def _written(self, changes: int, error: Exception | None) -> None:
        """The write of the state at `changes` ended."""
        ended, self._writing = self._writing, None
        if ended is not None:
            ended.set()
        if error is None:
            self._persisted = max(self._persisted, changes)
            self._settle()
            return
        _log.warning("log=%s cursor=%s is not persisted: %s", *self.named, error)
        if isinstance(error, LogFenced):
            self._fence(str(error))
        else:
            error = LogWriteFailed(f"cursor {self._cursor.name}: {error}")
        self._refuse(error)

    def _settle(self) -> None:
        """Wake the waiters whose changes are durable, and write again for the others, unless a
        holder of `_turn` will do that. If no more writes are allowed, fail them.
        """
        waiters, self._waiters = self._waiters, []
        for wanted, promise in waiters:
            if wanted <= self._persisted:
                promise.resolve(None)
            else:
                self._waiters.append((wanted, promise))
        if not self._waiters or self._state is CursorState.REMOVING:
            return
        if self._state is CursorState.RELEASED:
            gone = LogWriteFailed(f"cursor {self._cursor.name} is deleted or unloaded")
            self._refuse(self._fenced or gone)
        elif self._writing is None and not self._turn.locked():
            self._start()

    def _refuse(self, error: LogError) -> None:
        waiters, self._waiters = self._waiters, []
        for _, promise in waiters:
            promise.reject(error)
