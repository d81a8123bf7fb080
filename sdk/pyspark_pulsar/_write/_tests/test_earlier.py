"""A retried task with other rows, or another order: reported, so that no row is lost silently."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import geminga
import geminga.blocking
import geminga.testing
from geminga._tests.crypto_keys import PUBLIC
from pyspark_pulsar._write import _earlier
from pyspark_pulsar._write._earlier import EarlierRows, Row
from pyspark_pulsar._write._tests.test_task import (
    Client,
    batches,
    fresh,
    numbers,
    partitioned,
    read,
    task,
    who,
)
from pyspark_pulsar.errors import WriteFailed


@pytest.fixture(scope="module")
def url() -> Iterator[geminga.testing.BrokerUrl]:
    with geminga.testing.broker({"brokerDeduplicationEnabled": "true"}) as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with geminga.blocking.connect(url) as found:
        yield found


def failing(*found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield from found
    raise RuntimeError("the task fails")


def of(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([str(n) for n in values])], ["value"])


@pytest.mark.parametrize("batching", ["true", "false"])
def test_rows_in_another_order_are_reported(client: Client, url: str, batching: str) -> None:
    """As after a shuffle, whose blocks arrive in any order."""
    topic = fresh()
    given = {"topic": topic, "pulsar.producer.batchingEnabled": batching}
    one, two, three = batches(20, 20, 20)
    with pytest.raises(RuntimeError):
        task(client, url, "value string", who("q"), **given).run(failing(one, two))
    told = (
        r"message 0 of .* differs from the one that an earlier attempt wrote.*sortWithinPartitions"
    )
    with pytest.raises(WriteFailed, match=told) as caught:
        task(client, url, "value string", who("q"), **given).run([three, one, two])
    assert caught.value.topic == topic
    assert numbers(client, topic) == list(range(40)), "nothing was written, nothing confirmed"
    task(client, url, "value string", who("q"), **given).run([one, two, three])
    assert numbers(client, topic) == list(range(60))


def test_a_differing_row_in_a_batch_is_reported(client: Client, url: str) -> None:
    topic = fresh()
    with pytest.raises(RuntimeError):
        task(client, url, "value string", who("q"), topic=topic).run(failing(*batches(30, 30)))
    other = of(*range(45), 99, *range(46, 70))
    with pytest.raises(WriteFailed, match="message 45 of "):
        task(client, url, "value string", who("q"), topic=topic).run([other])


@pytest.mark.slow
def test_each_partition_is_compared(client: Client, url: geminga.testing.BrokerUrl) -> None:
    topic = partitioned(url, 3)
    given = {"topic": topic, "pulsar.producer.batchingMaxMessages": "7"}
    with pytest.raises(RuntimeError):
        task(client, url, "value string", who("q"), **given).run(failing(*batches(50)))
    swapped = of(*range(48), 49, 48)
    with pytest.raises(WriteFailed, match="differs from the one that an earlier attempt wrote"):
        task(client, url, "value string", who("q"), **given).run([swapped])
    task(client, url, "value string", who("q"), **given).run(batches(25, 30))
    assert sorted(numbers(client, topic)) == list(range(55))


@pytest.mark.parametrize(
    ("column", "kind", "first", "second"),
    [
        ("__key", "string", pa.array(["a", None]), pa.array([None, "a"])),
        ("__key", "binary", pa.array([b"\xff", b"b"]), pa.array([b"\xff", b"c"])),
        ("__eventTime", "timestamp", [5000, None], [5000, 6000]),
        ("__orderingKey", "binary", pa.array([b"o", None]), pa.array([None, b"o"])),
    ],
)
def test_all_parts_of_a_message_are_compared(
    client: Client, url: str, column: str, kind: str, first: pa.Array, second: pa.Array
) -> None:
    topic = fresh()
    values = pa.array(["x", "x"])

    def attempt(column_values: pa.Array) -> None:
        if kind == "timestamp":
            column_values = pa.array(column_values, pa.timestamp("us", "UTC"))
        batch = pa.RecordBatch.from_arrays([values, column_values], ["value", column])
        ddl = f"value string, {column} {kind}"
        task(client, url, ddl, who("q"), topic=topic).run([batch])

    attempt(first)
    attempt(first)
    with pytest.raises(WriteFailed, match="differs from the one"):
        attempt(second)
    assert len(read(client, topic)) == 2


def test_properties_and_nulls_count(client: Client, url: str) -> None:
    row = Row.of(None, {"properties": {"p": "q"}})
    assert row == Row(b"", True, None, None, None, {"p": "q"})
    topic = fresh()
    columns = [
        pa.array(["a", None]),
        pa.array([[("p", "q")], None], pa.map_(pa.string(), pa.string())),
    ]
    batch = pa.RecordBatch.from_arrays(columns, ["value", "__messageProperties"])
    ddl = "value string, __messageProperties map<string,string>"
    for _ in range(2):
        task(client, url, ddl, who("q"), topic=topic).run([batch])
    assert len(read(client, topic)) == 2
    empty = batch.set_column(0, "value", pa.array(["a", ""]))
    with pytest.raises(WriteFailed, match="message 1 of "):
        task(client, url, ddl, who("q"), topic=topic).run([empty])


def test_the_order_may_be_trusted(client: Client, url: str) -> None:
    topic = fresh()
    given = {"topic": topic, "deduplication": "true", "deduplicationCheck": "false"}
    task(client, url, "value string", who("q"), **given).run(batches(5))
    task(client, url, "value string", who("q"), **given).run([of(9, 8, 7, 6, 5)])
    assert numbers(client, topic) == list(range(5))


def test_incomparable_messages_are_a_warning(
    client: Client,
    url: str,
    caplog: pytest.LogCaptureFixture,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    topic = fresh()
    (path := tmp_path_factory.mktemp("keys") / "rsa.pem").write_bytes(PUBLIC["rsa"])
    prefix = "pulsar.producer."
    given = {"topic": topic, f"{prefix}encryptionKeys": "rsa", f"{prefix}publicKeyPath": str(path)}
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        for _ in range(2):
            task(client, url, "value string", who("q"), **given).run(batches(5))
    (told,) = [each.getMessage() for each in caplog.records]
    assert topic in told
    assert "the messages are encrypted" in told


def test_trimmed_messages_are_a_warning(
    client: Client, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh()
    task(client, url, "value string", who("q"), topic=topic).run(batches(5))
    monkeypatch.setattr(EarlierRows, "find", lambda self, number: None)
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        task(client, url, "value string", who("q"), topic=topic).run(batches(5, 5))
    (told,) = [each.getMessage() for each in caplog.records]
    assert "5 messages of an earlier attempt" in told
    assert numbers(client, topic) == list(range(10))


@pytest.mark.slow
def test_earlier_messages_are_found_however_old(client: Client, url: str) -> None:
    """The clock is moved instead of waiting."""
    topic = fresh()
    for epoch in range(3):
        name = who("q", epoch)
        task(client, url, "value string", name, topic=topic).run(batches(5, first=10 * epoch))
        task(client, url, "value string", who("other", epoch), topic=topic).run(batches(50))
    for passed_s in (0.0, 100.0, 1e4, 1e6):
        rows = EarlierRows(client, topic, "q", clock=lambda s=passed_s: time.time() + s)
        first = 1 << 32
        assert rows.find(first) == Row(b"10", False, None, None, None, {})
        found = rows.find(first + 3)
        assert found is not None
        assert found.payload == b"13"
        assert rows.find(first + 5) is None
        found = rows.find(2 << 32)
        assert found is not None
        assert found.payload == b"20"
        assert rows.find((2 << 32) + 9) is None
        rows.close()
    empty = EarlierRows(client, fresh(), "q")
    assert empty.find(0) is None
    empty.close()


def test_other_producers_messages_only_cost_their_reading(
    client: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read where there was no earlier attempt."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be read")

    topic = fresh()
    monkeypatch.setattr(_earlier.EarlierRows, "find", refuse)
    for epoch in range(2):
        task(client, url, "value string", who("q", epoch), topic=topic).run(batches(5, 5))
    assert len(numbers(client, topic)) == 20
