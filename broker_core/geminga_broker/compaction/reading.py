"""A cursor over a compacted ledger, then the log (spec BR-50; Apache's `CompactedTopicUtils`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from geminga_broker.compaction.ledger import after
from geminga_broker.log.api import Cursor, Entry
from geminga_broker.subscription.consumer import SubscribeRequest
from geminga_broker.topic.api import InitialPosition
from geminga_protocol.ids import EARLIEST, LATEST, Position


class CompactedTopic(Protocol):
    """The compacted part of a topic."""

    @property
    def horizon(self) -> Position | None:
        """The compacted ledger replaces the log up to this position; None: nowhere."""

    async def read(
        self, position: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry]:
        """Its entries at or after a position; empty at the end. Raises LogReadFailed."""

    async def find_by_time(self, timestamp_ms: int) -> Position:
        """The start of all messages of that time or later. Raises LogReadFailed."""


class CompactedCursor:
    """An `EntryCursor` for consumers that read compacted. Acknowledgements are those of the log's
    cursor.

    After each compaction it continues at its position: replaced messages come later. The log's
    cursor has no positions in trimmed ledgers, so acknowledgements there are kept here, as long as
    there are consumers.
    """

    def __init__(self, cursor: Cursor, topic: CompactedTopic, request: SubscribeRequest) -> None:
        self.name = cursor.name
        self.ack = cursor.ack
        self.ack_run = cursor.ack_run
        self.ack_set = cursor.ack_set
        self.read_at = cursor.read_at
        self.find_by_time = topic.find_by_time
        self._log = cursor
        self._topic = topic
        self._fetched = (0, 0)
        self._moves = 0
        self._mark = cursor.mark_delete
        self._floor = _start(cursor, request)
        """Where to restart until mark-delete moves, None: after mark-delete."""
        self._place = self._floor

    @property
    def read_position(self) -> Position:
        """The next position to read."""
        return self._log.read_position if self._place is None else self._place

    @read_position.setter
    def read_position(self, position: Position) -> None:
        self._place = position

    @property
    def fetched(self) -> tuple[int, int]:
        """Entries and bytes read from ledgers, of either kind."""
        entries, size_bytes = self._log.fetched
        return entries + self._fetched[0], size_bytes + self._fetched[1]

    @fetched.setter
    def fetched(self, counts: tuple[int, int]) -> None:
        self._fetched = counts

    def available(self, upto: Position | None = None) -> bool:
        """Whether to read; in the compacted part a read may still find nothing."""
        horizon = self._topic.horizon
        if horizon is not None and self.read_position <= horizon:
            return True
        return (self._log if self._place is None else self._jumped()).available(upto)

    async def read(
        self, *, entries_max: int, bytes_max: int, upto: Position | None = None
    ) -> Sequence[Entry]:
        """See `EntryCursor.read`; `upto` doesn't bound compacted entries. Raises LogReadFailed."""
        while True:
            horizon = self._topic.horizon
            place = self.read_position
            if horizon is None or place > horizon:
                return await self._jumped().read(
                    entries_max=entries_max, bytes_max=bytes_max, upto=upto
                )
            moves = self._moves
            entries = await self._topic.read(place, entries_max=entries_max, bytes_max=bytes_max)
            if moves != self._moves:
                continue  # after a rewind or seek during the read
            if not entries:
                # All entries up to the horizon were removed.
                self._place = after(horizon)
                continue
            count, size_bytes = self._fetched
            size_bytes += sum(entry.size for entry in entries)
            self._fetched = (count + len(entries), size_bytes)
            self._place = after(entries[-1].position)
            entries = [entry for entry in entries if not self.is_deleted(entry.position)]
            if entries:
                return entries

    def rewind(self) -> None:
        """Restart at the first unacknowledged entry."""
        self._moves += 1
        self._log.rewind()
        self._place = self._begin()

    def sought(self, position: Position) -> None:
        """The log's cursor was reset to read `position` next, as far as the log has it."""
        self._moves += 1
        self._mark = self._log.mark_delete
        self._floor = self._place = None if position == LATEST else position

    def is_deleted(self, position: Position) -> bool:
        """Whether the entry is acknowledged."""
        begin = self._begin()
        if position < begin:
            return True
        return position > self._log.mark_delete and self._log.is_deleted(position)

    def ack_cumulative(
        self,
        position: Position,
        ack_set: tuple[int, ...] = (),
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """See `EntryCursor.ack_cumulative`."""
        if self._floor is not None and not ack_set and position >= self._floor:
            self._floor = after(position)
        self._log.ack_cumulative(position, ack_set, properties)

    def _begin(self) -> Position:
        mark = self._log.mark_delete
        if self._floor is not None and mark == self._mark:
            return self._floor
        return after(mark)

    def _jumped(self) -> Cursor:
        """The log's cursor, moved to this one's position."""
        if self._place is not None:
            self._log.read_position, self._place = self._place, None
        return self._log

    @property
    def mark_delete(self) -> Position:
        """See `EntryCursor.mark_delete`."""
        return self._log.mark_delete


def _start(cursor: Cursor, request: SubscribeRequest) -> Position | None:
    """The first consumer's start in the compacted part, None: at the log's cursor."""
    earliest = request.initial_position == InitialPosition.Earliest
    if request.durable:
        # Nothing is acknowledged: start with the compacted part, before the log's first entry.
        return EARLIEST if earliest and cursor.mark_delete.entry_id < 0 else None
    if request.rollback_duration_s > 0:
        return None
    start = request.start if request.start is not None else (EARLIEST if earliest else None)
    return None if start == LATEST else start
