"""A batch read: columns, parts, faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import geminga
from geminga.schema import Avro, Json, String
from pyspark_pulsar import PulsarDataSource
from pyspark_pulsar._clients import client_for
from pyspark_pulsar._options import parse_read
from pyspark_pulsar._plan._tasks import split_ranges
from pyspark_pulsar._positions import Position, TopicRange
from pyspark_pulsar._scan._batch import NarrowedBatchReader
from pyspark_pulsar._spark_api import HAS_FILTERS
from pyspark_pulsar._tests.broker import Broker, running_broker
from pyspark_pulsar._tests.reads import Reading, degrees, publish_readings, read, source
from pyspark_pulsar.errors import InvalidOption, SchemaMismatch, TopicMissing

VALUE = StructType([StructField("value", BinaryType())])


@dataclass
class Other:
    """One with other fields."""

    name: str


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker() as found:
        yield found


@pytest.fixture(scope="module")
def readings(broker: Broker) -> str:
    return publish_readings(broker)


def test_default_schema(broker: Broker, readings: str) -> None:
    names = source(broker, readings).schema().fieldNames()
    assert names[:2] == ["sensor", "degrees"]
    assert names[2:] == [
        "__key", "__topic", "__partition", "__messageId", "__publishTime", "__eventTime",
        "__messageProperties", "__orderingKey", "__sequenceId", "__producerName",
        "__redeliveryCount",
    ]  # fmt: skip
    without = source(broker, readings, includeProperties="false").schema().fieldNames()
    assert without == [name for name in names if name != "__messageProperties"]
    assert source(broker, readings, schemaMode="raw").schema()["value"].dataType == BinaryType()


@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.slow
def test_parts_read_everything_once(broker: Broker, readings: str, count: int) -> None:
    rows, parts = read(source(broker, readings, minPartitions=str(count)))
    assert degrees(rows) == list(range(100))
    assert len(parts) >= count
    assert {row["__partition"] for row in rows} == {0, 1}


@pytest.mark.slow
def test_few_entries_are_one_part_by_default(broker: Broker, readings: str) -> None:
    _, parts = read(source(broker, readings))
    assert len(parts) == 2
    _, parts = read(source(broker, readings, maxRecordsPerPartition="10"))
    assert 10 <= len(parts) <= 12


def test_layout_by_rest_reads_the_same(broker: Broker, readings: str) -> None:
    options = {"minPartitions": "8", "admin.url": broker.web_url}
    rows, parts = read(source(broker, readings, **options))
    assert degrees(rows) == list(range(100))
    assert len(parts) >= 8


def test_nothing_to_read(broker: Broker) -> None:
    rows, parts = read(source(broker, broker.topic(partitions=1)))
    assert (rows, parts) == ([], [])
    # Spark's forms of an empty plan: the first one before PySpark 4.2.
    reader = source(broker, broker.topic(partitions=1)).reader(StructType())
    for none in (None, InputPartition(None)):
        assert list(reader.read(none)) == []


def test_columns_that_are_asked_for(broker: Broker, readings: str) -> None:
    schema = StructType([StructField("degrees", LongType()), StructField("__key", StringType())])
    rows, _ = read(source(broker, readings), schema)
    assert degrees(rows) == list(range(100))
    assert set(rows[0]) == {"degrees", "__key"}


def test_filters_are_taken_only_with_pushdown(broker: Broker, readings: str) -> None:
    """With `pushFilters` on the reader, Spark fails every read unless its own setting is on."""
    reader = source(broker, readings).reader(StructType())
    assert not isinstance(reader, NarrowedBatchReader)
    assert "pushFilters" not in vars(type(reader))
    wishing = source(broker, readings, pushdown="true")
    if HAS_FILTERS:
        assert isinstance(wishing.reader(StructType()), NarrowedBatchReader)
    else:
        with pytest.raises(InvalidOption, match=r"pushdown: needs PySpark 4\.1"):
            wishing.reader(StructType())


def test_streams_are_split_the_same_way_again(broker: Broker) -> None:
    """Whatever happened to the topic; the broker isn't asked."""
    nobody = {"service.url": "pulsar://127.0.0.1:1", "topic": "t"}
    wanted = TopicRange("t", 0, Position(4, 10), Position(4, 29))
    for more, count in (({}, 1), ({"minPartitions": "4"}, 4)):
        options = parse_read({**nobody, **more}, streaming=True)
        parts = split_ranges(client_for(options.client), options, [wanted])
        assert len(parts) == count


