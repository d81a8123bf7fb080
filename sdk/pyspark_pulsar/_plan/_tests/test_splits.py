"""Splits: every place of a range lies in exactly one part, in order, and parts are even."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pulsar._plan._splits import SPLITS_MAX, entries_in, split, split_by_ids
from pyspark_pulsar._positions import LedgerSpan, Position, TopicRange

TOPIC = "persistent://public/default/t"


def layouts() -> st.SearchStrategy[list[LedgerSpan]]:
    """Ledgers with gaps between their ids, some without entries at their beginning."""
    sizes = st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(1, 60)), min_size=1, max_size=6
    )
    return sizes.map(_layout)


def _layout(steps: list[tuple[int, int, int]]) -> list[LedgerSpan]:
    found, ledger = [], 0
    for step, first, size in steps:
        ledger += step
        found.append(LedgerSpan(ledger, first, first + size - 1))
    return found


def _entries(spans: list[LedgerSpan]) -> list[Position]:
    return [Position(s.ledger_id, n) for s in spans for n in range(s.first_entry, s.last_entry + 1)]


def _holds(part: TopicRange, place: Position) -> bool:
    """Whether a message is in a range, without the module's own functions."""
    begin = (part.start.ledger_id, part.start.entry_id, max(part.start.batch_index, 0))
    end = (part.stop.ledger_id, part.stop.entry_id, part.stop.batch_index)
    if end[2] < 0:
        return begin <= tuple(place) and tuple(place[:2]) <= end[:2]
    return begin <= tuple(place) <= end


@settings(deadline=None)
@given(layouts(), st.data())
@pytest.mark.slow
def test_parts_cover_the_range_once_and_in_order(
    spans: list[LedgerSpan], data: st.DataObject
) -> None:
    entries = _entries(spans)
    a, b = sorted((data.draw(st.sampled_from(entries)), data.draw(st.sampled_from(entries))))
    start = a._replace(batch_index=data.draw(st.integers(-1, 3)))
    stop = b._replace(batch_index=data.draw(st.integers(-1, 3)))
    whole = TopicRange(TOPIC, 3, start, stop)
    # The known layout may be wrong: this makes parts uneven, not wrong.
    told = data.draw(st.sampled_from([spans, spans[:1], [], _layout([(2, 0, 500)])]))
    parts = split([whole], {TOPIC: told}, count=data.draw(st.integers(1, 40)))
    messages = [Position(*entry[:2], index) for entry in entries for index in range(4)]
    for message in messages:
        owners = [part for part in parts if _holds(part, message)]
        assert len(owners) == _holds(whole, message), (message, parts)
    ends = [(part.start, part.stop) for part in parts]
    assert ends == sorted(ends)
    assert all((part.topic, part.partition) == (TOPIC, 3) for part in parts)


@settings(deadline=None)
@given(layouts(), st.integers(1, 30), st.data())
@pytest.mark.slow
def test_parts_by_ids_cover_the_range_too(
    spans: list[LedgerSpan], count: int, data: st.DataObject
) -> None:
    entries = _entries(spans)
    a, b = sorted((data.draw(st.sampled_from(entries)), data.draw(st.sampled_from(entries))))
    whole = TopicRange(TOPIC, 0, data.draw(st.sampled_from([a, Position(-1, -1)])), b)
    parts = split_by_ids([whole], count=count)
    assert parts == split_by_ids([whole], count=count)
    for place in entries:
        owners = sum(_holds(part, place._replace(batch_index=0)) for part in parts)
        assert owners == _holds(whole, place._replace(batch_index=0))
    assert split_by_ids([whole], count=None) == [whole]


