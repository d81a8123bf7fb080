"""Batch reads through Spark's engine (spec SP-01 to SP-04, SP-07, SP-10). What doesn't need the
engine is tested beside the code.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import geminga
from compat_tests.spark.topics import Pulsar
from geminga.schema import Avro, String
from pyspark_pulsar import PulsarDataSource, TopicMissing
from pyspark_pulsar._spark_api import HAS_FILTERS

PUSHED = "spark.sql.python.filterPushdown.enabled"


@dataclass
class Reading:
    """A record of the tests."""

    sensor: str
    degrees: int


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Its rows, in an order of their own."""
    return sorted(tuple(row) for row in frame.collect())


def text_of(place: geminga.MessageId) -> str:
    """As `__messageId` has it."""
    tail = f":{place.batch_index}" if place.batch_index >= 0 else ""
    return f"{place.ledger_id}:{place.entry_id}{tail}"


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def test_all_of_a_partitioned_topic(spark: SparkSession, either: Pulsar) -> None:
    """Splits inside partitions; counts, metadata and values are those that the SDK reads."""
    topic = either.topic("all", partitions=2)
    readings = [Reading(f"s{n % 7}", n) for n in range(3000)]
    either.publish(
        topic, readings, schema=Avro(Reading), per_batch=5,
        each=lambda n: {"partition_key": f"k{n % 10}", "properties": {"n": str(n)},
                        "event_time_ms": 1_700_000_000_000 + n},
    )  # fmt: skip
    frame = either.read(spark, topic, minPartitions="6").cache()
    assert frame.rdd.getNumPartitions() >= 6
    wanted = {
        (text_of(m.message_id), m.topic_name): (
            m.partition_key,
            int(m.properties["n"]),
            m.event_time_ms,
            m.publish_time_ms,
        )
        for m in either.messages(topic)
    }
    found = {
        (row["__messageId"], row["__topic"]): (
            row["__key"],
            int(row["__messageProperties"]["n"]),
            round(row["__eventTime"].timestamp() * 1000),
            round(row["__publishTime"].timestamp() * 1000),
        )
        for row in frame.collect()
    }
    assert found == wanted
    assert rows_of(frame.select("degrees", "sensor")) == [(r.degrees, r.sensor) for r in readings]
    assert frame.groupBy("sensor").count().count() == 7


def test_one_large_partition_by_each_way_of_its_layout(spark: SparkSession, either: Pulsar) -> None:
    """Several ledgers: by ids and by REST the same rows, in as many parts as were asked for."""
    topic = either.topic("large")
    for _ in range(3):
        either.publish(topic, [b"%d" % n for n in range(400)])
        either.unload(topic)
    by_ids = either.read(spark, topic, minPartitions="4")
    by_rest = either.read(spark, topic, minPartitions="4", **{"admin.url": either.admin_url})
    assert by_rest.rdd.getNumPartitions() == 4
    sizes = by_rest.groupBy(F.spark_partition_id()).count().collect()
    assert max(size["count"] for size in sizes) - min(size["count"] for size in sizes) <= 1
    assert by_ids.rdd.getNumPartitions() == 4
    rows = rows_of(by_rest.select("__messageId", "value"))
    assert len(rows) == 1200
    assert rows_of(by_ids.select("__messageId", "value")) == rows


def test_lists_and_patterns(spark: SparkSession, pulsar: Pulsar) -> None:
    namespace = pulsar.namespace("patterns")
    topics = [pulsar.topic(kind, namespace=namespace) for kind in ("red", "green", "blue")]
    for number, topic in enumerate(topics):
        pulsar.publish(topic, [b"%d" % number] * (number + 1))
    reader = spark.read.format("pulsar").option("serviceUrl", pulsar.url)
    listed = reader.option("subscribe", ",".join(topics[:2])).load()
    assert values(listed) == [b"0", b"1", b"1"]
    reader = spark.read.format("pulsar").option("serviceUrl", pulsar.url)
    matched = reader.option("topicsPattern", f"persistent://{namespace}/(green|blue).*").load()
    assert values(matched) == [b"1", b"1", b"2", b"2", b"2"]


