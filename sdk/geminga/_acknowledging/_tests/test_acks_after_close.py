"""Acknowledgements that can't be sent any more raise an error."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga._consuming._tests.test_consumer import acked, consuming, take
from geminga._tests.fake_broker import FakeBroker


async def test_each_way_raises(autojump_clock: MockClock) -> None:
    async with consuming(10) as (broker, _, consumer):
        messages = await take(consumer, 10)
        await consumer.acknowledge(messages[0])
        await consumer.aclose()
        for message in (messages[1], messages[1].message_id):
            with pytest.raises(geminga.AlreadyClosedError):
                await consumer.acknowledge(message)
            with pytest.raises(geminga.AlreadyClosedError):
                await consumer.acknowledge_all([message])
            with pytest.raises(geminga.AlreadyClosedError):
                await consumer.acknowledge_cumulative(message)
        await consumer.acknowledge_all([])
        # Refused messages come again in any case.
        consumer.negative_acknowledge(messages[2])
        consumer.redeliver_unacknowledged_messages()
        assert acked(broker) == set()


async def test_while_it_closes(autojump_clock: MockClock) -> None:
    """Earlier acknowledgements are sent; later ones raise an error."""
    async with consuming(10, batching=False, ack_receipt_enabled=True) as (broker, _, consumer):
        messages = await take(consumer, 10)
        outcomes: list[object] = []

        async def acknowledge(message: geminga.Message) -> None:
            try:
                await consumer.acknowledge(message)
            except geminga.AlreadyClosedError as error:
                outcomes.append(error)
            else:
                outcomes.append(message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(acknowledge, messages[0])
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            nursery.start_soon(consumer.aclose)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(acknowledge, messages[1])
        assert outcomes[0].__class__ is geminga.AlreadyClosedError or 1 in acked(broker)
        assert acked(broker) >= {0}


async def test_a_listener_that_closes(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[BaseException] = []

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        await consumer.aclose()
        try:
            await consumer.acknowledge(message)
        except geminga.AlreadyClosedError as error:
            failures.append(error)
            raise

    options: dict[str, Any] = {"message_listener": listener}
    async with consuming(1, **options) as (broker, _, _):
        await trio.sleep(1)
        assert len(failures) == 1
        assert "the message listener failed" in caplog.text
        assert acked_of(broker) == set()


def acked_of(broker: FakeBroker) -> set[int]:
    return broker.topic("t").subscriptions["s"].acked


async def test_of_a_client_that_is_closed(autojump_clock: MockClock) -> None:
    async with consuming(2, batching=False) as (_, client, consumer):
        messages = await take(consumer, 2)
        await consumer.acknowledge(messages[0])
        await client.aclose()
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.acknowledge(messages[1])
