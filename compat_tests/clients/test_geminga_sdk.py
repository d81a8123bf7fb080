"""Our own SDK on our broker and on Apache's: the same tests, so neither side proves only itself."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import httpx2 as httpx
import pytest
import trio

import geminga
from compat_tests.clients.conftest import (
    PATIENCE_S,
    settled_active,
    take_after_change,
    take_by_turns,
)
from compat_tests.processes import ServerProcess
from geminga import Client, CompressionType, Consumer, ConsumerType, InitialPosition, Message

_numbers, EARLIEST = itertools.count(), InitialPosition.EARLIEST


def topic_name(about: str, domain: str = "persistent") -> str:
    return f"{domain}://public/default/sdk-{about}-{next(_numbers)}-{time.time_ns()}"


@asynccontextmanager
async def client_of(server: ServerProcess) -> AsyncIterator[Client]:
    with trio.fail_after(200):
        async with geminga.connect(server.service_url) as client:
            yield client


def partitioned(server: ServerProcess, topic: str, partitions: int) -> str:
    url = f"{server.web_url}/admin/v2/{topic.replace('://', '/')}/partitions"
    headers = {"content-type": "application/json"}
    httpx.put(url, content=str(partitions), headers=headers, timeout=60).raise_for_status()
    return topic


async def take(consumer: Consumer, count: int) -> list[Message]:
    return [await consumer.receive(PATIENCE_S) for _ in range(count)]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.data.decode() for message in messages]


def numbered(count: int) -> list[str]:
    return [f"m{n}" for n in range(count)]


async def send_all(client: Client, topic: str, what: Sequence[str], **options: object) -> None:
    async with await client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        for text in what:
            await producer.submit(text.encode())


async def test_what_a_message_carries(server: ServerProcess) -> None:
    topic = topic_name("carries")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic, producer_name="me")
        before = time.time_ns() // 1_000_000
        sent = await producer.send(
            b"payload",
            properties={"a": "1", "b": "zwei"},
            partition_key="key",
            ordering_key="order",
            event_time_ms=12345,
        )
        message = await consumer.receive(PATIENCE_S)
        assert message.data == b"payload"
        assert message.properties == {"a": "1", "b": "zwei"}
        assert message.partition_key == "key"
        assert message.ordering_key == b"order"
        assert message.event_time_ms == 12345
        assert message.producer_name == "me"
        assert message.message_id == sent
        assert message.topic_name == topic
        assert before <= message.publish_time_ms <= time.time_ns() // 1_000_000
        assert producer.last_sequence_id == message.sequence_id == 0


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("compression", list(CompressionType))
async def test_compression(
    server: ServerProcess, compression: CompressionType, batching: bool
) -> None:
    topic = topic_name("compression")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s")
        what = [f"{n}-" + "x" * 500 for n in range(20)]
        await send_all(client, topic, what, compression_type=compression, batching_enabled=batching)
        assert texts(await take(consumer, 20)) == what


async def test_exclusive_busy_and_acknowledged(server: ServerProcess) -> None:
    topic = topic_name("exclusive")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s", ack_receipt_enabled=True)
        with pytest.raises(geminga.ConsumerBusyError) as caught:
            await client.subscribe(topic, "s")
        assert caught.value.topic == topic
        assert caught.value.code == "ConsumerBusy"
        await send_all(client, topic, numbered(100))
        messages = await take(consumer, 100)
        assert texts(messages) == numbered(100)
        await consumer.acknowledge_all(messages[:100:1])
        await consumer.aclose()
        again = await client.subscribe(topic, "s")
        with pytest.raises(geminga.OperationTimeoutError):
            await again.receive(0.5)


async def test_cumulative_and_failover(server: ServerProcess) -> None:
    topic = topic_name("failover")
    async with client_of(server) as client:
        consumers = {
            name: await client.subscribe(
                topic, "s", consumer_type=ConsumerType.FAILOVER, consumer_name=name
            )
            for name in "ab"
        }
        active = consumers.pop(await trio.to_thread.run_sync(settled_active, server, topic, "s"))
        (standby,) = consumers.values()
        await send_all(client, topic, numbered(20), batching_enabled=False)
        messages = await take(active, 20)
        await active.acknowledge_cumulative(messages[9])
        await active.aclose()
        rest = await take_after_change(server, client, topic, standby, 10)
        assert texts(rest) == numbered(20)[10:]


async def test_shared_spreads_and_redelivers(server: ServerProcess) -> None:
    topic = topic_name("shared")
    async with client_of(server) as client:
        consumers = [
            await client.subscribe(
                topic, "s", consumer_type=ConsumerType.SHARED, receiver_queue_size=5
            )
            for _ in "ab"
        ]
        await send_all(client, topic, numbered(60), batching_enabled=False)
        got: list[list[Message]] = [[], []]

        async def drain(at: int, scope: trio.CancelScope) -> None:
            while len(got[0]) + len(got[1]) < 60:
                got[at].append(await consumers[at].receive())
            scope.cancel()

        with trio.move_on_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(drain, 0, nursery.cancel_scope)
                nursery.start_soon(drain, 1, nursery.cancel_scope)
        assert sorted(texts(got[0] + got[1])) == sorted(numbered(60))
        assert all(got)
        await consumers[1].acknowledge_all(got[1])
        await consumers[0].aclose()
        again = await take(consumers[1], len(got[0]))
        assert sorted(texts(again)) == sorted(texts(got[0]))


async def test_key_shared_keeps_keys_together(server: ServerProcess) -> None:
    topic = topic_name("key-shared")
    async with client_of(server) as client:
        consumers = [
            await client.subscribe(topic, "s", consumer_type=ConsumerType.KEY_SHARED) for _ in "abc"
        ]
        producer = await client.create_producer(topic, batching_enabled=False)
        for n in range(90):
            await producer.submit(str(n).encode(), partition_key=f"k{n % 30}")
        await producer.flush()
        got = await take_by_turns(consumers, 90)
        assert sum(map(len, got)) == 90
        assert sum(len({message.partition_key for message in each}) for each in got) == 30
        for each in got:
            last: dict[str, int] = {}
            for message in each:
                key = message.partition_key or ""
                assert last.get(key, -1) < int(message.data)
                last[key] = int(message.data)


@pytest.mark.parametrize("batching", [True, False])
async def test_negative_acknowledge(server: ServerProcess, batching: bool) -> None:
    topic = topic_name("nack")
    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic, "s", consumer_type=ConsumerType.SHARED, negative_ack_redelivery_delay_s=0.2
        )
        await send_all(client, topic, numbered(10), batching_enabled=batching)
        for message in await take(consumer, 10):
            if message.data == b"m4":
                consumer.negative_acknowledge(message)
            else:
                await consumer.acknowledge(message)
        again = await consumer.receive(PATIENCE_S)
        assert again.data == b"m4"
        assert again.redelivery_count == 1
        await consumer.acknowledge(again)
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(0.7)


async def test_batch_index_acknowledgement_survives_the_consumer(server: ServerProcess) -> None:
    topic = topic_name("batch-index")
    async with client_of(server) as client:
        options = {"consumer_type": ConsumerType.SHARED, "batch_index_ack_enabled": True}
        consumer = await client.subscribe(topic, "s", **options)  # type: ignore[arg-type]
        await send_all(client, topic, numbered(10))
        messages = await take(consumer, 10)
        assert messages[0].message_id.batch_size == 10
        await consumer.acknowledge_all(messages[:7])
        await consumer.aclose()
        again = await client.subscribe(topic, "s", **options)  # type: ignore[arg-type]
        assert texts(await take(again, 3)) == ["m7", "m8", "m9"]
        with pytest.raises(geminga.OperationTimeoutError):
            await again.receive(0.5)


@pytest.mark.parametrize("batching", [True, False])
async def test_seek(server: ServerProcess, batching: bool) -> None:
    topic = topic_name("seek")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s", start_message_id_inclusive=True)
        await send_all(client, topic, numbered(10), batching_enabled=batching)
        messages = await take(consumer, 10)
        await consumer.acknowledge_cumulative(messages[-1])
        await consumer.seek(geminga.EARLIEST)
        assert texts(await take(consumer, 10)) == numbered(10)
        await consumer.seek(messages[6].message_id)
        assert texts(await take(consumer, 4)) == numbered(10)[6:]
        await consumer.seek(messages[0].publish_time_ms - 1000)
        assert texts(await take(consumer, 10)) == numbered(10)
        await consumer.seek(geminga.LATEST)
        await send_all(client, topic, ["new"])
        assert texts(await take(consumer, 1)) == ["new"]


async def test_last_message_id(server: ServerProcess) -> None:
    topic = topic_name("last")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s")
        assert (await consumer.last_message_ids())[0].entry_id == -1
        assert not await consumer.has_message_available()
        producer = await client.create_producer(topic)
        last = await producer.send(b"one")
        assert await consumer.last_message_ids() == [last]
        assert await consumer.has_message_available()
        await consumer.acknowledge(await consumer.receive(PATIENCE_S))
        assert not await consumer.has_message_available()


@pytest.mark.parametrize("batching", [True, False])
async def test_reader(server: ServerProcess, batching: bool) -> None:
    topic = topic_name("reader")
    async with client_of(server) as client:
        await send_all(client, topic, numbered(10), batching_enabled=batching)
        reader = await client.create_reader(topic, geminga.EARLIEST)
        messages = []
        while await reader.has_message_available():
            messages.append(await reader.read_next(PATIENCE_S))
        assert texts(messages) == numbered(10)
        middle = messages[4].message_id
        after = await client.create_reader(topic, middle)
        assert (await after.read_next(PATIENCE_S)).data == b"m5"
        at = await client.create_reader(topic, middle, start_message_id_inclusive=True)
        assert (await at.read_next(PATIENCE_S)).data == b"m4"
        latest = await client.create_reader(topic, geminga.LATEST)
        assert not await latest.has_message_available()
        last = await client.create_reader(topic, geminga.LATEST, start_message_id_inclusive=True)
        assert await last.has_message_available()
        assert (await last.read_next(PATIENCE_S)).data == b"m9"
        await reader.seek(middle)
        assert (await reader.read_next(PATIENCE_S)).data == b"m5"


async def test_partitions(server: ServerProcess) -> None:
    topic = partitioned(server, topic_name("partitioned"), 3)
    async with client_of(server) as client:
        assert await client.list_partitions(topic) == [f"{topic}-partition-{n}" for n in "012"]
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic, batching_max_messages=5)
        receipts = [await producer.submit(f"m{n}".encode()) for n in range(60)]
        await producer.flush()
        assert {receipt.message_id.partition for receipt in receipts} == {0, 1, 2}
        keyed = [await producer.send(b"k", partition_key="k") for _ in range(5)]
        assert len({each.partition for each in keyed}) == 1
        messages = await take(consumer, 65)
        assert sorted(texts(messages)) == sorted(numbered(60) + ["k"] * 5)
        for message in messages:
            await consumer.acknowledge(message.message_id)
        await consumer.aclose()
        again = await client.subscribe(topic, "s")
        with pytest.raises(geminga.OperationTimeoutError):
            await again.receive(0.5)


async def test_several_topics(server: ServerProcess) -> None:
    topics = [topic_name("several") for _ in "ab"]
    async with client_of(server) as client:
        consumer = await client.subscribe(topics, "s")
        for topic in topics:
            await send_all(client, topic, [topic])
        got = await take(consumer, 2)
        assert {message.topic_name for message in got} == set(topics)


async def test_non_persistent(server: ServerProcess) -> None:
    topic = topic_name("fleeting", "non-persistent")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic)
        await producer.send(b"now")
        message = await consumer.receive(PATIENCE_S)
        assert message.data == b"now"
        await consumer.acknowledge(message)


async def test_delayed_delivery(server: ServerProcess) -> None:
    topic = topic_name("delayed")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s", consumer_type=ConsumerType.SHARED)
        producer = await client.create_producer(topic)
        began = time.monotonic()
        await producer.send(b"late", deliver_after=timedelta(seconds=5))
        await producer.send(b"soon")
        assert texts(await take(consumer, 2)) == ["soon", "late"]
        assert time.monotonic() - began >= 4.9


async def test_names_and_access(server: ServerProcess) -> None:
    topic = topic_name("names")
    async with client_of(server) as client:
        first = await client.create_producer(topic, producer_name="p")
        with pytest.raises(geminga.ProducerBusyError):
            await client.create_producer(topic, producer_name="p")
        mode = geminga.ProducerAccessMode
        with pytest.raises(geminga.ProducerFencedError):
            await client.create_producer(topic, access_mode=mode.EXCLUSIVE)
        await first.aclose()
        held = await client.create_producer(topic, access_mode=mode.EXCLUSIVE)
        waited = trio.Event()

        async def wait_for_access() -> None:
            producer = await client.create_producer(topic, access_mode=mode.WAIT_FOR_EXCLUSIVE)
            await producer.send(b"mine")
            waited.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_access)
            await trio.sleep(0.3)
            assert not waited.is_set()
            await held.aclose()
            await waited.wait()


async def test_zero_queue(server: ServerProcess) -> None:
    topic = topic_name("zero")
    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic, "s", receiver_queue_size=0, consumer_type=ConsumerType.SHARED
        )
        await send_all(client, topic, numbered(6), batching_enabled=False)
        taken = texts(await take(consumer, 1))  # and nothing more is fetched ahead
        other = await client.subscribe(topic, "s", consumer_type=ConsumerType.SHARED)
        assert sorted(taken + texts(await take(other, 5))) == numbered(6)


async def test_unload_is_survived(server: ServerProcess) -> None:
    topic = topic_name("unload")
    async with client_of(server) as client:
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic)
        seen: list[str] = []

        async def receive() -> None:
            while len(set(seen)) < 300:
                message = await consumer.receive(PATIENCE_S)
                seen.append(message.data.decode())
                await consumer.acknowledge(message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            for n in range(300):
                await producer.submit(f"m{n}".encode())
                await trio.sleep(0.002)
                if n == 100:
                    url = f"{server.web_url}/admin/v2/{topic.replace('://', '/')}/unload"
                    put = partial(httpx.put, url, timeout=60)
                    (await trio.to_thread.run_sync(put)).raise_for_status()
        first_seen = list(dict.fromkeys(seen))
        assert first_seen == numbered(300)
