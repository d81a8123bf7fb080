"""Micro-batches planned over real brokers' topics: nothing twice, nothing left out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

import geminga
from pyspark_pulsar._options import parse_read
from pyspark_pulsar._positions import BEGIN
from pyspark_pulsar._stream._planner import AWAY_PAUSE_S, StreamPlanner
from pyspark_pulsar._stream._topic_ends import TopicEnds
from pyspark_pulsar._tests.broker import KEEPING
from pyspark_pulsar._tests.streaming import Broker, Query, full, numbers, started
from pyspark_pulsar.errors import InvalidOption, TopicMissing


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that retains everything."""
    with started(KEEPING) as found:
        yield found


@pytest.mark.slow
def test_a_query_continues_from_its_checkpoint(broker: Broker) -> None:
    topic = broker.topic("on")
    options = broker.options(topic)
    broker.send(topic, *numbers(0, 25))
    first = Query(options)
    assert first.batch() == numbers(0, 25)
    assert first.batch() == []
    broker.send(topic, *numbers(25, 40))
    second = Query(options, first.at)
    assert second.batch(commits=False) == numbers(25, 40)
    # Not committed: the same batch is read again.
    third = Query(options, second.at)
    assert third.read(first.at, second.at) == numbers(25, 40)
    assert third.batch() == []


def test_the_subscription_is_found_again_and_holds_the_last_message(broker: Broker) -> None:
    topic = broker.topic("held")
    broker.send(topic, *numbers(0, 5))
    query = Query(broker.options(topic))
    name = query.at["subscription"]
    assert name.startswith("spark-geminga-")
    broker.send(topic, *numbers(5, 9))
    query.batch()
    again = Query(broker.options(topic), query.at)
    broker.send(topic, b"x")
    again.batch()
    cursors = broker.cursors(topic)
    ledger, entry, *_ = again.at[full(topic)].split(":")
    assert list(cursors) == [name]
    assert cursors[name]["markDeletePosition"] == f"{ledger}:{int(entry) - 1}"


def test_a_named_subscription_and_none_at_all(broker: Broker) -> None:
    topic = broker.topic("named")
    broker.send(topic, b"0")
    query = Query(broker.options(topic, subscriptionName="mine"))
    assert list(query.at) == [full(topic)]
    assert list(broker.cursors(topic)) == ["mine"]
    other = broker.topic("free")
    broker.send(other, b"0")
    free = Query(broker.options(other, anchor="false"))
    assert free.rest() == [b"0"]
    assert broker.cursors(other) == {}


@pytest.mark.slow
def test_starting_places(broker: Broker) -> None:
    topic = broker.topic("start")
    at = broker.send(topic, *numbers(0, 12))
    where = json.dumps({topic: f"{at[7].ledger_id}:{at[7].entry_id}"})
    by_id = Query(broker.options(topic, startingOffsets=where))
    latest = Query(broker.options(topic, startingOffsets="latest"))
    by_time = Query(
        parse_read(
            {"service.url": broker.url, "topic": topic, "startingTimestamp": "1000"},
            streaming=True,
        )
    )
    assert latest.batch() == []
    broker.send(topic, b"12")
    assert by_id.rest() == numbers(7, 13)
    assert latest.rest() == [b"12"]
    assert by_time.rest() == numbers(0, 13)


@pytest.mark.parametrize("name", [None, "mine"])
@pytest.mark.slow
def test_a_first_batch_that_was_not_committed_begins_where_it_began(
    broker: Broker, name: str | None
) -> None:
    """Spark doesn't keep the initial offset, and asks for it again."""
    topic = broker.topic("first")
    broker.send(topic, *numbers(0, 5))
    named = {} if name is None else {"subscriptionName": name}
    options = broker.options(topic, startingOffsets="latest", **named)
    first = Query(options)
    assert first.planner.initial() is first.planner.initial()
    broker.send(topic, *numbers(5, 9))
    end = first.latest()
    assert first.read(first.at, end) == numbers(5, 9)
    broker.send(topic, *numbers(9, 12))
    second = Query(options)
    assert second.at != first.at
    assert second.read(second.at, end) == numbers(5, 9)
    second.at = end
    assert second.rest() == numbers(9, 12)
    cursors = list(broker.cursors(topic))
    assert cursors == [name or end["subscription"]]


def test_an_empty_first_batch_keeps_the_place(broker: Broker) -> None:
    topic = broker.topic("empty")
    broker.send(topic, *numbers(0, 5))
    options = broker.options(topic, startingOffsets="latest")
    first = Query(options)
    end = first.latest()
    assert first.read(first.at, end) == []
    broker.send(topic, *numbers(5, 9))
    second = Query(options)
    assert second.read(second.at, end) == []
    second.at = end
    assert second.rest() == numbers(5, 9)
    second.at = third = second.latest()
    assert second.latest() == third


