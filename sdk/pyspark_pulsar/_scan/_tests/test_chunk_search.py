"""Messages in chunks that begin before the range that they belong to."""

from __future__ import annotations

import logging

import pytest

from pyspark_pulsar._positions import BEGIN, LedgerSpan, Position, TopicRange
from pyspark_pulsar._scan._chunk_search import cut_messages
from pyspark_pulsar._scan._pace import Throttle
from pyspark_pulsar._scan._range_reader import EntryReader, RangeReader
from pyspark_pulsar._tests.entries import TOPIC, Entry, Reader

LEDGERS = [LedgerSpan(n, 0, 9999) for n in range(1, 9)]


class Topic:
    """A chunked message from `first` to `last`, among others: a reader gets it if it starts at its
    first chunk or before.
    """

    def __init__(self, first: Position, last: Position) -> None:
        self._first, self._last = first, last
        self.opened: list[Position] = []

    def open_at(self, at: Position) -> Reader:
        self.opened.append(at)
        entries = [Entry(1, 5), Entry(8, 9000)]
        if at <= self._first:
            entries.append(Entry(self._last.ledger_id, self._last.entry_id))
        return Reader(sorted(entries, key=lambda e: (e.ledger_id, e.entry_id)), at)

    def search(self, *positions: Position) -> list[Position]:
        def read_range(reader: EntryReader, wanted: TopicRange) -> RangeReader:
            return RangeReader(reader, wanted, Throttle(None, None), 1.0)

        slices = cut_messages(TOPIC, 2, set(positions), self.open_at, read_range, lambda _: LEDGERS)
        return [Position(entry.ledger_id, entry.entry_id) for entry, _, _ in slices]


def test_it_goes_back_a_little_first() -> None:
    topic = Topic(Position(8, 4960), Position(8, 5000))
    assert topic.search(Position(8, 5000)) == [Position(8, 5000)]
    assert topic.opened == [Position(8, 4936)]


def test_it_goes_back_over_ledgers() -> None:
    topic = Topic(Position(5, 7), Position(8, 5000))
    assert topic.search(Position(8, 5000)) == [Position(8, 5000)]
    assert topic.opened == [
        Position(8, 4936), Position(8, 3976), Position(8, 0), Position(7, 0), Position(6, 0),
        Position(4, 0),
    ]  # fmt: skip


def test_a_message_without_a_beginning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    topic = Topic(Position(-2, 0), Position(8, 40))
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        assert topic.search(Position(8, 40)) == []
    assert topic.opened[-1] == BEGIN
    assert "the first chunks of message 8:40 are gone" in caplog.text


def test_other_messages_are_not_repeated() -> None:
    topic = Topic(Position(1, 0), Position(8, 50))
    assert topic.search(Position(8, 50)) == [Position(8, 50)]
