from __future__ import annotations

import logging
import random
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

import geminga
from geminga import ConsumerType, InitialPosition, KeySharedPolicy
from geminga._consuming.lanes import Lanes
from geminga._tests.fake_broker import FakeBroker, fake_broker

SHARED = ConsumerType.SHARED


@asynccontextmanager
async def filled(count: int, *, keys: int = 0, batching: bool = True) -> Any:
    async with fake_broker() as broker, broker.client() as client:
        async with await client.create_producer("t", batching_enabled=batching) as producer:
            for n in range(count):
                key = f"k{n % keys}" if keys else None
                await producer.submit(b"%d" % n, partition_key=key)
        yield broker, client


async def listen(client: geminga.Client, listener: Any, **options: Any) -> geminga.Consumer:
    options = {"initial_position": InitialPosition.EARLIEST, **options}
    return await client.subscribe("t", "s", message_listener=listener, **options)


def acked(broker: FakeBroker) -> set[int]:
    return broker.topic("t").subscriptions["s"].acked


async def test_coroutine_functions_one_at_a_time(autojump_clock: MockClock) -> None:
    seen: list[int] = []
    running = 0

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await trio.sleep(random.random())
        seen.append(int(message.data))
        await consumer.acknowledge(message)
        running -= 1

    async with filled(50) as (broker, client):
        await listen(client, listener)
        await trio.sleep(60)
        assert seen == list(range(50))
        assert acked(broker) == set(range(len(broker.topic("t").entries)))


async def test_plain_functions(autojump_clock: MockClock) -> None:
    seen: list[bytes] = []
    async with filled(500) as (_, client):
        await listen(client, lambda consumer, message: seen.append(message.data))
        await trio.sleep(1)
        assert seen == [b"%d" % n for n in range(500)]


@pytest.mark.parametrize("kind", list(ConsumerType))
async def test_as_many_at_once_as_wanted_in_order(
    kind: ConsumerType, autojump_clock: MockClock
) -> None:
    seen: defaultdict[str | None, list[int]] = defaultdict(list)
    running: list[str | None] = []
    most = 0

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        nonlocal most
        key = message.partition_key
        if kind is ConsumerType.KEY_SHARED:
            assert key not in running
        running.append(key)
        most = max(most, len(running))
        await trio.sleep(random.random())
        running.remove(key)
        seen[key].append(int(message.data))

    async with filled(100, keys=7, batching=False) as (_, client):
        options: dict[str, Any] = {"message_listener_concurrency": 4, "consumer_type": kind}
        if kind is ConsumerType.KEY_SHARED:
            options["key_shared_policy"] = KeySharedPolicy()
        await listen(client, listener, **options)
        await trio.sleep(200)
    assert sorted(n for each in seen.values() for n in each) == list(range(100))
    assert most == (4 if kind in (SHARED, ConsumerType.KEY_SHARED) else 1)
    if kind is not SHARED:
        assert all(each == sorted(each) for each in seen.values())


