"""Message listeners, batches, interceptors and statistics in the other faces."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import geminga.aio as ga
import geminga.blocking as gb
from geminga import BatchReceivePolicy, ConsumerInterceptor, ConsumerType, InitialPosition

EARLIEST = InitialPosition.EARLIEST


def until(is_so: Callable[[], object], timeout_s: float = 60) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


async def aio_until(is_so: Callable[[], object], timeout_s: float = 60) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.002)


def send(client: gb.Client, topic: str, count: int, *, keys: int = 0, **options: Any) -> None:
    with client.create_producer(topic, **options) as producer:
        for n in range(count):
            key = f"k{n % keys}" if keys else None
            producer.submit(b"%d" % n, partition_key=key)


async def aio_send(client: ga.Client, topic: str, count: int, *, keys: int = 0) -> None:
    async with await client.create_producer(topic, batching_enabled=False) as producer:
        for n in range(count):
            key = f"k{n % keys}" if keys else None
            await producer.submit(b"%d" % n, partition_key=key)


def test_threads_in_order_and_closing_waits(url: str, topic: str) -> None:
    seen: list[int] = []
    threads: set[int] = set()
    slow = threading.Event()
    done: list[bytes] = []

    def listener(consumer: gb.Consumer, message: gb.Message) -> None:
        threads.add(threading.get_ident())
        if message.data == b"300":
            slow.set()
            listening: Any = consumer._receiver._listening
            until(lambda: listening._is_over)  # closing has begun, and must wait
            time.sleep(0.05)
            done.append(message.data)
        seen.append(int(message.data))
        consumer.acknowledge(message)

    with gb.connect(url) as client:
        send(client, topic, 400, batching_enabled=False)
        consumer = client.subscribe(
            topic, "s", message_listener=listener, initial_position=EARLIEST
        )
        assert slow.wait(60)
        consumer.close()
        assert done == [b"300"]
        assert seen == list(range(301))
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        for receive in (consumer.receive, consumer.receive_batch):
            with pytest.raises(gb.InvalidArgumentError, match="message_listener"):
                receive()
        with client.subscribe(topic, "s") as again:
            assert int(again.receive(60).data) == 301
        time.sleep(0.02)
        assert len(seen) == 301


def test_threads_by_key(url: str, topic: str) -> None:
    seen: defaultdict[str | None, list[int]] = defaultdict(list)
    lock = threading.Lock()
    running: list[str | None] = []
    several = threading.Event()
    most = 0

    def listener(consumer: gb.Consumer, message: gb.Message) -> None:
        nonlocal most
        key = message.partition_key
        with lock:
            assert key not in running
            running.append(key)
            most = max(most, len(running))
            if most > 1:
                several.set()
        assert several.wait(60)
        time.sleep(random.random() * 0.002)
        with lock:
            running.remove(key)
            seen[key].append(int(message.data))
        consumer.acknowledge(message)

    with gb.connect(url) as client:
        send(client, topic, 200, keys=9, batching_enabled=False)
        client.subscribe(
            topic,
            "s",
            message_listener=listener,
            message_listener_concurrency=4,
            consumer_type=ConsumerType.KEY_SHARED,
            initial_position=EARLIEST,
        )
        until(lambda: sum(map(len, seen.values())) == 200)
    assert 1 < most <= 4
    assert all(each == sorted(each) for each in seen.values())
    assert len(seen) == 9


def test_thread_that_fails_or_closes(url: str, topic: str, caplog: Any) -> None:
    seen: list[tuple[bytes, int]] = []

    def listener(consumer: gb.Consumer, message: gb.Message) -> None:
        seen.append((message.data, message.redelivery_count))
        if message.data == b"1":
            if not message.redelivery_count:
                raise ValueError("not now")
            consumer.acknowledge(message)
            consumer.close()
        else:
            consumer.acknowledge(message)

    with gb.connect(url) as client:
        send(client, topic, 3, batching_enabled=False)
        client.subscribe(
            topic,
            "s",
            message_listener=listener,
            consumer_type=ConsumerType.SHARED,
            negative_ack_redelivery_delay_s=0.05,
            initial_position=EARLIEST,
        )
        until(lambda: len(seen) == 4)
        assert seen == [(b"0", 0), (b"1", 0), (b"2", 0), (b"1", 1)]
        assert "the message listener failed" in caplog.text
        other = client.subscribe(topic, "s", consumer_type=ConsumerType.SHARED)
        with pytest.raises(gb.OperationTimeoutError):
            other.receive(0.1)


def test_aio_coroutine_functions(url: str, topic: str) -> None:
    seen: list[int] = []
    started = asyncio.Event()

    async def listener(consumer: ga.Consumer, message: ga.Message) -> None:
        if message.data == b"300":
            started.set()
            listening: Any = consumer._receiver._listening
            await aio_until(lambda: listening._is_over)  # leaving has begun, and must wait
            await asyncio.sleep(0.05)
        seen.append(int(message.data))
        await consumer.acknowledge(message)

    async def main() -> None:
        async with ga.connect(url) as client:
            await aio_send(client, topic, 400)
            await client.subscribe(topic, "s", message_listener=listener, initial_position=EARLIEST)
            await asyncio.wait_for(started.wait(), 60)
        # Leaving the client waited for the call that ran.
        assert seen == list(range(301))
        heard: list[bytes] = []
        async with ga.connect(url) as client:
            consumer = await client.subscribe(
                topic, "s", message_listener=lambda consumer, message: heard.append(message.data)
            )
            await aio_until(lambda: len(heard) == 99)
            with pytest.raises(ga.InvalidArgumentError, match="message_listener"):
                await consumer.receive()
        assert heard[0] == b"301"

    asyncio.run(main())


def test_aio_by_key(url: str, topic: str) -> None:
    seen: defaultdict[str | None, list[int]] = defaultdict(list)
    running: list[str | None] = []
    all_of_them = asyncio.Event()
    most = 0

    async def listener(consumer: ga.Consumer, message: ga.Message) -> None:
        nonlocal most
        key = message.partition_key
        assert key not in running
        running.append(key)
        most = max(most, len(running))
        if most == 4:
            all_of_them.set()
        await asyncio.wait_for(all_of_them.wait(), 60)
        await asyncio.sleep(random.random() * 0.002)
        running.remove(key)
        seen[key].append(int(message.data))
        await consumer.acknowledge(message)

    async def main() -> None:
        async with ga.connect(url) as client:
            await aio_send(client, topic, 200, keys=9)
            await client.subscribe(
                topic,
                "s",
                message_listener=listener,
                message_listener_concurrency=4,
                consumer_type=ConsumerType.KEY_SHARED,
                initial_position=EARLIEST,
            )
            await aio_until(lambda: sum(map(len, seen.values())) == 200)

    asyncio.run(main())
    assert most == 4
    assert all(each == sorted(each) for each in seen.values())


class Doubling(ConsumerInterceptor):
    def before_consume(self, topic: str, message: ga.Message) -> ga.Message:
        return message.replace(data=message.data * 2)


POLICY = BatchReceivePolicy(max_messages=7, timeout_s=0.05)


def test_batches_interceptors_and_statistics(url: str, topic: str) -> None:
    options: dict[str, Any] = {"batch_receive_policy": POLICY, "initial_position": EARLIEST}
    with gb.connect(url) as client:
        send(client, topic, 30)
        with client.subscribe(topic, "s", interceptors=[Doubling()], **options) as consumer:
            until(lambda: consumer.statistics().msg_num_in_receiver_queue == 30)
            assert [consumer.receive().data for _ in range(3)] == [b"00", b"11", b"22"]
            batches = [consumer.receive_batch() for _ in range(5)]
            assert [len(each) for each in batches] == [7, 7, 7, 6, 0]
            got = [each.data for batch in batches for each in batch]
            assert got == [b"%d" % n * 2 for n in range(3, 30)]
            assert consumer.statistics().total_msgs_received == 30

    async def main() -> None:
        async with ga.connect(url) as client:
            consumer = await client.subscribe(topic, "t", **options)
            await aio_until(lambda: consumer.statistics().msg_num_in_receiver_queue == 30)
            assert [(await consumer.receive()).data for _ in range(3)] == [b"0", b"1", b"2"]
            sizes = [len(await consumer.receive_batch()) for _ in range(5)]
            assert sizes == [7, 7, 7, 6, 0]
            assert consumer.statistics().total_msgs_received == 30

    asyncio.run(main())


async def aio_next(consumer: ga.Consumer) -> list[ga.Message]:
    return [await anext(consumer)]


@pytest.mark.parametrize(
    ("take", "policy"),
    [
        (ga.Consumer.receive_batch, None),
        (ga.Consumer.receive_batch, BatchReceivePolicy(max_messages=5, timeout_s=0.002)),
        (aio_next, None),
    ],
    ids=["what is there", "batches", "one by one"],
)
def test_aio_cancelled_takes_lose_nothing(
    url: str, topic: str, take: Any, policy: BatchReceivePolicy | None
) -> None:
    got: list[int] = []
    cancelled = 0

    async def main() -> None:
        nonlocal cancelled
        async with ga.connect(url) as client:
            producer = await client.create_producer(topic, batching_max_publish_delay_s=0.001)
            consumer = await client.subscribe(topic, "s", batch_receive_policy=policy)

            async def produce() -> None:
                for n in range(300):
                    await producer.submit(b"%d" % n)
                    if n % 7 == 0:
                        await asyncio.sleep(0.001)
                await producer.flush()

            producing = asyncio.create_task(produce())
            while len(got) < 300:
                try:
                    async with asyncio.timeout(random.random() * 0.003):
                        while True:
                            got.extend(int(each.data) for each in await take(consumer))
                except TimeoutError:
                    cancelled += 1
            await producing

    asyncio.run(asyncio.wait_for(main(), 200))
    assert got == list(range(300))
    assert cancelled > 0
