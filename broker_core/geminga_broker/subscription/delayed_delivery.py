"""Snapshots of delayed entries: the I/O for a `DelayedTracker` (spec BR-34)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from geminga_broker.log.api import EntryCursor, LogError, LogReadFailed
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.snapshot_log import SnapshotLog
from geminga_broker.subscription.delayed_tracker import BadSnapshot, DelayedTracker, decode
from geminga_protocol.ids import Position

_log = logging.getLogger(__name__)

SHARED = 0
"""Kind of the snapshots of a Shared subscription, whose entries have no hash."""

KEY_SHARED = 1
"""Kind of Key_Shared's snapshots, to which the first slot of the selector is added."""

RESTORE_TRIES = 10
"""Attempts to read snapshots, a second apart, before the log is read instead."""

SAVE_PAUSE_S_MAX = 10.0
"""Longest pause after a failure to save a snapshot; the first one is a second."""


class DelayedDelivery:
    """Runs the effects CollectDue, SAVE_DELAYS and PASS_OVER. A cursor that is not durable has no
    snapshots.
    """

    def __init__(
        self,
        cursor: EntryCursor,
        nursery: trio.Nursery,
        entries_max: int,
        wake: Callable[[], None],
        kind: int = SHARED,
    ) -> None:
        self._kind = kind
        self._cursor = cursor
        self._nursery = nursery
        self._wake = wake
        """Called when there may be room again, or to retry a save."""
        self._passing = cursor if isinstance(cursor, LogCursor) else None
        self._store = self._passing.snapshot_log if self._passing is not None else None
        self.tracker = DelayedTracker(entries_max, restored=self._store is None)
        self._restore_failures = 0
        self._saving = False
        self._save_failures = 0

    def pass_over(self) -> None:
        """Move the cursor over tracked entries, as far as all entries between are acknowledged."""
        if self._passing is not None:
            self._passing.pass_over(self.tracker.tracked_in)

    async def collect_due(
        self, now_ms: int, entries_max: int
    ) -> Sequence[tuple[Position, int]] | None:
        """As `collect`, after restoring saved entries. Raises LogReadFailed."""
        if self._store is not None and not self.tracker.restored:
            await self._restore(self._store)
        if self.tracker.unsaved:
            self.save()
        if not len(self.tracker) or entries_max <= 0:
            return ()
        return await self.collect(now_ms, entries_max)

    async def collect(self, now_ms: int, entries_max: int) -> list[tuple[Position, int]] | None:
        """Entries that are due, with their hashes, without those that the cursor will still read.
        None if a snapshot can't be read: all is forgotten then, and must be reread from the log.
        """
        tracker = self.tracker
        found = tracker.pop_due(now_ms, entries_max) if len(tracker) else []
        while (run := tracker.missing) is not None:
            assert run.place is not None
            assert self._store is not None
            try:
                _, columns = decode(await self._store.read(run.place))
            except (LogReadFailed, BadSnapshot) as error:
                _log.warning("%s: delayed entries are read again: %s", self._cursor.name, error)
                tracker.clear()
                self.save()
                return None
            tracker.loaded(run, columns)
            found += tracker.pop_due(now_ms, entries_max - len(found))
        if tracker.finished:
            self.save()
        read_position = self._cursor.read_position
        return [item for item in found if item[0] < read_position]

    async def _restore(self, store: SnapshotLog) -> None:
        """Restore the snapshots, once. Raises LogReadFailed; after RESTORE_TRIES failures the log
        is read instead.
        """
        tracker, cursor = self.tracker, self._cursor
        try:
            async for place, view in store.load():
                try:
                    kind, columns = decode(view)
                except BadSnapshot as error:
                    _log.warning("%s: delayed entries are read again: %s", cursor.name, error)
                    continue
                if kind == self._kind and columns.due_ms:
                    tracker.restore(place, columns, cursor.is_deleted)
                await trio.lowlevel.checkpoint()
        except LogReadFailed as error:
            tracker.clear()
            self._restore_failures += 1
            if self._restore_failures < RESTORE_TRIES:
                raise
            _log.warning("%s: delayed entries are read again: %s", cursor.name, error)
        tracker.discard_upto(cursor.mark_delete)
        tracker.finished = tracker.restored = True
        self.save()

    def save(self) -> None:
        """Save new runs and delete unneeded snapshots, in a task. Only after a restore of all
        snapshots is it known which are needed.
        """
        if self._store is not None and self.tracker.restored and not self._saving:
            self._saving = True
            self._nursery.start_soon(self._save, self._store)

    async def _save(self, store: SnapshotLog) -> None:
        try:
            try:
                await self._save_all(store)
                return
            except LogError as error:
                _log.warning("%s: delayed entries are not saved: %s", self._cursor.name, error)
            except Exception:
                # A defect here must not crash the broker.
                _log.exception("%s: delayed entries are not saved", self._cursor.name)
            # The next round retries.
            pause_s = 2.0 ** min(self._save_failures, 10)
            self._save_failures += 1
            await trio.sleep(min(SAVE_PAUSE_S_MAX, pause_s))
        finally:
            self._saving = False
            if self.tracker.unsaved:
                self._wake()

    async def _save_all(self, store: SnapshotLog) -> None:
        tracker = self.tracker
        while tracker.unsaved or tracker.finished:
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