def test_missing_topics(broker: Broker) -> None:
    with pytest.raises(TopicMissing, match="no-such"):
        Query(broker.options("no-such"))
    topic = broker.topic("there")
    broker.send(topic, b"0")
    with pytest.raises(InvalidOption, match="elsewhere"):
        Query(broker.options(topic, startingOffsets='{"elsewhere": "1:1"}'))


def test_new_partitions_are_read_from_their_beginning(broker: Broker) -> None:
    topic = broker.topic("grows", partitions=1)
    query = Query(broker.options(topic, startingOffsets="latest"))
    broker.partitions("POST", topic, 3)
    for n in range(3):
        broker.send(f"{topic}-partition-{n}", b"%d" % n)
    assert sorted(query.rest()) == numbers(0, 3)
    assert sum("://" in name for name in query.at) == 3


def test_new_and_deleted_topics_of_a_pattern(broker: Broker) -> None:
    mark = uuid.uuid4().hex[:6]
    options = broker.selecting(
        topicsPattern=f"persistent://public/default/{mark}-.*",
        discoveryIntervalMs="1",
        failOnDataLoss="false",
    )
    broker.send(f"{mark}-a", b"a")
    query = Query(options)
    assert query.rest() == [b"a"]
    broker.send(f"{mark}-b", b"b")
    assert query.rest() == [b"b"]
    broker.ask("DELETE", f"{mark}-a?force=true")
    assert query.rest() == []
    assert [name for name in query.at if "://" in name] == [full(f"{mark}-b")]


def test_a_pattern_whose_first_topic_comes_later(broker: Broker) -> None:
    mark = uuid.uuid4().hex[:6]
    options = broker.selecting(
        topicsPattern=f"persistent://public/default/{mark}-.*",
        discoveryIntervalMs="1",
        startingOffsets="latest",
    )
    query = Query(options)
    assert query.rest() == []
    broker.send(f"{mark}-a", *numbers(0, 3))
    assert query.rest() == numbers(0, 3)
    again = Query(options, query.at)
    broker.send(f"{mark}-a", b"3")
    assert again.rest() == [b"3"]


def test_an_older_spark_passes_no_start(broker: Broker) -> None:
    topic = broker.topic("older")
    broker.send(topic, *numbers(0, 10))
    planner = StreamPlanner(broker.options(topic, maxMessagesPerTrigger="6"))
    first = planner.initial()
    assert first.positions == {full(topic): BEGIN}
    one = planner.latest(None, limited=True)
    planner.ranges(first, one)
    two = planner.latest(None, limited=True)
    three = planner.latest(None, limited=True)
    assert one != two == three


def test_an_unreachable_broker_is_waited_for_a_while(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic("away")
    broker.send(topic, b"0")
    query = Query(broker.options(topic))
    now_s = 50.0
    query.planner._clock = lambda: now_s
    query.batch()

    def nobody(*_: object) -> object:
        raise geminga.ConnectionFailedError("nobody is there")

    with monkeypatch.context() as patch:
        patch.setattr(TopicEnds, "last", nobody)
        assert query.latest() == query.at
        now_s += 9
        with pytest.raises(geminga.ConnectionFailedError):
            query.latest()
    broker.send(topic, b"1")
    assert query.batch() == [b"1"]


def test_available_now_does_not_end_while_the_broker_is_unreachable(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends such a query when its offset stays."""
    topic = broker.topic("away-now")
    broker.send(topic, *numbers(0, 4))
    query = Query(broker.options(topic, maxMessagesPerTrigger="3"))
    query.planner.prepare_available_now()
    assert query.batch() == numbers(0, 3)
    now_s = 50.0
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        pauses.append(seconds)
        if len(pauses) == 3:
            patch.undo()

    def nobody(*_: object) -> object:
        raise geminga.ConnectionFailedError("nobody is there")

    monkeypatch.setattr(query.planner, "_clock", lambda: now_s)
    monkeypatch.setattr(query.planner, "_pause", pause)
    with monkeypatch.context() as patch:
        patch.setattr(TopicEnds, "last", nobody)
        assert query.batch() == [b"3"]
        assert pauses == [AWAY_PAUSE_S] * 3
        patch.setattr(TopicEnds, "last", nobody)
        with pytest.raises(geminga.ConnectionFailedError):
            query.latest()
    assert 8 < AWAY_PAUSE_S * (len(pauses) - 3) < 9
