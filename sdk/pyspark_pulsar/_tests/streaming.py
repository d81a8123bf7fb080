"""A broker and a query for the tests of streams: Spark's part is played by the query."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import BinaryType, StructField, StructType

import geminga.blocking
import geminga.testing
from pyspark_pulsar._clients import client_for, close_clients
from pyspark_pulsar._options import ReadOptions, parse_read
from pyspark_pulsar._positions import Position
from pyspark_pulsar._scan._task import ScanPlan, scan
from pyspark_pulsar._stream._offsets import Offsets
from pyspark_pulsar._stream._planner import StreamPlanner
from pyspark_pulsar._tests.admin import ask
from pyspark_pulsar._tests.broker import SMALL_LEDGERS

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
        return ask(self.url.web_url, method, f"persistent/public/default/{path}", body)

    def cursors(self, topic: str) -> dict[str, Any]:
        """The durable ones: a query's watchers have others."""
        found = self.ask("GET", f"{topic}/internalStats")["cursors"]
        return {name: each for name, each in found.items() if not name.startswith("spark-ends-")}

    def send(self, topic: str, *values: bytes, batch: int = 1) -> list[Position]:
        options = {"batching_max_messages": batch, "batching_max_publish_delay_s": 30.0}
        if batch == 1:
            options = {"batching_enabled": False}
        with self.client.create_producer(topic, **options) as producer:
            receipts = []
            for n, value in enumerate(values):
                receipts.append(producer.submit(value))
                if n % (4 * batch) == 0 and batch == 1:
                    producer.flush()
            producer.flush()
        ids = [each.wait() for each in receipts]
        return [Position(each.ledger_id, each.entry_id, each.batch_index) for each in ids]

    def roll(self, topic: str) -> None:
        """Roll the topic's ledger over, and trim what no cursor retains."""
        for _ in range(2):
            self.ask("PUT", f"{topic}/unload")
            self.send(topic, b"roll")


@contextmanager
def started(settings: Mapping[str, str]) -> Iterator[Broker]:
    """A broker with small ledgers."""
    with geminga.testing.broker(SMALL_LEDGERS | settings) as found:
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
