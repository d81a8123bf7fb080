"""A broker for tests, with small ledgers that are retained."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import geminga.blocking
from geminga.testing import broker
from pyspark_pulsar._clients import client_for, close_clients
from pyspark_pulsar._options import ReadOptions, parse_read
from pyspark_pulsar._tests.admin import ask, path_of

LEDGER = 10
"""Entries of a full ledger; one more where it came before the next ledger was begun."""
SMALL_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": str(LEDGER),
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
KEEPING = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}


class Broker:
    """The broker, and tests' operations on it."""

    def __init__(self, url: str, web_url: str) -> None:
        self.url = url
        self.web_url = web_url

    @property
    def client(self) -> geminga.blocking.Client:
        """The client that reads with no further options use."""
        return client_for(self.options("t").client)

    def options(self, topic: str, **more: str) -> ReadOptions:
        """Of a batch read."""
        return parse_read({"service.url": self.url, "topic": topic, **more}, streaming=False)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """A request to the REST API."""
        return ask(self.web_url, method, path, body)

    def topic(self, *, partitions: int = 0) -> str:
        """A fresh topic's full name; without partitions it is made by its first message."""
        name = f"persistent://public/default/t{uuid.uuid4().hex[:10]}"
        if partitions:
            self.ask("PUT", f"{path_of(name)}/partitions", partitions)
        return name

    def publish(
        self, topic: str, values: Sequence[bytes], *, per_batch: int = 1
    ) -> list[geminga.MessageId]:
        """Send messages, some in each entry, one entry after the other: full ledgers are closed."""
        batching = per_batch > 1
        with self.client.create_producer(
            topic,
            batching_enabled=batching,
            batching_max_messages=max(per_batch, 2),
            batching_max_publish_delay_s=60.0,
        ) as producer:
            found = []
            for at in range(0, len(values), per_batch):
                receipts = [producer.submit(value) for value in values[at : at + per_batch]]
                producer.flush()
                found += [receipt.wait() for receipt in receipts]
            return found


@contextmanager
def running_broker() -> Iterator[Broker]:
    """One in a thread."""
    with broker(SMALL_LEDGERS | KEEPING) as url:
        try:
            yield Broker(str(url), url.web_url)
        finally:
            close_clients()
