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
from geminga import ConsumerType, InitialPosition, MultiplierBackoff
from geminga._acknowledging.unacked import TICKS_PER_TIMEOUT, AckTimeouts
from geminga._tests.fake_broker import fake_broker

TIMEOUT_S = 10.0
STEPS = st.lists(
    st.tuples(st.sampled_from(["received", "forget", "due"]), st.integers(0, 4), st.floats(0, 7))
)


@given(STEPS)
def test_timeouts_against_an_oracle(steps: list[tuple[str, int, float]]) -> None:
    timeouts = AckTimeouts(TIMEOUT_S, None)
    oracle: dict[tuple[int, int], float] = {}
    tick_s = TIMEOUT_S / TICKS_PER_TIMEOUT
    now_s = 0.0
    for what, entry, passed_s in steps:
        now_s += passed_s
        position = 1, entry
        if what == "received":
            due_s = timeouts.received(position, 0, now_s)
            assert now_s + TIMEOUT_S - 1e-6 <= due_s <= now_s + TIMEOUT_S + tick_s + 1e-6
            oracle[position] = due_s
        elif what == "forget":
            timeouts.forget(position)
            oracle.pop(position, None)
        else:
            expected = {each for each, due_s in oracle.items() if due_s <= now_s}
            assert set(timeouts.due(now_s)) == expected
            for each in expected:
                del oracle[each]
        assert len(timeouts) == len(oracle)
        assert timeouts.next_due_s() == min(oracle.values(), default=math.inf)


def test_backoff_is_waited_too() -> None:
    timeouts = AckTimeouts(10, MultiplierBackoff(1, 60, 2))
    assert 13 < timeouts.received((1, 1), 2, 0) < 15


@asynccontextmanager
async def consuming(count: int, *, batching: bool = False, **options: Any) -> Any:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_enabled=batching)
        for n in range(count):
            await producer.submit(b"%d" % n)
        await producer.aclose()
        options = {"consumer_type": ConsumerType.SHARED, "ack_timeout_s": 10, **options}
        consumer = await client.subscribe(
            "t", "s", initial_position=InitialPosition.EARLIEST, **options
        )
        yield broker, consumer


async def test_times_out_from_receiving_on(autojump_clock: MockClock) -> None:
    async with consuming(3) as (_, consumer):
        await trio.sleep(60)  # prefetched messages don't time out
        first = await consumer.receive(0.1)
        began_s = trio.current_time()
        assert first.redelivery_count == 0
        assert (await consumer.receive(0.1)).data == b"1"
        await consumer.acknowledge(await consumer.receive(0.1))
        again = [await consumer.receive(20) for _ in range(2)]
        assert {(each.data, each.redelivery_count) for each in again} == {(b"0", 1), (b"1", 1)}
        assert 10 <= trio.current_time() - began_s <= 11
        await consumer.acknowledge_all(again)
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(60)


async def test_refused_ones_wait_for_their_own_delay(autojump_clock: MockClock) -> None:
    async with consuming(1, negative_ack_redelivery_delay_s=30) as (_, consumer):
        consumer.negative_acknowledge(await consumer.receive(1))
        began_s = trio.current_time()
        await consumer.receive(60)
        assert trio.current_time() - began_s >= 30


@pytest.mark.parametrize("kind", [ConsumerType.SHARED, ConsumerType.EXCLUSIVE])
async def test_a_batch_and_what_was_acknowledged_of_it(
    kind: ConsumerType, autojump_clock: MockClock
) -> None:
    async with consuming(5, batching=True, consumer_type=kind) as (_, consumer):
        messages = [await consumer.receive(1) for _ in range(5)]
        await consumer.acknowledge_all(messages[:3])
        again = [await consumer.receive(20) for _ in range(2)]
        assert [each.data for each in again] == [b"3", b"4"]


async def test_cumulative_acknowledgement_ends_it(autojump_clock: MockClock) -> None:
    async with consuming(4, consumer_type=ConsumerType.EXCLUSIVE) as (_, consumer):
        messages = [await consumer.receive(1) for _ in range(4)]
        await consumer.acknowledge_cumulative(messages[-1])
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(60)
