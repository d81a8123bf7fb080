"""Delayed entries of one subscription, with their snapshots (spec BR-34)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from typing import Protocol, runtime_checkable

import trio

from geminga_broker.dispatch import delayed
from geminga_broker.dispatch.delayed import BadSnapshot, DelayedTracker, decode
from geminga_broker.log.api import Cursor, Entry, LogError, LogReadFailed
from geminga_protocol.ids import EARLIEST, Position

_log = logging.getLogger(__name__)

SHARED = 0
"""Kind of the snapshots of a Shared subscription, whose entries have no hash."""

KEY_SHARED = 1
"""Kind of those of Key_Shared; the first slot of its selector is added."""


class SnapshotStore(Protocol):
    """Where snapshots are kept: `SideLog` of the log."""

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
    """A cursor beside which snapshots can be kept."""

    @property
    def side_log(self) -> SnapshotStore | None:
        """None if it is not durable."""


class DelayedDelivery:
    """The tracker, and what is awaited for it. Without a store as many entries are tracked as
    `entries_max` says; with one only those without a snapshot are counted.
    """

    def __init__(self, cursor: Cursor, nursery: trio.Nursery, entries_max: int) -> None:
        self.kind = SHARED
        self._cursor = cursor
        self._nursery = nursery
        self._entries_max = entries_max
        self._tracker = DelayedTracker()
        self._store = cursor.side_log if isinstance(cursor, HasSnapshots) else None
        self._restored = self._store is None
        self._saving = False
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
        """Let the cursor not read what is tracked, as far as it lies in one stretch."""
        position = self._cursor.read_position
        beyond = self._tracker.beyond(position)
        if beyond != position:
            self._cursor.read_position = beyond

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
            tracker.loaded(columns)
            found += tracker.pop_due(now_ms, entries_max - len(found))
        if tracker.finished:
            self._save_soon()
        read_position = self._cursor.read_position
        return [item for item in found if item[0] < read_position]

    async def restore(self) -> None:
        """Take over the snapshots, once. Raises LogReadFailed."""
        store = self._store
        if self._restored or store is None:
            return
        tracker = DelayedTracker()
        async for place, view in store.load():
            try:
                kind, columns = decode(view)
            except BadSnapshot as error:
                _log.warning("%s: delayed entries are read again: %s", self._cursor.name, error)
                continue
            if kind == self.kind:
                tracker.restore(place, columns, self._cursor.is_deleted)
            await trio.lowlevel.checkpoint()
        tracker.finished = True
        self._tracker = tracker
        self._restored = True
        self._save_soon()

    def _save_soon(self) -> None:
        if self._store is not None and not self._saving:
            self._saving = True
            self._nursery.start_soon(self._save, self._store)

    async def _save(self, store: SnapshotStore) -> None:
        try:
            while (tracker := self._tracker).unsaved or tracker.finished:
                if not tracker.unsaved:
                    tracker.finished = False
                    await store.keep(tracker.places())
                    continue
                run = tracker.unsaved[0]
                place = await store.append(run.columns.encode(self.kind))
                if run in tracker.unsaved:
                    tracker.unsaved.remove(run)
                    run.saved(place)
        except LogError as error:
            # Tried again when the next run is full, or ends.
            _log.warning("%s: delayed entries are not saved: %s", self._cursor.name, error)
        except Exception:
            # A defect here must not take down the broker.
            _log.exception("%s: delayed entries are not saved", self._cursor.name)
        finally:
            self._saving = False
