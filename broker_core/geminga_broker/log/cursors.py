"""The cursors of one log: their cache and waiters (spec BR-03); the timers by which cursors of all
logs are persisted (BR-05).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Protocol

import trio

from geminga_broker.log.ack_state import AckState
from geminga_broker.log.api import CursorNotFound, LogFenced, LogWriteFailed
from geminga_broker.log.context import LogContext
from geminga_broker.log.cursor import LogAccess, LogCursor
from geminga_broker.log.cursor_store import CursorKey, CursorStore, cursor_names
from geminga_broker.log.position_info import CursorSnapshot
from geminga_broker.log.reading import LogReads
from geminga_broker.log.state import LogState
from geminga_protocol.ids import EARLIEST, LATEST, Position
from geminga_protocol.topic_name import url_decode
from geminga_runtime.background import Turns, side_by_side
from geminga_runtime.metadata.api import MetadataError, MetadataStore

_log = logging.getLogger(__name__)

FLUSH_INTERVAL_MIN_S = 0.05

CACHE_SLACK_BYTES = 256 * 1024
"""Acknowledged entries are evicted each time the cache has grown by this size."""

CURSORS_ASKED_MAX = 8
"""An append checks at most this number of cursors for being near the tail."""

CURSORS_LOADED_MAX = 16
"""Cursors of one log that are claimed and recovered at a time."""

CURSORS_A_TURN = 256
"""Cursors of one log that are looked at in a turn of the loop: about 1 ms."""

UNBORN_MAX = 64
"""Cursors whose creation failed and whose stores are remembered. Another attempt at an older one
may find its log fenced by itself; the next opening of the log finds the cursor.
"""

DirtyCursors = dict[LogCursor, None]
"""Cursors of all logs with something to persist; the factory's timer writes them."""


