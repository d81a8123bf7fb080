"""Whether messages between two reads are gone, told by ids alone (spec SP-05, decision 18).

Topics lose messages from their front, whole ledgers at a time. So as long as the ledger in which a
read goes on is there, everything behind it is there too, even if that ledger has nothing more to
read. If it is gone, what followed may be gone with it. A query's anchor leaves the last message
that it read unacknowledged, so that no ordinary trimming takes that ledger away.
"""

from __future__ import annotations

import logging
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
            return Position(entry.ledger_id, entry.entry_id)
        except Timeout:
            # Chunks without their last one: nothing can be read, but something is there.
            ids = [Position(each.ledger_id, each.entry_id) for each in reader.received_ids()]
            found = max(ids, default=BEGIN)
            return None if found == BEGIN else found
