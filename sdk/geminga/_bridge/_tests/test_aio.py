"""Specific to `geminga.aio`: turns of tasks, cancellation at any moment, loops that end."""

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
            for n in range(100_000):
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


@pytest.mark.parametrize("turns", [1, 2, 3])
@in_asyncio
async def test_a_close_that_is_cancelled_leaves_the_topic(url: str, topic: str, turns: int) -> None:
    """Even before the loop has begun it: name and subscription are free."""

    async def cancelled(close: Callable[[], Awaitable[None]]) -> None:
        closing = asyncio.ensure_future(close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)

    async with ga.connect(url) as client:
        for _ in range(20):
            producer = await client.create_producer(topic, producer_name="one")
            producer.send_nowait(b"x")
            await cancelled(producer.aclose)
            await cancelled((await client.subscribe(topic, "s")).aclose)
        await client.create_producer(topic, producer_name="one")
        await client.subscribe(topic, "s")


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
        patience_s = 0.0003
        while len(got) < 300:
            patience_s *= 1.01  # a busy machine may need longer for one
            try:
                async with asyncio.timeout(patience_s):
                    while True:
                        got.append(await consumer.receive())
            except TimeoutError:
                cancelled += 1
        await producing
        assert texts(got) == [str(n) for n in range(300)]
        assert cancelled > 0


def test_program_that_leaves_without_closing(url: str, topic: str) -> None:
    """The loop ends while the client is still open: nothing hangs."""

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
