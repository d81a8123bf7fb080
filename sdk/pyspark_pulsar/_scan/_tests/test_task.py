"""Ranges of a real broker's topics as record batches: each message once, however it is cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import geminga
import geminga.blocking
import geminga.testing
from geminga.schema import Json
from pyspark_pulsar._clients import client_for, close_clients
from pyspark_pulsar._options import ParseMode, ReadOptions, parse_read
from pyspark_pulsar._plan._filters import Limits, Narrowing
from pyspark_pulsar._plan._topics import TopicProbe, layout, open_reader
from pyspark_pulsar._positions import BEGIN, Position, TopicRange
from pyspark_pulsar._scan._task import ScanPlan, scan
from pyspark_pulsar.errors import DataLoss, MalformedMessage

SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "16",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
VALUES = StructType([StructField("__messageId", StringType()), StructField("value", BinaryType())])
IDS = StructType([StructField("__messageId", StringType())])


@pytest.fixture(scope="module")
def url() -> Iterator[geminga.testing.BrokerUrl]:
    with geminga.testing.broker(SETTINGS) as found:
        yield found
        close_clients()


@pytest.fixture
def client(url: str) -> geminga.blocking.Client:
    return client_for(options_of(url, "t").client)


def options_of(url: str, topic: str, **more: str) -> ReadOptions:
    given = {"service.url": url, "topic": topic, "pollTimeoutMs": "10000", **more}
    return parse_read(given, streaming=False)


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def rows(
    options: ReadOptions,
    start: Position = BEGIN,
    stop: Position | None = None,
    schema: StructType = VALUES,
    narrowing: Narrowing | None = None,
) -> list[dict[str, Any]]:
    """A task's rows for a range; without a stop, to the topic's end."""
    topic = full(options.topics.names[0])
    if stop is None:
        stop = TopicProbe(client_for(options.client)).last_position(topic) or BEGIN
    wanted = TopicRange(topic, -1, start, stop)
    found: list[dict[str, Any]] = []
    for batch in scan(wanted, ScanPlan(options, schema, narrowing)):
        found += batch.to_pylist()
    return found


def values(found: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in found]


def send(client: geminga.blocking.Client, topic: str, count: int, *, batch: int = 1) -> None:
    with client.create_producer(
        topic, batching_enabled=batch > 1, batching_max_publish_delay_s=30.0,
        batching_max_messages=batch,
    ) as producer:  # fmt: skip
        for n in range(count):
            producer.submit(b"%d" % n)
            if n % (batch * 2) == 0:
                # A broker looks for full ledgers between writes.
                producer.flush()
        producer.flush()


def places(found: list[dict[str, Any]]) -> list[Position]:
    return [Position.parse(row["__messageId"]) for row in found]


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.slow
def test_all_cuts_give_every_message_once(
    url: str, client: geminga.blocking.Client, batch: int
) -> None:
    options = options_of(url, f"cuts-{batch}")
    send(client, options.topics.names[0], 140, batch=batch)
    whole = rows(options)
    assert values(whole) == [b"%d" % n for n in range(140)]
    at = places(whole)
    assert len({each.ledger_id for each in at}) > 1
    for n in (0, 1, 15, 16, 17, 69, 70, 138):
        first = rows(options, BEGIN, at[n])
        second = rows(options, at[n].after, at[-1])
        assert values(first + second) == values(whole), f"cut behind {at[n]}"
        assert len(first) == n + 1


def test_metadata_alone_need_not_be_decodable(url: str, client: geminga.blocking.Client) -> None:
    options = options_of(url, "plain")
    send(client, "plain", 5)
    assert len(rows(options, schema=IDS)) == 5
    number = StructType([StructField("value", LongType())])
    with pytest.raises(MalformedMessage, match="of persistent://public/default/plain"):
        rows(options, schema=number)
    lenient = replace(options, parse_mode=ParseMode.PERMISSIVE)
    assert values(rows(lenient, schema=number)) == [None] * 5
    assert rows(replace(options, parse_mode=ParseMode.DROPMALFORMED), schema=number) == []


def send_chunked(client: geminga.blocking.Client, topic: str, name: bytes) -> None:
    with client.create_producer(
        topic, batching_enabled=False, chunking_enabled=True, chunk_max_message_size_bytes=100
    ) as producer:
        for n in range(6):
            producer.send(name + b"%d" % n + b"." * 900)


@pytest.mark.slow
def test_chunked_messages_are_read_once_wherever_they_are_split(
    url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    """Two producers' chunks are mixed; messages are cut in the middle, over ledgers too."""
    options = options_of(url, "chunks", **{"admin.url": url.web_url})
    threads = [
        threading.Thread(target=send_chunked, args=(client, "chunks", name))
        for name in (b"a", b"b")
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    whole = sorted(values(rows(options)))
    assert len(whole) == 12
    end = TopicProbe(client).last_position(full("chunks")) or BEGIN
    spans = layout(client, full("chunks"), options, BEGIN, end)
    assert len(spans) > 1
    entries = [Position(span.ledger_id, n) for span in spans for n in range(span.last_entry + 1)]
    for cut in entries[3:-1:5]:
        first = rows(options, BEGIN, cut)
        second = rows(options, cut.after, end)
        assert sorted(values(first + second)) == whole, f"cut behind {cut}"
        for part in (first, second):
            places = [Position.parse(row["__messageId"]) for row in part]
            assert places == sorted(places), f"cut behind {cut}"
    parts = [rows(options, a, b) for a, b in zip(entries, entries, strict=True)]
    assert sorted(value for part in parts for value in values(part)) == whole


def test_a_stop_after_the_topics_end(url: str, client: geminga.blocking.Client) -> None:
    send(client, "short", 3)
    options = options_of(url, "short")
    end = TopicProbe(client).last_position(full("short")) or BEGIN
    assert len(rows(options, BEGIN, Position(end.ledger_id, end.entry_id + 5))) == 3


def test_lost_data_at_the_start(url: str, client: geminga.blocking.Client) -> None:
    options = options_of(url, "gone")
    send(client, "gone", 3)
    end = TopicProbe(client).last_position(full("gone")) or BEGIN
    before_it = Position(end.ledger_id - 1, 4) if end.ledger_id else Position(0, 0)
    with pytest.raises(DataLoss, match="are gone"):
        rows(options, before_it, end)
    assert len(rows(replace(options, fail_on_data_loss=False), before_it, end)) == 3


def test_filters_apply_before_decoding(url: str, client: geminga.blocking.Client) -> None:
    options = options_of(url, "keyed")
    with client.create_producer("keyed", batching_max_publish_delay_s=30.0) as producer:
        for n in range(9):
            producer.send_nowait(b"%d" % n, partition_key="abc"[n % 3])
        producer.flush()
    some = rows(options, narrowing=Narrowing(keys=frozenset({"a", "c"})))
    assert values(some) == [b"0", b"2", b"3", b"5", b"6", b"8"]
    assert rows(options, narrowing=Narrowing(publish_ms=Limits(most=1000))) == []


def test_encrypted_messages_need_their_key(
    url: str, client: geminga.blocking.Client, tmp_path: Path
) -> None:
    private, public = key_pair(tmp_path)
    with client.create_producer(
        "secret",
        encryption_keys=["k"],
        crypto_key_reader=geminga.DefaultCryptoKeyReader(public_keys={"k": str(public)}),
    ) as producer:
        producer.send(b"hidden")
    with pytest.raises(geminga.CryptoError, match="privateKeyPath"):
        rows(options_of(url, "secret"))
    name = "pulsar.reader.cryptoFailureAction"
    assert rows(options_of(url, "secret", **{name: "DISCARD"})) == []
    (row,) = rows(options_of(url, "secret", **{name: "CONSUME"}))
    assert row["value"] != b"hidden"
    with_key = options_of(url, "secret", **{"pulsar.reader.privateKeyPath": str(private)})
    assert values(rows(with_key)) == [b"hidden"]


def key_pair(at: Path) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = at / "private.pem", at / "public.pem"
    plain = forms.NoEncryption()
    private.write_bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, plain))
    public.write_bytes(
        key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def test_a_null_message_has_null_values(url: str, client: geminga.blocking.Client) -> None:
    schema = Json({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})
    with client.create_producer("nulls", schema=schema) as producer:
        producer.send({"a": 1}, partition_key="k")
        producer.send(None, partition_key="k")
    columns = StructType([StructField("a", LongType()), StructField("__key", StringType())])
    assert rows(options_of(url, "nulls"), schema=columns) == [
        {"a": 1, "__key": "k"},
        {"a": None, "__key": "k"},
    ]


def test_queue_sizes_fit_the_messages(
    url: str, client: geminga.blocking.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small messages, then large ones: prefetched messages stay bounded in bytes."""
    queues: list[int] = []

    def opened(*given: Any, queue_size: int) -> geminga.blocking.Reader:
        queues.append(queue_size)
        return open_reader(*given, queue_size=queue_size)

    monkeypatch.setattr("pyspark_pulsar._scan._task.open_reader", opened)
    with client.create_producer("sizes", batching_enabled=False) as producer:
        for n in range(60):
            producer.submit(b"%d" % n + b"." * (100 if n < 30 else 50_000))
            if n % 5 == 0:
                producer.flush()
        producer.flush()
    options = replace(options_of(url, "sizes"), batch_bytes_max=100_000, receiver_queue_size=500)
    found = [int(value.partition(b".")[0]) for value in values(rows(options))]
    assert found == list(range(60))
    assert queues[:2] == [1, 500]
    assert queues[-1] < 10
    assert len(queues) <= 6
