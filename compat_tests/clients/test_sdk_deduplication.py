"""Deduplication (spec SDK-08): our SDK on both servers, the official client on both; in a namespace
that has it on.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pulsar
import pytest
import trio

import geminga
from compat_tests.clients.conftest import Peer
from geminga import EARLIEST, BatchingType, MessageId

KINDS: dict[str, dict[str, Any]] = {
    "batched": {"batching_max_publish_delay_s": 0.05},
    "by-key": {"batching_type": BatchingType.KEY_BASED},
    "unbatched": {"batching_enabled": False},
    "chunked": {
        "batching_enabled": False,
        "chunking_enabled": True,
        "chunk_max_message_size_bytes": 200,
    },
}


@pytest.fixture(scope="module")
def namespaces() -> dict[str, str]:
    """One for each server, made when it is first wanted."""
    return {}


@pytest.fixture
def topic(peer: Peer, namespaces: dict[str, str]) -> str:
    """A fresh topic of a namespace that has deduplication on."""
    namespace = namespaces.get(peer.server.kind)
    if namespace is None:
        tenant = f"dedup-{uuid.uuid4().hex[:6]}"  # others tell what namespaces `public` has
        namespace = namespaces[peer.server.kind] = f"{tenant}/on"
        peer.admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"]})
        peer.admin("PUT", f"namespaces/{namespace}")
        peer.admin("POST", f"namespaces/{namespace}/deduplication", True)
        # Apache deletes a topic's messages when no subscription needs them.
        policy = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        peer.admin("POST", f"namespaces/{namespace}/retention", policy)
    return f"persistent://{namespace}/t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def ours(peer: Peer) -> AsyncIterator[geminga.Client]:
    """Our client on the server under test."""
    async with geminga.connect(peer.server.service_url) as client:
        with trio.fail_after(200):
            yield client


def payload(number: int) -> bytes:
    """Of a few chunks."""
    return b"%d:" % number + b"x" * 500


async def stored(client: geminga.Client, topic: str) -> list[int]:
    """The numbers of all messages of the topic, in its order."""
    numbers: list[int] = []
    async with await client.create_reader(topic, EARLIEST) as reader:
        while await reader.has_message_available():
            try:
                message = await reader.read_next(15)
            except geminga.OperationTimeoutError:
                break  # the log's end is a chunk of a message that was stored whole before
            numbers.append(int(message.data.partition(b":")[0]))
    return numbers


def in_order(numbers: list[int], kind: str) -> list[int]:
    """The numbers as they are; of batches by key, which keep the order of each key only, sorted."""
    if kind != "by-key":
        return numbers
    for rest in range(3):
        of_key = [number for number in numbers if number % 3 == rest]
        assert of_key == sorted(of_key)
    return sorted(numbers)


async def send_all(
    producer: geminga.Producer, numbers: range, ids: list[int] | None = None
) -> list[MessageId]:
    """Send them without waiting for each; their ids."""
    receipts = [
        await producer.submit(
            payload(number),
            partition_key=f"k{number % 3}",
            sequence_id=None if ids is None else ids[at],
        )
        for at, number in enumerate(numbers)
    ]
    return [await receipt.wait() for receipt in receipts]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_sent_again_is_stored_once(
    peer: Peer, ours: geminga.Client, topic: str, kind: str
) -> None:
    """Ids that the program chose, with holes; the second time some more."""
    name = {"producer_name": "same"}
    ids = [10 * number for number in range(1, 31)]
    async with await ours.create_producer(topic, **name, **KINDS[kind]) as producer:
        assert producer.last_sequence_id == -1
        first = await send_all(producer, range(20), ids)
        assert all(each.entry_id >= 0 for each in first)
        assert producer.last_sequence_id == 200
    async with await ours.create_producer(topic, **name, **KINDS[kind]) as producer:
        assert producer.last_sequence_id == 200
        again = await send_all(producer, range(30), ids)
        assert [each.entry_id >= 0 for each in again] == [False] * 20 + [True] * 10
        assert producer.last_sequence_id == 300
    async with await ours.create_producer(topic, producer_name="other") as producer:
        assert producer.last_sequence_id == -1
        await producer.send(payload(30), sequence_id=10)
    assert in_order(await stored(ours, topic), kind) == list(range(31))


@pytest.mark.parametrize("kind", KINDS)
async def test_ids_go_on_where_the_broker_is(
    peer: Peer, ours: geminga.Client, topic: str, kind: str
) -> None:
    """The program chooses none; the topic is unloaded in between."""
    name = {"producer_name": "same"}
    for life in range(3):
        async with await ours.create_producer(topic, **name, **KINDS[kind]) as producer:
            assert producer.last_sequence_id == 10 * life - 1
            await send_all(producer, range(10 * life, 10 * life + 5))
            path = topic.replace("://", "/") + "/unload"
            await trio.to_thread.run_sync(peer.admin, "PUT", path)
            await send_all(producer, range(10 * life + 5, 10 * life + 10))
            assert producer.last_sequence_id == 10 * life + 9
    assert in_order(await stored(ours, topic), kind) == list(range(30))


@pytest.mark.parametrize("kind", KINDS)
async def test_cut_connections_store_nothing_twice(
    peer: Peer, ours: geminga.Client, topic: str, kind: str
) -> None:
    chance = random.Random(8)
    producer = await ours.create_producer(topic, producer_name="same", **KINDS[kind])
    receipts: list[geminga.Receipt] = []

    async def cut() -> None:
        for _ in range(6):
            await trio.sleep(chance.random() * 0.05)
            ours._core.pool.drop_all("cut by the test")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        for number in range(300):
            receipts.append(await producer.submit(payload(number), partition_key=f"k{number % 3}"))
            if number % 10 == 0:
                await trio.sleep(0.002)
    for receipt in receipts:
        await receipt.wait()
    assert producer.last_sequence_id == 299
    assert in_order(await stored(ours, topic), kind) == list(range(300))


async def test_ids_of_batches_are_the_official_clients(
    peer: Peer, ours: geminga.Client, topic: str
) -> None:
    """Each goes on where the other ended, and drops what the other has stored."""
    producer = await ours.create_producer(topic, producer_name="same")
    await send_all(producer, range(5))
    await producer.aclose()
    theirs = await trio.to_thread.run_sync(
        lambda: peer.producer(topic, producer_name="same", batching_enabled=True)
    )
    assert theirs.last_sequence_id() == 4

    def send_theirs() -> None:
        for number in range(3, 8):
            theirs.send(payload(number), sequence_id=number)
        theirs.close()

    await trio.to_thread.run_sync(send_theirs)
    async with await ours.create_producer(topic, producer_name="same") as producer:
        assert producer.last_sequence_id == 7
        await send_all(producer, range(6, 10), [6, 7, 8, 9])
    assert await stored(ours, topic) == list(range(10))


@pytest.mark.parametrize("kind", ["batched", "unbatched", "chunked"])
def test_the_official_client_alone(peer: Peer, topic: str, kind: str) -> None:
    options: dict[str, Any] = {
        "batched": {"batching_enabled": True},
        "unbatched": {"batching_enabled": False},
        "chunked": {"batching_enabled": False, "chunking_enabled": True},
    }[kind]
    body = b"x" * 6 * 1024 * 1024 if kind == "chunked" else b"x"
    peer.consumer(topic, subscription="holder").close()
    for life in range(2):
        producer = peer.producer(topic, producer_name="same", **options)
        assert producer.last_sequence_id() == (3 * life or -1)
        for number in range(1, 3 * life + 4):
            producer.send(b"%d:" % number + body, sequence_id=number)
        assert producer.last_sequence_id() == 3 * life + 3
        producer.close()
    consumer = peer.consumer(topic, subscription="holder")
    numbers = [int(consumer.receive(60_000).data().partition(b":")[0]) for _ in range(6)]
    assert numbers == [1, 2, 3, 4, 5, 6]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(200)
