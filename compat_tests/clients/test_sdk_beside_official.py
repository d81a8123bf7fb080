"""Our SDK beside the official client, on both servers: what one writes the other reads."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pulsar
import pytest
import trio

import geminga
from compat_tests.clients.conftest import Peer, numbered, receive, send_all, texts
from geminga import CompressionType, ConsumerType, InitialPosition

CODECS = [
    (name, CompressionType[name.upper()]) for name in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
]


@pytest.fixture
async def ours(peer: Peer) -> AsyncIterator[geminga.Client]:
    """Our client on the server under test."""
    async with geminga.connect(peer.server.service_url) as client:
        yield client


async def take(consumer: geminga.Consumer, count: int) -> list[geminga.Message]:
    """So many messages, each acknowledged."""
    messages = []
    with trio.fail_after(60):
        for _ in range(count):
            message = await consumer.receive()
            messages.append(message)
            await consumer.acknowledge(message)
    return messages


@pytest.mark.parametrize(("name", "kind"), CODECS)
async def test_official_to_ours(
    peer: Peer, ours: geminga.Client, name: str, kind: CompressionType
) -> None:
    topic = peer.topic("to-ours")
    payloads = numbered("geminga " * 100, 0, 10)
    official = peer.consumer(topic, subscription="official")
    for batching in (False, True):
        producer = peer.producer(
            topic,
            batching_enabled=batching,
            batching_max_publish_delay_ms=1000,
            compression_type=getattr(pulsar.CompressionType, name),
        )
        send_all(producer, payloads, partition_key="k", properties={"a": "b"})
    async with await ours.subscribe(
        topic, "sub", initial_position=InitialPosition.EARLIEST
    ) as consumer:
        messages = await take(consumer, 20)
    assert [message.data.decode() for message in messages] == payloads * 2
    assert {(m.partition_key, tuple(m.properties.items())) for m in messages} == {
        ("k", (("a", "b"),))
    }
    # The Java and the C++ client write the same id in different bytes; each reads the other's.
    assert [pulsar.MessageId.deserialize(m.message_id.serialize()) for m in messages] == [
        m.message_id() for m in receive(official, 20)
    ]


@pytest.mark.parametrize(("name", "kind"), CODECS)
async def test_ours_to_official(
    peer: Peer, ours: geminga.Client, name: str, kind: CompressionType
) -> None:
    topic = peer.topic("to-official")
    payloads = numbered("geminga " * 100, 0, 10)
    consumer = peer.consumer(topic)
    for batching in (False, True):
        async with await ours.create_producer(
            topic, batching_enabled=batching, compression_type=kind
        ) as producer:
            for payload in payloads:
                await producer.submit(payload.encode(), partition_key="k", properties={"a": "b"})
            await producer.flush()
    messages = receive(consumer, 20)
    assert texts(messages) == payloads * 2
    assert {(m.partition_key(), m.properties()["a"]) for m in messages} == {("k", "b")}


@pytest.mark.parametrize("kind", list(ConsumerType))
async def test_every_subscription_type(
    peer: Peer, ours: geminga.Client, kind: ConsumerType
) -> None:
    topic = peer.topic("types")
    async with await ours.subscribe(topic, "sub", consumer_type=kind) as consumer:
        send_all(peer.producer(topic), numbered("m", 0, 20), partition_key="k")
        messages = await take(consumer, 20)
    assert [message.data.decode() for message in messages] == numbered("m", 0, 20)
    async with await ours.subscribe(topic, "sub", consumer_type=kind) as again:
        with trio.move_on_after(0.3):
            message = await again.receive()
            raise AssertionError(f"acknowledged, and there again: {message}")
