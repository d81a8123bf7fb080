"""A broker as the Spark tests use it: fresh topics and namespaces, messages in given batches."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import trio
from pyspark.sql import DataFrame, SparkSession

import geminga
import geminga.blocking
from compat_tests.processes import ServerProcess
from geminga.producer import MessageKeywords
from pyspark_pulsar._tests.admin import ask

WAIT_S = 60.0
SETTINGS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    # What no subscription holds would be trimmed with its ledger.
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    # A few thousand messages make several ledgers.
    "managedLedgerMaxEntriesPerLedger": "1000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}


class Pulsar:
    """A running broker, ours or Apache's, with a client of ours."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server

    @property
    def url(self) -> str:
        """For `service.url`."""
        return self.server.service_url

    @property
    def admin_url(self) -> str:
        """For `admin.url`."""
        return self.server.web_url

    @cached_property
    def client(self) -> geminga.blocking.Client:
        """One client for all tests."""
        return geminga.blocking.connect(self.url)

    def close(self) -> None:
        """Close the client, if there is one."""
        if "client" in self.__dict__:
            self.client.close()

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """A request to the admin REST API below `/admin/v2/`; its JSON answer, or None."""
        return ask(self.admin_url, method, path, body)

    def namespace(self, about: str, *, deduplication: bool = False) -> str:
        """A fresh namespace, as `tenant/name`; other policies by `admin`."""
        name = f"public/{about}-{uuid.uuid4().hex[:8]}"
        self.admin("PUT", f"namespaces/{name}", {})
        if deduplication:
            self.admin("POST", f"namespaces/{name}/deduplication", True)
        return name

    def topic(self, about: str, *, partitions: int = 0, namespace: str = "public/default") -> str:
        """A fresh topic's full name. One with partitions exists, one without is made by its use."""
        topic = f"persistent://{namespace}/{about}-{uuid.uuid4().hex[:8]}"
        if partitions:
            self.admin("PUT", path(topic) + "/partitions", partitions)
        return topic

    def unload(self, topic: str) -> None:
        """Close the topic in the broker: the next message goes to a new ledger."""
        self.admin("PUT", path(topic) + "/unload")

    def publish(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        schema: geminga.schema.Schema[Any] | None = None,
        per_batch: int = 1,
        each: Callable[[int], MessageKeywords] = lambda number: {},
        **options: Any,
    ) -> list[geminga.MessageId]:
        """Send the values in batches of exactly so many; one that is left over is not batched.

        `each` describes the message of a number (`partition_key`, `event_time_ms`, ...);
        `options` are the producer's. Answers the ids.
        """
        if per_batch == 1:
            options["batching_enabled"] = False
        else:
            options |= {"batching_max_messages": per_batch, "batching_max_publish_delay_s": 60.0}

        async def send() -> list[geminga.MessageId]:
            receipts = []
            async with (
                geminga.connect(self.url) as client,
                await client.create_producer(topic, schema=schema, **options) as producer,
            ):
                for number, value in enumerate(values):
                    if number % per_batch:
                        # The event loop doesn't turn within a batch, so it isn't sent in parts.
                        receipts.append(producer.send_nowait(value, **each(number)))
                    else:
                        receipts.append(await producer.submit(value, **each(number)))
                await producer.flush()
                return [await receipt.wait() for receipt in receipts]

        return trio.run(send)

    def messages(self, topic: str, **options: Any) -> list[geminga.Message[Any]]:
        """All that a topic holds now; of a partitioned one, partition after partition."""
        found: list[geminga.Message[Any]] = []
        for part in self.client.list_partitions(topic):
            with self.client.create_reader(part, geminga.EARLIEST, **options) as reader:
                while reader.has_message_available():
                    found.append(reader.read_next(timeout_s=WAIT_S))
        return found

    def read(self, spark: SparkSession, topic: str, **options: str) -> DataFrame:
        """`spark.read.format("pulsar")` of one topic. Options with dots: `**{"admin.url": url}`."""
        reader = spark.read.format("pulsar").option("service.url", self.url)
        return reader.options(topic=topic, **options).load()

    def read_stream(self, spark: SparkSession, topic: str, **options: str) -> DataFrame:
        """`spark.readStream.format("pulsar")` of one topic."""
        reader = spark.readStream.format("pulsar").option("service.url", self.url)
        return reader.options(topic=topic, **options).load()


def path(topic: str) -> str:
    """The topic in paths of the admin API."""
    return topic.replace("://", "/")
