"""Listeners, batches, interceptors and statistics of our SDK's consumers, on both servers."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import defaultdict
from typing import Any

import httpx2 as httpx
import pytest
import trio

import geminga
import geminga.aio
import geminga.blocking
from compat_tests.clients.test_geminga_sdk import (
    EARLIEST,
    client_of,
    numbered,
    partitioned,
    send_all,
    texts,
    topic_name,
)
from compat_tests.processes import ServerProcess
from geminga import BatchReceivePolicy, ConsumerInterceptor, ConsumerType, Message, MessageId


async def until(seen: list[Any], count: int) -> None:
    with trio.fail_after(60):
        while len(seen) < count:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_listener_of_partitions(server: ServerProcess) -> None:
    topic = partitioned(server, topic_name("listen"), 3)
    seen: defaultdict[str, list[int]] = defaultdict(list)
    done: list[int] = []

    async def listener(consumer: geminga.Consumer, message: Message) -> None:
        await trio.sleep(random.random() * 0.002)
        seen[message.topic_name].append(int(message.data))
        await consumer.acknowledge(message)
        done.append(int(message.data))

    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic, "s", message_listener=listener, message_listener_concurrency=3
        )
        async with await client.create_producer(topic) as producer:
            for n in range(300):
                await producer.submit(b"%d" % n, partition_key=f"k{n % 20}")
        await until(done, 300)
        assert len(seen) == 3
        assert all(each == sorted(each) for each in seen.values())
        await consumer.aclose()
        async with await client.subscribe(topic, "s") as again:
            with pytest.raises(geminga.OperationTimeoutError):
                await again.receive(0.5)


async def test_listener_that_fails(server: ServerProcess) -> None:
    topic = topic_name("failing")
    seen: list[tuple[str, int]] = []

    async def listener(consumer: geminga.Consumer, message: Message) -> None:
        seen.append((message.data.decode(), message.redelivery_count))
        if message.data == b"m1" and message.redelivery_count < 2:
            raise ValueError("not now")
        await consumer.acknowledge(message)

    async with client_of(server) as client:
        await client.subscribe(
            topic,
            "s",
            message_listener=listener,
            consumer_type=ConsumerType.SHARED,
            negative_ack_redelivery_delay_s=0.1,
        )
        await send_all(client, topic, numbered(3), batching_enabled=False)
        await until(seen, 5)
        assert sorted(seen) == [("m0", 0), ("m1", 0), ("m1", 1), ("m1", 2), ("m2", 0)]


def test_listeners_of_the_other_faces(server: ServerProcess) -> None:
    topic = topic_name("faces")
    seen: list[bytes] = []
    all_seen = threading.Event()

    def listener(consumer: geminga.blocking.Consumer, message: Message) -> None:
        seen.append(message.data)
        consumer.acknowledge(message)
        if len(seen) == 100:
            all_seen.set()

    expected = [text.encode() for text in numbered(100)]
    with geminga.blocking.connect(server.service_url) as client:
        client.subscribe(topic, "threads", message_listener=listener)
        with client.create_producer(topic) as producer:
            for data in expected:
                producer.submit(data)
        assert all_seen.wait(60)
        assert seen == expected

    async def main() -> list[bytes]:
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen(consumer: geminga.aio.Consumer, message: Message) -> None:
            await heard.put(message.data)
            await consumer.acknowledge(message)

        async with geminga.aio.connect(server.service_url) as client:
            options: Any = {"initial_position": EARLIEST}
            await client.subscribe(topic, "tasks", message_listener=listen, **options)
            return [await asyncio.wait_for(heard.get(), 60) for _ in range(100)]

    assert asyncio.run(main()) == expected


async def test_batches(server: ServerProcess) -> None:
    topic = topic_name("batches")
    policy = BatchReceivePolicy(max_messages=40, timeout_s=0.3)
    async with client_of(server) as client:
        options: Any = {"initial_position": EARLIEST, "receiver_queue_size": 50}
        consumer = await client.subscribe(topic, "s", batch_receive_policy=policy, **options)
        await send_all(client, topic, numbered(100))
        batches = []
        for count in (40, 40, 20):  # a batch is as large as what is there allows
            with trio.fail_after(60):
                while consumer.statistics().msg_num_in_receiver_queue < count:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            batches.append(await consumer.receive_batch())
        assert [len(each) for each in batches] == [40, 40, 20]
        assert texts([message for each in batches for message in each]) == numbered(100)
        assert await consumer.receive_batch() == []
        whole = BatchReceivePolicy(max_messages=1000, max_bytes=None, timeout_s=None)
        other = await client.subscribe(topic, "t", batch_receive_policy=whole, **options)
        assert len(await other.receive_batch()) == 50


async def test_interceptors_and_statistics(server: ServerProcess) -> None:
    topic = topic_name("intercepted")
    heard: list[tuple[str, object]] = []

    class Noting(ConsumerInterceptor):
        def before_consume(self, topic: str, message: Message) -> Message:
            return message.replace(properties={"seen": "yes"})

        def on_acknowledge(self, topic: str, message_id: MessageId, error: object) -> None:
            heard.append(("ack", error))

        def on_negative_acks_send(self, topic: str, message_ids: frozenset[MessageId]) -> None:
            heard.append(("refused", len(message_ids)))

    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.SHARED,
            negative_ack_redelivery_delay_s=0.1,
            ack_receipt_enabled=True,
            interceptors=[Noting()],
        )
        await send_all(client, topic, numbered(3), batching_enabled=False)
        messages = [await consumer.receive(60) for _ in range(3)]
        assert [message.properties for message in messages] == [{"seen": "yes"}] * 3
        await consumer.acknowledge(messages[0])
        consumer.negative_acknowledge(messages[1])
        consumer.negative_acknowledge(messages[2])
        again = [await consumer.receive(60) for _ in range(2)]
        assert sorted(texts(again)) == ["m1", "m2"]
        assert heard[0] == ("ack", None)
        assert sum(int(str(count)) for what, count in heard if what == "refused") == 2
        found = consumer.statistics()
        assert (found.total_msgs_received, found.total_bytes_received) == (5, 10)
        assert (found.total_acks_sent, found.msg_num_in_receiver_queue) == (1, 0)


async def test_replicated_subscription_and_compacted_reading(server: ServerProcess) -> None:
    topic = topic_name("flags")
    async with client_of(server) as client:
        options: Any = {"replicate_subscription_state": True, "read_compacted": True}
        await client.subscribe(topic, "s", consumer_type=ConsumerType.FAILOVER, **options)
        url = f"{server.web_url}/admin/v2/{topic.replace('://', '/')}/stats"
        stats = httpx.get(url, timeout=60).raise_for_status().json()
        assert stats["subscriptions"]["s"]["isReplicated"] is True
