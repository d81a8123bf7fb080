"""Streams from topics: every message once, over restarts, limits and topics that grow."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from compat_tests.spark.streams import drain, numbers, running, texts, written
from compat_tests.spark.topics import Pulsar, path
from geminga.schema import AlreadyEncoded, SchemaInfo, SchemaType
from pyspark_pulsar._spark_api import HAS_READ_LIMITS

EARLIEST = {"startingOffsets": "earliest"}


def last_offsets(folder: Path) -> dict[str, str]:
    """The end of the last micro-batch, as Spark's checkpoint has it."""
    logged = [each for each in (folder / "checkpoint" / "offsets").iterdir() if each.name.isdigit()]
    last = max(logged, key=lambda each: int(each.name))
    found: dict[str, str] = json.loads(last.read_text().splitlines()[-1])
    return found


def test_a_query_that_is_started_again_reads_on(
    spark: SparkSession, pulsar: Pulsar, tmp_path: Path
) -> None:
    """Three runs with one checkpoint; limits cut each into several micro-batches."""
    topic = pulsar.topic("again", partitions=2)
    pulsar.publish(topic, numbers(0, 20), per_batch=3)
    options = {**EARLIEST, "maxMessagesPerTrigger": "7"}
    frame = pulsar.read_stream(spark, topic, **options)
    progress = []
    for first, stop in ((20, 40), (40, 45), (45, 45)):
        progress += drain(frame, tmp_path, limited=True).recentProgress
        assert written(spark, tmp_path) == texts(0, first)
        pulsar.publish(topic, numbers(first, stop), per_batch=3)
    assert max(each["numInputRows"] for each in progress) <= 7
    if HAS_READ_LIMITS:
        (source,) = progress[0]["sources"]
        newest = json.loads(source["latestOffset"])
        assert newest["lag"]["topics"] >= 1
        assert newest["lag"]["entries"] >= 1
    ends = last_offsets(tmp_path)
    assert sorted(each for each in ends if "://" in each) == [
        f"{topic}-partition-0", f"{topic}-partition-1"
    ]  # fmt: skip
    held = pulsar.admin("GET", path(f"{topic}-partition-0") + "/internalStats")["cursors"]
    assert list(held) == [ends["subscription"]]


def test_limits_with_available_now(spark: SparkSession, pulsar: Pulsar, tmp_path: Path) -> None:
    """As many micro-batches as are needed; before PySpark 4.2 one, and the next run goes on."""
    topic = pulsar.topic("limits")
    pulsar.publish(topic, numbers(0, 20))
    frame = pulsar.read_stream(spark, topic, **EARLIEST, maxMessagesPerTrigger="7")
    for told in (7, 14, 20):
        drain(frame, tmp_path)
        assert written(spark, tmp_path) == texts(0, 20 if HAS_READ_LIMITS else told)


def test_partitions_that_are_added_to_a_running_query(
    spark: SparkSession, pulsar: Pulsar, tmp_path: Path
) -> None:
    topic = pulsar.topic("grows", partitions=1)
    frame = pulsar.read_stream(spark, topic, **EARLIEST)
    with running(frame, tmp_path) as seen:
        pulsar.publish(topic, numbers(0, 10))
        seen.wait_for(10)
        pulsar.admin("POST", path(topic) + "/partitions", 3)
        for part in range(3):
            values = numbers(10 + part * 5, 15 + part * 5)
            pulsar.publish(f"{topic}-partition-{part}", values)
        assert seen.wait_for(25) == texts(0, 25)
    pulsar.publish(f"{topic}-partition-2", numbers(25, 30))
    with running(frame, tmp_path, seen):
        assert seen.wait_for(30) == texts(0, 30)


def test_new_topics_of_a_pattern(spark: SparkSession, pulsar: Pulsar, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex[:8]
    first, second = (f"persistent://public/default/{mark}-{name}" for name in "ab")
    pulsar.publish(first, numbers(0, 3))
    reader = spark.readStream.format("pulsar").option("service.url", pulsar.url)
    reader = reader.option("topicsPattern", f"persistent://public/default/{mark}-.*")
    frame = reader.options(**EARLIEST, discoveryIntervalMs="50").load()
    with running(frame, tmp_path) as seen:
        seen.wait_for(3)
        pulsar.publish(second, numbers(3, 6))
        assert seen.wait_for(6) == texts(0, 6)


def test_the_newest_only(spark: SparkSession, pulsar: Pulsar, tmp_path: Path) -> None:
    """What was there before the query isn't read, what comes while it is stopped is."""
    topic = pulsar.topic("newest")
    pulsar.publish(topic, numbers(0, 5))
    frame = pulsar.read_stream(spark, topic)
    drain(frame, tmp_path)
    pulsar.publish(topic, numbers(5, 9))
    drain(frame, tmp_path)
    assert written(spark, tmp_path) == texts(5, 9)


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_messages_that_do_not_fit(
    spark: SparkSession, pulsar: Pulsar, tmp_path: Path, mode: str
) -> None:
    topic = pulsar.topic("misfits")
    number = {"name": "n", "type": "long"}
    text = json.dumps({"type": "record", "name": "Number", "fields": [number]})
    schema = AlreadyEncoded(SchemaInfo("", SchemaType.JSON, text.encode()))
    pulsar.publish(topic, [b'{"n": 0}', b'{"n": 1}', b"odd", b'{"n": 2}'], schema=schema)
    reader = spark.readStream.format("pulsar").option("service.url", pulsar.url)
    reader = reader.options(**EARLIEST, topic=topic, mode=mode)
    columns = "n bigint"
    if mode == "PERMISSIVE":
        reader = reader.option("columnNameOfCorruptRecord", "odd")
        columns += ", odd string"
    frame = reader.schema(columns).load()
    if mode == "FAILFAST":
        with pytest.raises(StreamingQueryException, match=f"of {topic}"):
            drain(frame, tmp_path)
        return
    drain(frame, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("n").collect()
    if mode == "PERMISSIVE":
        assert [tuple(row) for row in rows] == [(None, "odd"), (0, None), (1, None), (2, None)]
    else:
        assert [row.n for row in rows] == [0, 1, 2]
