"""Losses, and cases that only look like losses."""

from __future__ import annotations

import logging

import pytest

from geminga import MessageId, OperationTimeoutError
from pyspark_pulsar._positions import BEGIN, Position
from pyspark_pulsar._scan._loss import LOOK_EVERY_S, Continuity, check_start
from pyspark_pulsar._tests.entries import TOPIC, Entry, Reader
from pyspark_pulsar.errors import DataLoss


class Topic:
    def __init__(
        self, *entries: Entry, silent: tuple[Position, ...] = (), ends: bool = True, late: int = 0
    ) -> None:
        self._entries = entries
        self._silent = silent
        self._ends = ends
        self._late = late
        self.opened: list[Position] = []

    def __call__(self, at: Position) -> Reader:
        self.opened.append(at)
        return Reader(self._entries, at, silent=self._silent, ends=self._ends, late=self._late)


def test_a_read_that_continues_in_its_ledger_lost_nothing() -> None:
    topic = Topic(Entry(5, 7))
    check_start(topic, TOPIC, Position(5, 3), Position(5, 7), fails=True)
    check_start(topic, TOPIC, BEGIN, Position(5, 7), fails=True)
    assert topic.opened == []


def test_a_ledger_that_ended_is_no_loss() -> None:
    topic = Topic(Entry(5, 1), Entry(5, 2), Entry(8, 0))
    check_start(topic, TOPIC, Position(5, 3), Position(8, 0), fails=True)
    assert topic.opened == [Position(5, 0)]


def test_a_caught_up_read_is_no_loss() -> None:
    check_start(Topic(Entry(5, 2)), TOPIC, Position(5, 3), None, fails=True)


def test_silence_is_no_loss_while_messages_are_available() -> None:
    """A ledger ends, or the topic moves to another broker: nothing comes for many seconds."""
    topic = Topic(Entry(5, 2), Entry(8, 0), late=60)
    check_start(topic, TOPIC, Position(5, 3), Position(8, 0), fails=True)
    with pytest.raises(DataLoss, match="messages from 5:3"):
        check_start(Topic(Entry(8, 0), late=60), TOPIC, Position(5, 3), Position(8, 0), fails=True)


def test_lasting_silence_is_a_timeout() -> None:
    with pytest.raises(
        OperationTimeoutError, match="it is unknown whether messages were lost; pollTimeoutMs"
    ):
        check_start(Topic(ends=False), TOPIC, Position(5, 3), None, fails=False, waits_max_s=20.0)


def test_chunks_without_an_arriving_end_are_no_loss() -> None:
    topic = Topic(silent=(Position(5, 0), Position(5, 1)), ends=False)
    check_start(topic, TOPIC, Position(5, 0), None, fails=True)


def test_chunks_without_an_end_are_no_loss() -> None:
    topic = Topic(silent=(Position(5, 0), Position(5, 1)))
    check_start(topic, TOPIC, Position(5, 0), None, fails=True)


def test_a_message_with_its_first_chunk_is_no_loss() -> None:
    """Its other chunks are in the next ledger, and so is its id."""
    topic = Topic(Entry(8, 1, first_chunk=MessageId(5, 2)))
    check_start(topic, TOPIC, Position(5, 3), Position(8, 1), fails=True)
    check_start(topic, TOPIC, Position(5, 3), None, fails=True)
    with pytest.raises(DataLoss):
        check_start(topic, TOPIC, Position(4, 3), Position(8, 1), fails=True)


def test_a_deleted_ledger_is_a_loss() -> None:
    topic = Topic(Entry(8, 0))
    with pytest.raises(DataLoss, match="messages from 5:3 to before 8:0 are gone"):
        check_start(topic, TOPIC, Position(5, 3), Position(8, 0), fails=True)


def test_an_empty_topic_is_a_loss() -> None:
    with pytest.raises(DataLoss, match="no messages are left"):
        check_start(Topic(), TOPIC, Position(5, 3), None, fails=True)


def test_a_loss_may_just_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        check_start(Topic(Entry(8, 0)), TOPIC, Position(5, 3), Position(8, 0), fails=False)
    assert "messages from 5:3" in caplog.text


def test_a_read_over_existing_ledgers() -> None:
    topic = Topic(Entry(5, 2), Entry(8, 0), Entry(9, 0))
    look = Continuity(topic, TOPIC, fails=True, clock=lambda: 0.0)
    for ledger in (5, 5, 8, 9):
        look.came_to(ledger)
    look.ended(Position(9, 0), Position(9, 0))
    assert topic.opened == [Position(5, 0)], "once for all"
    look.ended(Position(9, 0), Position(9, 3, 2))
    assert topic.opened[1:] == [Position(9, 0)], "who ends early looks again"


def test_ledgers_deleted_during_a_read() -> None:
    now_s = 0.0
    look = Continuity(Topic(Entry(9, 0)), TOPIC, fails=True, clock=lambda: now_s)
    look.came_to(5)
    look.came_to(9)
    with pytest.raises(DataLoss, match="ledger 5 and what followed it were deleted"):
        look.ended(Position(9, 0), Position(9, 0))
    look = Continuity(Topic(Entry(9, 0)), TOPIC, fails=True, clock=lambda: now_s)
    look.came_to(5)
    look.came_to(7)
    now_s = LOOK_EVERY_S
    with pytest.raises(DataLoss):
        look.came_to(9)


@pytest.mark.parametrize("left", [(), (Entry(9, 0),)])
def test_a_read_that_ends_early_after_a_deletion(left: tuple[Entry, ...]) -> None:
    look = Continuity(Topic(*left), TOPIC, fails=True)
    look.came_to(5)
    with pytest.raises(DataLoss):
        look.ended(Position(5, 1), Position(5, 4))
