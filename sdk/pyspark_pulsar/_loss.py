"""Whether messages between two reads are gone, told by ids alone (spec SP-05, decision 18).

Topics lose messages from their front, whole ledgers at a time. So as long as the ledger in which a
read goes on is there, everything behind it is there too, even if that ledger has nothing more to
read. If it is gone, what followed may be gone with it. A query's anchor leaves the last message
that it read unacknowledged, so that no ordinary trimming takes that ledger away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from geminga import Timeout
from pyspark_pulsar._offsets import BEGIN, Position
from pyspark_pulsar._walk import EntryReader
from pyspark_pulsar.errors import DataLoss

logger = logging.getLogger("pyspark_pulsar")

Opener = Callable[[Position], AbstractContextManager[EntryReader]]
LOOK_S = 5.0
"""How long the first entry of a ledger may take to come."""
LOOK_EVERY_S = 1.0
"""How long a read goes on before it is looked whether the ledgers that it left are still there."""


def check_start(
    open_at: Opener, topic: str, start: Position, found: Position | None, *, fails: bool
) -> None:
    """Look whether messages from `start` on were lost, when a read from there found `found` as its
    first entry (None: none). Raises DataLoss; without `fails` it is logged.
    """
    if start.ledger_id < 0 or (found is not None and found.ledger_id == start.ledger_id):
        return
    first = _first_from(open_at, Position(start.ledger_id, 0))
    if first is not None and first.ledger_id <= start.ledger_id:
        return
    if first is None:
        lost(topic, f"nothing is left of it, though {start} was to be read next", fails=fails)
    else:
        lost(topic, f"messages from {start} to before {first} are gone", fails=fails)


class Continuity:
    """Looks whether ledgers went away under a read, by the same rule: when it goes on in another
    ledger, the one that it left has to be there still.
    """

    def __init__(
        self,
        open_at: Opener,
        topic: str,
        *,
        fails: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_at = open_at
        self._topic = topic
        self._fails = fails
        self._clock = clock
        self._ledger: int | None = None
        self._left: int | None = None
        """The first ledger that was left since it was looked last."""
        self._left_s = 0.0

    def came_to(self, ledger: int) -> None:
        """The next entry is of that ledger. Raises DataLoss."""
        if ledger == self._ledger:
            return
        if self._left is None and self._ledger is not None:
            self._left, self._left_s = self._ledger, self._clock()
        self._ledger = ledger
        if self._left is not None and self._clock() - self._left_s >= LOOK_EVERY_S:
            self.look()

    def ended(self, last: Position, stop: Position) -> None:
        """No more comes after the entry `last`, where `stop` is the end that was wanted. Raises
        DataLoss.
        """
        if self._left is None and last < stop.entry:
            self._left = last.ledger_id
        self.look()

    def look(self) -> None:
        """Raises DataLoss."""
        left, self._left = self._left, None
        if left is None:
            return
        first = _first_from(self._open_at, Position(left, 0))
        if first is None or first.ledger_id > left:
            lost(
                self._topic,
                f"ledger {left} and what followed it went away while it was read",
                fails=self._fails,
            )


def lost(topic: str, reason: str, *, fails: bool) -> None:
    """Messages are lost: raises DataLoss, or logs it."""
    error = DataLoss(topic, f"{reason} (expired, trimmed, or the topic was deleted)")
    if fails:
        raise error
    logger.warning("topic %s: %s", topic, error.reason)


def _first_from(open_at: Opener, place: Position) -> Position | None:
    with open_at(place) as reader:
        try:
            entry = reader.read_entries(LOOK_S, bytes_max=1)[0]
            # A message in chunks stands where its last one is; its first one is there as well.
            first = entry.message_ids()[0].first_chunk
            if first is not None:
                return Position(first.ledger_id, first.entry_id)
            return Position(entry.ledger_id, entry.entry_id)
        except Timeout:
            # Chunks without their last one: nothing can be read, but something is there.
            ids = [Position(each.ledger_id, each.entry_id) for each in reader.received_ids()]
            found = max(ids, default=BEGIN)
            return None if found == BEGIN else found
