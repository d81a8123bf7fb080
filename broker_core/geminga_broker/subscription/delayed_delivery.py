"""Delayed entries of one subscription, with their snapshots (spec BR-34)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from typing import Protocol, runtime_checkable

import trio
from pyroaring import BitMap

from geminga_broker.log.api import Cursor, Entry, LogError, LogReadFailed
from geminga_broker.subscription import delayed_tracker as delayed
from geminga_broker.subscription.delayed_tracker import BadSnapshot, DelayedTracker, decode
from geminga_protocol.ids import EARLIEST, Position

_log = logging.getLogger(__name__)

SHARED = 0
"""Kind of the snapshots of a Shared subscription, whose entries have no hash."""

KEY_SHARED = 1
"""Kind of those of Key_Shared; the first slot of its selector is added."""

RESTORE_TRIES = 10
"""Snapshots that can't be read are tried so often, a second apart, before the log is read."""

SAVE_PAUSE_S_MAX = 10.0
"""Longest pause after a snapshot could not be saved; it begins with a second."""


class SnapshotStore(Protocol):
    """Where snapshots are kept: `SnapshotLog` of the log."""

    def load(self) -> AsyncIterator[tuple[tuple[int, int], memoryview]]:
        """All of them. Raises LogReadFailed."""

    async def append(self, data: bytes) -> tuple[int, int]:
        """Answers its place; durable on return. Raises LogWriteFailed, LogFenced."""

    async def read(self, place: tuple[int, int]) -> memoryview:
        """Raises LogReadFailed."""

    async def keep(self, places: Collection[tuple[int, int]]) -> None:
        """The others may go."""


@runtime_checkable
class HasSnapshots(Protocol):
    """A cursor beside which snapshots can be kept, and that can pass over what they hold."""

    @property
    def snapshot_log(self) -> SnapshotStore | None:
        """None if it is not durable."""

    def pass_over(self, members: Callable[[int], BitMap | None]) -> None:
        """Move the read position to the next entry that is neither acknowledged nor a member of
        its ledger's bitmap.
        """


