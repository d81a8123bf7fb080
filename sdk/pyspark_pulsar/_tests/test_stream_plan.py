"""Micro-batches planned over real brokers' topics: nothing twice, nothing left out, limits kept."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import geminga
import geminga.blocking
import geminga.testing
from pyspark_pulsar._clients import client_for, close_clients
from pyspark_pulsar._offsets import BEGIN, Position, TopicRange
from pyspark_pulsar._options import ReadOptions, parse_read
from pyspark_pulsar._scan import ScanPlan, scan
from pyspark_pulsar._stream_offsets import Offsets
from pyspark_pulsar._stream_plan import StreamPlanner
from pyspark_pulsar.errors import DataLoss, InvalidOption, TopicMissing

SMALL_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
KEEPING = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}
VALUE = StructType([StructField("value", BinaryType())])


@dataclass
class Broker:
    url: geminga.testing.BrokerUrl

    @property
    def client(self) -> geminga.blocking.Client:
        return client_for(self.options("any").client)

    def options(self, topic: str, **more: str) -> ReadOptions:
        return self.selecting(topic=topic, **more)

    def selecting(self, **more: str) -> ReadOptions:
        given = {"service.url": self.url, "startingOffsets": "earliest", "pollTimeoutMs": "8000"}
        return parse_read({**given, **more}, streaming=True)

    def topic(self, about: str, *, partitions: int = 0) -> str:
        name = f"{about}-{uuid.uuid4().hex[:6]}"
        if partitions:
            self.partitions("PUT", name, partitions)
        return name

    def partitions(self, method: str, topic: str, count: int | None = None) -> None:
        self.ask(method, f"{topic}/partitions", count)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"{self.url.web_url}/admin/v2/persistent/public/default/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def send(self, topic: str, *values: bytes, batch: int = 1) -> list[Position]:
        options = {"batching_max_messages": batch, "batching_max_publish_delay_s": 30.0}
        if batch == 1:
            options = {"batching_enabled": False}
        with self.client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
            receipts = []
            for n, value in enumerate(values):
                receipts.append(producer.send_soon(value))
                if n % (4 * batch) == 0 and batch == 1:
                    producer.flush()
            producer.flush()
        ids = [each.wait() for each in receipts]
        return [Position(each.ledger_id, each.entry_id, each.batch_index) for each in ids]

    def roll(self, topic: str) -> None:
        """Have the topic begin a new ledger, and what nobody holds trimmed."""
        for _ in range(2):
            self.ask("PUT", f"{topic}/unload")
            self.send(topic, b"roll")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One that keeps everything."""
    with geminga.testing.broker(SMALL_LEDGERS | KEEPING) as found:
        yield Broker(found)
        close_clients()


@pytest.fixture(scope="module")
def thrifty() -> Iterator[Broker]:
    """One that drops ledgers as soon as nobody holds them."""
    with geminga.testing.broker(SMALL_LEDGERS) as found:
        yield Broker(found)
        close_clients()


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


class Query:
    """A query as Spark would drive it: offsets through JSON, every batch read and committed."""

    def __init__(self, options: ReadOptions, checkpoint: dict[str, Any] | None = None) -> None:
        self._options = options
        self.planner = StreamPlanner(options)
        self.at = checkpoint or json.loads(json.dumps(self.planner.initial().as_json()))

    def latest(self, *, limited: bool = True) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            json.dumps(self.planner.latest(Offsets.parse(self.at), limited=limited).as_json())
        )
        return found

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        found: list[bytes] = []
        for wanted in self.planner.ranges(Offsets.parse(start), Offsets.parse(end)):
            for batch in scan(wanted, ScanPlan(self._options, VALUE)):
                found += batch.column(0).to_pylist()
        return found

    def batch(self, *, commits: bool = True) -> list[bytes]:
        """The next micro-batch; empty if there is nothing new."""
        end = self.latest()
        if end == self.at:
            return []
        found = self.read(self.at, end)
        self.at = end
        if commits:
            self.planner.committed(Offsets.parse(end))
        return found

    def rest(self) -> list[bytes]:
        """All micro-batches until nothing is new."""
        found: list[bytes] = []
        while True:
            before = self.at
            found += self.batch()
            if self.at == before:
                return found


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, stop)]


def test_a_query_reads_on_from_its_checkpoint(broker: Broker) -> None:
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
    cursors = broker.ask("GET", f"{topic}/internalStats")["cursors"]
    ledger, entry, *_ = again.at[full(topic)].split(":")
    assert list(cursors) == [name]
    assert cursors[name]["markDeletePosition"] == f"{ledger}:{int(entry) - 1}"


