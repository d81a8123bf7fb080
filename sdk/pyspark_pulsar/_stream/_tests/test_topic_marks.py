"""A recreated topic, whose positions may equal those of the old one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from pyspark_pulsar._clients import close_clients
from pyspark_pulsar._positions import Mark, Position
from pyspark_pulsar._stream._offsets import Offsets
from pyspark_pulsar._stream._topic_marks import LOOK_EVERY_S
from pyspark_pulsar._tests.broker import KEEPING
from pyspark_pulsar._tests.streaming import Broker, Query, full, numbers, started
from pyspark_pulsar.errors import DataLoss, OffsetOutOfRange


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with started(KEEPING) as found:
        yield found


def again(query: Query, broker: Broker, topic: str, **more: str) -> Query:
    return Query(broker.options(topic, **more), json.loads(json.dumps(query.at)))


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("anchor", ["true", "false"])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.slow
def test_a_recreated_cluster(
    fails: bool, anchor: str, limited: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts its ledgers from the same number on: the new topic has the old one's positions, and
    goes further.
    """
    more = {"failOnDataLoss": str(fails), "anchor": anchor}
    if limited:
        more["maxMessagesPerTrigger"] = "4"
    with started(KEEPING) as first:
        first.send("same", *numbers(0, 5))
        query = Query(first.options("same", **more))
        assert query.rest() == numbers(0, 5)
    with started(KEEPING) as second:
        positions = second.send("same", *numbers(100, 109))
        assert str(positions[4].entry) == query.at[full("same")], "the test has to be meant"
        restarted = Query(second.options("same", **more), query.at)
        if fails:
            with pytest.raises(DataLoss, match="it was deleted and created again"):
                restarted.batch()
            return
        assert restarted.rest() == numbers(100, 109)
        second.send("same", b"more")
        assert again(restarted, second, "same", **more).rest() == [b"more"]
    assert caplog.text.count("it was deleted and created again") == 1
    close_clients()


def test_a_topic_recreated_during_a_query(broker: Broker) -> None:
    topic = broker.topic("running")
    broker.send(topic, *numbers(0, 5))
    query = Query(broker.options(topic))
    now_s = 0.0
    query.planner._clock = lambda: now_s
    query.rest()
    # As if the message that is there now were another one.
    mark = Mark.parse(query.at["marks"][full(topic)])
    query.at["marks"][full(topic)] = str(Mark(mark.entry, mark.published_ms - 1))
    assert query.latest() == query.at
    now_s += LOOK_EVERY_S
    with pytest.raises(DataLoss, match="created again"):
        query.latest()


@pytest.mark.slow
def test_a_mark_is_in_the_ledger_of_the_offset(broker: Broker) -> None:
    topic = broker.topic("moves")
    at = broker.send(topic, *numbers(0, 3))
    query = Query(broker.options(topic))
    query.rest()
    first = Mark.parse(query.at["marks"][full(topic)])
    assert first.entry == at[-1].entry
    broker.send(topic, *numbers(3, 5))
    query.rest()
    assert Mark.parse(query.at["marks"][full(topic)]) == first, "once for a ledger"
    broker.roll(topic)
    query.rest()
    newest = Mark.parse(query.at["marks"][full(topic)])
    assert newest.entry.ledger_id == Position.parse(query.at[full(topic)]).ledger_id
    assert newest != first


def test_offsets_of_earlier_versions_are_continued(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.topic("old")
    broker.send(topic, *numbers(0, 5))
    query = Query(broker.options(topic))
    assert query.rest() == numbers(0, 5)
    old = {name: value for name, value in query.at.items() if name != "marks"}
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        restarted = Query(broker.options(topic), old)
        assert restarted.latest() == old, "nothing new is no micro-batch"
        broker.send(topic, b"5")
        assert restarted.rest() == [b"5"]
    told = [record for record in caplog.records if record.name.startswith("pyspark_pulsar")]
    assert not told
    assert full(topic) in restarted.at["marks"]


def test_marks_in_a_checkpoint() -> None:
    mark = Mark(Position(5, 7), 1_700_000_000_123)
    offsets = Offsets({"t": Position(5, 9)}, "s", None, {"t": mark}, ("t",))
    told = offsets.as_json()
    assert told == {
        "t": "5:9", "subscription": "s", "marks": {"t": "5:7@1700000000123"}, "anew": ["t"],
    }  # fmt: skip
    assert Offsets.parse(told) == offsets
    for wrong in ({"marks": []}, {"marks": {"t": "5:7"}}, {"marks": {"t": "x@1"}}, {"anew": "t"}):
        with pytest.raises(OffsetOutOfRange, match="the checkpoint"):
            Offsets.parse(wrong)