class LogCursors:
    """Open cursors by name, readers' too."""

    def __init__(
        self,
        context: LogContext,
        store: MetadataStore,
        reads: LogReads,
        dirty: DirtyCursors,
        passed: Callable[[], None],
    ) -> None:
        self.by_name: dict[str, LogCursor] = {}
        self._context = context
        self._chain = context.chain
        self._store = store
        self._dirty = dirty
        self._access = LogAccess(context, reads, self._changed, passed, OrderedDict())
        self._unborn: OrderedDict[str, CursorStore] = OrderedDict()
        """By name: their nodes may have been made all the same."""
        self._near: LogCursor | None = None
        """Near the tail at its last check."""
        self._cache_floor_bytes = 0
        context.when_fenced.append(self._fenced)

    async def load(self) -> None:
        """Claim and open all stored cursors, several side by side, after the log itself was
        claimed. Raises LogFenced, BookkeeperError, MetadataError.
        """
        names = [url_decode(each) for each in await cursor_names(self._store, self._context.name)]
        stores = {name: self._cursor_store(name) for name in names}
        await side_by_side([store.read for store in stores.values()], CURSORS_LOADED_MAX)
        # Between the reading of nodes and their claims: a broker that lost the log meanwhile must
        # not take the cursors from the one that has it.
        verify = self._context.catalog.verify
        if names:
            await verify()
        found: dict[str, CursorSnapshot | None] = dict.fromkeys(names)

        async def load_one(name: str) -> None:
            found[name] = await stores[name].load(verify)

        await side_by_side([partial(load_one, name) for name in names], CURSORS_LOADED_MAX)
        for name, snapshot in found.items():
            if snapshot is not None:
                self._add_loaded(name, stores[name], snapshot)

    def _add_loaded(self, name: str, store: CursorStore, found: CursorSnapshot) -> None:
        mark = found.mark_delete
        if len(self._chain):
            mark = min(mark, self._context.last_position)
        state = AckState(self._chain, mark)
        state.restore(found.ranges, found.bitmaps, found.partial)
        self.by_name[name] = LogCursor(
            name, self._access, store, state, found.properties, found.last_active_ms
        )

    async def open(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, int],
        cursor_properties: Mapping[str, str],
    ) -> LogCursor:
        """The durable cursor, created if missing; one caller at a time. Raises LogFenced,
        LogWriteFailed.
        """
        known = self.by_name.get(name)
        if known is not None and known.durable:
            return known
        state = AckState(self._chain, self._start_of(initial))
        store = self._unborn.pop(name, None) or self._cursor_store(name)
        cursor = LogCursor(name, self._access, store, state, properties)
        # Shielded: a node whose version is not known here could not be written again.
        with trio.CancelScope(shield=True):
            try:
                await cursor.writer.set_properties(cursor_properties)
            except LogWriteFailed:
                self._unborn[name] = store
                if len(self._unborn) > UNBORN_MAX:
                    self._unborn.popitem(last=False)
                raise
            fenced: LogFenced | None = None
            try:
                # A broker that claimed the log before the node was there doesn't know it.
                await self._context.verify()
            except LogFenced as error:
                fenced = error
            except MetadataError as error:
                self._unborn[name] = store
                raise LogWriteFailed(f"{self._context.name}: cursor {name}: {error}") from error
            if fenced is not None:
                await cursor.writer.take_back()
                raise fenced
        self.by_name[name] = cursor
        return cursor

    def open_reader(self, name: str, start: Position) -> LogCursor:
        """A cursor that is not durable and reads from `start` on."""
        known = self.by_name.get(name)
        if known is not None and not known.durable:
            return known
        if start != LATEST:
            start = self._chain.previous_position(self._chain.at_or_after(start))
        state = AckState(self._chain, self._start_of(start))
        cursor = self.by_name[name] = LogCursor(name, self._access, None, state, {})
        return cursor

    async def delete(self, name: str) -> None:
        """Delete the cursor; its ledgers are the trimmer's then. Raises CursorNotFound,
        LogWriteFailed, LogFenced.
        """
        cursor = self.by_name.get(name)
        if cursor is None:
            raise CursorNotFound(f"{self._context.name} has no cursor {name}")
        await cursor.writer.remove(self._list_ledgers)
        if self.by_name.get(name) is cursor:
            del self.by_name[name]
        self._access.active.pop(cursor, None)
        self._dirty.pop(cursor, None)

    async def persist_to_nodes(self) -> None:
        """Write every state for a quick next opening. The caller holds the mutex. Raises LogFenced,
        LogWriteFailed, MetadataError.
        """
        if self.by_name:
            await self._context.catalog.verify()
        for cursor in list(self.by_name.values()):
            await cursor.writer.persist_to_node()

    def _parts(self) -> Iterator[list[LogCursor]]:
        """The cursors of now, in parts: there may be many thousands."""
        cursors = iter(list(self.by_name.values()))
        while part := list(islice(cursors, CURSORS_A_TURN)):
            yield part

    @property
    def may_have_leftovers(self) -> bool:
        """Whether ledgers of cursors may have to be deleted: of many it isn't known at a glance."""
        cursors = self.by_name.values()
        return len(cursors) > CURSORS_A_TURN or any(each.writer.has_leftovers for each in cursors)

    async def delete_leftovers(self) -> None:
        """Delete what a crash or a failure left of cursors. Raises LogWriteFailed, LogFenced."""
        for part in self._parts():
            for cursor in [each for each in part if each.writer.has_leftovers]:
                await cursor.writer.delete_leftovers()
            await trio.lowlevel.checkpoint()

    def release(self) -> None:
        """The log is closed: write no cursor any more."""
        for cursor in self.by_name.values():
            self._dirty.pop(cursor, None)

    def durable_marks(self) -> list[Position]:
        """Each durable cursor's limit for trimming; readers set none."""
        return [cursor.trim.mark for cursor in self.by_name.values() if cursor.durable]

    async def not_named(self, ledger_ids: Iterable[int]) -> list[int]:
        """Those of these ledgers that no cursor names; no later one gets any of them."""
        left = dict.fromkeys(ledger_ids)
        for part in self._parts() if left else ():
            for ledger_id in chain.from_iterable(each.writer.ledger_ids for each in part):
                left.pop(ledger_id, None)
            await trio.lowlevel.checkpoint()
        return list(left)

    async def _list_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """A cursor with these ledgers is about to be deleted."""
        catalog = self._context.catalog
        catalog.deleting.update(dict.fromkeys(ledger_ids))
        if not catalog.is_recorded(ledger_ids):
            await catalog.save([] if catalog.is_deleted else self._chain)
        else:
            await catalog.verify()

    async def persist_properties(self) -> None:
        """Persist cursors with properties: deduplication's state of trimmed entries is nowhere
        else. Raises LogWriteFailed, LogFenced.
        """
        for cursor in list(self.by_name.values()):
            if cursor.durable and cursor.properties:
                await cursor.persist()

    async def forget(self, ledger_id: int) -> None:
        """The ledger is trimmed."""
        await self._access.reads.forget(ledger_id)
        for part in self._parts():
            for cursor in part:
                cursor.state.forget_trimmed()
            await trio.lowlevel.checkpoint()

    def grown(self) -> None:
        """Wake the waiters for new entries."""
        for cursor in list(self._access.active):
            cursor.use.grown()

    def wants_cache(self) -> bool:
        """Whether an active cursor is near the tail, so that it will read the new entries soon.

        Checks the last near cursor first, then a few others in turn: the cost of an append
        doesn't depend on the number of cursors.
        """
        cache, active = self._context.cache, self._access.active
        near = self._near
        if near is None or near not in active or not self._is_near(near):
            near = self._near = self._next_near()
        unused = cache.size_bytes and not active
        if unused or cache.size_bytes > self._cache_floor_bytes + CACHE_SLACK_BYTES:
            self.evict_cache()
        return near is not None

    def _next_near(self) -> LogCursor | None:
        """A cursor near the tail, among the least recently checked."""
        active = self._access.active
        for _ in range(min(CURSORS_ASKED_MAX, len(active))):
            cursor = next(iter(active))
            if not cursor.use.is_active:
                del active[cursor]
                continue
            active.move_to_end(cursor)
            if self._is_near(cursor):
                return cursor
        return None

    def _is_near(self, cursor: LogCursor) -> bool:
        """Whether the cursor is active, and its next entry is cached or near the end."""
        if not cursor.use.is_active:
            return False
        context = self._context
        at, last = cursor.read_position, context.last_position
        return (
            at > last
            or bool(context.cache.get(at[0], at[1], at[1]))
            or self._chain.entries_between(at, last) < context.options.near_tail_entries
        )

    def evict_cache(self) -> None:
        """Drop what all active cursors acknowledged; a restarted consumer finds the rest."""
        cache, active = self._context.cache, self._access.active
        for cursor in [cursor for cursor in active if not cursor.use.is_active]:
            del active[cursor]
        if cache.size_bytes:
            marks = [cursor.mark_delete for cursor in active]
            cache.evict_upto(min(marks, default=self._context.last_position))
        self._cache_floor_bytes = cache.size_bytes

    def _changed(self, cursor: LogCursor) -> None:
        if cursor.durable and self._context.state not in (LogState.CLOSED, LogState.FENCED):
            self._dirty[cursor] = None

    def _start_of(self, position: Position) -> Position:
        """The mark-delete of a cursor that starts after the position."""
        if position == LATEST:
            return self._context.last_position
        if position == EARLIEST:
            return self._chain.first_position()
        return self._chain.at_or_before(position)

    def _cursor_store(self, name: str) -> CursorStore:
        context = self._context
        return CursorStore(
            CursorKey(context.name, name),
            context.client,
            self._store,
            context.options,
            context.catalog.owner,
            context.catalog.verify_beside_saves,
        )

    def _fenced(self, why: str) -> None:
        for cursor in self.by_name.values():
            cursor.writer.fenced(why)
        self.release()


