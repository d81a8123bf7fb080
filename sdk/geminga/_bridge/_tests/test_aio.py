"""`geminga.aio` on a real broker."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec

import pytest

import geminga
import geminga.aio as ga

EARLIEST = geminga.InitialPosition.EARLIEST
P = ParamSpec("P")


def in_asyncio(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test in an asyncio loop, with a deadline."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            async with asyncio.timeout(200):
                await test(*args, **kwargs)

        asyncio.run(main())

    del run.__wrapped__
    run.__signature__ = __import__("inspect").signature(test)
    return run


def texts(messages: list[ga.Message]) -> list[str]:
    return [each.data.decode() for each in messages]


@in_asyncio
async def test_everything_once(url: str, topic: str) -> None:
    async with ga.connect(url) as client:
        assert await client.list_partitions(topic) == [topic]
        async with (
            await client.create_producer(topic) as producer,
            await client.subscribe(topic, "s") as consumer,
        ):
            sent = await producer.send(b"a", partition_key="k")
            message = await consumer.receive(60)
            assert (message.data, message.message_id) == (b"a", sent)
            await consumer.acknowledge(message)
            receipt = await producer.submit(b"b")
            told: asyncio.Future[ga.Receipt] = asyncio.get_running_loop().create_future()
            receipt.add_done_callback(told.set_result)
            assert await told is receipt
            assert await receipt.wait() == receipt.message_id
            await producer.flush()
            got = await consumer.receive_batch(10, wait_s=60)
            assert texts(got) == ["b"]
            consumer.negative_acknowledge(got[0])
            await consumer.acknowledge_all(got)
            await consumer.acknowledge_cumulative(got[0])
            with pytest.raises(ga.OperationTimeoutError, match=r"0\.02 s"):
                await consumer.receive(0.02)
            assert await consumer.receive_batch(10, wait_s=0.02) == []
            assert not await consumer.has_message_available()
            await consumer.seek(ga.EARLIEST)
            assert (await consumer.receive(60)).message_id == sent
        with pytest.raises(ga.AlreadyClosedError):
            await producer.send(b"x")
        async with await client.create_reader(topic, ga.EARLIEST) as reader:
            got = [await reader.read_next(60), await anext(reader)]
            assert texts(got) == ["a", "b"]
            assert not await reader.has_message_available()
    with pytest.raises(ga.AlreadyClosedError):
        await client.create_producer(topic)


@in_asyncio
async def test_many_sends_at_once(url: str, topic: str) -> None:
    async with ga.connect(url) as client:
        producer = await client.create_producer(topic, max_pending_messages=100)
        consumer = await client.subscribe(topic, "s")
        sends = [producer.send(b"%d" % n) for n in range(1000)]
        ids = await asyncio.gather(*sends)
        assert len(set(ids)) == 1000
        got = [await consumer.receive(60) for _ in range(1000)]
        assert sorted(texts(got), key=int) == [str(n) for n in range(1000)]
        with pytest.raises(ga.ProducerQueueFullError):
            for n in range(1000):
                producer.send_nowait(b"%d" % n)


@in_asyncio
async def test_other_tasks_get_their_turn(url: str, topic: str) -> None:
    async with ga.connect(url) as client:
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "s")
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        for _ in range(3000):
            await producer.submit(b"x")
        assert turns > 10
        turns = 0
        for _ in range(3000):
            await consumer.receive(60)
        assert turns > 2
        counting.cancel()


@in_asyncio
async def test_cancelled_receives_lose_nothing(url: str, topic: str) -> None:
    async with ga.connect(url) as client:
        producer = await client.create_producer(topic, batching_max_publish_delay_s=0.001)
        consumer = await client.subscribe(topic, "s")

        async def produce() -> None:
            for n in range(300):
                await producer.submit(b"%d" % n)
                if n % 7 == 0:
                    await asyncio.sleep(0.001)
            await producer.flush()

        producing = asyncio.create_task(produce())
        got: list[ga.Message] = []
        cancelled = 0
        while len(got) < 300:
            try:
                async with asyncio.timeout(0.0003):
                    while True:
                        got.append(await consumer.receive())
            except TimeoutError:
                cancelled += 1
        await producing
        assert texts(got) == [str(n) for n in range(300)]
        assert cancelled > 0


@in_asyncio
async def test_cancelled_calls_are_cancelled_in_the_loop(url: str, topic: str) -> None:
    async with ga.connect(url) as client:
        holder = await client.create_producer(topic, access_mode=ga.ProducerAccessMode.EXCLUSIVE)
        waiting = asyncio.create_task(
            client.create_producer(topic, access_mode=ga.ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
        )
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await holder.aclose()
        async with asyncio.timeout(60):
            again = await client.create_producer(
                topic, access_mode=ga.ProducerAccessMode.WAIT_FOR_EXCLUSIVE
            )
        assert await again.send(b"x")


@in_asyncio
async def test_closing_wakes_who_waits(url: str, topic: str) -> None:
    async with ga.connect(url) as client:
        consumer = await client.subscribe(topic, "s")
        waiting = asyncio.create_task(consumer.receive())
        iterating = asyncio.create_task(_all_of(consumer))
        await asyncio.sleep(0.02)
    with pytest.raises(ga.AlreadyClosedError):
        await waiting
    assert await iterating == []


async def _all_of(consumer: ga.Consumer) -> list[ga.Message]:
    return [message async for message in consumer]


@in_asyncio
async def test_errors_of_the_body_come_out(url: str) -> None:
    with pytest.raises(KeyError):
        async with ga.connect(url):
            raise KeyError


@in_asyncio
async def test_url_is_checked_at_the_call(url: str) -> None:
    with pytest.raises(ga.InvalidServiceUrlError):
        ga.connect("nowhere")
    with pytest.raises(ga.InvalidArgumentError, match="no_such"):
        ga.connect(url, no_such=1)


def test_program_that_leaves_without_closing(url: str, topic: str) -> None:
    """The loop is gone while the client is still open: nobody is told, nothing hangs."""

    async def main() -> object:
        opening = ga.connect(url)
        client = await opening.__aenter__()
        consumer = await client.subscribe(topic, "s")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(consumer.receive(), 0.01)
        return opening, client

    kept = asyncio.run(main())
    time.sleep(0.02)
    client = kept[1]
    client._session.portal.post(client._session.begin_closing)


def test_two_loops_one_after_the_other(url: str, topic: str) -> None:
    async def once() -> None:
        async with ga.connect(url) as client:
            await (await client.create_producer(topic)).send(b"x")

    asyncio.run(once())
    asyncio.run(once())
