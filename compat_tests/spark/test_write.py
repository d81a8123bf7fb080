"""Frames written to topics by Spark, and read by the SDK."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

import geminga
from compat_tests.spark.topics import Pulsar, path
from geminga import schema

UTC = datetime.UTC
ALL_TYPES = """
    select true as flag, tinyint(-1) as b, smallint(2) as s, 3 as i, 4L as l, float(0.5) as f,
        double(0.1) as d, 'ä' as text, x'ff00' as raw, date'2026-01-02' as day,
        timestamp'2026-01-02 03:04:05.123456' as at, timestamp_ntz'2026-01-02 03:04:05' as local,
        cast('-12.50' as decimal(10, 2)) as price, array(1, null) as numbers,
        map('k', 1.5D) as weights, named_struct('x', 1, 'y', cast(null as string)) as inner
    union all select null, null, null, null, null, null, null, null, null, null, null, null, null,
        null, null, null
"""


def save(frame: DataFrame, pulsar: Pulsar, **options: str) -> None:
    writer = frame.write.format("pulsar").mode("append").option("service.url", pulsar.url)
    writer.options(**options).save()


def run(frame: DataFrame, pulsar: Pulsar, checkpoint: Path, **options: str) -> StreamingQuery:
    writer = frame.writeStream.format("pulsar").option("service.url", pulsar.url)
    writer = writer.options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(200)
    return query


def test_every_type_by_avro_and_json(spark: SparkSession, either: Pulsar) -> None:
    frame = spark.sql(ALL_TYPES).coalesce(1)
    topic, other = either.topic("avro", partitions=2), either.topic("json")
    save(frame, either, topic=topic, recordName="all.Types")
    full: dict[str, Any] = {
        "flag": True, "b": -1, "s": 2, "i": 3, "l": 4, "f": 0.5, "d": 0.1, "text": "ä",
        "raw": b"\xff\x00", "day": datetime.date(2026, 1, 2),
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, UTC),
        "local": datetime.datetime(2026, 1, 2, 3, 4, 5), "price": decimal.Decimal("-12.50"),
        "numbers": [1, None], "weights": {"k": 1.5}, "inner": {"x": 1, "y": None},
    }  # fmt: skip
    empty = dict.fromkeys(full)
    found = either.messages(topic, schema=schema.AutoConsume())
    assert [dict(each.value) for each in found] == [full, empty]
    assert {each.schema_version for each in found} == {bytes(8)}
    save(frame.select("flag", "raw", "text", "inner"), either, topic=other, schemaType="json")
    texts = [each.data for each in either.messages(other)]
    assert texts == [
        '{"flag":true,"raw":"/wA=","text":"ä","inner":{"x":1,"y":null}}'.encode(),
        b'{"flag":null,"raw":null,"text":null,"inner":null}',
    ]


def test_topics_keys_and_all_that_describes_a_message(spark: SparkSession, pulsar: Pulsar) -> None:
    one, two = pulsar.topic("one", partitions=3), pulsar.topic("two")
    frame = spark.sql(
        f"""
        select if(id % 2 = 0, '{one}', '{two}') as __topic, concat('k', id) as __key,
            if(id = 3, null, id) as value, timestamp_millis(1000 + id) as __eventTime,
            map('p', string(id)) as __messageProperties, binary('o') as __orderingKey,
            if(id = 4, 2, -1) as __partition
        from range(0, 20, 1, 2)
        """
    )
    save(frame, pulsar)
    found = pulsar.messages(one, schema=schema.Int64())
    assert sorted(each.value for each in found) == list(range(0, 20, 2))
    found += (others := pulsar.messages(two, schema=schema.Int64()))
    assert [each.value for each in others if each.is_null] == [None]
    for each in found:
        assert each.partition_key is not None
        number = int(each.partition_key[1:])
        assert each.value == (None if number == 3 else number)
        assert each.event_time_ms == 1000 + number
        assert each.properties == {"p": str(number)}
        assert each.ordering_key == b"o"
        if number == 4:
            assert each.message_id.partition == 2


def test_what_cannot_be_written_is_told_before_any_task(
    spark: SparkSession, pulsar: Pulsar
) -> None:
    frame = spark.range(3).select(functions.col("id").cast("string").alias("value"))
    topic, ended = pulsar.topic("plan"), pulsar.topic("ended")
    save(frame, pulsar, topic=topic)

    def told(bad: DataFrame, text: str, mode: str = "append", **options: str) -> None:
        writer = bad.write.format("pulsar").mode(mode).option("service.url", pulsar.url)
        with pytest.raises(PySparkException, match=text):
            writer.options(**options).save()

    told(frame, "option topic: must be given, or a column __topic")
    told(frame, "option topik: is unknown; did you mean topic", topik=topic)
    told(frame, "option mode: must be append", "overwrite", topic=topic)
    told(
        frame.selectExpr("value", "1 as b"),
        "its schema isn't compatible with the frame's",
        topic=topic,
    )
    told(frame.selectExpr("interval 1 day as i", "1 as b"), "column i: is interval", topic=topic)
    told(
        frame,
        "(?i)pulsar.producer.compressionType: must be one of",
        topic=topic,
        **{"pulsar.producer.compressionType": "rar"},
    )
    pulsar.publish(ended, [b"a"])
    pulsar.admin("POST", path(ended) + "/terminate")
    told(frame.selectExpr("binary(value) as value"), "the topic is terminated", topic=ended)
    assert len(pulsar.messages(topic)) == 3


def test_a_stream_and_what_it_writes_in_batches(
    spark: SparkSession, either: Pulsar, tmp_path: Path
) -> None:
    namespace = either.namespace("stream", deduplication=True)
    topic = either.topic("out", partitions=2, namespace=namespace)
    batched = either.topic("batched", namespace=namespace)
    for part in range(3):
        folder = tmp_path / "in" / str(part)
        spark.range(part * 100, part * 100 + 100, 1, 1).write.parquet(str(folder))
    source = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", "1")
    frame = source.parquet(str(tmp_path / "in" / "*"))

    def batch(rows: DataFrame, number: int) -> None:
        # Twice, as if the driver had died before the micro-batch was committed.
        for _ in range(2):
            save(
                rows.select(functions.col("id").cast("string").alias("value")),
                either,
                topic=batched,
                deduplication="true",
                producerName="once",
                deduplicationEpoch=str(number),
            )

    run(frame, either, tmp_path / "c1", topic=topic, deduplication="true", recordName="Number")
    found = either.messages(topic, schema=schema.AutoConsume())
    assert sorted(each.value["id"] for each in found) == list(range(300))
    assert {each.sequence_id >> 32 for each in found} == {0, 1, 2}
    writer = frame.writeStream.foreachBatch(batch).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "c2")).start().awaitTermination(200)
    assert sorted(int(each.data) for each in either.messages(batched)) == list(range(300))


def test_without_deduplication_at_the_broker(spark: SparkSession, pulsar: Pulsar) -> None:
    topic = pulsar.topic("plain", namespace=pulsar.namespace("plain"))
    frame = spark.range(5).select(functions.col("id").cast("string").alias("value"))
    with pytest.raises(PySparkException, match="the broker doesn't deduplicate this topic"):
        save(frame, pulsar, topic=topic, deduplication="true")


def test_the_topics_own_schema(spark: SparkSession, pulsar: Pulsar) -> None:
    definition = {
        "type": "record", "name": "Theirs", "namespace": "com.example", "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }  # fmt: skip
    topic = pulsar.topic("theirs")
    avro = schema.Avro(definition)
    moment = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    pulsar.publish(topic, [{"id": 1, "note": "a", "at": moment}], schema=avro)
    frame = spark.sql("select timestamp'2026-01-01' as at, 2 as id")
    save(frame, pulsar, topic=topic, schemaType="topic")
    first, second = pulsar.messages(topic, schema=avro)
    assert first.schema_version == second.schema_version
    assert second.value == {"id": 2, "note": None, "at": moment}
    assert isinstance(second.message_id, geminga.MessageId)
