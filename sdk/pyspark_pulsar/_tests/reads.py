"""A batch read as Spark drives it, but without Spark's engine: planned, sent to tasks, read."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from geminga.schema import Avro
from pyspark_pulsar import PulsarDataSource
from pyspark_pulsar._positions import TopicRange
from pyspark_pulsar._scan._batch import NarrowedBatchReader, PulsarBatchReader
from pyspark_pulsar._tests.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

Row = dict[str, object]


@dataclass
class Reading:
    """A record of the tests."""

    sensor: str
    degrees: int


def publish_readings(broker: Broker) -> str:
    """100 readings in two partitions and several ledgers."""
    topic = broker.topic(partitions=2)
    with broker.client.create_producer(topic, schema=Avro(Reading)) as producer:
        for number in range(100):
            producer.send(Reading(f"s{number % 7}", number), partition_key=f"k{number % 10}")
    return topic


def source(broker: Broker, topic: str, **options: str) -> PulsarDataSource:
    return PulsarDataSource({"service.url": broker.url, "topic": topic, **options})


def read(
    made: PulsarDataSource, schema: StructType | None = None, filters: list[Filter] | None = None
) -> tuple[list[Row], list[TopicRange]]:
    """The rows and the parts that they came in."""
    reader = made.reader(schema or made.schema())
    if filters is not None:
        assert isinstance(reader, NarrowedBatchReader)
        list(reader.pushFilters(filters))
    assert isinstance(reader, PulsarBatchReader)
    partitions = reader.partitions()
    assert isinstance(partitions, list)
    reader = pickle.loads(pickle.dumps(reader))
    rows = []
    for partition in partitions:
        for batch in reader.read(pickle.loads(pickle.dumps(partition))):
            rows += batch.to_pylist()
    return rows, [partition.value for partition in partitions]


def degrees(rows: list[Row]) -> list[int]:
    return sorted(int(str(row["degrees"])) for row in rows)
