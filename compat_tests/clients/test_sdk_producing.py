"""What producers of our SDK do beside plain sending, on both servers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

import geminga
from compat_tests.clients.conftest import Peer, receive
from geminga import BatchingType, ConsumerType


@pytest.fixture
async def ours(peer: Peer) -> AsyncIterator[geminga.Client]:
    """Our client on the server under test."""
    async with geminga.connect(peer.server.service_url) as client:
        with trio.fail_after(60):
            yield client


async def test_lazy_partitions_that_grow(peer: Peer, ours: geminga.Client) -> None:
    topic = peer.partitioned("growing", 2)
    producer = await ours.create_producer(
        topic,
        lazy_start_partitioned_producers=True,
        auto_update_partitions_interval_s=0.2,
        batching_enabled=False,
    )
    ids = [await producer.send(b"") for _ in range(4)]
    assert {each.partition for each in ids} == {0, 1}
    path = topic.replace("://", "/") + "/partitions"
    await trio.to_thread.run_sync(peer.admin, "POST", path, 4)
    seen: set[int] = set()
    while seen < {0, 1, 2, 3}:
        seen.add((await producer.send(b"")).partition)
        await trio.sleep(0.01)


async def test_batches_by_key(peer: Peer, ours: geminga.Client) -> None:
    topic = peer.topic("keyed")
    official = peer.consumer(topic, subscription="official")
    consumers = [
        await ours.subscribe(topic, "s", consumer_type=ConsumerType.KEY_SHARED) for _ in range(2)
    ]
    producer = await ours.create_producer(topic, batching_type=BatchingType.KEY_BASED)
    receipts = [producer.send_nowait(b"%d" % n, partition_key=f"k{n % 10}") for n in range(100)]
    await producer.flush()
    entries = {(each.message_id.ledger_id, each.message_id.entry_id) for each in receipts}
    assert len(entries) == 10
    got: list[dict[str, list[int]]] = [{}, {}]
    for mine, consumer in zip(got, consumers, strict=True):
        while messages := await consumer.receive_many(timeout_s=0.5):
            for message in messages:
                assert message.partition_key is not None
                mine.setdefault(message.partition_key, []).append(int(message.data))
    assert not got[0].keys() & got[1].keys()
    assert (got[0] | got[1]) == {f"k{n}": list(range(n, 100, 10)) for n in range(10)}
    messages = await trio.to_thread.run_sync(receive, official, 100)
    assert sorted(int(message.data()) for message in messages) == list(range(100))


async def test_lookup_over_http(peer: Peer) -> None:
    topic = peer.partitioned("http", 3)
    async with geminga.connect(peer.server.web_url) as client:
        assert len(await client.get_topic_partitions(topic)) == 3
        with trio.fail_after(30):
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            await producer.send(b"hello")
            message = await consumer.receive()
            assert message.data == b"hello"
            with pytest.raises(geminga.TopicNotFound):
                await client.create_producer("persistent://public/none/t")
