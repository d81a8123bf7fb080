"""A batch read as Spark drives it, but without Spark's engine: planned, sent to tasks, read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThanOrEqual,
    In,
    LessThan,
)
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import geminga
from geminga.schema import Avro, Json, String
from pyspark_pulsar import PulsarDataSource
from pyspark_pulsar._batch import NarrowedBatchReader, PulsarBatchReader, split_ranges
from pyspark_pulsar._clients import client_for
from pyspark_pulsar._offsets import Position, TopicRange
from pyspark_pulsar._options import parse_read
from pyspark_pulsar._tests.broker import Broker, running_broker
from pyspark_pulsar.errors import InvalidOption, SchemaMismatch, TopicMissing

Row = dict[str, object]


@dataclass
class Reading:
    """A record of the tests."""

    sensor: str
    degrees: int


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
def test_parts_read_everything_once(broker: Broker, readings: str, count: int) -> None:
    rows, parts = read(source(broker, readings, minPartitions=str(count)))
    assert degrees(rows) == list(range(100))
    assert len(parts) >= count
    assert {row["__partition"] for row in rows} == {0, 1}


def test_few_entries_are_one_part_unless_told(broker: Broker, readings: str) -> None:
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


def test_columns_that_are_asked_for(broker: Broker, readings: str) -> None:
    schema = StructType([StructField("degrees", LongType()), StructField("__key", StringType())])
    rows, _ = read(source(broker, readings), schema)
    assert degrees(rows) == list(range(100))
    assert set(rows[0]) == {"degrees", "__key"}


FILTERS: list[tuple[list[Filter], int]] = [
    ([EqualTo(("__partition",), 1)], 1),
    ([EqualTo(("__partition",), 7)], 0),
    ([EqualTo(("__key",), "k3")], 2),
    ([EqualTo(("degrees",), 3)], 2),
    ([LessThan(("__ledgerId",), 1 << 40)], 2),
]


@pytest.mark.parametrize(("filters", "topics"), FILTERS)
def test_filters_leave_what_they_need(
    broker: Broker, readings: str, filters: list[Filter], topics: int
) -> None:
    made = source(broker, readings, pushdown="true")
    rows, parts = read(made, filters=filters)
    assert len({part.topic for part in parts}) == topics
    for row in read(source(broker, readings))[0]:
        (condition,) = filters
        held = row.get(condition.attribute[0], 0)
        wanted = condition.value
        if held == wanted if isinstance(condition, EqualTo) else True:
            assert row in rows


def test_ids_are_read_one_by_one(broker: Broker, readings: str) -> None:
    every, _ = read(source(broker, readings))
    ids = (str(every[10]["__messageId"]), str(every[70]["__messageId"]))
    rows, _ = read(source(broker, readings, pushdown="true"), filters=[In(("__messageId",), ids)])
    found = {(row["__messageId"], row["__topic"]) for row in rows}
    assert {row["__messageId"] for row in rows} == set(ids)
    assert (ids[0], every[10]["__topic"]) in found


def test_times_narrow_only_if_the_slack_is_known(broker: Broker) -> None:
    topic = broker.topic()
    broker.publish(topic, [b"%d" % n for n in range(30)])
    every, _ = read(source(broker, topic))
    middle = every[20]["__publishTime"]
    assert isinstance(middle, datetime)
    filters: list[Filter] = [
        GreaterThanOrEqual(("__publishTime",), middle.astimezone(UTC)),
        LessThan(("__publishTime",), middle.astimezone(UTC) + timedelta(hours=1)),
    ]
    later = [row for row in every if row["__publishTime"] >= middle]

    def starts(**slack: str) -> str:
        rows, parts = read(source(broker, topic, pushdown="true", **slack), filters=filters)
        # Times that producers' clocks made out of order would be read all the same.
        assert rows == later
        return str(parts[0].start)

    assert starts() == "-1:-1"
    assert starts(publishTimeSlackMs="0") == later[0]["__messageId"]
    assert starts(publishTimeSlackMs="1h") == every[0]["__messageId"]
    past = LessThan(("__publishTime",), datetime(1960, 1, 1, tzinfo=UTC))
    slack = {"pushdown": "true", "publishTimeSlackMs": "0"}
    assert read(source(broker, topic, **slack), filters=[past]) == ([], [])


def test_filters_are_taken_only_if_asked_for(broker: Broker, readings: str) -> None:
    """With `pushFilters` on the reader, Spark fails every read unless its own setting is on."""
    reader = source(broker, readings).reader(StructType())
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
    assert isinstance(
        source(broker, readings, pushdown="true").reader(StructType()), NarrowedBatchReader
    )


def test_streams_are_cut_the_same_way_again(broker: Broker) -> None:
    """Whatever became of the topic; nothing is asked for it."""
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
def test_columns_that_can_not_be_had(
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
    with pytest.raises(geminga.ConnectionFailed):
        PulsarDataSource({**nobody, "topic": "t"}).schema()