@settings(deadline=None)
@given(layouts(), st.integers(1, 30), st.lists(st.booleans(), min_size=6, max_size=6))
@pytest.mark.slow
def test_parts_begin_at_existing_entries(
    spans: list[LedgerSpan], count: int, sure: list[bool]
) -> None:
    """Too large guesses only make parts uneven."""
    entries = _entries(spans)
    told = [
        span if is_sure else span._replace(last_entry=span.last_entry + 40, is_sure=False)
        for span, is_sure in zip(spans, sure, strict=False)
    ]
    whole = TopicRange(TOPIC, 0, entries[0], entries[-1])
    for parts in (split([whole], {TOPIC: told}, count=count), split_by_ids([whole], count=count)):
        # Ledgers have all entries from 0 on.
        there = {Position(span.ledger_id, n) for span in spans for n in range(span.last_entry + 1)}
        assert {part.start for part in parts} <= there
        for place in entries:
            assert sum(_holds(part, place._replace(batch_index=0)) for part in parts) == 1


def test_parts_by_ids_are_even_in_one_ledger() -> None:
    whole = TopicRange(TOPIC, 0, Position(4, 10), Position(4, 29))
    starts = [part.start.entry_id for part in split_by_ids([whole], count=4)]
    assert starts == [10, 15, 20, 25]


@settings(deadline=None)
@given(layouts(), st.integers(1, 100))
@pytest.mark.slow
def test_parts_are_even_by_entries(spans: list[LedgerSpan], count: int) -> None:
    entries = _entries(spans)
    whole = TopicRange(TOPIC, -1, entries[0], entries[-1])
    parts = split([whole], {TOPIC: spans}, count=count)
    assert len(parts) == min(count, len(entries))
    sizes = [
        sum(_holds(part, place._replace(batch_index=0)) for place in entries) for part in parts
    ]
    assert sum(sizes) == len(entries)
    assert max(sizes) - min(sizes) <= 1
    assert entries_in([whole], {TOPIC: spans}) == len(entries)


def _of(topic: str, entries: int) -> tuple[TopicRange, list[LedgerSpan]]:
    whole = TopicRange(topic, 0, Position(1, 0), Position(1, entries - 1))
    return whole, [LedgerSpan(1, 0, entries - 1)]


def test_larger_topics_get_more_parts() -> None:
    big, big_layout = _of("big", 900)
    small, small_layout = _of("small", 100)
    parts = split([big, small], {"big": big_layout, "small": small_layout}, count=10)
    assert [part.topic for part in parts] == ["big"] * 9 + ["small"]


def test_ranges_of_one_topic_are_cut_each_by_itself() -> None:
    layout = [LedgerSpan(1, 0, 99)]
    ranges = [
        TopicRange("t", 0, Position(1, 0), Position(1, 59)),
        TopicRange("t", 0, Position(1, 80), Position(1, 99)),
    ]
    starts = [part.start for part in split(ranges, {"t": layout}, count=4)]
    assert starts == [Position(1, 0), Position(1, 20), Position(1, 40), Position(1, 80)]


def test_parts_have_the_minimal_size() -> None:
    whole, layout = _of("t", 250)
    assert len(split([whole], {"t": layout}, count=10, entries_least=100)) == 2
    assert split([whole], {"t": layout}, count=10, entries_least=251) == [whole]


def test_empty_ranges_are_left_out() -> None:
    empty = TopicRange("t", 0, Position(2, 0), Position(1, 7))
    assert split([empty], {"t": [LedgerSpan(1, 0, 7)]}, count=4) == []
    assert entries_in([empty], {"t": [LedgerSpan(1, 0, 7)]}) == 0


def test_one_message_of_a_batch_is_one_part() -> None:
    one = TopicRange("t", 0, Position(1, 5, 2), Position(1, 5, 2))
    assert split([one], {"t": [LedgerSpan(1, 0, 99)]}, count=8) == [one]


def test_parts_have_a_bound() -> None:
    whole, layout = _of("t", SPLITS_MAX * 3)
    assert len(split([whole], {"t": layout}, count=SPLITS_MAX * 2)) == SPLITS_MAX
