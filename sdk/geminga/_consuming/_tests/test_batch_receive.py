from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

import geminga
from geminga import BatchReceivePolicy
from geminga._consuming._tests.test_inbox import Counter, entry_of
from geminga._consuming.inbox import Inbox
from geminga._tests.fake_broker import fake_broker


@asynccontextmanager
async def consuming(policy: BatchReceivePolicy, **options: Any) -> Any:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe(
            "t", "s", batch_receive_policy=policy, **{"receiver_queue_size": 100, **options}
        )
        producer = await client.create_producer("t", batching_enabled=False)
        yield broker, client, producer, consumer


def numbers(messages: list[geminga.Message]) -> list[int]:
    return [int(message.data) for message in messages]


async def test_as_soon_as_there_are_enough(autojump_clock: MockClock) -> None:
    async with consuming(BatchReceivePolicy(5, timeout_s=10)) as (_, _, producer, consumer):
        for n in range(4):
            await producer.send(b"%d" % n)
        async with trio.open_nursery() as nursery:

            async def send_later() -> None:
                await trio.sleep(3)
                for n in range(4, 8):
                    await producer.send(b"%d" % n)

            nursery.start_soon(send_later)
            began_s = trio.current_time()
            assert numbers(await consumer.receive_batch()) == [0, 1, 2, 3, 4]
            assert trio.current_time() - began_s == pytest.approx(3, abs=0.1)
        began_s = trio.current_time()
        assert numbers(await consumer.receive_batch()) == [5, 6, 7]
        assert trio.current_time() - began_s == pytest.approx(10)
        assert await consumer.receive_batch() == []


async def test_by_bytes_of_payload(autojump_clock: MockClock) -> None:
    policy = BatchReceivePolicy(max_bytes=1000, timeout_s=10)
    async with consuming(policy) as (_, client, producer, consumer):
        batched = await client.create_producer("t")
        for by in (producer, batched):
            for _ in range(25):
                await by.submit(bytes(100))
            await by.flush()
        for sizes in ([10, 10, 10, 10], [10]):
            began_s = trio.current_time()
            for size in sizes:
                assert len(await consumer.receive_batch()) == size
            assert trio.current_time() == began_s
        # 50 in all: nothing is left, so it waits.
        assert await consumer.receive_batch() == []
        assert trio.current_time() - began_s == pytest.approx(10)


async def test_a_large_message_comes_alone(autojump_clock: MockClock) -> None:
    async with consuming(BatchReceivePolicy(max_bytes=10)) as (_, _, producer, consumer):
        await producer.send(bytes(100))
        await producer.send(bytes(100))
        assert len(await consumer.receive_batch()) == 1
        assert len(await consumer.receive_batch()) == 1


@pytest.mark.parametrize("taken", [0, 1, 49, 50, 51])
@pytest.mark.parametrize("scaled", [False, True])
async def test_a_whole_queue_without_a_time(
    taken: int, scaled: bool, autojump_clock: MockClock
) -> None:
    """A whole queue always arrives, even with permits withheld before."""
    policy = BatchReceivePolicy(1000, None, None)
    options = {"auto_scaled_receiver_queue_size_enabled": scaled}
    async with consuming(policy, **options) as (_, _, producer, consumer):
        for n in range(300):
            await producer.submit(b"%d" % n)
        await producer.flush()
        for n in range(taken):
            assert int((await consumer.receive(5)).data) == n
        with trio.fail_after(60):
            assert numbers(await consumer.receive_batch()) == list(range(taken, taken + 100))


async def test_beside_receive_no_message_waits_for_a_batch(autojump_clock: MockClock) -> None:
    async with consuming(BatchReceivePolicy(10, timeout_s=None)) as (_, _, producer, consumer):
        got: list[bytes] = []

        async def receive() -> None:
            got.append((await consumer.receive()).data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.receive_batch)
            await trio.sleep(1)
            nursery.start_soon(receive)
            await trio.sleep(1)
            await producer.send(b"one")
            await trio.sleep(1)
            assert got == [b"one"]
            nursery.cancel_scope.cancel()


async def test_closing_ends_it(autojump_clock: MockClock) -> None:
    async with consuming(BatchReceivePolicy(10, timeout_s=None)) as (_, _, _, consumer):
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                with pytest.raises(geminga.AlreadyClosedError):
                    await consumer.receive_batch()

            nursery.start_soon(receive)
            await trio.sleep(1)
            await consumer.aclose()
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive_batch()


async def test_without_a_queue_there_is_no_batch(autojump_clock: MockClock) -> None:
    async with consuming(BatchReceivePolicy(), receiver_queue_size=0) as (_, _, _, consumer):
        with pytest.raises(geminga.InvalidArgumentError, match="receiver_queue_size"):
            await consumer.receive_batch()


def test_policies() -> None:
    assert BatchReceivePolicy().limits(1000) == (1000, 10 * 1024 * 1024, 0.1)
    assert BatchReceivePolicy(5, None, None).limits(1000) == (5, math.inf, math.inf)
    for name in ("max_messages", "max_bytes", "timeout_s"):
        for value in (0, -1, "5", float("nan")):
            with pytest.raises(geminga.InvalidArgumentError, match=name):
                BatchReceivePolicy(**{name: value})
    with pytest.raises(geminga.InvalidArgumentError, match="is needed"):
        BatchReceivePolicy(None, None, None)


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 5)),
            st.tuples(st.just("take"), st.integers(1, 4)),
            st.tuples(st.just("drop"), st.just(0)),
        ),
        max_size=30,
    ),
    ask_from=st.integers(0, 10),
)
def test_bytes_are_those_of_what_waits(steps: list[tuple[str, int]], ask_from: int) -> None:
    inbox = Inbox()
    source = Counter(100)
    waiting: list[int] = []
    for n, (step, number) in enumerate(steps):
        if step == "put":
            entry = entry_of(n, number, source)
            waiting += [entry.size_of(index) for index in entry.indexes]
            inbox.put(entry)
        elif step == "take":
            taken = [inbox.take()] if number == 1 else inbox.take_many(number, math.inf)
            del waiting[: len([each for each in taken if each is not None])]
        else:
            inbox.discard(source)
            waiting.clear()
        if n >= ask_from:
            for size in range(sum(waiting) - 1, sum(waiting) + 2):
                assert inbox.has(1000, size) == (bool(waiting) and sum(waiting) >= size)
