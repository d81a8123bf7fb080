"""The connector on Apache's broker: a smoke set, each test also against ours with the same result.

What is read was written by the official Python client, what was written is read by it.
"""

from __future__ import annotations

import datetime
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar as official
from pulsar.schema import AvroSchema, Double, Long, Record, String
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from compat_tests.spark.streams import finish
from compat_tests.spark.topics import Pulsar

UTC = datetime.UTC
WAIT_MS = 15_000


class Trade(Record):
    """As the official client is given it."""

    number = Long(required=True)
    symbol = String(required=True)
    price = Double(required=True)
    note = String()


@contextmanager
def official_client(either: Pulsar) -> Iterator[official.Client]:
    client = official.Client(
        either.url, logger=official.FileLogger(official.LoggerLevel.Error, "/dev/null")
    )
    try:
        yield client
    finally:
        client.close()


def trades(either: Pulsar, topic: str, numbers: Sequence[int]) -> list[str]:
    """Sent by the official client in batches of at most 7, the key decides on the partition; their
    ids as this connector writes them, with the partition before.
    """
    ids: dict[int, str] = {}

    def sent(number: int) -> Callable[[Any, Any], None]:
        def confirmed(result: Any, found: Any) -> None:
            assert result == official.Result.Ok
            place = f"{found.ledger_id()}:{found.entry_id()}:{found.batch_index()}"
            ids[number] = f"{found.partition()}/{place.removesuffix(':-1')}"

        return confirmed

    with official_client(either) as client:
        producer = client.create_producer(
            topic,
            schema=AvroSchema(Trade),
            batching_enabled=True,
            batching_max_messages=7,
            batching_max_publish_delay_ms=1000,
            block_if_queue_full=True,
        )
        for number in numbers:
            note = None if number % 3 else f"note {number}"
            producer.send_async(
                Trade(number=number, symbol=f"S{number % 5}", price=number / 4, note=note),
                sent(number),
                partition_key=f"k{number % 11}",
                properties={"n": str(number)},
                event_timestamp=1_700_000_000_000 + number,
            )
        producer.flush()
        producer.close()
    return [ids[number] for number in numbers]


def numbers_of(frame: DataFrame) -> list[int]:
    """What its column `number` or `value` has, sorted."""
    return sorted(row[0] for row in frame.select(frame.columns[0]).collect())


def save(frame: DataFrame, either: Pulsar, **options: str) -> None:
    writer = frame.write.format("pulsar").mode("append").option("service.url", either.url)
    writer.options(**options).save()


def test_partitioned_avro_topic_of_the_official_client(spark: SparkSession, either: Pulsar) -> None:
    topic = either.topic("trades", partitions=3)
    ids = trades(either, topic, range(500))
    frame = either.read(spark, topic)
    assert frame.columns[:4] == ["number", "symbol", "price", "note"]
    rows = frame.orderBy("number").collect()
    assert [row.number for row in rows] == list(range(500))
    assert [f"{row['__partition']}/{row['__messageId']}" for row in rows] == ids
    last = rows[498]
    assert (last.symbol, last.price, last.note) == ("S3", 124.5, "note 498")
    assert last["__key"] == "k3"
    assert last["__messageProperties"] == {"n": "498"}
    assert last["__topic"] == f"{topic}-partition-{last['__partition']}"
    assert last["__eventTime"] == datetime.datetime(2023, 11, 14, 22, 13, 20, 498_000)
    assert {row["__partition"] for row in rows} == {0, 1, 2}
    sums = frame.groupBy("symbol").agg(functions.sum("price").alias("all"))
    assert {row.symbol: row["all"] for row in sums.collect()} == {
        f"S{rest}": sum(range(rest, 500, 5)) / 4 for rest in range(5)
    }
    by_partition = frame.groupBy("__partition").count().collect()
    told = [sum(each.startswith(f"{part}/") for each in ids) for part in range(3)]
    assert {row["__partition"]: row["count"] for row in by_partition} == dict(enumerate(told))


def test_one_partition_is_split(spark: SparkSession, either: Pulsar) -> None:
    topic = either.topic("split")
    for first in (0, 300, 600):
        trades(either, topic, range(first, first + 300))
        either.unload(topic)
    for how in ({}, {"admin.url": either.admin_url}):
        frame = either.read(spark, topic, minPartitions="8", **how)
        assert frame.rdd.getNumPartitions() == 8
        assert numbers_of(frame) == list(range(900))
        parts = frame.select("number", functions.spark_partition_id().alias("part"))
        sizes = [row["count"] for row in parts.groupBy("part").count().collect()]
        assert len(sizes) == 8
        assert max(sizes) < 2 * 900 / 8
    few = either.read(spark, topic, maxRecordsPerPartition="50")
    assert few.rdd.getNumPartitions() >= 18
    assert few.count() == 900