def test_topics_with_different_schemas(broker: Broker) -> None:
    topics = [broker.topic() for _ in range(3)]
    for topic, schema, value in (
        (topics[0], Avro(Reading), Reading("a", 1)),
        (topics[1], Json(Reading), Reading("b", 2)),
        (topics[2], Avro(Other), Other("c")),
    ):
        with broker.client.create_producer(topic, schema=schema) as producer:
            producer.send(value)
    base = {"service.url": broker.url}
    # Written differently, but of the same columns.
    alike = PulsarDataSource({**base, "topics": ",".join(topics[:2])})
    assert degrees(read(alike)[0]) == [1, 2]
    unlike = {**base, "topics": ",".join(topics)}
    with pytest.raises(SchemaMismatch) as caught:
        PulsarDataSource(unlike).schema()
    for part in (topics[0], topics[2], "degrees", "name", "allowDifferentTopicSchemas"):
        assert part in str(caught.value)
    as_bytes = PulsarDataSource({**unlike, "allowDifferentTopicSchemas": "true"})
    assert as_bytes.schema()["value"].dataType == BinaryType()
    rows, _ = read(as_bytes)
    assert len(rows) == 3
    assert all(isinstance(row["value"], bytes) for row in rows)
    wanted = StructType([StructField("degrees", LongType())])
    with pytest.raises(SchemaMismatch) as caught:
        read(PulsarDataSource(unlike), wanted)
    assert topics[2] in str(caught.value)
    only_metadata = StructType([StructField("__topic", StringType(), False)])
    rows, _ = read(PulsarDataSource(unlike), only_metadata)
    assert sorted(str(row["__topic"]) for row in rows) == sorted(topics)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (StructField("degree", LongType()), ["column degree", "degrees"]),
        (StructField("degrees", BinaryType()), ["column degrees"]),
        (StructField("__partition", LongType()), ["column __partition", "int", "bigint"]),
        (StructField("__key", StringType(), nullable=False), ["column __key"]),
        (StructField("value", StringType()), ["column value", "sensor"]),
    ],
)
def test_unavailable_columns(
    broker: Broker, readings: str, field: StructField, words: list[str]
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        read(source(broker, readings), StructType([field]))
    for word in words:
        assert word in str(caught.value)


def test_the_column_of_corrupt_records(broker: Broker) -> None:
    topic = broker.topic()
    with broker.client.create_producer(topic, schema=String()) as producer:
        producer.send("fine")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_bad"}
    made = source(broker, topic, **options)
    assert made.schema()["_bad"].dataType == StringType()
    (row,) = read(made)[0]
    assert (row["value"], row["_bad"]) == ("fine", None)
    for schema in ("value", "_bad"):
        kind = StringType() if schema == "value" else LongType()
        with pytest.raises(SchemaMismatch) as caught:
            read(made, StructType([StructField(schema, kind)]))
        assert "_bad" in str(caught.value)
    with pytest.raises(SchemaMismatch):
        source(broker, topic, **options | {"columnNameOfCorruptRecord": "Value"}).schema()


def test_tables_of_a_catalog(broker: Broker, readings: str) -> None:
    """`CREATE TABLE ... USING pulsar`: Spark gives properties of its own beside the options."""
    plain = {"service.url": broker.url, "topic": readings, "minpartitions": "2"}
    own = {"provider": "pulsar", "owner": "somebody", "location": "file:/x", "comment": "words"}
    table = PulsarDataSource({**plain, **own, **{f"option.{name}": "x" for name in plain}})
    assert degrees(read(table)[0]) == list(range(100))
    with pytest.raises(InvalidOption):
        PulsarDataSource({**plain, "owner": "somebody"}).schema()


def test_faults_when_planned(broker: Broker, readings: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        source(broker, readings, startingOffset="earliest").schema()
    assert refused.value.option == "startingOffset"
    with pytest.raises(TopicMissing) as missing:
        source(broker, "not-there").schema()
    assert missing.value.topic == "persistent://public/default/not-there"
    fixed = StructType([StructField("__key", StringType())])
    with pytest.raises(TopicMissing):
        read(source(broker, "not-there"), fixed)
    nobody = {"service.url": "pulsar://127.0.0.1:1", "pulsar.client.operationTimeoutMs": "300"}
    with pytest.raises(geminga.ConnectionFailedError):
        PulsarDataSource({**nobody, "topic": "t"}).schema()


@pytest.mark.parametrize("reads", ["batch", "stream"])
def test_a_wrong_address_of_the_rest_api_is_an_error(broker: Broker, reads: str) -> None:
    """Also where it isn't needed: a topic of one ledger."""
    topic = broker.topic()
    broker.publish(topic, [b"x"])
    for admin, told in (
        ("http://127.0.0.1:1", "request for"),
        (f"{broker.web_url}/elsewhere", "check that the URL is the same cluster's"),
    ):
        given = {"service.url": broker.url, "topic": topic, "admin.url": admin}
        source = PulsarDataSource(given)
        with pytest.raises(InvalidOption, match=rf"option admin\.url: .*{told}"):
            if reads == "stream":
                source.streamReader(VALUE)
            else:
                source.reader(VALUE).partitions()
    good = PulsarDataSource({**given, "admin.url": broker.web_url})
    assert len(good.reader(VALUE).partitions()) == 1
    good.streamReader(VALUE)
