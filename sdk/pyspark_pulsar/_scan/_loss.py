"""Detects messages lost between two reads, by ids alone (spec SP-05, decision 18).

Topics lose messages from the front, whole ledgers at a time. So as long as the ledger where a read
continues exists, everything after it exists too, even if that ledger has nothing more to read. If
it doesn't exist, later messages may be lost with it. A query's subscription leaves the last message
read unacknowledged, so that retention doesn't trim that ledger.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from geminga import EntryBatch, GemingaError, OperationTimeoutError
from pyspark_pulsar._positions import BEGIN, Position
from pyspark_pulsar._scan._range_reader import EntryReader
from pyspark_pulsar.errors import DataLoss

logger = logging.getLogger("pyspark_pulsar")

Opener = Callable[[Position], AbstractContextManager[EntryReader]]
LOOK_S = 0.5
"""How long to wait for an entry before checking whether there is one."""
CHUNKS_S = 5.0
"""How long to wait for more chunks of a message."""
WAITS_MAX_S = 120.0
"""Default time limit for the first entry of a ledger."""
LOOK_EVERY_S = 1.0
"""How often a read checks whether the ledgers that it finished still exist."""


def check_start(
    open_at: Opener,
    topic: str,
    start: Position,
    found: Position | None,
    *,
    fails: bool,
    waits_max_s: float = WAITS_MAX_S,
) -> None:
    """Check whether messages from `start` on were lost, if a read from there found `found` as its
    first entry (None: none). Raises DataLoss; without `fails` logs it. Raises OperationTimeoutError
    if it is unknown after `waits_max_s` seconds.
    """
    if start.ledger_id < 0 or (found is not None and found.ledger_id == start.ledger_id):
        return
    first = _first_from(open_at, topic, Position(start.ledger_id, 0), waits_max_s)
    if first is not None and first.ledger_id <= start.ledger_id:
        return
    if first is None:
        lost(topic, f"no messages are left, but {start} was to be read next", fails=fails)
    else:
        lost(topic, f"messages from {start} to before {first} are gone", fails=fails)


class Continuity:
    """Checks whether ledgers were deleted during a read, by the same rule: when it continues in
    another ledger, the one before must still exist.
    """

    def __init__(
        self,
        open_at: Opener,
        topic: str,
        *,
        fails: bool,
        waits_max_s: float = WAITS_MAX_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_at = open_at
        self._topic = topic
        self._fails = fails
        self._waits_max_s = waits_max_s
        self._clock = clock
        self._ledger: int | None = None
        self._left: int | None = None
        """The first ledger finished since the last check."""
        self._left_s = 0.0

    def came_to(self, ledger: int) -> None:
        """The next entry is in `ledger`. Raises DataLoss."""
        if ledger == self._ledger:
            return
        if self._left is None and self._ledger is not None:
            self._left, self._left_s = self._ledger, self._clock()
        self._ledger = ledger
        if self._left is not None and self._clock() - self._left_s >= LOOK_EVERY_S:
            self.look()

    def ended(self, last: Position, stop: Position) -> None:
        """The read of a range up to `stop` ended with the entry `last`. Raises DataLoss."""
        if self._left is None and last < stop.entry:
            self._left = last.ledger_id
        self.look()

    def look(self) -> None:
        """Raises DataLoss, OperationTimeoutError."""
        left, self._left = self._left, None
        if left is None:
            return
        first = _first_from(self._open_at, self._topic, Position(left, 0), self._waits_max_s)
        if first is None or first.ledger_id > left:
            lost(
                self._topic,
                f"ledger {left} and what followed it were deleted while being read",
                fails=self._fails,
            )


def lost(topic: str, reason: str, *, fails: bool) -> None:
    """Report lost messages: raises DataLoss, or logs it unless `fails`."""
    error = DataLoss(topic, f"{reason} (expired, trimmed, or the topic was deleted)")
    if fails:
        raise error
    logger.warning("topic %s: %s", topic, error.reason)


def _first_from(
    open_at: Opener, topic: str, place: Position, waits_max_s: float
) -> Position | None:
    """The first entry from `place` on, None if there is none. Silence alone proves nothing: a
    ledger may be closing, or the topic moving to another broker. Raises OperationTimeoutError,
    DataLoss.
    """
    silent_s = 0.0
    with open_at(place) as reader:
        while True:
            began_s = time.monotonic()
            try:
                return _place_of(reader.read_batches(LOOK_S, bytes_max=1)[0])
            except OperationTimeoutError:
                silent_s += max(LOOK_S, time.monotonic() - began_s)
            # Chunks without the last one: the topic isn't empty, though no message can be read.
            chunk = max(Position(each.ledger_id, each.entry_id) for each in reader.received_ids())
            if chunk != BEGIN and silent_s >= CHUNKS_S:
                return chunk
            if not _may_have_more(reader):
                return _rest(reader) or (None if chunk == BEGIN else chunk)
            if silent_s >= waits_max_s:
                raise OperationTimeoutError(
                    f"nothing came from {place} on for {silent_s:.0f} s, so it is unknown whether "
                    "messages were lost; pollTimeoutMs sets how long to wait",
                    topic=topic,
                )


def _may_have_more(reader: EntryReader) -> bool:
    try:
        return reader.has_message_available()
    except GemingaError as error:
        if error.retryable:
            # The broker is away; the reader reconnects by itself.
            return True
        raise


def _rest(reader: EntryReader) -> Position | None:
    """An entry that arrived during the check."""
    try:
        return _place_of(reader.read_batches(0.0, bytes_max=1)[0])
    except OperationTimeoutError:
        return None


def _place_of(entry: EntryBatch) -> Position:
    # A chunked message has the position of its last chunk; its first chunk exists as well.
    first = entry.message_ids()[0].first_chunk
    if first is not None:
        return Position(first.ledger_id, first.entry_id)
    return Position(entry.ledger_id, entry.entry_id)