def test_positions_by_id_and_time(spark: SparkSession, either: Pulsar) -> None:
    topic = either.topic("places")
    ids = trades(either, topic, range(100))
    between_ms = time.time_ns() // 1_000_000 + 1
    time.sleep(0.01)
    ids += trades(either, topic, range(100, 200))
    # The official client batches the messages of a key's hash with all others: 7 make an entry.
    places = [each.partition("/")[2] for each in ids]
    assert len({place.rpartition(":")[0] for place in places}) > 20

    def read(**options: str) -> list[int]:
        return numbers_of(either.read(spark, topic, **options))

    def at(number: int) -> str:
        return json.dumps({topic: places[number]})

    assert read(startingOffsets=at(95)) == list(range(95, 200))
    assert read(endingOffsets=at(37)) == list(range(38))
    assert read(startingOffsets=at(40), endingOffsets=at(40)) == [40]
    assert read(startingTimestamp=str(between_ms)) == list(range(100, 200))
    assert read(endingTimestamp=str(between_ms)) == list(range(100))
    assert read(startingOffsets=at(60), endingTimestamp=str(between_ms)) == list(range(60, 100))
    assert read(startingTimestamp=str(between_ms + 3_600_000)) == []


def test_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, either: Pulsar, tmp_path: Path
) -> None:
    topic = either.topic("stream", partitions=2)
    seen: list[list[int]] = []

    def run() -> StreamingQuery:
        source = either.read_stream(
            spark, topic, startingOffsets="earliest", maxMessagesPerTrigger="150"
        )
        writer = source.writeStream.foreachBatch(lambda rows, epoch: seen.append(numbers_of(rows)))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return finish(writer, limited=True)

    trades(either, topic, range(400))
    run()
    assert len([each for each in seen if each]) > 1
    assert sorted(itertools.chain(*seen)) == list(range(400))
    seen.clear()
    run()
    assert list(itertools.chain(*seen)) == []
    trades(either, topic, range(400, 550))
    either.unload(f"{topic}-partition-0")
    run()
    assert sorted(itertools.chain(*seen)) == list(range(400, 550))


def test_written_frames_come_to_the_official_client(spark: SparkSession, either: Pulsar) -> None:
    topic = either.topic("written", partitions=2)
    frame = spark.sql(
        "select id as number, concat('S', id % 5) as symbol, id / 4d as price, "
        "if(id % 3 = 0, concat('note ', id), null) as note, string(id) as __key from range(300)"
    )
    save(frame, either, topic=topic, recordName="Trade")
    info = either.client.get_schema(topic)
    assert info is not None
    with official_client(either) as client:
        consumer = client.subscribe(
            topic,
            "reads",
            schema=AvroSchema(None, schema_definition=json.loads(info.schema)),
            initial_position=official.InitialPosition.Earliest,
        )
        found = [consumer.receive(WAIT_MS) for _ in range(300)]
        values = {each.partition_key(): each.value() for each in found}
    assert len(values) == 300
    assert {value["number"] for value in values.values()} == set(range(300))
    assert values["7"] == {"number": 7, "symbol": "S2", "price": 1.75, "note": None}
    assert values["9"]["note"] == "note 9"
    assert numbers_of(either.read(spark, topic)) == list(range(300))


def test_with_deduplication_rows_are_written_once(spark: SparkSession, either: Pulsar) -> None:
    namespace = either.namespace("once", deduplication=True)
    topic = either.topic("rows", partitions=2, namespace=namespace)
    frame = spark.range(0, 200, 1, 2).select(functions.col("id").alias("value"))
    once = {"deduplication": "true", "producerName": "job", "deduplicationEpoch": "7"}
    for _ in range(2):
        save(frame, either, topic=topic, **once)
        assert numbers_of(either.read(spark, topic)) == list(range(200))
    save(frame, either, topic=topic, **{**once, "deduplicationEpoch": "8"})
    assert either.read(spark, topic).count() == 400
    # Without it each run adds its rows, though the namespace has deduplication.
    save(frame, either, topic=topic)
    assert either.read(spark, topic).count() == 600


def test_topics_by_pattern(spark: SparkSession, either: Pulsar) -> None:
    namespace = either.namespace("pattern")
    topics = [
        either.topic("metric-a", namespace=namespace),
        either.topic("metric-b", partitions=2, namespace=namespace),
        either.topic("other", namespace=namespace),
    ]
    for number, topic in enumerate(topics):
        either.publish(topic, [b"%d%d" % (number, rest) for rest in range(6)])
    reader = spark.read.format("pulsar").option("service.url", either.url)
    frame = reader.option("topicsPattern", f"persistent://{namespace}/metric-.*").load()
    found = [(row["__topic"], bytes(row.value)) for row in frame.collect()]
    assert len(found) == 12
    assert {topic.partition("-partition-")[0] for topic, _ in found} == set(topics[:2])
    assert sorted(value for _, value in found) == sorted(
        b"%d%d" % (number, rest) for number in range(2) for rest in range(6)
    )
