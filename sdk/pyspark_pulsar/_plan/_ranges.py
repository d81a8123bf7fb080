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
from pyspark_pulsar._plan import _topics
from pyspark_pulsar._plan._topics import Looks
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


def ranges_of(
    client: geminga.blocking.Client, options: ReadOptions, parts: Sequence[TopicPartition]
) -> list[TopicRange]:
    """The ranges of a batch read, one for each partition with messages now. Raises InvalidOption,
    OffsetOutOfRange.
    """
    end = options.end
    assert end is not None, "a batch has an end"
    check_names(options.start, parts)
    check_names(end, parts)
    for part in parts:
        _check_order(options.start, end, part)
    lasts = for_each(lambda part: _last(client, options, part), parts)
    present = [part.topic for part, last in zip(parts, lasts, strict=True) if last is not None]
    check_present(parts, present)
    found = for_each(
        lambda item: _range(client, options, end, *item), list(zip(parts, lasts, strict=True))
    )
    return [each for each in found if each is not None and not each.is_empty]


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


def _last(
    client: geminga.blocking.Client, options: ReadOptions, part: TopicPartition
) -> Position | None:
    """The last entry, BEGIN without messages, None if the topic doesn't exist."""
    try:
        return _topics.last_position(client, part.topic, Looks.of(options)) or BEGIN
    except TopicNotFoundError:
        return None


def _range(
    client: geminga.blocking.Client,
    options: ReadOptions,
    end: Bound,
    part: TopicPartition,
    newest: Position | None,
) -> TopicRange | None:
    if newest is None:
        return None
    last = None if newest == BEGIN else newest
    stop = _stop(client, options, end, part, last)
    start = start_of(client, options, part, last)
    if last is None or start is None or stop is None:
        return None
    return TopicRange(part.topic, part.partition, start, stop)


def start_of(
    client: geminga.blocking.Client,
    options: ReadOptions,
    part: TopicPartition,
    last: Position | None,
) -> Position | None:
    """The inclusive start of a partition with the last entry `last`; None if nothing has to be
    read. Raises OffsetOutOfRange.
    """
    where = where_of(options.start, part)
    looks = Looks.of(options)
    if where is Edge.EARLIEST:
        return None if last is None else _earliest(client, options, part)
    if where is Edge.LATEST:
        return None
    if isinstance(where, AtTime):
        return _topics.position_at(client, part.topic, where.time_ms, looks)
    assert isinstance(where, Position)
    if last is None:
        _out_of_range(options, options.start, part, f"{where} is gone: the topic is empty")
        return None
    if where.entry > last.after:
        _out_of_range(options, options.start, part, f"{where} is after the last message, {last}")
        return None
    first = _topics.first_position(client, part.topic, looks)
    if first is not None and where.entry < first:
        reason = f"{where} is before the first remaining message, in ledger {first.ledger_id}"
        _out_of_range(options, options.start, part, reason)
        return first
    return where


def _earliest(
    client: geminga.blocking.Client, options: ReadOptions, part: TopicPartition
) -> Position:
    """The start of a topic that isn't empty, by its first ledger: so the task notices if that is
    deleted in between.
    """
    if options.read_compacted:
        return BEGIN
    return _topics.first_position(client, part.topic, Looks.of(options)) or BEGIN


def _stop(
    client: geminga.blocking.Client,
    options: ReadOptions,
    end: Bound,
    part: TopicPartition,
    last: Position | None,
) -> Position | None:
    """The last position that a batch reads."""
    where = where_of(end, part)
    looks = Looks.of(options)
    if isinstance(where, AtTime):
        found = _topics.position_at(client, part.topic, where.time_ms, looks)
        return last if found is None else found.before
    if not isinstance(where, Position):
        return last
    if last is None:
        _out_of_range(options, end, part, f"{where} is gone: the topic is empty")
        return None
    if where.entry > last:
        _out_of_range(options, end, part, f"{where} is after the last message, {last}")
        return last
    first = _topics.first_position(client, part.topic, looks)
    if first is not None and where.entry < first:
        reason = f"{where} is before the first remaining message, in ledger {first.ledger_id}"
        _out_of_range(options, end, part, reason)
        return None
    return where


def _out_of_range(options: ReadOptions, bound: Bound, part: TopicPartition, reason: str) -> None:
    text = f"{bound.option}: {reason}"
    # Compaction also removes messages at both ends: their ids were valid.
    if options.fail_on_data_loss and not options.read_compacted:
        raise OffsetOutOfRange(
            part.topic, f"{text}; set failOnDataLoss=false to read what is there"
        )
    logger.warning("topic %s: %s", part.topic, text)
