"""Compacted topics with trimmed ledgers: the remaining messages are planned and read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from geminga import EARLIEST, MessageId
from pyspark_pulsar._options import ReadOptions, parse_read
from pyspark_pulsar._plan._ranges import RangeResolver
from pyspark_pulsar._plan._tasks import split_ranges
from pyspark_pulsar._plan._topics import expand, start_id
from pyspark_pulsar._positions import BEGIN, Position, TopicRange
from pyspark_pulsar._scan._task import ScanPlan, scan
from pyspark_pulsar._tests.streaming import VALUE, Broker, Query, full, started

WAIT_S = 60.0
COMPACTED = {"readCompacted": "true"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that trims ledgers as soon as no cursor retains them."""
    with started({}) as found:
        yield found


def publish(broker: Broker, topic: str, *pairs: tuple[str, bytes]) -> list[Position]:
    with broker.client.create_producer(topic, batching_enabled=False) as producer:
        ids = [producer.send(value, partition_key=key) for key, value in pairs]
    return [Position(each.ledger_id, each.entry_id) for each in ids]


def stats(broker: Broker, topic: str) -> Any:
    return broker.ask("GET", f"{topic}/internalStats")


def compact(broker: Broker, topic: str) -> None:
    broker.ask("PUT", f"{topic}/compaction")
    deadline_s = time.monotonic() + WAIT_S
    while (status := broker.ask("GET", f"{topic}/compaction")["status"]) != "SUCCESS":
        assert status == "RUNNING"
        assert time.monotonic() < deadline_s


def batch(broker: Broker, topic: str, **more: str) -> ReadOptions:
    return parse_read({"service.url": broker.url, "topic": topic, **more}, streaming=False)


def planned(broker: Broker, options: ReadOptions) -> list[TopicRange]:
    return RangeResolver(broker.client, options).ranges(expand(broker.client, options.topics))


def read(broker: Broker, options: ReadOptions) -> list[bytes]:
    return [value for each in planned(broker, options) for value in values(each, options)]


def values(wanted: TopicRange, options: ReadOptions) -> list[bytes]:
    found: list[bytes] = []
    for rows in scan(wanted, ScanPlan(options, VALUE)):
        found += rows.column(0).to_pylist()
    return found


@pytest.fixture(scope="module")
def trimmed(broker: Broker) -> tuple[str, list[Position]]:
    """30 numbers under 6 keys, all compacted, nothing left in the log."""
    topic = broker.topic("trimmed")
    broker.client.subscribe(topic, "held", receiver_queue_size=0).close()
    at = publish(broker, topic, *((f"k{n % 6}", b"%d" % n) for n in range(30)))
    compact(broker, topic)
    broker.ask("PUT", f"{topic}/unload")
    broker.ask("DELETE", f"{topic}/subscription/held")
    deadline_s = time.monotonic() + WAIT_S
    while min(each["ledgerId"] for each in stats(broker, topic)["ledgers"]) <= at[-1].ledger_id:
        assert time.monotonic() < deadline_s
    return topic, at


def test_a_batch_of_compacted_messages(broker: Broker, trimmed: tuple[str, list[Position]]) -> None:
    topic, at = trimmed
    options = batch(broker, topic, **COMPACTED)
    assert planned(broker, options) == [TopicRange(full(topic), -1, BEGIN, at[-1])]
    assert read(broker, options) == [b"%d" % n for n in range(24, 30)]
    assert read(broker, batch(broker, topic)) == []


def test_times_and_ids_of_compacted_messages(
    broker: Broker, trimmed: tuple[str, list[Position]]
) -> None:
    topic, at = trimmed
    some = batch(broker, topic, startingOffsets=f'{{"{topic}": "{at[26]}"}}', **COMPACTED)
    assert read(broker, some) == [b"%d" % n for n in range(26, 30)]
    some = batch(broker, topic, endingOffsets=f'{{"{topic}": "{at[26]}"}}', **COMPACTED)
    assert read(broker, some) == [b"%d" % n for n in range(24, 27)]
    # An id that was good once.
    some = batch(broker, topic, startingOffsets=f'{{"{topic}": "{at[0]}"}}', **COMPACTED)
    assert read(broker, some) == [b"%d" % n for n in range(24, 30)]
    all_of_them = batch(broker, topic, startingTimestamp="1000", **COMPACTED)
    assert read(broker, all_of_them) == [b"%d" % n for n in range(24, 30)]
    assert read(broker, batch(broker, topic, endingTimestamp="1000", **COMPACTED)) == []
    later = str(int(time.time() * 1000) + 60_000)
    assert read(broker, batch(broker, topic, startingTimestamp=later, **COMPACTED)) == []


def test_compacted_reads_start_at_an_id() -> None:
    """From the earliest on, a reader doesn't know that there are messages before the first one."""
    assert start_id(BEGIN, read_compacted=True) == MessageId(0, 0)
    assert start_id(BEGIN, read_compacted=False) == EARLIEST
    assert start_id(Position(3, -1), read_compacted=True) == MessageId(3, 0)


@pytest.mark.parametrize("by_rest", [False, True])
def test_parts_of_compacted_messages(
    broker: Broker, trimmed: tuple[str, list[Position]], by_rest: bool
) -> None:
    topic, _ = trimmed
    more = {"admin.url": broker.url.web_url} if by_rest else {}
    options = batch(broker, topic, minPartitions="3", **COMPACTED, **more)
    parts = split_ranges(broker.client, options, planned(broker, options))
    assert sorted(value for each in parts for value in values(each, options)) == [
        b"%d" % n for n in range(24, 30)
    ]


def test_a_stream_of_compacted_messages(
    broker: Broker, trimmed: tuple[str, list[Position]]
) -> None:
    query = Query(broker.options(trimmed[0], **COMPACTED))
    assert query.rest() == [b"%d" % n for n in range(24, 30)]


def test_a_stream_whose_last_messages_are_compacted_away(broker: Broker) -> None:
    topic = broker.topic("emptied")
    publish(broker, topic, ("a", b"1"), ("b", b"2"), ("c", b"3"))
    query = Query(broker.options(topic, **COMPACTED))
    assert query.rest() == [b"1", b"2", b"3"]
    publish(broker, topic, ("b", b""), ("c", b""))
    assert query.rest() == [b"", b""]
    compact(broker, topic)
    assert query.rest() == []
    publish(broker, topic, ("a", b""))
    compact(broker, topic)
    assert query.rest() == []
    publish(broker, topic, ("d", b"4"))
    assert query.rest() == [b"4"]
