"""A cancellation or interruption, at any place, loses no message that was not returned."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

import geminga
from geminga import BatchReceivePolicy, InitialPosition
from geminga._tests.fake_broker import FakeBroker, fake_broker

Take = Callable[[geminga.Consumer], Awaitable[list[geminga.Message]]]


async def receive(consumer: geminga.Consumer) -> list[geminga.Message]:
    return [await consumer.receive()]


async def receive_with_timeout(consumer: geminga.Consumer) -> list[geminga.Message]:
    try:
        return [await consumer.receive(0.01)]
    except geminga.OperationTimeoutError:
        return []


async def receive_three(consumer: geminga.Consumer) -> list[geminga.Message]:
    return await consumer.receive_batch(3)


async def receive_batch(consumer: geminga.Consumer) -> list[geminga.Message]:
    return await consumer.receive_batch()


async def iterate(consumer: geminga.Consumer) -> list[geminga.Message]:
    return [await anext(consumer)]


TAKES = [receive, receive_with_timeout, receive_three, receive_batch, iterate]


@asynccontextmanager
async def sending(
    count: int, *, batching: bool, interval_s: float, fills: bool = True, **options: Any
) -> AsyncIterator[tuple[FakeBroker, geminga.Consumer]]:
    """A consumer of messages that arrive meanwhile, with or without a batch policy."""
    policy = BatchReceivePolicy(4, timeout_s=0.02) if fills else None
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", batch_receive_policy=policy, **options)
        producer = await client.create_producer("t", batching_enabled=batching)

        async def send() -> None:
            for n in range(count):
                await producer.submit(b"%d" % n)
                if interval_s:
                    await trio.sleep(interval_s)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            yield broker, consumer


async def cancel(scope: trio.CancelScope, steps: int, after_s: float) -> None:
    if after_s:
        await trio.sleep(after_s)
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


@given(
    turns=st.lists(
        st.tuples(st.sampled_from(TAKES), st.integers(0, 8), st.sampled_from([0, 0.003, 0.01])),
        max_size=15,
    ),
    batching=st.booleans(),
    fills=st.booleans(),
    interval_s=st.sampled_from([0, 0.003]),
    queue_size=st.sampled_from([1, 5, 1000]),
)
@settings(max_examples=60, deadline=None)
@pytest.mark.slow
def test_cancelled_anywhere(
    turns: list[tuple[Take, int, float]],
    batching: bool,
    fills: bool,
    interval_s: float,
    queue_size: int,
) -> None:
    async def main() -> None:
        got: list[int] = []
        options = {"batching": batching, "fills": fills, "receiver_queue_size": queue_size}
        async with sending(20, interval_s=interval_s, **options) as (_, consumer):
            for take, steps, after_s in turns:
                async with trio.open_nursery() as nursery:
                    with trio.CancelScope() as scope:
                        nursery.start_soon(cancel, scope, steps, after_s)
                        got += [int(each.data) for each in await take(consumer)]
                    nursery.cancel_scope.cancel()
                if len(got) == 20:
                    break
            while len(got) < 20:
                got.append(int((await consumer.receive(5)).data))
        assert got == list(range(20))

    trio.run(main, clock=MockClock(autojump_threshold=0))


class Interrupter:
    """Sends SIGINT at the n-th line that runs in the consumer's own modules."""

    FILES = ("consumer.py", "receiving.py", "inbox.py", "partition_consumer.py", "flow.py")

    def __init__(self, at: int) -> None:
        self.left = at
        self.begun = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        return self.line if frame.f_code.co_filename.endswith(self.FILES) else None

    def line(self, frame: FrameType, event: str, argument: object) -> Any:
        if self.begun:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
        return self.line


def interrupt(take: Take, at: int, batching: bool) -> bool:
    """Returns whether the interruption came before the last message."""
    interrupted = False
    interrupter = Interrupter(at)

    async def main() -> None:
        nonlocal interrupted
        got: list[int] = []
        fills = take is receive_batch
        sent = sending(10, batching=batching, interval_s=0.001, fills=fills)
        async with sent as (_, consumer):
            await trio.sleep(0.004)
            while len(got) < 10:
                try:
                    interrupter.begun = True
                    with trio.fail_after(60):
                        messages = await take(consumer)
                    interrupter.begun = False
                    got += [int(each.data) for each in messages]
                except KeyboardInterrupt:
                    interrupted = True
                    interrupter.begun = False
        assert got == list(range(10))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    traced = sys.gettrace()
    sys.settrace(interrupter)
    try:
        trio.run(main, clock=MockClock(autojump_threshold=0))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        sys.settrace(traced)
        signal.signal(signal.SIGINT, before)
    return interrupted


@pytest.mark.slow
@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("take", TAKES)
def test_interrupted_anywhere(take: Take, batching: bool) -> None:
    interruptions = sum(interrupt(take, at, batching) for at in range(1, 60, 2))
    assert interruptions > 15


@pytest.mark.parametrize("after_s", [0.001, 0.0105, 0.0207])
async def test_a_listener_that_is_cancelled(after_s: float, autojump_clock: MockClock) -> None:
    """Its unacknowledged messages are redelivered."""
    done: list[int] = []

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        await trio.sleep(0.002)
        await consumer.acknowledge(message)
        done.append(int(message.data))

    options: dict[str, Any] = {"initial_position": InitialPosition.EARLIEST}
    async with fake_broker() as broker, broker.client() as client:
        async with await client.create_producer("t", batching_enabled=False) as producer:
            for n in range(20):
                await producer.submit(b"%d" % n)
        with trio.move_on_after(after_s):
            async with broker.client() as other:
                await other.subscribe("t", "s", message_listener=listener, **options)
                await trio.sleep_forever()
        consumer = await client.subscribe("t", "s", **options)
        left = [int((await consumer.receive(5)).data)]
        while left[-1] < 19:
            left.append(int((await consumer.receive(5)).data))
        # Acknowledgements may be lost with the program, messages not.
        assert done == list(range(len(done)))
        assert left == list(range(left[0], 20))
        assert left[0] <= len(done)
