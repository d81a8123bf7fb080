"""Pairs of a key and a value that Spark writes: read by Spark again, our SDK, and Java's client."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from compat_tests.apache import jars
from compat_tests.missing import JAVA_CLIENT, skipped_without
from compat_tests.spark.test_write import run, save
from compat_tests.spark.topics import Pulsar
from geminga import schema
from geminga.schema import KeyValue, KeyValueEncodingType

INLINE, SEPARATED = KeyValueEncodingType
ENCODINGS = pytest.mark.parametrize("encoding", ["inline", "separated"])
RECORDS = """
    select named_struct('id', id, 'at', timestamp_ntz'2026-01-02 03:04:05') as key,
        named_struct('name', concat('n', id), 'tags', array(map('a', id, 'b', null)),
            'price', cast(id / 4 as decimal(10, 2))) as value
    from range(1, 4, 1, 1)
"""
PRIMITIVES = (
    ("true", "tinyint(-1)"),
    ("smallint(2)", "-3"),
    ("4L", "float(0.5)"),
    ("double(0.1)", "'ä'"),
    ("x'ff00'", "date'2026-01-02'"),
    ("timestamp'2026-01-02 03:04:05.123456'", "timestamp_ntz'1890-01-02 03:04:05'"),
)
NULLS = "values ('a', 1), ('b', null), (null, 3), (null, null), ('', 5) as t(key, value)"


def pairs(frame: DataFrame) -> list[tuple[Any, Any]]:
    """The rows of the columns `key` and `value`."""
    return [(row.key, row.value) for row in frame.select("key", "value").collect()]


@ENCODINGS
@pytest.mark.parametrize("kind", ["auto", "json"])
def test_records(spark: SparkSession, pulsar: Pulsar, encoding: str, kind: str) -> None:
    topic = pulsar.topic("records")
    frame = spark.sql(RECORDS)
    types = {"keySchemaType": kind, "valueSchemaType": kind}
    save(frame, pulsar, topic=topic, schemaType="keyvalue", keyValueEncoding=encoding, **types)
    again = pulsar.read(spark, topic)
    assert again.select("key", "value").dtypes == frame.dtypes
    assert pairs(again) == pairs(frame)
    # The topic's own pairs from now on, unasked, whatever the order of the columns.
    save(again.select("value", "key"), pulsar, topic=topic)
    assert pairs(pulsar.read(spark, topic)) == pairs(frame) * 2
    found = pulsar.messages(topic, schema=schema.AutoConsume())
    assert len({each.schema_version for each in found}) == 1
    assert [each.value[0]["id"] for each in found] == [1, 2, 3] * 2
    assert [each.value[1]["name"] for each in found] == ["n1", "n2", "n3"] * 2


@ENCODINGS
def test_all_simple_types(spark: SparkSession, pulsar: Pulsar, encoding: str) -> None:
    for key, value in PRIMITIVES:
        topic = pulsar.topic("simple")
        frame = spark.sql(f"select {key} as key, {value} as value")
        save(frame, pulsar, topic=topic, schemaType="keyvalue", keyValueEncoding=encoding)
        again = pulsar.read(spark, topic).select("key", "value")
        assert again.dtypes == frame.dtypes
        assert pairs(again) == pairs(frame)
        found = pulsar.messages(topic, schema=schema.AutoConsume())
        assert len(found[0].value) == 2


@pytest.mark.java
def test_nulls_and_other_clients(spark: SparkSession, either: Pulsar) -> None:
    wanted = [("a", 1), ("b", None), (None, 3), (None, None), ("", 5)]
    topics = {each: either.topic("nulls") for each in (INLINE, SEPARATED)}
    frame = spark.sql(f"select * from {NULLS}").coalesce(1)
    for encoding, topic in topics.items():
        how = {"schemaType": "keyvalue", "keyValueEncoding": encoding.value}
        save(frame, either, topic=topic, **how)
        assert pairs(either.read(spark, topic)) == wanted
        typed = KeyValue(schema.String(), schema.Int32(), encoding)
        found = either.messages(topic, schema=typed)
        assert [each.value for each in found] == wanted
        if encoding is SEPARATED:
            keys = [each.partition_key_bytes for each in found]
            assert keys == [b"a", b"b", None, None, b""]
            assert [each.is_null for each in found] == [False, True, False, True, False]
        else:
            assert {each.partition_key for each in found} == {None}
            assert not any(each.is_null for each in found)
    with skipped_without(JAVA_CLIENT):
        command = jars.java_command("Pairs", [either.url, *topics.values()])
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert told == [[list(each) for each in wanted]] * 2, done.stderr[-2000:]


def test_exactly_once_in_streams_and_batches(
    spark: SparkSession, pulsar: Pulsar, tmp_path: Path
) -> None:
    namespace = pulsar.namespace("pairs", deduplication=True)
    source = pulsar.topic("source", namespace=namespace)
    copy = pulsar.topic("copy", partitions=3, namespace=namespace)
    frame = spark.sql("select string(id % 7) as key, id as value from range(0, 60, 1, 2)")
    how = {"schemaType": "keyvalue", "keyValueEncoding": "separated"}
    once = {"deduplication": "true", "producerName": "once", "deduplicationEpoch": "1"}
    for _ in range(2):
        save(frame, pulsar, topic=source, **how, **once)
    assert sorted(value for _, value in pairs(pulsar.read(spark, source))) == list(range(60))
    stream = pulsar.read_stream(spark, source, startingOffsets="earliest").select("key", "value")
    run(stream, pulsar, tmp_path / "c", topic=copy, deduplication="true", **how)
    assert sorted(pairs(pulsar.read(spark, copy))) == sorted(pairs(frame))
    typed = KeyValue(schema.String(), schema.Int64(), SEPARATED)
    found = pulsar.messages(copy, schema=typed)
    places = {(each.value[0], each.message_id.partition) for each in found}
    assert len(places) == 7, "all of a key are in one partition"
    # Where the official clients put such a key: by the hash of its Base64.
    with pulsar.client.create_producer(copy, schema=typed) as producer:
        for number in range(7):
            producer.send((str(number), -1))
    ours = {
        (each.value[0], each.message_id.partition)
        for each in pulsar.messages(copy, schema=typed)
        if each.value[1] == -1
    }
    assert ours == places


def test_faults_are_told_when_planned(spark: SparkSession, pulsar: Pulsar) -> None:
    topic, texts, new = pulsar.topic("pairs"), pulsar.topic("texts"), pulsar.topic("new")
    typed = KeyValue(schema.String(), schema.Int32(), SEPARATED)
    pulsar.publish(topic, [("a", 1)], schema=typed)
    pulsar.publish(texts, ["a"], schema=schema.String())
    read = pulsar.read(spark, topic)

    def told(frame: DataFrame, text: str, to: str = topic, **options: str) -> None:
        with pytest.raises(PySparkException, match=text):
            save(frame, pulsar, topic=to, **options)

    told(read.select("key", "value", "__key"), "column __key: can't be written.*drop it")
    told(read.selectExpr("key", "string(value) as value"), "column value: is string, but.*INT32")
    told(read.select("value"), "columns value: aren't a pair", schemaType="topic")
    told(read.select("key", "value", "__topic"), "drop the column")
    keyvalue = {"schemaType": "keyvalue"}
    told(read.select("key"), "columns key: aren't a pair", to=new, **keyvalue)
    told(
        read.select("key", "value"),
        "schema isn't compatible with the frame's",
        to=texts,
        **keyvalue,
    )
    longs = read.selectExpr("key", "bigint(value) as value")
    told(longs, "column value: would be INT64, but is INT32 in the topic's pairs", **keyvalue)
    inline = {**keyvalue, "keyValueEncoding": "inline"}
    told(read.select("key", "value"), "keyValueEncoding: must be SEPARATED", **inline)
    told(read.select("key", "value"), "keyValueEncoding: must be one of", keyValueEncoding="both",
         **keyvalue)  # fmt: skip
    told(read.select("key", "value"), "needs schemaType=keyvalue", keyValueEncoding="inline")
    for how in ({}, keyvalue):
        save(read.select("key", "value"), pulsar, topic=topic, **how)
    assert pairs(pulsar.read(spark, topic)) == [("a", 1)] * 3
