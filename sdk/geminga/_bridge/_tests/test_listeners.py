"""Message listeners, batches, interceptors and statistics in the other faces."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import geminga.aio as ga
import geminga.blocking as gb
from geminga import BatchReceivePolicy, InitialPosition

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


POLICY = BatchReceivePolicy(max_messages=7, timeout_s=0.05)


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
            chance, patience_s = random.Random(5), 0.003
            while len(got) < 300:
                patience_s *= 1.01  # a busy machine may need longer for one
                try:
                    async with asyncio.timeout(chance.random() * patience_s):
                        while True:
                            got.extend(int(each.data) for each in await take(consumer))
                except TimeoutError:
                    cancelled += 1
            await producing

    asyncio.run(asyncio.wait_for(main(), 200))
    assert got == list(range(300))
    assert cancelled > 0
