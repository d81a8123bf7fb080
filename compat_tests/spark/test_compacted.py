"""Compacted topics in Spark, batch and stream (spec SP-04, BR-50)."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from compat_tests.spark.streams import drain, written
from compat_tests.spark.topics import WAIT_S, Pulsar, path


def compact(pulsar: Pulsar, topic: str) -> None:
    """Have it compacted, and wait for that."""
    compaction = path(topic) + "/compaction"
    pulsar.admin("PUT", compaction)
    deadline_s = time.monotonic() + WAIT_S
    while (status := pulsar.admin("GET", compaction)["status"]) != "SUCCESS":
        assert status == "RUNNING"
        assert time.monotonic() < deadline_s


def publish(pulsar: Pulsar, topic: str, start: int, stop: int, keys: int) -> None:
    """Numbers, each under a key of so many, in batches of four."""
    values = [b"%d" % n for n in range(start, stop)]
    pulsar.publish(
        topic, values, per_batch=4, each=lambda n: {"partition_key": f"k{(start + n) % keys}"}
    )


def values(frame: DataFrame) -> list[bytes]:
    """In the order of the topic."""
    return sorted((bytes(row.value) for row in frame.collect()), key=int)


def test_batch(spark: SparkSession, either: Pulsar) -> None:
    topic = either.topic("compacted")
    publish(either, topic, 0, 60, 6)
    compact(either, topic)
    frame = either.read(spark, topic, readCompacted="true")
    assert values(frame) == [b"%d" % n for n in range(54, 60)]
    assert frame.where("__key = 'k3'").count() == 1
    assert either.read(spark, topic).count() == 60
    publish(either, topic, 60, 63, 6)
    again = either.read(spark, topic, readCompacted="true")
    assert values(again) == [b"%d" % n for n in range(54, 63)]


def test_what_is_left_of_a_trimmed_topic(spark: SparkSession, either: Pulsar) -> None:
    """Nothing but compacted messages is there."""
    namespace = either.namespace("trimmed")
    nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    either.admin("POST", f"namespaces/{namespace}/retention", nothing)
    topic = either.topic("compacted", namespace=namespace)
    either.client.subscribe(topic, "held", receiver_queue_size=0).close()
    publish(either, topic, 0, 60, 6)
    compact(either, topic)
    either.unload(topic)
    either.admin("DELETE", path(topic) + "/subscription/held")
    deadline_s = time.monotonic() + WAIT_S
    while either.read(spark, topic).count():
        assert time.monotonic() < deadline_s
    frame = either.read(spark, topic, readCompacted="true")
    assert values(frame) == [b"%d" % n for n in range(54, 60)]
    parts = either.read(spark, topic, readCompacted="true", minPartitions="3")
    assert values(parts) == [b"%d" % n for n in range(54, 60)]


def test_stream(spark: SparkSession, pulsar: Pulsar, tmp_path: Path) -> None:
    """A query that is stopped while the topic is compacted misses no key."""
    topic = pulsar.topic("compacted-stream")
    publish(pulsar, topic, 0, 40, 5)
    compact(pulsar, topic)
    frame = pulsar.read_stream(spark, topic, readCompacted="true", startingOffsets="earliest")
    drain(frame, tmp_path)
    assert sorted(map(int, written(spark, tmp_path))) == list(range(35, 40))
    publish(pulsar, topic, 40, 60, 5)
    compact(pulsar, topic)
    publish(pulsar, topic, 60, 62, 5)
    drain(frame, tmp_path)
    assert sorted(map(int, written(spark, tmp_path))) == [*range(35, 40), *range(55, 62)]