class _Log(Protocol):
    """A log, as far as it is of interest here."""

    @property
    def context(self) -> LogContext: ...

    @property
    def cursors(self) -> Mapping[str, LogCursor]: ...


class CursorFlushes:
    """Both timers; the owner runs `run`."""

    def __init__(self, interval_s: float) -> None:
        self.dirty: DirtyCursors = {}
        """Cursors that have changed; cursors add themselves."""
        self._interval_s = interval_s
        self._hurried: dict[_Log, None] = {}
        self._hurry = trio.Event()

    @property
    def hurried(self) -> Collection[_Log]:
        """Logs whose cursors are persisted more often than by default."""
        return self._hurried.keys()

    def paced(self, log: _Log) -> None:
        """A log's interval is another one."""
        if log.context.flush_interval_s < self._interval_s:
            self._hurried[log] = None
            self._hurry.set()
        else:
            self._hurried.pop(log, None)

    async def run(self) -> None:
        """For ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_hurried)
            while True:
                tick_s = max(self._interval_s, FLUSH_INTERVAL_MIN_S)
                await trio.sleep(tick_s)
                hurried = {each for log in self._hurried for each in log.cursors.values()}
                await self._flush([each for each in self.dirty if each not in hurried], tick_s)

    async def _run_hurried(self) -> None:
        while True:
            for log in list(self._hurried):
                if log.context.state in (LogState.CLOSED, LogState.FENCED):
                    del self._hurried[log]
            if not self._hurried:
                self._hurry = trio.Event()
                await self._hurry.wait()
                continue  # it may have changed its mind already
            interval_s = min(log.context.flush_interval_s for log in self._hurried)
            tick_s = max(interval_s, FLUSH_INTERVAL_MIN_S)
            await trio.sleep(tick_s)
            cursors = [each for log in self._hurried for each in log.cursors.values()]
            await self._flush([each for each in cursors if each in self.dirty], tick_s)

    async def _flush(self, cursors: Sequence[LogCursor], tick_s: float) -> None:
        turns = Turns()
        for cursor in cursors:
            await turns.spend()
            if cursor not in self.dirty:
                continue  # its log was closed meanwhile
            try:
                cursor.writer.flush(tick_s)
            except Exception:
                # Retried after the next acknowledgement.
                _log.exception("a defect: log=%s cursor=%s isn't persisted", *cursor.writer.named)
                self.dirty.pop(cursor, None)
            if not cursor.writer.is_dirty:
                self.dirty.pop(cursor, None)
