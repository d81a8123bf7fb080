"""Reads the entries of a range once, and stops at its end (spec SP-03, SP-05).

The last message of a range may never arrive: it was compacted away, or is a chunk of a message that
ends later, or a transaction marker. So whenever nothing arrives for a moment, the reader is asked
whether the topic has more, and which entries arrived without giving a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from geminga import EntryBatch, GemingaError, MessageId, OperationTimeoutError
from pyspark_pulsar._decode._metadata import EntrySlice
from pyspark_pulsar._positions import Position, TopicRange
from pyspark_pulsar._scan._pace import Throttle

READ_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of payload read at once."""
IDLE_S_MIN = 0.1
"""How long to wait for an entry before the first check whether there are more."""
IDLE_S_MAX = 2.0
"""The same for later checks."""


class EntryReader(Protocol):
    """A reader of `geminga.blocking` on one topic."""

    def read_batches(
        self, timeout_s: float | None = None, *, bytes_max: float = ...
    ) -> list[EntryBatch]:
        """Entries in order. Raises OperationTimeoutError if none arrives."""
        ...

    def has_message_available(self) -> bool:
        """Whether the topic has messages after those that were read."""
        ...

    def received_ids(self) -> list[MessageId]:
        """The last entry received, even if it gave no message."""
        ...


class RangeReader:
    """Reads a range once. Waits at most `waits_max_s` for an entry that should arrive."""

    def __init__(
        self,
        reader: EntryReader,
        wanted: TopicRange,
        throttle: Throttle,
        waits_max_s: float,
        *,
        bytes_max: int = READ_BYTES_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._wanted = wanted
        self._throttle = throttle
        self._waits_max_s = waits_max_s
        self._bytes_max = min(bytes_max, throttle.chunk_bytes)
        self._clock = clock
        self.first_found: Position | None = None
        """The first entry that the broker sent, in the range or after it."""
        self.last_found: Position | None = None
        """The last entry received, in the range or the first one after it."""

    def slices(self) -> Iterator[EntrySlice]:
        """The messages of the range, in order. Raises GemingaError, OperationTimeoutError if
        nothing arrives though the topic should have more.
        """
        stop_entry = self._wanted.stop.entry
        while True:
            entries = self._next()
            if not entries:
                return
            if self._throttle.is_limited:
                self._pay(entries)
            for entry in entries:
                position = Position(entry.ledger_id, entry.entry_id)
                if self.first_found is None:
                    self.first_found = position
                self.last_found = position
                if position > stop_entry:
                    return
                entry_slice = self._clipped(entry, position)
                if entry_slice is not None:
                    yield entry_slice
                if position == stop_entry:
                    return

    def _pay(self, entries: list[EntryBatch]) -> None:
        """Pause for the entries before returning them: so short ranges pay too."""
        stop = self._wanted.stop[:2]
        own = [each for each in entries if (each.ledger_id, each.entry_id) <= stop]
        self._throttle.took(
            sum(len(each.indexes) for each in own), sum(each.size_bytes for each in own)
        )

    def _clipped(self, entry: EntryBatch, position: Position) -> EntrySlice | None:
        """The entry's messages in the range."""
        start, stop = self._wanted.start, self._wanted.stop
        if position < start.entry:
            return None
        indexes = entry.indexes
        first, end = 0, len(indexes)
        if position == start.entry and start.batch_index > 0:
            first = sum(1 for index in indexes if index < start.batch_index)
        if position == stop.entry and stop.batch_index >= 0:
            end = sum(1 for index in indexes if index <= stop.batch_index)
        return EntrySlice(entry, first, end) if first < end else None

    def _next(self) -> list[EntryBatch]:
        """Entries; none if the range has no more."""
        waited_s = 0.0
        idle_s = IDLE_S_MIN
        while True:
            began_s = self._clock()
            try:
                return self._reader.read_batches(idle_s, bytes_max=self._bytes_max)
            except OperationTimeoutError:
                if self._is_over():
                    # Entries may have arrived during the check.
                    return self._rest()
            waited_s += self._clock() - began_s
            if waited_s >= self._waits_max_s:
                raise OperationTimeoutError(
                    f"nothing came for {waited_s:.0f} s, though the topic should have messages up "
                    f"to {self._wanted.stop}; pollTimeoutMs sets how long to wait",
                    topic=self._wanted.topic,
                )
            idle_s = min(idle_s * 2, IDLE_S_MAX, self._waits_max_s)

    def _rest(self) -> list[EntryBatch]:
        try:
            return self._reader.read_batches(0.0, bytes_max=self._bytes_max)
        except OperationTimeoutError:
            return []

    def _is_over(self) -> bool:
        try:
            received = max((id_.ledger_id, id_.entry_id) for id_ in self._reader.received_ids())
            if received >= self._wanted.stop[:2]:
                return True
            return not self._reader.has_message_available()
        except GemingaError as error:
            if error.retryable:
                # The broker is away; the reader reconnects by itself.
                return False
            raise
