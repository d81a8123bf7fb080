"""What tasks read: the ranges of a read, narrowed by filters, and cut into parts (spec SP-03)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

import geminga.blocking
from pyspark_pulsar._clients import for_each
from pyspark_pulsar._options import ReadOptions
from pyspark_pulsar._plan._filters import Narrowing, within
from pyspark_pulsar._plan._splits import entries_in, split, split_by_ids
from pyspark_pulsar._plan._topics import TopicProbe, layout
from pyspark_pulsar._positions import ID_MAX, LedgerSpan, Position, TopicRange

SPLITS_PER_CORE = 2
"""Of the driver's machine, unless `minPartitions` is given."""
SPLIT_ENTRIES_LEAST = 64
"""Minimum number of entries of a task, unless `minPartitions` is given."""
SAMPLES_MAX = 8
"""Topics sampled for the number of messages of an entry, for `maxRecordsPerPartition`."""


def narrowed(
    client: geminga.blocking.Client,
    options: ReadOptions,
    narrowing: Narrowing,
    ranges: Sequence[TopicRange],
) -> list[TopicRange]:
    """The parts of the ranges that have to be read with the filters."""
    slack_s = options.publish_time_slack_s
    limits = narrowing.publish_ms
    if slack_s is not None and not limits.are_wide:
        slack_ms = math.ceil(slack_s * 1000)
        least, most = limits.least - slack_ms, limits.most + slack_ms
        timed = for_each(lambda each: _between(client, options, each, least, most), ranges)
        ranges = [each for each in timed if not each.is_empty]
    return [part for each in ranges for part in narrowing.applied(each)]


def _between(
    client: geminga.blocking.Client,
    options: ReadOptions,
    whole: TopicRange,
    least_ms: int,
    most_ms: int,
) -> TopicRange:
    """The part of a range with publish times from `least_ms` to `most_ms`."""
    probe = TopicProbe.of(client, options)
    first, last = whole.start, whole.stop
    if least_ms > 0:
        found = probe.position_at(whole.topic, least_ms)
        first = Position(ID_MAX, 0) if found is None else found
    if most_ms < 0:
        first = Position(ID_MAX, 0)
    elif most_ms < ID_MAX:
        found = probe.position_at(whole.topic, most_ms + 1)
        last = last if found is None else found.before
    return within(whole, first, last)


def split_ranges(
    client: geminga.blocking.Client, options: ReadOptions, ranges: Sequence[TopicRange]
) -> list[TopicRange]:
    """The ranges split for Spark's tasks. Those of a stream are split by ids alone, since a
    micro-batch that is planned again must have the same parts. Raises InvalidOption if `admin.url`
    fails, and GemingaError.
    """
    if options.end is None:
        return split_by_ids(ranges, count=options.min_partitions)
    if options.min_partitions is None:
        count, least = SPLITS_PER_CORE * (os.cpu_count() or 1), SPLIT_ENTRIES_LEAST
    else:
        count, least = options.min_partitions, 1
    if count <= len(ranges) and options.max_records_per_partition is None:
        return list(ranges)
    layouts = _layouts(client, options, ranges)
    if options.max_records_per_partition is not None:
        wanted = _messages(client, options, ranges, layouts) / options.max_records_per_partition
        if wanted > count:
            count, least = math.ceil(wanted), 1
    return split(ranges, layouts, count=count, entries_least=least)


def _layouts(
    client: geminga.blocking.Client, options: ReadOptions, ranges: Sequence[TopicRange]
) -> dict[str, list[LedgerSpan]]:
    ends: dict[str, tuple[Position, Position]] = {}
    for each in ranges:
        start, stop = ends.get(each.topic, (each.start, each.stop))
        ends[each.topic] = min(start, each.start), max(stop, each.stop)
    found = for_each(lambda topic: layout(client, topic, options, *ends[topic]), list(ends))
    return dict(zip(ends, found, strict=True))


def _messages(
    client: geminga.blocking.Client,
    options: ReadOptions,
    ranges: Sequence[TopicRange],
    layouts: Mapping[str, Sequence[LedgerSpan]],
) -> float:
    """The estimated number of messages of the ranges, by samples of batch sizes."""
    step = -(-len(ranges) // SAMPLES_MAX) or 1
    probe = TopicProbe.of(client, options)
    means = for_each(lambda each: probe.messages_per_entry(each.topic, each.start), ranges[::step])
    return entries_in(ranges, layouts) * (sum(means) / len(means) if means else 0.0)
