"""A range is read from its first message to its last, and ends, whatever the topic lacks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga import OperationTimeoutError
from pyspark_pulsar._positions import BEGIN, Position, TopicRange
from pyspark_pulsar._scan._pace import Throttle
from pyspark_pulsar._scan._range_reader import RangeReader
from pyspark_pulsar._tests.entries import TOPIC, Entry, Reader


def range_reader(
    reader: Reader, start: Position, stop: Position, waits_max_s: float = 5.0
) -> tuple[RangeReader, list[Position]]:
    """The walk and the messages that it found. A clock that each look moves by half a second."""
    ticks = itertools.count()
    wanted = TopicRange(TOPIC, 2, start, stop)
    made = RangeReader(
        reader, wanted, Throttle(None, None), waits_max_s, clock=lambda: next(ticks) * 0.5
    )
    found = [
        Position(entry.ledger_id, entry.entry_id, index)
        for entry, first, end in made.slices()
        for index in entry.indexes[first:end]
    ]
    return made, found


SINGLES = [Entry(1, n) for n in range(4)] + [Entry(3, n) for n in range(4)]


def test_both_ends_are_included() -> None:
    made, found = range_reader(Reader(SINGLES, Position(1, 2)), Position(1, 2), Position(3, 1))
    assert found == [Position(1, 2), Position(1, 3), Position(3, 0), Position(3, 1)]
    assert made.first_found == Position(1, 2)


def test_it_ends_without_waiting_after_its_stop() -> None:
    reader = Reader(SINGLES)
    range_reader(reader, BEGIN, Position(3, 1))
    assert reader.waits == []


def test_batches_are_cut_at_both_ends() -> None:
    batches = [Entry(1, n, [b"x"] * 5, indexes=range(5)) for n in range(2)]
    _, found = range_reader(Reader(batches), Position(1, 0, 3), Position(1, 1, 1))
    assert found == [Position(1, 0, 3), Position(1, 0, 4), Position(1, 1, 0), Position(1, 1, 1)]


def test_a_batch_with_gaps_is_cut_by_index() -> None:
    entry = Entry(1, 0, [b"x"] * 3, indexes=[2, 5, 8])
    _, found = range_reader(Reader([entry]), Position(1, 0, 3), Position(1, 0, 6))
    assert found == [Position(1, 0, 5)]


def test_it_ends_when_the_topic_has_no_more() -> None:
    _, found = range_reader(Reader(SINGLES[:2]), BEGIN, Position(3, 1))
    assert found == [Position(1, 0), Position(1, 1)]


def test_it_ends_when_its_last_entry_came_without_a_message() -> None:
    reader = Reader(SINGLES[:2], silent=[Position(1, 2)], ends=False)
    _, found = range_reader(reader, BEGIN, Position(1, 2))
    assert found == [Position(1, 0), Position(1, 1)]
    assert reader.waits[-1] == 0.0


def test_a_message_that_arrives_during_the_check_is_read() -> None:
    class Late(Reader):
        def has_message_available(self) -> bool:
            if not self.waits[1:]:
                self._left = SINGLES[2:3]
            return False

    _, found = range_reader(Late(SINGLES[:2]), BEGIN, Position(1, 3))
    assert found == [Position(1, 0), Position(1, 1), Position(1, 2)]


def test_waiting_for_missing_messages_times_out() -> None:
    with pytest.raises(OperationTimeoutError, match=r"up to 1:9; pollTimeoutMs"):
        range_reader(Reader(SINGLES[:2], ends=False), BEGIN, Position(1, 9), waits_max_s=3.0)


def test_an_unreachable_broker_is_waited_for() -> None:
    class Away(Reader):
        asked = 0

        def has_message_available(self) -> bool:
            self.asked += 1
            if self.asked < 3:
                raise OperationTimeoutError("no answer")
            self._left = SINGLES[2:4]
            return True

    _, found = range_reader(Away(SINGLES[:2]), BEGIN, Position(1, 3))
    assert found == [Position(1, n) for n in range(4)]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 3)), max_size=12),
    st.tuples(st.integers(-1, 4), st.integers(-1, 5), st.integers(-1, 4)),
    st.tuples(st.integers(-1, 4), st.integers(-1, 5), st.integers(-1, 4)),
    st.integers(1, 4),
)
def test_exactly_the_messages_between_the_ends(
    sizes: list[tuple[int, int, int]],
    first: tuple[int, int, int],
    last: tuple[int, int, int],
    at_once: int,
) -> None:
    places = {(ledger, entry): size for ledger, entry, size in sizes}
    entries = [
        Entry(*place, [b"x"] * (size or 1), indexes=range(size) if size else None)
        for place, size in sorted(places.items())
    ]
    start, stop = Position(*first), Position(*last)
    every = [
        Position(entry.ledger_id, entry.entry_id, index)
        for entry in entries
        for index in entry.indexes
    ]
    wanted = [
        at
        for at in every
        if (max(at.batch_index, 0) >= start.batch_index or at.entry > start.entry)
        and at.entry >= start.entry
        and at.entry <= stop.entry
        and (at.entry < stop.entry or stop.batch_index < 0 or at.batch_index <= stop.batch_index)
    ]
    _, found = range_reader(Reader(entries, start, at_once=at_once), start, stop)
    assert found == wanted


@pytest.mark.parametrize("last", [1, 3])
def test_short_ranges_are_throttled_too(last: int) -> None:
    """The range's own messages are paid for before they are returned."""
    pauses: list[float] = []
    throttle = Throttle(10.0, None, clock=lambda: 0.0, sleep=pauses.append)
    wanted = TopicRange(TOPIC, 2, BEGIN, Position(1, last))
    slices = RangeReader(Reader(SINGLES, at_once=8), wanted, throttle, 5.0).slices()
    next(slices)
    assert pauses == [pytest.approx((last + 1) / 10)]
    assert sum(1 for _ in slices) == last
