"""Messages in flight during a seek, a redelivery of all, or a loss of the connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import Consumer, InitialPosition
from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga_protocol.commands import answers, consuming
from geminga_protocol.frames import Frame

TEXTS = [b"0", b"1", b"2"]


class SlowSeeks(FakeSession):
    """Closes the consumer of a SEEK at once, but moves and responds when a test lets it."""

    go: trio.Event

    def on_seek(self, body: Any, frame: Frame) -> None:
        consumer = self.consumers[body.consumer_id]
        self.stream.write(consuming.close_consumer(consumer.id, (1 << 64) - 1))
        consumer.leave()
        self.broker.nursery.start_soon(self._move, consumer.subscription, body.request_id)

    async def _move(self, subscription: Any, request_id: int) -> None:
        await self.go.wait()
        subscription.move(0)
        self.stream.write(answers.success(request_id))


class LateMessages(FakeSession):
    """Messages sent before a consumer's request to redeliver all arrive after it."""

    def on_redeliverUnacknowledgedMessages(self, body: Any, frame: Frame) -> None:
        consumer = self.consumers[body.consumer_id]
        for entry in list(consumer.pending):
            consumer.deliver(entry)
        super().on_redeliverUnacknowledgedMessages(body, frame)


@asynccontextmanager
async def filled(
    session_type: type[FakeSession] = FakeSession,
) -> AsyncIterator[tuple[FakeBroker, Consumer[bytes]]]:
    """A broker with such sessions, and a consumer of `TEXTS`."""
    SlowSeeks.go = trio.Event()
    async with fake_broker() as broker:
        broker.session_type = session_type
        async with broker.client() as client:
            producer = await client.create_producer("t", batching_enabled=False)
            for text in TEXTS:
                await producer.send(text)
            yield (
                broker,
                await client.subscribe(
                    "t", "s", initial_position=InitialPosition.EARLIEST, ack_grouping_time_s=0.1
                ),
            )


async def all_of(consumer: Consumer[bytes]) -> list[bytes]:
    found: list[bytes] = []
    with pytest.raises(geminga.OperationTimeoutError):
        while True:
            found.append((await consumer.receive(5)).data)
    return found


async def test_a_consumer_does_not_come_back_before_its_seek_is_answered(
    autojump_clock: MockClock,
) -> None:
    """It would get messages of the old position, and consider them those of the new one."""
    async with filled(SlowSeeks) as (broker, consumer):
        assert await all_of(consumer) == TEXTS
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.seek, geminga.EARLIEST)
            await trio.sleep(10)
            assert broker.seen.count("subscribe") == 1
            SlowSeeks.go.set()
        assert broker.seen.count("subscribe") == 2
        assert await all_of(consumer) == TEXTS


async def test_an_unsubscribe_during_a_seek_waits_for_its_answer(
    autojump_clock: MockClock,
) -> None:
    """Its own end doesn't let the consumer come back before that."""
    async with filled(SlowSeeks) as (broker, consumer):

        async def unsubscribe() -> None:
            with pytest.raises(geminga.ConnectionFailedError):
                await consumer.unsubscribe()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.seek, geminga.EARLIEST)
            await trio.sleep(0.01)  # closed by the broker, and not yet about to come back
            nursery.start_soon(unsubscribe)
            await trio.sleep(10)
            assert broker.seen.count("subscribe") == 1
            SlowSeeks.go.set()
        assert await all_of(consumer) == TEXTS


async def test_what_is_acknowledged_during_a_seek_is_of_the_old_place(
    autojump_clock: MockClock,
) -> None:
    """Sent after the seek, it would acknowledge messages at the new position."""
    async with filled(SlowSeeks) as (broker, consumer):
        first = await consumer.receive(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.seek, geminga.EARLIEST)
            await trio.sleep(1)
            await consumer.acknowledge(first)
            await trio.sleep(1)
            SlowSeeks.go.set()
        assert await all_of(consumer) == TEXTS
        assert broker.topic("t").subscriptions["s"].acked == set()


async def test_what_was_sent_before_all_was_asked_for_again_comes_once(
    autojump_clock: MockClock,
) -> None:
    async with filled(LateMessages) as (_, consumer):
        assert await all_of(consumer) == TEXTS
        consumer.redeliver_unacknowledged_messages()
        assert await all_of(consumer) == TEXTS


async def test_what_was_not_taken_comes_once_after_a_cut(autojump_clock: MockClock) -> None:
    async with filled() as (broker, consumer):
        assert (await consumer.receive(1)).data == TEXTS[0]
        await trio.sleep(1)
        broker.cut()
        await trio.sleep(10)
        assert await all_of(consumer) == TEXTS