def test_positions(spark: SparkSession, either: Pulsar) -> None:
    """Ids in all forms and timestamps, at both ends, included."""
    topic = either.topic("positions")
    ids = either.publish(topic, [b"%02d" % n for n in range(12)], per_batch=3)

    def read(**options: object) -> list[int]:
        given = {
            name: value if isinstance(value, str) else json.dumps({topic: value})
            for name, value in options.items()
        }
        return [int(value) for value in values(either.read(spark, topic, **given))]

    assert read(startingOffsets="earliest", endingOffsets="latest") == list(range(12))
    cut = json.dumps({topic: text_of(ids[4])})
    assert read(startingOffsets=cut) == list(range(4, 12))
    assert read(startingOffsets=list(ids[7].serialize()), endingOffsets=[*ids[9].serialize()]) == [
        7,
        8,
        9,
    ]
    times = [message.publish_time_ms for message in either.messages(topic)]
    later = [n for n, time in enumerate(times) if time >= times[6]]
    assert read(startingTimestamp=str(times[6])) == later
    assert read(endingTime=str(times[6])) == [n for n in range(12) if n not in later]


def push_down(spark: SparkSession, on: bool) -> None:
    spark.conf.set(PUSHED, str(on).lower())


@pytest.fixture
def conditions() -> list[Callable[[datetime, str], str]]:
    """Conditions of queries, by a time and an id of the middle of the topic."""
    return [
        lambda time, place: f"__publishTime >= timestamp'{time}'",
        lambda time, place: f"__publishTime < timestamp'{time}' and degrees % 2 = 0",
        lambda time, place: "__partition = 1 and sensor = 's3'",
        lambda time, place: f"__messageId in ('{place}', '9999:1')",
        lambda time, place: "__key = 'k4' and __topic like '%-partition-_'",
        lambda time, place: "__partition > 5",
    ]


def test_push_down_changes_no_answer(
    spark: SparkSession, pulsar: Pulsar, conditions: list[Callable[[datetime, str], str]]
) -> None:
    topic = pulsar.topic("pushed", partitions=2)
    readings = [Reading(f"s{n % 7}", n) for n in range(300)]
    for at in range(0, 300, 100):
        pulsar.publish(
            topic, readings[at : at + 100], schema=Avro(Reading), per_batch=4,
            each=lambda n: {"partition_key": f"k{n % 10}"},
        )  # fmt: skip
    every = pulsar.read(spark, topic).collect()
    times = sorted(row["__publishTime"] for row in every)
    columns = ["degrees", "__messageId", "__topic", "__key", "__publishTime"]
    parts = []
    if not HAS_FILTERS:
        with pytest.raises(PySparkException, match=r"option pushdown: needs PySpark 4\.1"):
            pulsar.read(spark, topic, pushdown="true").collect()
        return
    try:
        for condition in conditions:
            where = condition(times[150], every[150]["__messageId"])
            answers = []
            for on in (False, True):
                push_down(spark, on)
                options = {"pushdown": "true", "publishTimeSlackMs": "0"} if on else {}
                frame = pulsar.read(spark, topic, **options).where(where)
                answers.append(rows_of(frame.select(columns)))
                parts.append(frame.rdd.getNumPartitions())
            assert answers[0] == answers[1], where
            assert len(answers[0]) < 300
        # With a partition that isn't there nothing is left to be read.
        assert (answers[0], answers[1]) == ([], [])
    finally:
        push_down(spark, False)


def test_reading_makes_no_topic(either: Pulsar) -> None:
    namespace = either.namespace("nothing")
    parted = either.topic("parted", partitions=2, namespace=namespace)
    nothing = f"persistent://{namespace}/nothing"
    names = (nothing, f"{nothing}-partition-0", f"{parted}-partition-2")
    for name in names:
        source = PulsarDataSource({"service.url": either.url, "topic": name})
        with pytest.raises(TopicMissing) as caught:
            source.schema()
        assert caught.value.topic == name
    schema = PulsarDataSource({"service.url": either.url, "topic": parted}).schema()
    reader = PulsarDataSource({"service.url": either.url, "topic": parted}).reader(schema)
    assert reader.partitions() == []
    assert not set(names) & set(either.admin("GET", f"persistent/{namespace}"))


def test_faults_are_told_when_planned(spark: SparkSession, pulsar: Pulsar) -> None:
    """One of each kind; their texts reach the user with the name of what is wrong."""
    topic = pulsar.topic("faults")
    ids = pulsar.publish(topic, ["x"], schema=String())

    def fault(*words: str, schema: str | None = None, at: str = topic, **options: str) -> None:
        reader = spark.read.format("pulsar").option("service.url", pulsar.url)
        reader = reader.options(topic=at, **options)
        with pytest.raises(PySparkException) as caught:
            (reader.schema(schema) if schema else reader).load().collect()
        for word in words:
            assert word in str(caught.value)

    fault("InvalidOption", "did you mean startingOffsets?", startingOffset="earliest")
    fault("InvalidOption", "option minPartitions:", minPartitions="0")
    fault("TopicMissing", "not-there", at="not-there")
    fault("SchemaMismatch", "column valeu", "did you mean value?", schema="valeu string")
    beyond = json.dumps({topic: f"{ids[0].ledger_id}:77"})
    fault("OffsetOutOfRange", "startingOffsets", ":77", startingOffsets=beyond)
    with pytest.raises(AnalysisException):
        spark.read.format("pulsar").option("service.url", pulsar.url).load()
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(AnalysisException, match=f"option {option}: names other"):
            pulsar.read(spark, topic, **{option: json.dumps({"other": "1:1"})})


