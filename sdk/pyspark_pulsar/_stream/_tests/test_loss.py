"""Topics that are deleted, trimmed or made again under a query: told if anything was lost, and only
then.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_pulsar._positions import BEGIN, TopicRange
from pyspark_pulsar._scan._task import ScanPlan, scan
from pyspark_pulsar._tests.broker import KEEPING
from pyspark_pulsar._tests.streaming import VALUE, Broker, Query, full, numbers, started
from pyspark_pulsar.errors import DataLoss


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that retains everything."""
    with started(KEEPING) as found:
        yield found


@pytest.fixture(scope="module")
def thrifty() -> Iterator[Broker]:
    """A broker that trims ledgers as soon as no cursor retains them."""
    with started({}) as found:
        yield found


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted(broker: Broker, fails: bool) -> None:
    kept, gone = broker.topic("kept"), broker.topic("gone")
    broker.send(kept, b"0")
    broker.send(gone, b"1")
    options = broker.selecting(topics=f"{kept},{gone}", failOnDataLoss=str(fails))
    query = Query(options)
    assert sorted(query.rest()) == [b"0", b"1"]
    broker.ask("DELETE", f"{gone}?force=true")
    broker.send(kept, b"2")
    if fails:
        with pytest.raises(DataLoss, match=f"{gone}: it no longer exists"):
            query.latest()
        return
    assert query.rest() == [b"2"]
    broker.send(gone, b"3")
    assert query.rest() == [b"3"], "a topic made again is another one"


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_recreated_between_two_batches(broker: Broker, fails: bool) -> None:
    topic = broker.topic("remade")
    broker.send(topic, *numbers(0, 5))
    query = Query(broker.options(topic, failOnDataLoss=str(fails)))
    query.rest()
    broker.ask("DELETE", f"{topic}?force=true")
    broker.send(topic, b"new")
    if fails:
        with pytest.raises(DataLoss):
            query.rest()
    else:
        assert query.rest() == [b"new"]


@pytest.mark.slow
def test_trimming_of_read_messages_is_no_loss(thrifty: Broker) -> None:
    """Ledgers end and go while the query has read all; the anchor's last one stays."""
    topic = thrifty.topic("trimmed")
    thrifty.send(topic, b"0")
    query = Query(thrifty.options(topic))
    thrifty.send(topic, *numbers(1, 25))
    assert query.rest() == numbers(0, 25)
    for _ in range(3):
        thrifty.roll(topic)
        ledgers = thrifty.ask("GET", f"{topic}/internalStats")["ledgers"]
        assert query.rest() == [b"roll", b"roll"]
    assert len(ledgers) < 5, "nothing was trimmed"


@pytest.mark.parametrize("fails", [True, False])
def test_retention_that_passes_the_offset(thrifty: Broker, fails: bool) -> None:
    topic = thrifty.topic("passed")
    thrifty.send(topic, *numbers(0, 5))
    query = Query(thrifty.options(topic, anchor="false", failOnDataLoss=str(fails)))
    assert query.rest() == numbers(0, 5)
    thrifty.send(topic, *numbers(5, 20))
    thrifty.roll(topic)
    if fails:
        with pytest.raises(DataLoss, match=f"{topic}: messages from .* are gone"):
            query.rest()
    else:
        left = query.rest()
        assert left[-1] == b"roll"
        assert len(left) < 17


@pytest.mark.parametrize("fails", [True, False])
def test_retention_that_passes_a_task(
    thrifty: Broker, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Ledgers deleted during a read are reported, though the first one existed."""
    topic = thrifty.topic("overtaken")
    held = thrifty.client.subscribe(topic, "held", receiver_queue_size=0)
    for _ in range(4):
        sent = thrifty.send(topic, *[b"x" * 1000] * 20)
    options = thrifty.options(
        topic, failOnDataLoss=str(fails), maxRowsPerBatch="1",
        **{"pulsar.reader.receiverQueueSize": "1"},
    )  # fmt: skip
    rows = scan(TopicRange(full(topic), -1, BEGIN, sent[-1]), ScanPlan(options, VALUE))
    next(rows)
    held.unsubscribe()
    thrifty.roll(topic)
    if fails:
        with pytest.raises(DataLoss, match="were deleted while being read"):
            list(rows)
    else:
        assert sum(1 for _ in rows) < 79
        assert "were deleted while being read" in caplog.text


def test_with_an_anchor_retention_waits(thrifty: Broker) -> None:
    topic = thrifty.topic("kept")
    thrifty.send(topic, *numbers(0, 5))
    query = Query(thrifty.options(topic))
    assert query.rest() == numbers(0, 5)
    thrifty.send(topic, *numbers(5, 20))
    thrifty.roll(topic)
    assert query.rest() == [*numbers(5, 20), b"roll", b"roll"]
