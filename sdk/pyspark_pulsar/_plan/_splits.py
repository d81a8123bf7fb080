"""Splits ranges of topics into parts for Spark's tasks, with about the same number of entries (spec
SP-03). Pure.

Parts are contiguous: each stops right before the next one starts. So a partly guessed layout makes
parts uneven, never wrong. Entries are not split: a batch is read by one task.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from pyspark_pulsar._positions import LedgerSpan, Position, TopicRange

SPLITS_MAX = 100_000
"""Parts of one read; each is a task of Spark."""


def split(
    ranges: Sequence[TopicRange],
    layouts: Mapping[str, Sequence[LedgerSpan]],
    *,
    count: int,
    entries_least: int = 1,
) -> list[TopicRange]:
    """Split all ranges into about `count` parts, each with at least `entries_least` entries if its
    range has them. Empty ranges are left out; every other has at least one part. `layouts` has the
    ledgers of each topic between the range's ends.
    """
    wanted = [each for each in ranges if not each.is_empty]
    spans = [_clipped(each, layouts.get(each.topic, ())) for each in wanted]
    sizes = [sum(span.entries for span in here) for here in spans]
    total = sum(sizes)
    found: list[TopicRange] = []
    for each, here, size in zip(wanted, spans, sizes, strict=True):
        share = -(-size * min(count, SPLITS_MAX) // total) if total else 1
        parts = max(1, min(share, size // max(entries_least, 1)))
        found += _cut(each, here, parts)
    return found


def split_by_ids(ranges: Sequence[TopicRange], *, count: int | None) -> list[TopicRange]:
    """As `split`, without a layout: the same ranges always give the same parts, whatever happens to
    the topics. Without `count` returns the ranges unchanged.

    Of a range over several ledgers only the last one's entries are known: all entries before it are
    in the first part.
    """
    if count is None:
        return [each for each in ranges if not each.is_empty]
    layouts: dict[str, list[LedgerSpan]] = {}
    for each in ranges:
        (ledger, first, _), (stop_ledger, last, _) = each.start, each.stop
        first = max(first, 0) if ledger == stop_ledger else 0
        layouts[each.topic] = [LedgerSpan(stop_ledger, first, max(last, first))]
    return split(ranges, layouts, count=count)


def entries_in(ranges: Sequence[TopicRange], layouts: Mapping[str, Sequence[LedgerSpan]]) -> int:
    """The number of entries of the ranges, by their layouts."""
    spans = (_clipped(each, layouts.get(each.topic, ())) for each in ranges if not each.is_empty)
    return sum(span.entries for here in spans for span in here)


def _clipped(range_: TopicRange, layout: Sequence[LedgerSpan]) -> list[LedgerSpan]:
    """The part of the layout between the range's ends."""
    start, stop = range_.start, range_.stop
    found = []
    for ledger, first, last, is_sure in sorted(layout):
        if ledger == start.ledger_id:
            first = max(first, start.entry_id)
        if ledger == stop.ledger_id:
            last = min(last, stop.entry_id)
        if start.ledger_id <= ledger <= stop.ledger_id and first <= last:
            found.append(LedgerSpan(ledger, first, last, is_sure))
    return found


def _cut(range_: TopicRange, spans: Sequence[LedgerSpan], parts: int) -> list[TopicRange]:
    if parts == 1:
        return [range_]
    offsets = [0, *accumulate(span.entries for span in spans)]
    starts = [range_.start]
    for part in range(1, parts):
        offset = part * offsets[-1] // parts
        place = bisect_right(offsets, offset) - 1
        span = spans[place]
        # A part that starts at an entry that doesn't exist would look like lost messages.
        inside = offset - offsets[place] if span.is_sure else 0
        start = Position(span.ledger_id, span.first_entry + inside)
        if start > starts[-1]:
            starts.append(start)
    stops = [Position(start.ledger_id, start.entry_id - 1) for start in starts[1:]]
    return [
        TopicRange(range_.topic, range_.partition, start, stop)
        for start, stop in zip(starts, [*stops, range_.stop], strict=True)
    ]
