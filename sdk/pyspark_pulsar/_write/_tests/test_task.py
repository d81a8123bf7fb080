"""Tasks on a real broker, without Spark."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import geminga
import geminga.blocking
import geminga.testing
from geminga._tests.crypto_keys import PUBLIC, READER
from pyspark_pulsar._encode import frame_of
from pyspark_pulsar._encode._tests.frames import struct
from pyspark_pulsar._options._write_options import parse_write
from pyspark_pulsar._tests.admin import ask, path_of
from pyspark_pulsar._write import _partition_writer, _task
from pyspark_pulsar._write._check import check_topic
from pyspark_pulsar._write._identity import Identity
from pyspark_pulsar._write._partition_writer import PartitionWriter
from pyspark_pulsar._write._task import Task, Written
from pyspark_pulsar.errors import SchemaMismatch, TopicMissing, WriteFailed

Client = geminga.blocking.Client


@pytest.fixture(scope="module")
def url() -> Iterator[geminga.testing.BrokerUrl]:
    settings = {"brokerDeduplicationEnabled": "true", "maxMessageSize": "1048576"}
    with geminga.testing.broker(settings) as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with geminga.blocking.connect(url) as found:
        yield found


def fresh() -> str:
    return f"persistent://public/default/{uuid.uuid4().hex}"


def partitioned(url: geminga.testing.BrokerUrl, count: int) -> str:
    topic = fresh()
    ask(url.web_url, "PUT", f"{path_of(topic)}/partitions", count)
    return topic


def who(name: str | None = None, epoch: int = 0, partition: int = 0) -> Identity:
    return Identity(partition, epoch, name, is_lasting=name is not None)


def task(client: Client, url: str, ddl: str, name: Identity, **given: str) -> Task:
    options = parse_write({"service.url": url, **given}, streaming=False)
    return Task(client, frame_of(struct(ddl), options), options, name)


def batches(*sizes: int, first: int = 0) -> list[pa.RecordBatch]:
    """Batches of a column `value`, counting on."""
    found = []
    for size in sizes:
        values = pa.array([str(n) for n in range(first, first + size)])
        found.append(pa.RecordBatch.from_arrays([values], ["value"]))
        first += size
    return found


def read(client: Client, topic: str) -> list[geminga.Message[bytes]]:
    found: list[geminga.Message[bytes]] = []
    for part in client.list_partitions(topic):
        with client.create_reader(part, geminga.EARLIEST) as reader:
            while reader.has_message_available():
                found.append(reader.read_next(10))
    return found


def numbers(client: Client, topic: str) -> list[int]:
    return [int(each.data) for each in read(client, topic)]


def test_all_rows_with_all_metadata(client: Client, url: str) -> None:
    topic, other = fresh(), fresh()
    columns = {
        "value": pa.array(["a", None, "c"]),
        "__topic": pa.array([topic, other, topic]),
        "__key": pa.array(["k", b"x".decode(), None]),
        "__eventTime": pa.array([5000, None, None], pa.timestamp("us", "UTC")),
        "__messageProperties": pa.array(
            [[("p", "q")], None, []], pa.map_(pa.string(), pa.string())
        ),
        "__orderingKey": pa.array([b"o", None, None]),
    }
    ddl = (
        "value string, __topic string, __key string, __eventTime timestamp,"
        " __messageProperties map<string,string>, __orderingKey binary"
    )
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    written = task(client, url, ddl, who()).run([batch])
    assert written == Written(0, 0, 3, 2)
    first, last = read(client, topic)
    (null,) = read(client, other)
    assert (first.data, first.partition_key, first.event_time_ms) == (b"a", "k", 5)
    assert (first.properties, first.ordering_key) == ({"p": "q"}, b"o")
    assert (last.data, last.partition_key, last.event_time_ms) == (b"c", None, None)
    assert null.is_null
    info = client.get_schema(topic)
    assert info is not None
    assert info.type is geminga.schema.SchemaType.STRING


def test_keys_go_where_the_sdk_sends_them(client: Client, url: geminga.testing.BrokerUrl) -> None:
    topic, theirs = partitioned(url, 5), partitioned(url, 5)
    keys = [f"key {n} ä" for n in range(50)]
    columns = [pa.array(keys), pa.array(keys)]
    batch = pa.RecordBatch.from_arrays(columns, ["value", "__key"])
    task(client, url, "value string, __key string", who(), topic=topic).run([batch])
    with client.create_producer(theirs) as producer:
        for key in keys:
            producer.submit(key.encode(), partition_key=key)
    placed = {each.data: each.message_id.partition for each in read(client, topic)}
    assert placed == {each.data: each.message_id.partition for each in read(client, theirs)}
    assert len(placed) == len(keys)


@pytest.mark.parametrize("batching", ["true", "false"])
@pytest.mark.slow
def test_a_second_attempt_writes_the_rest(
    client: Client, url: geminga.testing.BrokerUrl, batching: str
) -> None:
    topic = partitioned(url, 3)
    given = {
        "pulsar.producer.batchingMaxMessages": "7",
        "pulsar.producer.batchingEnabled": batching,
    }

    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(40, 33)
        raise RuntimeError("the task fails")

    def attempt(epoch: int) -> Task:
        return task(client, url, "value string", who("q", epoch), topic=topic, **given)

    with pytest.raises(RuntimeError):
        attempt(0).run(failing())
    assert sorted(numbers(client, topic)) == list(range(73))
    attempt(0).run(batches(40, 33, 50))
    assert sorted(numbers(client, topic)) == list(range(123))
    # Cut into batches otherwise, and all of it once more.
    attempt(0).run(batches(100, 23))
    assert sorted(numbers(client, topic)) == list(range(123))
    attempt(1).run(batches(30, first=123))
    attempt(1).run(batches(30, first=123))
    assert sorted(numbers(client, topic)) == list(range(153))
    for each in read(client, topic):
        assert each.sequence_id >> 32 == (1 if int(each.data) >= 123 else 0)


def test_an_epoch_before_the_last_one_is_refused(client: Client, url: str) -> None:
    """The broker would drop its rows, and confirm them."""
    topic = fresh()

    def attempt(epoch: int) -> Task:
        return task(client, url, "value string", who("q", epoch), topic=topic)

    attempt(2).run(batches(5))
    with pytest.raises(WriteFailed, match=r"q has written epoch 2.*only grow") as caught:
        attempt(1).run(batches(5, first=100))
    assert caught.value.topic == topic
    # The name is free again.
    attempt(2).run(batches(5))
    attempt(3).run(batches(5, first=5))
    assert numbers(client, topic) == list(range(10))


def test_tasks_of_one_query_do_not_hinder_each_other(client: Client, url: str) -> None:
    topic = fresh()
    for partition in range(3):
        name = Identity(partition, 0, f"q-{partition}", is_lasting=True)
        task(client, url, "value string", name, topic=topic).run(batches(10, first=10 * partition))
    assert sorted(numbers(client, topic)) == list(range(30))


def test_chunks_are_written_once(client: Client, url: str) -> None:
    topic = fresh()
    given = {"pulsar.producer.chunkingEnabled": "true", "topic": topic}
    data = [bytes(np.full(size, 65 + size % 3, np.uint8)) for size in (10, 3_000_000, 20)]
    batch = pa.RecordBatch.from_arrays([pa.array(data)], ["value"])
    for _ in range(2):
        task(client, url, "value binary", who("q"), **given).run([batch])
    assert [each.data for each in read(client, topic)] == data


def test_without_deduplication_at_the_broker_the_task_fails(
    client: Client, url: geminga.testing.BrokerUrl
) -> None:
    with geminga.testing.broker() as plain, geminga.blocking.connect(plain) as other:
        topic = fresh()
        with pytest.raises(WriteFailed, match="doesn't deduplicate this topic"):
            task(other, plain, "value string", who("q"), topic=topic).run(batches(5, 5))
        assert numbers(other, topic) == list(range(5))
        task(other, plain, "value string", who(), topic=topic).run(batches(5))
        assert Counter(numbers(other, topic)) == Counter([*range(5), *range(5)])


def test_an_attempt_waits_for_the_end_of_the_one_before(
    client: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh()
    zombie = client.create_producer(topic, producer_name="q")
    told = f"topic {topic}: .*producerBusyTimeoutMs"
    with pytest.raises(WriteFailed, match=told):
        task(client, url, "value string", who("q"), topic=topic, producerBusyTimeoutMs="100").run(
            batches(5)
        )
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            zombie.close()

    monkeypatch.setattr(_partition_writer.time, "sleep", sleep)
    task(client, url, "value string", who("q"), topic=topic).run(batches(5))
    assert waited == [0.05, 0.1, 0.2]
    assert numbers(client, topic) == list(range(5))


@pytest.mark.slow
def test_producers_are_closed_when_there_are_many(
    client: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_task, "PRODUCERS_MAX", 2)
    topics = [fresh() for _ in range(4)]
    rows = [topics[n % 4] for n in range(40)]
    columns = [pa.array([str(n) for n in range(40)]), pa.array(rows)]
    batch = pa.RecordBatch.from_arrays(columns, ["value", "__topic"])
    for name in ("q", "q"):
        writing = task(client, url, "value string, __topic string", who(name))
        written = writing.run([batch[:20], batch[20:]])
        assert written.partitions == 4
    for n, topic in enumerate(topics):
        assert numbers(client, topic) == list(range(n, 40, 4))


def test_rows_of_a_producer_that_is_closed_early_are_waited_for(
    client: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[str] = []
    finish = PartitionWriter.finish

    def noted(self: PartitionWriter) -> None:
        finish(self)
        finished.append(self.topic)

    monkeypatch.setattr(_task, "PRODUCERS_MAX", 1)
    monkeypatch.setattr(PartitionWriter, "finish", noted)
    topics = [fresh() for _ in range(3)]
    columns = [pa.array(["a", "b", "c"]), pa.array(topics)]
    batch = pa.RecordBatch.from_arrays(columns, ["value", "__topic"])
    task(client, url, "value string, __topic string", who()).run([batch])
    assert sorted(finished) == sorted(topics)


def test_each_message_that_fails_fails_the_task(client: Client, url: str) -> None:
    topic = fresh()
    data = pa.array([b"a", bytes(2_000_000), b"c"])
    batch = pa.RecordBatch.from_arrays([data], ["value"])
    with pytest.raises(WriteFailed, match="chunkingEnabled"):
        task(client, url, "value binary", who(), topic=topic).run([batch])


def test_refusals_of_the_broker_are_reported_at_once(
    client: Client, url: geminga.testing.BrokerUrl
) -> None:
    topic = fresh()
    options = parse_write({"service.url": url, "topic": topic}, streaming=False)
    check_topic(frame_of(struct("a int, b string"), options), options)
    info = client.get_schema(topic)
    assert info is not None
    assert info.type is geminga.schema.SchemaType.AVRO
    with pytest.raises(SchemaMismatch, match=f"topic {topic}: its schema isn't compatible"):
        check_topic(frame_of(struct("a string, c string"), options), options)
    with geminga.testing.broker({"allowAutoTopicCreation": "false"}) as strict:
        options = parse_write({"service.url": strict, "topic": topic}, streaming=False)
        with pytest.raises(TopicMissing, match="create it"):
            check_topic(frame_of(struct("value string"), options), options)


def test_a_batch_of_a_frame_without_rows_makes_no_producer(client: Client, url: str) -> None:
    topic = fresh()
    written = task(client, url, "value string", who("q"), topic=topic).run(batches(0))
    assert written == Written(0, 0, 0, 0)


def test_encrypted_and_compressed(client: Client, url: str, tmp_path: Path) -> None:
    topic = fresh()
    for name, pem in PUBLIC.items():
        (tmp_path / f"{name}.pem").write_bytes(pem)
    prefix = "pulsar.producer."
    given = {
        f"{prefix}encryptionKeys": "rsa,ec",
        f"{prefix}publicKeyPath": json.dumps({n: str(tmp_path / f"{n}.pem") for n in PUBLIC}),
        f"{prefix}compressionType": "ZSTD",
        f"{prefix}properties": '{"made": "by Spark"}',
    }
    task(client, url, "value string", who("q"), topic=topic, **given).run(batches(10))
    with client.create_reader(topic, geminga.EARLIEST, crypto_key_reader=READER) as reader:
        found = [reader.read_next(10) for _ in range(10)]
    assert [int(each.data) for each in found] == list(range(10))
    context = found[0].encryption_context
    assert context is not None
    assert sorted(context.keys) == ["ec", "rsa"]
    assert context.compression_type == geminga.CompressionType.ZSTD
    with pytest.raises(WriteFailed, match="publicKeyPath"):
        missing = {**given, f"{prefix}publicKeyPath": str(tmp_path / "none.pem")}
        task(client, url, "value string", who(), topic=fresh(), **missing).run(batches(10))
