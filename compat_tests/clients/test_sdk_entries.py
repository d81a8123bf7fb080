"""Whole entries of the official clients, read as columns; and what both servers tell of topics."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pulsar
import pytest
import trio

import geminga
from compat_tests.apache import jars
from compat_tests.clients.conftest import Peer, numbered, send_all
from compat_tests.missing import JAVA_CLIENT, skipped_without
from geminga import EntryBatch, MessageId
from geminga._tests.entry_making import Told, told_by, told_by_message

COUNT = 24


@pytest.fixture
async def ours(peer: Peer) -> AsyncIterator[geminga.Client]:
    """Our client on the server under test."""
    async with geminga.connect(peer.server.service_url) as client:
        with trio.fail_after(200):
            yield client


async def entries_of(
    ours: geminga.Client,
    topic: str,
    count: int,
    start: MessageId = geminga.EARLIEST,
    **options: Any,
) -> list[EntryBatch]:
    """Entries with so many messages in all, and no more come."""
    found: list[EntryBatch] = []
    async with await ours.create_reader(topic, start, **options) as reader:
        while sum(map(len, found)) < count:
            found += await reader.read_batches(60)
        assert not await reader.has_message_available()
    return found


async def one_by_one(ours: geminga.Client, topic: str, **options: Any) -> list[Told]:
    """What all messages tell."""
    told: list[Told] = []
    async with await ours.create_reader(topic, geminga.EARLIEST, **options) as reader:
        while await reader.has_message_available():
            told.append(told_by_message(await reader.read_next(60)))
    return told


@pytest.mark.parametrize("compression", ["NONE", "ZSTD"])
async def test_official_python_client(peer: Peer, ours: geminga.Client, compression: str) -> None:
    topic = peer.topic("entries")
    payloads = numbered("payload-", 0, COUNT)
    for batching in (True, False):
        producer = peer.producer(
            topic,
            batching_enabled=batching,
            batching_max_publish_delay_ms=60_000,
            compression_type=getattr(pulsar.CompressionType, compression),
        )
        options: dict[str, Any] = {"properties": {"a": "b"}, "event_timestamp": 77}
        send_all(producer, payloads, partition_key="k", ordering_key="o", **options)
        send_all(producer, payloads)
    expected = await one_by_one(ours, topic)
    entries = await entries_of(ours, topic, 4 * COUNT)
    assert told_by(entries) == expected
    assert {each.message_count for each in entries} == {1, COUNT}
    described, plain = entries[:2]
    assert described.payloads() == plain.payloads() == [each.encode() for each in payloads]
    assert (described.keys(), plain.keys()) == (["k"] * COUNT, [None] * COUNT)
    assert (described.ordering_keys(), plain.ordering_keys()) == ([b"o"] * COUNT, [None] * COUNT)
    assert (described.properties(), plain.properties()) == ([{"a": "b"}] * COUNT, [{}] * COUNT)
    assert (described.event_times_ms(), plain.event_times_ms()) == (
        [77] * COUNT,
        [None] * COUNT,
    )
    assert described.sequence_ids() + plain.sequence_ids() == list(range(2 * COUNT))


@pytest.mark.java
@pytest.mark.slow
async def test_java_client(peer: Peer, ours: geminga.Client) -> None:
    topic = peer.topic("java-entries")
    with skipped_without(JAVA_CLIENT):
        command = jars.java_command("Entries", [peer.server.service_url, topic, str(COUNT)])

    def write() -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert "done" in done.stdout, done.stderr[-2000:]

    await trio.to_thread.run_sync(write)
    entries = await entries_of(ours, topic, 2 * COUNT)
    assert told_by(entries) == await one_by_one(ours, topic)
    assert [each.message_count for each in entries] == [COUNT] + [1] * COUNT
    batch, *singles = entries
    for of in (lambda e: e.keys_as_bytes(), lambda e: e.nulls(), lambda e: e.payloads()):
        assert of(batch) == [value for each in singles for value in of(each)]
    numbers = range(COUNT)
    texts = [str(n).encode() for n in numbers]
    assert batch.payloads() == [b"" if n % 6 == 5 else texts[n] for n in numbers]
    assert batch.nulls() == [n % 6 == 5 for n in numbers]
    assert batch.event_times_ms() == [1000 + n if n % 6 == 4 else None for n in numbers]
    assert batch.properties()[3::6] == [{"n": str(n), "o": ""} for n in numbers[3::6]]
    assert batch.ordering_keys()[2::6] == texts[2::6]
    assert batch.keys_as_bytes()[1::6] == [bytes([n, 255, 0]) for n in numbers[1::6]]
    assert batch.keys()[::6] == [f"key-{n}" for n in numbers[::6]]


@pytest.mark.parametrize("inclusive", [True, False])
async def test_from_within_a_batch(peer: Peer, ours: geminga.Client, inclusive: bool) -> None:
    topic = peer.topic("within")
    payloads = numbered("", 0, 10)
    producer = peer.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for _ in range(3):
        send_all(producer, payloads)
    entries = await entries_of(ours, topic, 30)
    ids = [place for each in entries for place in each.message_ids()]
    for at in (0, 4, 9, 10, 19, 29):
        first = at if inclusive else at + 1
        found = await entries_of(
            ours, topic, 30 - first, ids[at], start_message_id_inclusive=inclusive
        )
        assert [place for each in found for place in each.message_ids()] == ids[first:]
    # An id of a whole entry: all of it or nothing.
    whole = MessageId(entries[1].ledger_id, entries[1].entry_id)
    left = 20 if inclusive else 10
    found = await entries_of(ours, topic, left, whole, start_message_id_inclusive=inclusive)
    assert [place for each in found for place in each.message_ids()] == ids[-left:]


async def test_compacted(peer: Peer, ours: geminga.Client) -> None:
    """Of a compacted batch only the latest of each key is left, where it was."""
    topic = peer.topic("compacted")
    producer = peer.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for _ in range(2):
        for n in range(12):
            producer.send_async(b"%d" % n, lambda *_: None, partition_key=str(n % 8))
        producer.flush()
    await trio.to_thread.run_sync(peer.compact, topic)
    expected = await one_by_one(ours, topic, read_compacted=True)
    entries = await entries_of(ours, topic, len(expected), read_compacted=True)
    assert told_by(entries) == expected
    assert [n for each in entries for n in each.indexes] == list(range(4, 12))
    assert [each.message_count for each in entries] == [12] * len(entries)


async def test_what_brokers_tell_of_topics(peer: Peer, ours: geminga.Client) -> None:
    topic = peer.topic("told")
    parts = await trio.to_thread.run_sync(peer.partitioned, "told", 2)
    async with await ours.create_producer(topic, schema=geminga.schema.String()):
        assert await ours.list_partitions(topic, auto_create=False) == [topic]
    names = [f"{parts}-partition-{n}" for n in range(2)]
    assert await ours.list_partitions(parts, auto_create=False) == names
    for missing in (peer.topic("missing"), f"{parts}-partition-2"):
        with pytest.raises(geminga.TopicNotFoundError):
            await ours.list_partitions(missing, auto_create=False)
        with pytest.raises(geminga.TopicNotFoundError):
            await ours.get_schema(missing)
    found = await ours.list_topics(re.compile(r"persistent://public/default/py-told-.*"))
    assert {topic, parts} <= set(found)
    assert not set(names) & set(found)
    short = await trio.to_thread.run_sync(peer.partitioned, "p", 2)
    assert len(short) <= 50  # longer patterns are matched by the client
    assert await ours.list_topics(re.compile(short)) == [short]
    assert await ours.list_topics(re.compile(f"{short}-partition-.*")) == []
    info = await ours.get_schema(topic)
    assert info is not None
    assert info.type is geminga.schema.SchemaType.STRING
    assert await ours.get_schema(topic, (0).to_bytes(8, "big")) == info
    assert await ours.get_schema(parts) is None


async def test_chunks_of_several_when_the_topic_is_unloaded(
    peer: Peer, ours: geminga.Client
) -> None:
    """A reader goes back for the chunks around what it has read; each message comes once."""
    topic = peer.topic("chunks")
    sent = [b"%d" % n * size for n in range(8) for size in (1, 400)]

    async def publish(messages: list[bytes], **options: Any) -> None:
        async with (
            geminga.connect(peer.server.service_url) as client,
            await client.create_producer(topic, batching_enabled=False, **options) as producer,
        ):
            for message in messages:
                await producer.send(message)

    async with trio.open_nursery() as nursery:
        options = {"chunking_enabled": True, "chunk_max_message_size_bytes": 40}
        for n in range(3):
            nursery.start_soon(lambda n=n: publish(sent[1::2][n::3], **options))
        nursery.start_soon(publish, sent[::2])
    got: list[bytes] = []
    path = topic.replace("://", "/") + "/unload"
    async with await ours.create_reader(topic, geminga.EARLIEST) as reader:
        while len(got) < len(sent):
            (entry,) = await reader.read_batches(60, bytes_max=1)
            got += entry.payloads()
            if len(got) in (2, 5, 8, 11):
                await trio.to_thread.run_sync(peer.admin, "PUT", path)
        assert not await reader.has_message_available()
        assert reader.incomplete_message_ids() == []
    assert sorted(got) == sorted(sent)
