"""Resolves options to the ranges to read: `startingOffsets`, `endingOffsets` and their timestamps
for each partition, checked against the topic's messages (spec SP-01, SP-10).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import geminga.blocking
from geminga import TopicNotFoundError
from pyspark_pulsar._clients import for_each
from pyspark_pulsar._names import full_name
from pyspark_pulsar._options import AtTime, Bound, Edge, ReadOptions, Where
from pyspark_pulsar._plan._topics import TopicProbe
from pyspark_pulsar._positions import BEGIN, Position, TopicPartition, TopicRange
from pyspark_pulsar.errors import InvalidOption, OffsetOutOfRange, TopicMissing

logger = logging.getLogger("pyspark_pulsar")

NAMES_SHOWN_MAX = 5


def check_names(bound: Bound, parts: Sequence[TopicPartition]) -> None:
    """Raises InvalidOption if the bound names a topic that is not read."""
    known = {part.topic for part in parts} | {part.parent for part in parts}
    for name, _ in bound.per_topic:
        if full_name(name) not in known:
            shown = ", ".join(sorted({part.parent for part in parts})[:NAMES_SHOWN_MAX])
            raise InvalidOption(
                bound.option, f"names {name}, which is not one of the topics being read: {shown}"
            )


def check_named(options: ReadOptions, parts: Sequence[TopicPartition]) -> None:
    """Early check of the topics named in `startingOffsets` and `endingOffsets`. Topics of a pattern
    aren't checked: they may be created later, or be deleted before a stream restarts. Raises
    InvalidOption.
    """
    if options.topics.pattern is None:
        for bound in (options.start, options.end):
            if bound is not None:
                check_names(bound, parts)


def where_of(bound: Bound, part: TopicPartition) -> Where:
    """The bound of a partition: by its own name, its topic's name, or the default."""
    named = {full_name(name): where for name, where in bound.per_topic}
    for name in (part.topic, part.parent):
        if name in named:
            return named[name]
    return bound.default


def _check_order(start: Bound, end: Bound, part: TopicPartition) -> None:
    first, last = where_of(start, part), where_of(end, part)
    if isinstance(first, Position) and isinstance(last, Position):
        is_wrong = last.reach < tuple(first)
    else:
        is_wrong = (
            isinstance(first, AtTime) and isinstance(last, AtTime) and first.time_ms > last.time_ms
        )
    if is_wrong:
        raise InvalidOption(end.option, f"lies before {start.option} of {part.topic}")


def check_present(parts: Sequence[TopicPartition], present: Collection[str]) -> None:
    """Log missing partitions of topics that exist: brokers delete idle partitions one by one, and
    the topic keeps its number of partitions. Raises TopicMissing if none of a topic's partitions is
    left.
    """
    missing: dict[str, list[TopicPartition]] = {}
    for part in parts:
        if part.topic not in present:
            missing.setdefault(part.parent, []).append(part)
    for parent, gone in missing.items():
        every = [part for part in parts if part.parent == parent]
        if gone[0].partition < 0:
            raise TopicMissing(parent, "doesn't exist")
        why = (
            "deleted with their messages (as topics without a subscription are once they are idle:"
            " brokerDeleteInactiveTopicsEnabled), or never used"
        )
        if len(gone) == len(every):
            raise TopicMissing(parent, f"none of its {len(every)} partitions exists: {why}")
        names = ", ".join(str(part.partition) for part in gone[:NAMES_SHOWN_MAX])
        more = " and others" if len(gone) > NAMES_SHOWN_MAX else ""
        logger.warning("topic %s: partitions %s%s don't exist: %s", parent, names, more, why)


class RangeResolver:
    """Resolves the options of a read for its partitions."""

    def __init__(self, client: geminga.blocking.Client, options: ReadOptions) -> None:
        self._probe = TopicProbe.of(client, options)
        self._options = options

    def ranges(self, parts: Sequence[TopicPartition]) -> list[TopicRange]:
        """The ranges of a batch read, one for each partition with messages now. Raises
        InvalidOption, OffsetOutOfRange.
        """
        start, end = self._options.start, self._options.end
        assert end is not None, "a batch has an end"
        check_names(start, parts)
        check_names(end, parts)
        for part in parts:
            _check_order(start, end, part)
        lasts = for_each(self._last, parts)
        present = [part.topic for part, last in zip(parts, lasts, strict=True) if last is not None]
        check_present(parts, present)
        items = list(zip(parts, lasts, strict=True))
        found = for_each(lambda item: self._range(end, *item), items)
        return [each for each in found if each is not None and not each.is_empty]

    def _last(self, part: TopicPartition) -> Position | None:
        """The last entry, BEGIN without messages, None if the topic doesn't exist."""
        try:
            return self._probe.last_position(part.topic) or BEGIN
        except TopicNotFoundError:
            return None

    def _range(
        self, end: Bound, part: TopicPartition, newest: Position | None
    ) -> TopicRange | None:
        if newest is None:
            return None
        last = None if newest == BEGIN else newest
        stop = self._stop(end, part, last)
        start = self.start_of(part, last)
        if last is None or start is None or stop is None:
            return None
        return TopicRange(part.topic, part.partition, start, stop)

    def start_of(self, part: TopicPartition, last: Position | None) -> Position | None:
        """The inclusive start of a partition with the last entry `last`; None if nothing has to be
        read. Raises OffsetOutOfRange.
        """
        start = self._options.start
        where = where_of(start, part)
        if where is Edge.LATEST:
            return None
        if isinstance(where, AtTime):
            return self._probe.position_at(part.topic, where.time_ms)
        if where is Edge.EARLIEST:
            if last is None or self._options.read_compacted:
                return None if last is None else BEGIN
            # By the first ledger: so the task notices if that is deleted in between.
            return self._probe.first_position(part.topic) or BEGIN
        assert isinstance(where, Position)
        if last is None or where.entry > last.after:
            self._out_of_range(start, part, _beyond(where, last))
            return None
        return self._gone_before(start, part, where) or where

    def _stop(self, end: Bound, part: TopicPartition, last: Position | None) -> Position | None:
        """The last position that a batch reads."""
        where = where_of(end, part)
        if isinstance(where, AtTime):
            found = self._probe.position_at(part.topic, where.time_ms)
            return last if found is None else found.before
        if not isinstance(where, Position):
            return last
        if last is None or where.entry > last:
            self._out_of_range(end, part, _beyond(where, last))
            return last
        return None if self._gone_before(end, part, where) else where

    def _gone_before(self, bound: Bound, part: TopicPartition, where: Position) -> Position | None:
        """The first remaining message, if `where` is before it."""
        first = self._probe.first_position(part.topic)
        if first is None or where.entry >= first:
            return None
        reason = f"{where} is before the first remaining message, in ledger {first.ledger_id}"
        self._out_of_range(bound, part, reason)
        return first

    def _out_of_range(self, bound: Bound, part: TopicPartition, reason: str) -> None:
        text = f"{bound.option}: {reason}"
        # Compaction also removes messages at both ends: their ids were valid.
        if self._options.fail_on_data_loss and not self._options.read_compacted:
            raise OffsetOutOfRange(
                part.topic, f"{text}; set failOnDataLoss=false to read what is there"
            )
        logger.warning("topic %s: %s", part.topic, text)


def _beyond(where: Position, last: Position | None) -> str:
    if last is None:
        return f"{where} is gone: the topic is empty"
    return f"{where} is after the last message, {last}"
