"""A cursor that somebody else moves: what was acknowledged before comes again."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import ConsumerType, InitialPosition
from geminga._tests.fake_broker import FakeBroker, fake_broker
from geminga_protocol.commands import consuming

EARLIEST: dict[str, Any] = {"initial_position": InitialPosition.EARLIEST}


def reset_cursor(broker: FakeBroker, entry: int = 0) -> None:
    """As the admin's reset-cursor, or another consumer's seek: all consumers are closed first."""
    subscription = broker.topic("t").subscriptions["s"]
    for consumer in list(subscription.consumers):
        consumer.leave()
        consumer.session.stream.write(consuming.close_consumer(consumer.id, (1 << 64) - 1))
    subscription.move(entry)


async def fill(client: geminga.Client, *batches: int) -> None:
    producer = await client.create_producer("t", batching_max_publish_delay_s=1)
    number = 0
    for count in batches:
        for _ in range(count):
            producer.send_nowait(b"%d" % number)
            number += 1
        await producer.flush()


async def take(consumer: geminga.Consumer, count: int) -> list[geminga.Message]:
    return [await consumer.receive(5) for _ in range(count)]


def numbers(messages: list[geminga.Message]) -> list[int]:
    return [int(message.data) for message in messages]


def acked(broker: FakeBroker) -> set[int]:
    return broker.topic("t").subscriptions["s"].acked


@pytest.mark.parametrize("kind", [ConsumerType.EXCLUSIVE, ConsumerType.SHARED])
@pytest.mark.parametrize("batch_index", [False, True])
@pytest.mark.parametrize("by_id", [False, True])
async def test_a_batch_that_was_acknowledged_in_part_comes_again_whole(
    by_id: bool, batch_index: bool, kind: ConsumerType, autojump_clock: MockClock
) -> None:
    options = {"consumer_type": kind, "batch_index_ack_enabled": batch_index, **EARLIEST}
    async with fake_broker() as broker, broker.client() as client:
        await fill(client, 6)
        consumer = await client.subscribe("t", "s", **options)
        for message in (await take(consumer, 6))[:4]:
            await consumer.acknowledge(message.message_id if by_id else message)
        await trio.sleep(1)
        reset_cursor(broker)
        again = await take(consumer, 6)
        assert numbers(again) == list(range(6))
        await consumer.acknowledge_all(again)
        await trio.sleep(1)
        assert acked(broker) == {0}


async def test_what_was_delivered_before_counts_by_itself(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        await fill(client, 6)
        consumer = await client.subscribe("t", "s", **EARLIEST)
        first = await take(consumer, 6)
        await consumer.acknowledge_all(first[:3])
        broker.cut()
        second = await take(consumer, 6)
        assert numbers(second) == list(range(6))
        # Neither delivery is whole, though both together would be.
        await consumer.acknowledge_all(second[3:])
        await trio.sleep(1)
        assert acked(broker) == set()
        await consumer.acknowledge_all(first[3:])
        await trio.sleep(1)
        assert acked(broker) == {0}


async def test_what_is_redelivered_on_the_same_connection_is_what_is_left(
    autojump_clock: MockClock,
) -> None:
    options = {"consumer_type": ConsumerType.SHARED, "negative_ack_redelivery_delay_s": 1}
    async with fake_broker() as broker, broker.client() as client:
        await fill(client, 6)
        consumer = await client.subscribe("t", "s", **options, **EARLIEST)
        first = await take(consumer, 6)
        await consumer.acknowledge_all(first[:3])
        consumer.negative_acknowledge(first[3])
        second = await take(consumer, 3)
        assert numbers(second) == [3, 4, 5]
        # One after the other, by either delivery.
        await consumer.acknowledge(first[3])
        await consumer.acknowledge(second[1])
        await consumer.acknowledge(first[5])
        await trio.sleep(0.2)
        assert acked(broker) == {0}


async def test_a_place_within_a_batch_that_was_sought_before(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        await fill(client, 4, 2)
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await take(consumer, 6)
        await consumer.seek(messages[2].message_id)
        assert numbers(await take(consumer, 3)) == [3, 4, 5]
        reset_cursor(broker)
        assert numbers(await take(consumer, 6)) == list(range(6))


async def test_a_place_that_was_sought_is_kept_until_it_is_reached(
    autojump_clock: MockClock,
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        await fill(client, 4, 2)
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await take(consumer, 6)
        await consumer.seek(messages[2].message_id)
        consumer.pause()
        broker.cut()
        broker.topic("t").subscriptions["s"].left.clear()
        consumer.resume()
        assert numbers(await take(consumer, 3)) == [3, 4, 5]


@pytest.mark.parametrize("by_id", [False, True])
async def test_chunks_of_a_message_that_was_received_before_the_connection_was_lost(
    by_id: bool, autojump_clock: MockClock
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 1000
        consumer = await client.subscribe("t", "s", **EARLIEST)
        producer = await client.create_producer("t", batching_enabled=False, chunking_enabled=True)
        await producer.send(bytes(5000))
        message = await consumer.receive(5)
        chunks = len(broker.topic("t").entries)
        assert chunks > 2
        broker.refuse_connections = 3
        broker.cut()
        await trio.sleep(0.01)
        assert not consumer.is_connected
        await consumer.acknowledge(message.message_id if by_id else message)
        await trio.sleep(5)
        assert acked(broker) == set(range(chunks))
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(5)


async def test_what_waits_to_be_acknowledged_does_not_come_again(autojump_clock: MockClock) -> None:
    """The broker may send it before it hears of the acknowledgement."""
    async with fake_broker() as broker, broker.client() as client:
        await fill(client, 1, 1, 1)
        consumer = await client.subscribe(
            "t", "s", ack_grouping_time_s=60, ack_grouping_max=100, **EARLIEST
        )
        first, second, _ = await take(consumer, 3)
        await consumer.acknowledge(first)
        await consumer.acknowledge_cumulative(second)
        [sender] = broker.topic("t").subscriptions["s"].consumers
        assert not acked(broker)
        for entry in range(3):
            sender.deliver(entry)
        assert numbers(await take(consumer, 1)) == [2]
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(5)


@pytest.mark.parametrize("kind", [ConsumerType.EXCLUSIVE, ConsumerType.SHARED])
async def test_single_messages_that_wait_to_be_acknowledged_do_not_come_again(
    kind: ConsumerType, autojump_clock: MockClock
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(40):
            await producer.send(b"%d" % number)
        consumer = await client.subscribe(
            "t", "s", ack_grouping_time_s=60, consumer_type=kind, **EARLIEST
        )
        messages = await take(consumer, 40)
        for message in messages[10:30]:
            await consumer.acknowledge(message)
        [sender] = broker.topic("t").subscriptions["s"].consumers
        for entry in range(40):
            sender.deliver(entry)
        again = await take(consumer, 20)
        assert numbers(again) == [*range(10), *range(30, 40)]
        for message in (messages[5], *messages[30:35], messages[38]):
            await consumer.acknowledge(message)
        for entry in (*range(36, 40), *range(36)):
            sender.deliver(entry)
        assert numbers(await take(consumer, 13)) == [
            36, 37, 39, 0, 1, 2, 3, 4, 6, 7, 8, 9, 35,
        ]  # fmt: skip
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(5)
        await consumer.aclose()
        assert acked(broker) == {5, *range(10, 35), 38}


async def test_single_messages_up_to_one_that_is_acknowledged_do_not_come_again(
    autojump_clock: MockClock,
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(9):
            await producer.send(b"%d" % number)
        consumer = await client.subscribe("t", "s", ack_grouping_time_s=60, **EARLIEST)
        messages = await take(consumer, 9)
        await consumer.acknowledge(messages[1])
        await consumer.acknowledge_cumulative(messages[5])
        [sender] = broker.topic("t").subscriptions["s"].consumers
        for entry in range(3, 9):
            sender.deliver(entry)
        assert numbers(await take(consumer, 3)) == [6, 7, 8]
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(5)
