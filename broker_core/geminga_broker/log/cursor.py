"""A subscription's place in a log: reading, acknowledging, persisting (spec BR-05, BR-07)."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pyroaring import BitMap

from geminga_broker.log.ack_state import AckState, run_end
from geminga_broker.log.api import Ack, AckRun, CursorStatistics, EntryDamaged
from geminga_broker.log.chain import LedgerChain
from geminga_broker.log.context import LogContext
from geminga_broker.log.cursor_store import CursorStore
from geminga_broker.log.cursor_use import CursorUse
from geminga_broker.log.cursor_writer import CursorWriter
from geminga_broker.log.entry import LogEntry, total_size
from geminga_broker.log.reading import LogReads
from geminga_broker.log.snapshot_log import SnapshotLog
from geminga_protocol.ids import Position

_log = logging.getLogger(__name__)


class LogAccess(NamedTuple):
    """The parts of a log that its cursors use."""

    context: LogContext
    reads: LogReads
    changed: Callable[[LogCursor], None]
    """Called when there is something to persist."""
    passed: Callable[[], None]
    """Called when mark-delete has passed the end of a ledger."""
    active: OrderedDict[LogCursor, None]
    """Active cursors, and some that no longer are."""


class TrimHold:
    """The limit that one cursor sets for its log's trimming."""

    def __init__(self, chain: LedgerChain, state: AckState, passed: Callable[[], None]) -> None:
        """`passed` is called when mark-delete has passed the end of a ledger."""
        self._chain = chain
        self._state = state
        self._passed = passed
        self._waits_for = chain.next_position(state.mark_delete)[0]
        self._kept_from: Position | None = None

    @property
    def mark(self) -> Position:
        """The cursor doesn't need entries up to this position."""
        return self._state.mark_delete if self._kept_from is None else self._kept_from

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep entries that mark-delete passes in the block, until it or a later one succeeds."""
        if self._kept_from is None:
            self._kept_from = self._state.mark_delete
        yield
        self._kept_from = None
        self._passed()

    def moved(self) -> None:
        """Mark-delete may have moved."""
        waits_for = self._chain.next_position(self._state.mark_delete)[0]
        if waits_for != self._waits_for:
            self._waits_for = waits_for
            self._passed()


class LogCursor:
    """`Cursor` over a log. Without a store it is a reader's, not durable."""

    def __init__(
        self,
        name: str,
        access: LogAccess,
        store: CursorStore | None,
        state: AckState,
        properties: Mapping[str, int],
        last_active_ms: int | None = None,
    ) -> None:
        context = access.context
        self.name = name
        self.properties = dict(properties)
        self.fetched = (0, 0)
        self.state = state
        self.read_position = state.first_unacked(state.mark_delete)
        self._access = access
        self.use = CursorUse(context.options.now_ms, last_active_ms)
        self.trim = TrimHold(context.chain, state, access.passed)
        self.writer = CursorWriter(
            self, store, context.options.cursors, context, context.spawn, context.fence
        )
        self.snapshot_log: SnapshotLog | None = None
        """Records beside the cursor; None if it is not durable."""
        if store is not None:
            self.snapshot_log = SnapshotLog(
                self.writer, context.client, context.options, (context.name, name)
            )
        self.meter = None if store is None else store.meter
        """What it wrote; None if it is not durable."""
        self._meter, self._marked = context.meter, state.mark_delete
        # See `Cursor` for these.
        self.is_deleted = state.is_deleted
        self.ack_set = state.ack_set
        self.backlog_entries = state.backlog
        self.persist = self.writer.persist
        self.set_cursor_properties = self.writer.set_properties

    def __repr__(self) -> str:
        return f"<LogCursor {self.name} at {self.mark_delete}, reads {self.read_position}>"

    @property
    def durable(self) -> bool:
        """Whether it is stored."""
        return self.snapshot_log is not None

    @property
    def mark_delete(self) -> Position:
        """Every entry up to it is acknowledged."""
        return self.state.mark_delete

    @property
    def cursor_properties(self) -> Mapping[str, str]:
        """Properties of the subscription."""
        return self.writer.cursor_properties

    def available(self, upto: Position | None = None) -> bool:
        """See `Cursor.available`."""
        last = self._access.context.last_position
        if upto is not None and upto < last:
            last = upto
        if self.read_position > last:
            return False
        return self.state.first_unacked(self.read_position) <= last

    def on_available(self, wake: Callable[[], None] | None) -> None:
        """See `Cursor.on_available`."""
        if wake is not None:
            self._access.active[self] = None
        self.use.wait(wake)

    async def read(
        self, *, entries_max: int, bytes_max: int, upto: Position | None = None
    ) -> list[LogEntry]:
        """See `Cursor.read`. Raises LogReadFailed."""
        state = self.state
        chain = self._access.context.chain
        while True:
            if state.holes or self.read_position <= state.mark_delete:
                position = state.first_unacked(self.read_position)
            else:
                position = chain.at_or_after(self.read_position)
            self.read_position = position
            ledger_id, first = position
            ledger = chain.get(ledger_id)
            if ledger is None or first >= ledger.entries:
                return []
            last = min(ledger.entries, first + entries_max) - 1
            if upto is not None and (ledger_id, last) > upto:
                if position > upto:
                    return []
                last = upto.entry_id
            entries = self._access.reads.cached(ledger_id, first, last)
            if entries:
                entries = self._access.reads.hit(entries, bytes_max)
            else:
                try:
                    entries = await self._access.reads.entries(
                        position, entries_max=last - first + 1, bytes_max=bytes_max
                    )
                except EntryDamaged as error:
                    if not self._access.context.options.skips_damaged():
                        raise
                    if self.read_position == position:
                        _log.error(
                            "log=%s cursor=%s: an entry is passed over: %s",
                            *self.writer.named,
                            error,
                        )
                        self.ack([Ack(position)])
                        self.read_position = Position(ledger_id, first + 1)
                    continue
                if self.read_position != position:
                    continue  # a concurrent seek or rewind
                if entries and upto is not None and entries[-1].position > upto:
                    continue  # the ledger was trimmed: these entries are of the next
                if not entries:
                    return []
                self._count_fetched(entries)
            end = entries[-1].position
            self.read_position = Position(end[0], end[1] + 1)
            if state.holes or entries[0].position <= state.mark_delete:
                deleted = state.is_deleted
                entries = [entry for entry in entries if not deleted(entry.position)]
            if entries:
                return entries

    async def read_at(self, positions: Sequence[Position]) -> list[LogEntry]:
        """See `Cursor.read_at`. Raises LogReadFailed."""
        found: list[LogEntry] = []
        reads, chain = self._access.reads, self._access.context.chain
        index = 0
        while index < len(positions):
            ledger_id, first = positions[index]
            run = 1
            while index + run < len(positions) and positions[index + run] == (
                ledger_id,
                first + run,
            ):
                run += 1
            if not chain.holds(positions[index]):
                index += 1
                continue
            entries = reads.cached(ledger_id, first, first + run - 1)
            if entries:
                entries = reads.hit(entries, 1 << 62)
            else:
                entries = await reads.entries(positions[index], entries_max=run, bytes_max=1 << 62)
                self._count_fetched(entries)
            wanted = [entry for entry in entries if entry.position[0] == ledger_id]
            found += wanted
            index += max(len(wanted), 1)
        deleted = self.state.is_deleted
        return [entry for entry in found if not deleted(entry.position)]

    def _count_fetched(self, entries: list[LogEntry]) -> None:
        count, size_bytes = self.fetched
        size_bytes += total_size(entries)
        self.fetched = (count + len(entries), size_bytes)

    def rewind(self) -> None:
        """See `Cursor.rewind`."""
        self.read_position = self.state.first_unacked(self.mark_delete)

    def pass_over(self, members: Callable[[int], BitMap | None]) -> None:
        """Move the read position to the next entry that is neither acknowledged nor a member of
        its ledger's bitmap, in one step for each ledger and stretch of such entries.
        """
        state = self.state
        position = state.first_unacked(self.read_position)
        while (passed := members(position[0])) is not None and position[1] in passed:
            if (deleted := state.deleted_of(position[0])) is not None:
                passed = passed | deleted
            end = run_end(passed, position[1])
            position = state.first_unacked(Position(position[0], end + 1))
        self.read_position = position

    def ack(self, acks: Iterable[Ack]) -> list[Position]:
        """See `Cursor.ack`."""
        done = self.state.ack(acks)
        self._changed()
        return done

    def ack_run(self, run: AckRun) -> None:
        """See `Cursor.ack_run`."""
        self.state.ack_run(run)
        self._changed()

    def ack_cumulative(
        self,
        position: Position,
        ack_set: tuple[int, ...] = (),
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """See `Cursor.ack_cumulative`."""
        if self.state.ack_cumulative(position, ack_set) or properties is not None:
            if properties is not None:
                self.properties = dict(properties)
            self._changed()

    async def seek(self, position: Position) -> None:
        """See `Cursor.seek`."""
        chain = self._access.context.chain
        position = chain.at_or_after(position)
        self.state.reset(chain.previous_position(position))
        self.read_position = position
        self._changed()
        await self.persist()

    async def skip(self, entries: int) -> None:
        """See `Cursor.skip`."""
        if entries > 0:
            self.ack_cumulative(self.state.skip_target(entries))
        await self.persist()

    def unacked_at(self, number: int) -> Position | None:
        """See `Cursor.unacked_at`."""
        if not 0 < number <= self.state.backlog():
            return None
        return self.state.skip_target(number)

    def write_use(self, slack_s: float) -> None:
        """Persist the last use soon if the stored time is at least `slack_s` too old."""
        if self.use.is_stale(slack_s):
            self._changed()

    def statistics(self) -> CursorStatistics:
        """See `Cursor.statistics`."""
        return CursorStatistics(
            self.name,
            self.durable,
            self.use.is_active,
            self.mark_delete,
            self.read_position,
            self.state.holes,
            self.backlog_entries(),
            self.cursor_properties,
            self.writer.written,
        )

    def _changed(self) -> None:
        self.writer.changes += 1
        if self.state.mark_delete != self._marked:
            self._marked = self.state.mark_delete
            self._meter.mark_deletes += 1
        self._access.changed(self)
        self.trim.moved()
