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
        """Its entries from a position on; empty behind the last. Raises LogReadFailed."""

    async def find_by_time(self, timestamp_ms: int) -> Position:
        """Where to read from, for all that was published then or later. Raises LogReadFailed."""


class CompactedCursor:
    """An `EntryCursor` for consumers that read compacted. Acknowledgements are those of the log's
    cursor.

    It reads on from where it is after each compaction: what was replaced meanwhile comes later. The
    log's cursor knows no positions in ledgers that are trimmed, so what was read and acknowledged
    there is remembered here, as long as somebody is subscribed.
    """

    def __init__(self, cursor: Cursor, topic: CompactedTopic, request: SubscribeRequest) -> None:
        self.name = cursor.name
        self.ack = cursor.ack
        self.ack_set = cursor.ack_set
        self.read_at = cursor.read_at
        self.find_by_time = topic.find_by_time
        self._log = cursor
        self._topic = topic
        self._fetched = (0, 0)
        self._moves = 0
        self._mark = cursor.mark_delete
        self._floor = _start(cursor, request)
        """Where to begin again while mark-delete is where it was, None: behind mark-delete."""
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
        """Entries and bytes that came from ledgers, of either kind."""
        entries, size_bytes = self._log.fetched
        return entries + self._fetched[0], size_bytes + self._fetched[1]

    @fetched.setter
    def fetched(self, counts: tuple[int, int]) -> None:
        self._fetched = counts

    def available(self, upto: Position | None = None) -> bool:
        """Whether reading is worth while; in the compacted part it may find nothing."""
        horizon = self._topic.horizon
        if horizon is not None and self.read_position <= horizon:
            return True
        return (self._log if self._place is None else self._jumped()).available(upto)

    async def read(
        self, *, entries_max: int, bytes_max: int, upto: Position | None = None
    ) -> Sequence[Entry]:
        """See `EntryCursor.read`. What is compacted may all be read. Raises LogReadFailed."""
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
                continue  # rewind or seek came in between
            if not entries:
                # It was compacted away up to the end.
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
        """Read again from the first entry that is not acknowledged."""
        self._moves += 1
        self._log.rewind()
        self._place = self._begin()

    def sought(self, position: Position) -> None:
        """The log's cursor was reset so that `position` is read next, as far as it is there."""
        self._moves += 1
        self._mark = self._log.mark_delete
        self._floor = self._place = None if position == LATEST else position

    def is_deleted(self, position: Position) -> bool:
        """Whether it is acknowledged."""
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
        """The log's cursor, where this one is."""
        if self._place is not None:
            self._log.read_position, self._place = self._place, None
        return self._log

    @property
    def mark_delete(self) -> Position:
        """See `EntryCursor.mark_delete`."""
        return self._log.mark_delete


def _start(cursor: Cursor, request: SubscribeRequest) -> Position | None:
    """Where a first consumer begins in the compacted part, None: where the log's cursor is."""
    earliest = request.initial_position == InitialPosition.Earliest
    if request.durable:
        # Nothing was acknowledged yet: before the log's first entry there is the compacted part.
        return EARLIEST if earliest and cursor.mark_delete.entry_id < 0 else None
    if request.rollback_duration_s > 0:
        return None
    start = request.start if request.start is not None else (EARLIEST if earliest else None)
    return None if start == LATEST else start