async def test_what_it_raises_is_logged_and_refused(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[bytes, int]] = []

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        seen.append((message.data, message.redelivery_count))
        if message.data == b"1" and not message.redelivery_count:
            raise ValueError("not now")
        await consumer.acknowledge(message)

    async with filled(3, batching=False) as (broker, client):
        await listen(client, listener, consumer_type=SHARED, negative_ack_redelivery_delay_s=5)
        await trio.sleep(10)
        assert seen == [(b"0", 0), (b"1", 0), (b"2", 0), (b"1", 1)]
        assert acked(broker) == {0, 1, 2}
    (logged,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert logged.exc_info is not None
    assert isinstance(logged.exc_info[1], ValueError)


async def test_closing_waits_for_the_call_that_runs(autojump_clock: MockClock) -> None:
    done: list[bytes] = []

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        await trio.sleep(3)
        await consumer.acknowledge(message)
        done.append(message.data)

    async with filled(10, batching=False) as (broker, client):
        consumer = await listen(client, listener)
        await trio.sleep(1)
        began_s = trio.current_time()
        await consumer.aclose()
        assert trio.current_time() - began_s == pytest.approx(2)
        await trio.sleep(10)
        assert done == [b"0"]
        assert acked(broker) == {0}


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_it_may_close_its_consumer(concurrency: int, autojump_clock: MockClock) -> None:
    seen: list[bytes] = []
    closed: list[bytes] = []

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        seen.append(message.data)
        await consumer.acknowledge(message)
        await consumer.aclose()
        closed.append(message.data)

    async with filled(10, batching=False) as (broker, client):
        with trio.fail_after(30):
            options = {"message_listener_concurrency": concurrency, "consumer_type": SHARED}
            await listen(client, listener, **options)
            await trio.sleep(5)
        assert closed == seen
        assert 1 <= len(seen) <= concurrency
        assert acked(broker) == {int(each) for each in seen}


async def test_leaving_the_client_waits_too(autojump_clock: MockClock) -> None:
    done: list[bytes] = []

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        await trio.sleep(3)
        done.append(message.data)

    async with filled(1) as (_, client):
        await listen(client, listener)
        await trio.sleep(1)
    assert done == [b"0"]


async def test_messages_thrown_away_are_not_handed_over(autojump_clock: MockClock) -> None:
    """Those that wait for their key are redelivered after a lost connection: once, in order."""
    seen: list[int] = []

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        await trio.sleep(1)
        seen.append(int(message.data))
        await consumer.acknowledge(message)

    async with filled(20, keys=1, batching=False) as (broker, client):
        options = {"message_listener_concurrency": 4, "consumer_type": ConsumerType.KEY_SHARED}
        await listen(client, listener, ack_grouping_time_s=0, **options)
        await trio.sleep(2.5)
        broker.cut()
        await trio.sleep(60)
    assert seen == [0, 1, 2, *range(2, 20)] or seen == list(range(20))


async def test_nothing_else_receives_beside_it(autojump_clock: MockClock) -> None:
    async with filled(1) as (_, client):
        consumer = await listen(client, lambda consumer, message: None)
        for receive in (consumer.receive, consumer.receive_batch):
            with pytest.raises(geminga.InvalidArgumentError, match="message_listener"):
                await receive()
        with pytest.raises(geminga.InvalidArgumentError, match="message_listener"):
            async for _ in consumer:
                pass
        with pytest.raises(geminga.InvalidArgumentError, match="message_listener"):
            await listen(client, "listener")


async def test_without_a_queue(autojump_clock: MockClock) -> None:
    seen: list[bytes] = []
    async with filled(20, batching=False) as (_, client):

        def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
            seen.append(message.data)

        await listen(client, listener, receiver_queue_size=0)
        await trio.sleep(1)
    assert seen == [b"%d" % n for n in range(20)]


class Sent:
    def __init__(self, lane: int | None, number: int) -> None:
        self.lane = lane
        self.number = number


@given(
    lanes=st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=40),
    chance=st.randoms(use_true_random=False),
    workers=st.integers(1, 5),
)
def test_lanes_keep_order_and_leave_nothing(
    lanes: list[int | None], chance: random.Random, workers: int
) -> None:
    made = Lanes(lambda message: message.lane, lambda message: True)  # type: ignore[arg-type]
    running: list[Any] = []
    handled: list[Sent] = []
    coming = [Sent(lane, number) for number, lane in enumerate(lanes)]
    while coming or running:
        if running and (len(running) == workers or not coming or chance.random() < 0.5):
            lane, message = running.pop(chance.randrange(len(running)))
            handled.append(message)
            made.done(lane)
        else:
            made.put(coming.pop(0))  # type: ignore[arg-type]
        found = made.take()
        if found is not None:
            assert found[0] is None or found[0] not in [lane for lane, _ in running]
            running.append(found)
        assert made.take() is None, "a worker takes one whenever one can be taken"
    assert not made.waiting
    assert sorted(each.number for each in handled) == list(range(len(lanes)))
    for lane in range(4):
        numbers = [each.number for each in handled if each.lane == lane]
        assert numbers == sorted(numbers)