class DelayedDelivery:
    """The tracker, and what is awaited for it. Without a store as many entries are tracked as
    `entries_max` says; with one only those without a snapshot are counted.
    """

    def __init__(
        self,
        cursor: Cursor,
        nursery: trio.Nursery,
        entries_max: int,
        wake: Callable[[], None],
        kind: int = SHARED,
    ) -> None:
        self._kind = kind
        self._cursor = cursor
        self._nursery = nursery
        self._entries_max = entries_max
        self._wake = wake
        """Called when there may be room again, or a save is to be tried again."""
        self._tracker = DelayedTracker()
        self._passing = cursor if isinstance(cursor, HasSnapshots) else None
        self._store = self._passing.snapshot_log if self._passing is not None else None
        self._restored = self._store is None
        self._restore_failures = 0
        self._saving = False
        self._save_failures = 0
        self._held_upto = EARLIEST

    def __len__(self) -> int:
        return len(self._tracker)

    def __contains__(self, position: Position) -> bool:
        return position in self._tracker

    @property
    def size_bytes(self) -> int:
        """About how much memory they take."""
        return self._tracker.size_bytes

    @property
    def last(self) -> tuple[int, int]:
        """No position beyond it is tracked."""
        return self._tracker.last

    @property
    def idle(self) -> bool:
        """Whether there is nothing to restore, save or collect."""
        return self._restored and not self._tracker.unsaved and not len(self._tracker)

    @property
    def full(self) -> bool:
        """Whether reading further has to wait."""
        return len(self._tracker.unsaved) * delayed.RUN_ENTRIES >= self._entries_max

    @property
    def next_due_ms(self) -> int | None:
        """Wall clock time of the next, None if there is none."""
        return 0 if self._tracker.missing is not None else self._tracker.next_due_ms

    def add(self, due_ms: int, position: Position, key_hash: int) -> None:
        """Keep an entry until then."""
        self._tracker.add(due_ms, position, key_hash)
        if self._tracker.unsaved:
            self._save_soon()

    def skip_tracked(self) -> None:
        """Let the cursor not read what is tracked, as far as all between is acknowledged."""
        if self._passing is not None:
            self._passing.pass_over(self._tracker.tracked_in)

    def discard(self, position: Position) -> None:
        """An entry was acknowledged, though nobody holds it."""
        self._tracker.discard(position)

    def forget_deleted(self) -> None:
        """Mark-delete was moved from outside (skip, expire, seek)."""
        tracker = self._tracker
        tracker.discard_upto(self._cursor.mark_delete)
        if tracker.finished:
            self._save_soon()
        self._wake()

    def untracked(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Without those that wait here: they are read a second time."""
        if self._tracker and entries and entries[0].position <= self.last:
            return [entry for entry in entries if entry.position not in self._tracker]
        return entries

    def read_again_beside(self, held: Iterable[Position]) -> None:
        """All is read again from the log, while consumers hold these entries."""
        self._held_upto = max(held, default=EARLIEST)

    def unheld(
        self, entries: Sequence[Entry], holds: Callable[[Position], bool]
    ) -> Sequence[Entry]:
        """Without those that were sent before the log was read again, and aren't to be now."""
        if entries and entries[0].position <= self._held_upto:
            return [entry for entry in entries if not holds(entry.position)]
        return entries

    async def collect_due(
        self, now_ms: int, entries_max: int
    ) -> Sequence[tuple[Position, int]] | None:
        """As `collect`, after what was saved is taken over. Raises LogReadFailed."""
        await self.restore()
        self.save_pending()
        if not len(self) or entries_max <= 0:
            return ()
        return await self.collect(now_ms, entries_max)

    async def collect(self, now_ms: int, entries_max: int) -> list[tuple[Position, int]] | None:
        """Those whose time has come, but for those that the cursor has yet to read: it will. None
        if a snapshot can't be read: then all is forgotten and must be read again from the log.
        """
        tracker = self._tracker
        found = tracker.pop_due(now_ms, entries_max) if len(tracker) else []
        while (run := tracker.missing) is not None:
            assert run.place is not None
            assert self._store is not None
            try:
                _, columns = decode(await self._store.read(run.place))
            except (LogReadFailed, BadSnapshot) as error:
                _log.warning("%s: delayed entries are read again: %s", self._cursor.name, error)
                self._tracker = DelayedTracker()
                self._tracker.finished = True
                self._save_soon()
                return None
            tracker.loaded(run, columns)
            found += tracker.pop_due(now_ms, entries_max - len(found))
        if tracker.finished:
            self._save_soon()
        read_position = self._cursor.read_position
        return [item for item in found if item[0] < read_position]

    async def restore(self) -> None:
        """Take over the snapshots, once. Raises LogReadFailed; when that goes on, the log is read
        instead.
        """
        store = self._store
        if self._restored or store is None:
            return
        tracker = DelayedTracker()
        try:
            await self._take_over(store, tracker)
        except LogReadFailed as error:
            self._restore_failures += 1
            if self._restore_failures < RESTORE_TRIES:
                raise
            _log.warning("%s: delayed entries are read again: %s", self._cursor.name, error)
        tracker.discard_upto(self._cursor.mark_delete)
        tracker.finished = True
        self._tracker = tracker
        self._restored = True
        self._save_soon()

    async def _take_over(self, store: SnapshotStore, tracker: DelayedTracker) -> None:
        async for place, view in store.load():
            try:
                kind, columns = decode(view)
            except BadSnapshot as error:
                _log.warning("%s: delayed entries are read again: %s", self._cursor.name, error)
                continue
            if kind == self._kind and columns.due_ms:
                tracker.restore(place, columns, self._cursor.is_deleted)
            await trio.lowlevel.checkpoint()

    def save_pending(self) -> None:
        """Try again what could not be saved."""
        if self._tracker.unsaved:
            self._save_soon()

    def _save_soon(self) -> None:
        if self._store is not None and not self._saving:
            self._saving = True
            self._nursery.start_soon(self._save, self._store)

    async def _save(self, store: SnapshotStore) -> None:
        try:
            try:
                await self._save_all(store)
                return
            except LogError as error:
                _log.warning("%s: delayed entries are not saved: %s", self._cursor.name, error)
            except Exception:
                # A defect here must not take down the broker.
                _log.exception("%s: delayed entries are not saved", self._cursor.name)
            # The next round tries again.
            pause_s = 2.0 ** min(self._save_failures, 10)
            self._save_failures += 1
            await trio.sleep(min(SAVE_PAUSE_S_MAX, pause_s))
        finally:
            self._saving = False
            if self._tracker.unsaved:
                self._wake()

    async def _save_all(self, store: SnapshotStore) -> None:
        while (tracker := self._tracker).unsaved or tracker.finished:
            if not tracker.unsaved:
                tracker.finished = False
                await store.keep(tracker.places())
                continue
            run = tracker.unsaved[0]
            place = await store.append(run.columns.encode(self._kind))
            self._save_failures = 0
            if run in tracker.unsaved:
                tracker.unsaved.remove(run)
                run.saved(place)
            self._wake()
