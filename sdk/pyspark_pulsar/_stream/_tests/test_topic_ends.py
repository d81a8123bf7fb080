"""The ends of topics, by consumers that stay open."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

import geminga.blocking
from pyspark_pulsar._options import parse_read
from pyspark_pulsar._plan._ranges import RangeResolver
from pyspark_pulsar._plan._topics import expand
from pyspark_pulsar._positions import BEGIN, Position
from pyspark_pulsar._scan._task import ScanPlan, scan
from pyspark_pulsar._stream import _topic_ends
from pyspark_pulsar._stream._topic_ends import TopicEnds
from pyspark_pulsar._tests.admin import ask
from pyspark_pulsar._tests.broker import KEEPING
from pyspark_pulsar._tests.streaming import VALUE, Broker, Query, full, numbers, started
from pyspark_pulsar.errors import DataLoss, TopicMissing

ANCHOR = {"anchor": "false"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with started(KEEPING) as found:
        yield found


def test_a_trigger_opens_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic("kept", partitions=4)
    broker.send(topic, *numbers(0, 8))
    query = Query(broker.options(topic, anchor="false"))
    assert len(query.rest()) == 8
    opened: list[str] = []

    def count(_: object, name: str, *__: object, **___: object) -> None:
        opened.append(name)
        raise AssertionError("nothing is to be opened")

    for method in ("create_reader", "subscribe"):
        monkeypatch.setattr(geminga.blocking.Client, method, count)
    for _ in range(5):
        assert query.latest() == query.at
    assert not opened


def test_no_backlog_is_shown_and_nothing_is_fetched(broker: Broker) -> None:
    topic = broker.topic("idle")
    broker.send(topic, b"0")
    ends = TopicEnds(broker.client, broker.options(topic))
    for first in (1, 20):
        last = broker.send(topic, *numbers(first, first + 10))[-1]
        assert ends.last([full(topic)]) == {full(topic): last.entry}
    for _ in range(600):
        (watcher,) = [
            each
            for name, each in broker.ask("GET", f"{topic}/stats")["subscriptions"].items()
            if name.startswith("spark-ends-")
        ]
        if not watcher["msgBacklog"]:
            break
        time.sleep(0.1)
    assert watcher["msgBacklog"] == 0
    assert watcher["msgOutCounter"] == 0
    ends.close()


def test_many_topics(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_topic_ends, "KEPT_MAX", 2)
    names = [broker.topic("many") for _ in range(5)]
    lasts = {full(name): broker.send(name, b"x", b"y")[-1].entry for name in names}
    ends = TopicEnds(broker.client, broker.options(names[0]))
    missing = full(broker.topic("none"))
    for _ in range(2):
        assert ends.present([*lasts, missing]) == [*lasts]
        assert ends.last([*lasts, missing]) == lasts
    ends.close()


def test_a_topic_that_is_deleted_and_made_again(broker: Broker) -> None:
    topic = broker.topic("again")
    broker.send(topic, b"x")
    ends = TopicEnds(broker.client, broker.options(topic))
    assert ends.present([full(topic)])
    broker.ask("DELETE", f"{topic}?force=true")
    assert ends.last([full(topic)]) == {}
    last = broker.send(topic, b"y")[-1]
    assert ends.last([full(topic)]) == {full(topic): last.entry}
    ends.close()


def test_all_partitions_are_deleted(broker: Broker) -> None:
    topic = broker.topic("gone", partitions=2)
    broker.send(topic, *numbers(0, 4))
    for n in range(2):
        broker.ask("DELETE", f"{topic}-partition-{n}?force=true")
    told = "none of its 2 partitions exists: deleted with their messages"
    with pytest.raises(TopicMissing, match=told):
        Query(broker.options(topic))


def test_a_batch_with_deleted_partitions(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = broker.topic("batch", partitions=2)
    broker.send(topic, *numbers(0, 40))
    options = parse_read({"service.url": broker.url, "topic": topic}, streaming=False)
    parts = expand(broker.client, options.topics)
    broker.ask("DELETE", f"{topic}-partition-1?force=true")
    (left,) = RangeResolver(broker.client, options).ranges(parts)
    assert left.partition == 0
    assert f"topic {full(topic)}: partitions 1 don't exist" in caplog.text
    broker.ask("DELETE", f"{topic}-partition-0?force=true")
    with pytest.raises(TopicMissing, match="none of its 2 partitions exists"):
        RangeResolver(broker.client, options).ranges(parts)
    # A task after the deletion.
    with pytest.raises(DataLoss, match="it was deleted"):
        list(scan(left, ScanPlan(options, VALUE)))
    lenient = replace(options, fail_on_data_loss=False)
    assert list(scan(left, ScanPlan(lenient, VALUE))) == []


@pytest.mark.parametrize("anchor", ["true", "false"])
def test_one_partition_is_deleted(
    broker: Broker, caplog: pytest.LogCaptureFixture, anchor: str
) -> None:
    topic = broker.topic("one", partitions=2)
    broker.send(topic, *numbers(0, 40))
    broker.ask("DELETE", f"{topic}-partition-1?force=true")
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        query = Query(broker.options(topic, anchor=anchor))
        assert query.at[f"{full(topic)}-partition-1"] == str(BEGIN)
        first = query.rest()
        assert query.rest() == []
    assert "partitions 1 don't exist" in caplog.text
    assert f"{full(topic)}-partition-1" not in ask(
        broker.url.web_url, "GET", "persistent/public/default"
    )
    broker.send(topic, *numbers(40, 80))
    assert sorted(first + query.rest(), key=int)[-40:] == numbers(40, 80)


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("anchor", ["true", "false"])
@pytest.mark.slow
def test_a_partition_deleted_during_a_query(broker: Broker, fails: bool, anchor: str) -> None:
    topic = broker.topic("under", partitions=2)
    broker.send(topic, *numbers(0, 40))
    query = Query(broker.options(topic, failOnDataLoss=str(fails), anchor=anchor))
    assert len(query.rest()) == 40
    broker.ask("DELETE", f"{topic}-partition-1?force=true")
    if fails:
        with pytest.raises(DataLoss, match="partition-1: it no longer exists"):
            query.latest()
        return
    assert query.rest() == []
    broker.send(topic, *numbers(40, 80))
    assert sorted(query.rest(), key=int) == numbers(40, 80)


def test_position_of_an_empty_topic(broker: Broker) -> None:
    topic = broker.topic("empty", partitions=1)
    ends = TopicEnds(broker.client, broker.options(topic))
    assert ends.last([f"{full(topic)}-partition-0"]) == {f"{full(topic)}-partition-0": BEGIN}
    assert Position(-1, -1) == BEGIN
    ends.close()
