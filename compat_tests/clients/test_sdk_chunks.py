"""Chunked messages of our SDK and of the official client, crosswise, on both servers (PIP-37)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
import trio

import geminga
from compat_tests.clients.conftest import Peer, receive
from geminga import CompressionType, ConsumerType, InitialPosition

LARGE = random.Random(5).randbytes(11 * 1024 * 1024)


@pytest.fixture
async def ours(peer: Peer) -> AsyncIterator[geminga.Client]:
    """Our client on the server under test."""
    async with geminga.connect(peer.server.service_url) as client:
        with trio.fail_after(200):
            yield client


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4])
async def test_ours_to_both(peer: Peer, ours: geminga.Client, compression: CompressionType) -> None:
    topic = peer.topic("chunks")
    official = peer.consumer(topic, subscription="official")
    consumer = await ours.subscribe(topic, "s", ack_receipt_enabled=True)
    async with await ours.create_producer(
        topic, batching_enabled=False, chunking_enabled=True, compression_type=compression
    ) as producer:
        sent = await producer.send(LARGE, properties={"a": "b"})
        await producer.send(b"small")
    assert sent.first_chunk is not None
    messages = await trio.to_thread.run_sync(receive, official, 2)
    assert [message.data() for message in messages] == [LARGE, b"small"]
    # The C++ client leaves the partition out of a chunk's id where there is none; order and places
    # are the same.
    theirs = geminga.MessageId.deserialize(messages[0].message_id().serialize())
    assert (theirs.ledger_id, theirs.entry_id) == (sent.ledger_id, sent.entry_id)
    assert theirs.first_chunk is not None
    assert theirs.first_chunk.entry_id == sent.first_chunk.entry_id
    message = await consumer.receive(60)
    assert message.data == LARGE
    assert message.message_id == sent
    assert message.message_id.first_chunk == sent.first_chunk
    await consumer.acknowledge(message)
    await consumer.acknowledge(await consumer.receive(60))
    await consumer.aclose()
    async with await ours.subscribe(topic, "s") as again:
        with pytest.raises(geminga.OperationTimeoutError):
            await again.receive(0.3)


@pytest.mark.parametrize("kind", [ConsumerType.EXCLUSIVE, ConsumerType.SHARED])
async def test_official_to_ours(peer: Peer, ours: geminga.Client, kind: ConsumerType) -> None:
    topic = peer.topic("chunks")
    producer = peer.producer(topic, batching_enabled=False, chunking_enabled=True)
    sent = await trio.to_thread.run_sync(producer.send, LARGE)
    async with await ours.subscribe(
        topic,
        "s",
        consumer_type=kind,
        initial_position=InitialPosition.EARLIEST,
        negative_ack_redelivery_delay_s=0.1,
    ) as consumer:
        message = await consumer.receive(60)
        assert message.data == LARGE
        assert (message.message_id.ledger_id, message.message_id.entry_id) == (
            sent.ledger_id(),
            sent.entry_id(),
        )
        consumer.negative_acknowledge(message)
        again = await consumer.receive(60)
        assert again.data == LARGE
        await consumer.acknowledge(again)


async def test_two_producers_at_once(peer: Peer, ours: geminga.Client) -> None:
    topic = peer.topic("chunks")
    consumer = await ours.subscribe(topic, "s")
    messages = [LARGE[: 6 * 1024 * 1024], LARGE[-6 * 1024 * 1024 :]]
    producers = [
        await ours.create_producer(
            topic,
            batching_enabled=False,
            chunking_enabled=True,
            chunk_max_message_size_bytes=1024 * 1024,
        )
        for _ in messages
    ]
    async with trio.open_nursery() as nursery:
        for producer, data in zip(producers, messages, strict=True):
            nursery.start_soon(producer.send, data)
    got = [(await consumer.receive(60)).data for _ in messages]
    assert sorted(got) == sorted(messages)