@pytest.mark.parametrize(
    ("plugin", "params"),
    [("token", "token:{}"), ("basic", '{{"userId": "u", "password": "{}"}}')],
)
def test_secrets_stay_out_of_plans(
    spark: SparkSession, pulsar: Pulsar, plugin: str, params: str
) -> None:
    topic = pulsar.topic("secrets")
    pulsar.publish(topic, [b"x"])
    secret = "s3cr3t-of-the-test"
    auth = {
        "pulsar.client.authPluginClassName": plugin,
        "pulsar.client.authParams": params.format(secret),
    }
    frame = pulsar.read(spark, topic, **auth)
    assert frame.count() == 1
    options = {"service.url": pulsar.url, "topic": topic, **auth}
    given = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    view = f"create temporary view secret_view using pulsar options ({given})"
    (told,) = spark.sql(f"explain extended {view}").collect()[0]
    execution = frame._jdf.queryExecution()
    for text in (told, execution.toString(), frame._jdf.logicalPlan().toString()):
        assert secret not in text


def key_files(folder: Path) -> tuple[Path, Path]:
    """A public and a private key."""
    key = rsa.generate_private_key(65537, 2048)
    public, private = folder / "public.pem", folder / "private.pem"
    plain = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(pem, pkcs8, plain))
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(pem, spki))
    return public, private


def test_count_in_is_count_out(spark: SparkSession, pulsar: Pulsar, tmp_path: Path) -> None:
    """Batches of random sizes, compressed, encrypted, in chunks, and all of them come."""
    public, private = key_files(tmp_path)
    keys = geminga.DefaultCryptoKeyReader(str(public), str(private))
    chance = random.Random(20)
    topic = pulsar.topic("counted", partitions=2)
    sent: Counter[bytes] = Counter()
    for number, more in enumerate(
        (
            {"compression_type": geminga.CompressionType.ZSTD},
            {"compression_type": geminga.CompressionType.LZ4},
            {"encryption_keys": ["k"], "crypto_key_reader": keys},
            {"chunking_enabled": True, "chunk_max_message_size_bytes": 2000},
        )
    ):
        size = 9000 if number == 3 else 300
        payloads = [chance.randbytes(chance.randrange(size)) for _ in range(200)]
        per_batch = 1 if number == 3 else chance.randrange(2, 30)
        pulsar.publish(topic, payloads, per_batch=per_batch, **more)
        sent.update(payloads)
    frame = pulsar.read(spark, topic, privateKeyPath=str(private), minPartitions="5")
    assert Counter(values(frame)) == sent


def test_null_values(spark: SparkSession, pulsar: Pulsar) -> None:
    topic = pulsar.topic("nulls")
    sent = [None if n % 3 else f"v{n}" for n in range(60)]
    pulsar.publish(
        topic, sent, schema=String(), per_batch=4, each=lambda n: {"partition_key": f"k{n}"}
    )
    frame = pulsar.read(spark, topic)
    assert [row.value for row in frame.orderBy("__sequenceId").collect()] == sent
    assert frame.where("value is null").count() == 40


def test_sql(spark: SparkSession, pulsar: Pulsar) -> None:
    """A view by SQL, joined with a table."""
    topic = pulsar.topic("view")
    readings = [Reading(f"s{n % 3}", n) for n in range(30)]
    pulsar.publish(topic, readings, schema=Avro(Reading), per_batch=10)
    spark.sql(
        f"create temporary view readings using pulsar "
        f"options (`service.url` '{pulsar.url}', topic '{topic}')"
    )
    spark.createDataFrame(
        [("s1", "attic"), ("s2", "cellar")], "sensor string, place string"
    ).createOrReplaceTempView("places")
    found = spark.sql(
        "select place, max(degrees) as most from readings join places using (sensor) group by place"
    )
    assert rows_of(found) == [("attic", 28), ("cellar", 29)]
    recent = datetime.now() - timedelta(days=1)
    assert spark.sql("select * from readings").where(F.col("__publishTime") > recent).count() == 30
    spark.catalog.dropTempView("readings")
    spark.catalog.dropTempView("places")