def test_a_named_subscription_and_none_at_all(broker: Broker) -> None:
    topic = broker.topic("named")
    broker.send(topic, b"0")
    query = Query(broker.options(topic, subscriptionName="mine"))
    assert list(query.at) == [full(topic)]
    assert list(broker.ask("GET", f"{topic}/internalStats")["cursors"]) == ["mine"]
    other = broker.topic("free")
    broker.send(other, b"0")
    free = Query(broker.options(other, anchor="false"))
    assert free.rest() == [b"0"]
    assert broker.ask("GET", f"{other}/internalStats")["cursors"] == {}


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
    cursors = list(broker.ask("GET", f"{topic}/internalStats")["cursors"])
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


def test_names_that_are_not_there(broker: Broker) -> None:
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


def test_new_topics_of_a_pattern_and_those_that_go(broker: Broker) -> None:
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
        with pytest.raises(DataLoss, match=f"{gone}: it is not there any more"):
            query.latest()
        return
    assert query.rest() == [b"2"]
    broker.send(gone, b"3")
    assert query.rest() == [b"3"], "a topic made again is another one"


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_made_again_between_two_batches(broker: Broker, fails: bool) -> None:
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


def test_trimming_behind_a_query_is_no_loss(thrifty: Broker) -> None:
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
    """Ledgers that go away while they are read are told, though the first one was there."""
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
        with pytest.raises(DataLoss, match="went away while it was read"):
            list(rows)
    else:
        assert sum(1 for _ in rows) < 79
        assert "went away while it was read" in caplog.text


def test_with_an_anchor_retention_waits(thrifty: Broker) -> None:
    topic = thrifty.topic("kept")
    thrifty.send(topic, *numbers(0, 5))
    query = Query(thrifty.options(topic))
    assert query.rest() == numbers(0, 5)
    thrifty.send(topic, *numbers(5, 20))
    thrifty.roll(topic)
    assert query.rest() == [*numbers(5, 20), b"roll", b"roll"]


@pytest.mark.parametrize("batch", [1, 6])
def test_limits_of_messages_are_kept_exactly(broker: Broker, batch: int) -> None:
    topic = broker.topic("limited", partitions=3)
    for n in range(3):
        broker.send(f"{topic}-partition-{n}", *numbers(n * 100, n * 100 + 20), batch=batch)
    query = Query(broker.options(topic, maxMessagesPerTrigger="9"))
    sizes = []
    found: list[bytes] = []
    while part := query.batch():
        sizes.append(len(part))
        found += part
    assert sizes == [9] * 6 + [6]
    assert sorted(found, key=int) == numbers(0, 20) + numbers(100, 120) + numbers(200, 220)
    assert query.latest(limited=False) == query.at


def test_limits_of_bytes_and_all_at_once(broker: Broker) -> None:
    topic = broker.topic("bytes")
    broker.send(topic, *[b"x" * 100] * 12)
    query = Query(broker.options(topic, maxBytesPerTrigger="350"))
    assert len(query.batch()) == 3
    end = query.latest(limited=False)
    assert len(query.read(query.at, end)) == 9


def test_too_little_waits_for_more(broker: Broker) -> None:
    topic = broker.topic("least")
    broker.send(topic, b"0")
    options = broker.options(topic, minMessagesPerTrigger="4", maxTriggerDelay="3600000")
    now_s = 1000.0
    query = Query(options)
    query.planner._clock = lambda: now_s
    assert query.batch() == [b"0"], "the first one waits for nothing"
    broker.send(topic, *numbers(1, 4))
    assert query.batch() == []
    broker.send(topic, b"4")
    assert query.batch() == numbers(1, 5)
    broker.send(topic, b"5")
    assert query.batch() == []
    now_s += 3601
    assert query.batch() == [b"5"]


def test_available_now_ends_where_it_began(broker: Broker) -> None:
    topic = broker.topic("now")
    broker.send(topic, *numbers(0, 10))
    query = Query(broker.options(topic, maxMessagesPerTrigger="4", minMessagesPerTrigger="3"))
    query.planner.prepare_available_now()
    assert query.batch() == numbers(0, 4)
    broker.send(topic, *numbers(10, 20))
    assert query.rest() == numbers(4, 10)
    assert query.batch() == []


def test_an_older_spark_tells_no_start(broker: Broker) -> None:
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


def test_a_broker_that_is_away_is_waited_for_a_while(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic("away")
    broker.send(topic, b"0")
    query = Query(broker.options(topic))
    now_s = 50.0
    query.planner._clock = lambda: now_s
    query.batch()

    def nobody(*_: object) -> object:
        raise geminga.ConnectionFailed("nobody is there")

    with monkeypatch.context() as patch:
        patch.setattr("pyspark_pulsar._stream_plan.last_entry", nobody)
        assert query.latest() == query.at
        now_s += 9
        with pytest.raises(geminga.ConnectionFailed):
            query.latest()
    broker.send(topic, b"1")
    assert query.batch() == [b"1"]
