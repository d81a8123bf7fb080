"""Chunked messages that begin before a range and end in it (spec SP-03, decision 18).

Such a message belongs to the range with its last chunk, which gives its id. The reader of that
range receives only its end; so the topic is read again from further and further back, until the
whole message arrives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from pyspark_pulsar._decode._metadata import EntrySlice
from pyspark_pulsar._positions import BEGIN, LedgerSpan, Position, TopicRange
from pyspark_pulsar._scan._loss import Opener
from pyspark_pulsar._scan._range_reader import EntryReader, RangeReader

logger = logging.getLogger("pyspark_pulsar")

STEPS_BACK = (64, 1024)
"""Entries to go back; then to the beginnings of ledgers."""

Ledgers = Callable[[Position], Sequence[LedgerSpan]]
"""The topic's ledgers up to a position, in order."""
ReadRange = Callable[[EntryReader, TopicRange], RangeReader]


def cut_messages(
    topic: str,
    partition: int,
    positions: set[Position],
    open_at: Opener,
    read_range: ReadRange,
    ledgers: Ledgers,
) -> Iterator[EntrySlice]:
    """The messages whose last chunks are at these positions. If the first chunks of one were
    deleted, it can't be read: it is logged and skipped.
    """
    missing = set(positions)
    for start in _starts(min(positions), ledgers):
        wanted = TopicRange(topic, partition, start, max(missing))
        with open_at(start) as reader:
            for entry_slice in read_range(reader, wanted).slices():
                position = Position(entry_slice.entry.ledger_id, entry_slice.entry.entry_id)
                if position in missing:
                    missing.remove(position)
                    yield entry_slice
        if not missing:
            return
    for position in sorted(missing):
        logger.warning("%s: the first chunks of message %s are gone", topic, position)


def _starts(before: Position, ledgers: Ledgers) -> Iterator[Position]:
    """Positions to start at, each further back; finally the topic's beginning."""
    ledger_id, entry_id, _ = before
    for step in STEPS_BACK:
        if entry_id > step:
            yield Position(ledger_id, entry_id - step)
    if entry_id:
        yield Position(ledger_id, 0)
    earlier = [span.ledger_id for span in ledgers(before) if span.ledger_id < ledger_id]
    back = 1
    while back < len(earlier):
        yield Position(earlier[-back], 0)
        back *= 2
    yield BEGIN
