from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import geminga
from geminga import ConsumerType, InitialPosition
from geminga._tests.fake_broker import FakeBroker, fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import CommandAck, ServerError

EARLIEST = InitialPosition.EARLIEST


async def fill(
    client: geminga.Client, count: int, topic: str = "t", *, batching: bool = True
) -> None:
    async with await client.create_producer(topic, batching_enabled=batching) as producer:
        for n in range(count):
            await producer.submit(b"%d" % n)


@asynccontextmanager
async def consuming(count: int, *, batching: bool = True, **options: Any) -> Any:
    async with fake_broker() as broker, broker.client() as client:
        await fill(client, count, batching=batching)
        options = {"initial_position": EARLIEST, **options}
        yield broker, client, await client.subscribe("t", "s", **options)


async def take(consumer: geminga.Consumer, count: int) -> list[geminga.Message]:
    return [await consumer.receive(5) for _ in range(count)]


def numbers(messages: list[geminga.Message]) -> list[int]:
    return [int(message.data) for message in messages]


def acked(broker: FakeBroker) -> set[int]:
    return broker.topic("t").subscriptions["s"].acked


@pytest.mark.parametrize("batching", [True, False])
async def test_receive_in_order_and_acknowledge(batching: bool, autojump_clock: MockClock) -> None:
    async with consuming(100, batching=batching) as (broker, _, consumer):
        messages = await take(consumer, 100)
        assert numbers(messages) == list(range(100))
        for message in messages:
            await consumer.acknowledge(message)
        assert not acked(broker)
        await trio.sleep(0.2)
        assert acked(broker) == set(range(len(broker.topic("t").entries)))
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(3)


async def test_grouped_by_number_and_at_once(autojump_clock: MockClock) -> None:
    async with consuming(10, batching=False, ack_grouping_max=4) as (broker, client, consumer):
        for message in await take(consumer, 10):
            await consumer.acknowledge(message)
        assert [len(each.ack.message_id) for each in broker.acks] == []
        await trio.testing.wait_all_tasks_blocked()
        assert [len(each.ack.message_id) for each in broker.acks] == [4, 4]
        other = await client.subscribe("t", "s2", ack_grouping_time_s=0, initial_position=EARLIEST)
        await other.acknowledge(await other.receive())
        await trio.testing.wait_all_tasks_blocked()
        assert [len(each.ack.message_id) for each in broker.acks] == [4, 4, 1]


async def test_receipts_are_waited_for(autojump_clock: MockClock) -> None:
    async with consuming(3, batching=False, ack_receipt_enabled=True) as (broker, _, consumer):
        messages = await take(consumer, 3)
        await consumer.acknowledge_all(messages[:2])
        assert acked(broker) == {0, 1}
        broker.fail["ack"] = [(ServerError.ConsumerNotFound, "gone")]
        with pytest.raises(geminga.ConsumerNotFoundError):
            await consumer.acknowledge(messages[2])


async def test_batch_index_acknowledgement(autojump_clock: MockClock) -> None:
    async with consuming(10, batch_index_ack_enabled=True) as (broker, client, consumer):
        messages = await take(consumer, 10)
        await consumer.acknowledge_all(messages[:3])
        await consumer.aclose()
        assert list(broker.acks[-1].ack.message_id[0].ack_set) == [0b1111111000]
        again = await client.subscribe("t", "s", batch_index_ack_enabled=True)
        assert numbers(await take(again, 7)) == list(range(3, 10))


async def test_cumulative(autojump_clock: MockClock) -> None:
    async with consuming(10, batching=False) as (broker, client, consumer):
        messages = await take(consumer, 10)
        await consumer.acknowledge_cumulative(messages[6])
        await consumer.acknowledge_cumulative(messages[3].message_id)
        await consumer.aclose()
        assert acked(broker) == set(range(7))
        shared = await client.subscribe("t", "s", consumer_type=ConsumerType.SHARED)
        with pytest.raises(geminga.InvalidArgumentError, match="Exclusive or Failover"):
            await shared.acknowledge_cumulative(messages[9].message_id)


async def test_iteration_ends_when_closed(autojump_clock: MockClock) -> None:
    async with consuming(5) as (_, _, consumer):
        seen = []
        async for message in consumer:
            seen.append(message)
            if len(seen) == 5:
                await consumer.aclose()
        assert numbers(seen) == list(range(5))
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive()
        await consumer.aclose()


async def test_closing_wakes_a_waiting_receive(autojump_clock: MockClock) -> None:
    async with consuming(0) as (_, _, consumer), trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(geminga.AlreadyClosedError):
                await consumer.receive()

        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.sleep(1)
        await consumer.aclose()


async def test_receive_batch(autojump_clock: MockClock) -> None:
    async with consuming(30, batching=False) as (_, _, consumer):
        await trio.sleep(1)
        assert numbers(await consumer.receive_batch(12)) == list(range(12))
        assert numbers(await consumer.receive_batch(max_bytes=1)) == [12]
        assert numbers(await consumer.receive_batch()) == list(range(13, 30))
        began_s = trio.current_time()
        assert await consumer.receive_batch(wait_s=2) == []
        assert trio.current_time() - began_s == pytest.approx(2)
        with pytest.raises(geminga.InvalidArgumentError):
            await consumer.receive_batch(0)


async def test_cancelled_receive_loses_nothing(autojump_clock: MockClock) -> None:
    async with consuming(0) as (_, client, consumer):
        producer = await client.create_producer("t", batching_max_messages=3)
        seen: list[int] = []

        async def produce() -> None:
            for n in range(200):
                await producer.submit(b"%d" % n)
                await trio.sleep(0.01)
            await producer.flush()

        async def impatient() -> None:
            while len(seen) < 200:
                with trio.move_on_after(0.003):
                    seen.append(int((await consumer.receive()).data))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            nursery.start_soon(impatient)
        assert seen == list(range(200))


async def test_many_receivers_get_each_message_once(autojump_clock: MockClock) -> None:
    async with consuming(0) as (_, client, consumer):
        seen: list[int] = []

        async def receive(nursery: trio.Nursery) -> None:
            while True:
                seen.append(int((await consumer.receive()).data))
                if len(seen) == 100:
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(7):
                nursery.start_soon(receive, nursery)
            await fill(client, 100)
        assert sorted(seen) == list(range(100))


@pytest.mark.parametrize("kind", [ConsumerType.SHARED, ConsumerType.EXCLUSIVE])
@pytest.mark.parametrize("batching", [True, False])
async def test_negative_acknowledge(
    kind: ConsumerType, batching: bool, autojump_clock: MockClock
) -> None:
    async with consuming(6, batching=batching, consumer_type=kind) as (_, _, consumer):
        for message in await take(consumer, 6):
            if int(message.data) != 3:
                await consumer.acknowledge(message)
            else:
                consumer.negative_acknowledge(message)
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(59)
        again = await consumer.receive(2)
        assert int(again.data) == 3
        assert again.redelivery_count == (1 if kind is ConsumerType.SHARED else 0)
        await consumer.acknowledge(again)
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(100)


async def test_negative_acknowledge_with_backoff(autojump_clock: MockClock) -> None:
    options = {
        "consumer_type": ConsumerType.SHARED,
        "negative_ack_backoff": geminga.MultiplierBackoff(1, 100, 3),
    }
    async with consuming(1, **options) as (_, _, consumer):
        waits = []
        for _ in range(4):
            message = await consumer.receive()
            consumer.negative_acknowledge(message)
            began_s = trio.current_time()
            await trio.testing.wait_all_tasks_blocked()
            waits.append(began_s)
        gaps = [round(later - sooner) for sooner, later in itertools.pairwise(waits)]
        assert gaps == [1, 3, 9]


async def test_permits_are_given_back_by_halves(autojump_clock: MockClock) -> None:
    async with consuming(40, batching=False, receiver_queue_size=10) as (broker, _, consumer):
        held = broker.topic("t").subscriptions["s"].consumers[0]
        await trio.sleep(1)
        assert (held.permits_given, held.messages_sent) == (10, 10)
        await take(consumer, 4)
        await trio.sleep(1)
        assert held.permits_given == 10
        await take(consumer, 1)
        await trio.sleep(1)
        assert (held.permits_given, held.messages_sent) == (15, 15)
        consumer.pause()
        await take(consumer, 10)
        await trio.sleep(1)
        assert held.permits_given == 15
        consumer.resume()
        assert numbers(await take(consumer, 25)) == list(range(15, 40))


async def test_a_paused_consumer_that_is_attached_anew_is_given_its_queue_once(
    autojump_clock: MockClock,
) -> None:
    async with consuming(40, batching=False, receiver_queue_size=10) as (broker, _, consumer):
        await trio.sleep(1)
        consumer.pause()
        await take(consumer, 10)
        broker.cut()
        await trio.sleep(5)
        [held] = broker.topic("t").subscriptions["s"].consumers
        assert held.permits_given == 0
        consumer.resume()
        await trio.sleep(1)
        assert held.permits_given == 10


async def test_zero_queue_asks_for_one_at_a_time(autojump_clock: MockClock) -> None:
    async with consuming(5, batching=False, receiver_queue_size=0) as (broker, _, consumer):
        held = broker.topic("t").subscriptions["s"].consumers[0]
        await trio.sleep(1)
        assert held.messages_sent == 0
        assert numbers(await take(consumer, 3)) == [0, 1, 2]
        await trio.sleep(1)
        assert held.messages_sent == 3


@pytest.mark.parametrize("batching", [True, False])
async def test_seek(batching: bool, autojump_clock: MockClock) -> None:
    async with consuming(10, batching=batching) as (_, _, consumer):
        messages = await take(consumer, 10)
        await consumer.seek(geminga.EARLIEST)
        assert numbers(await take(consumer, 10)) == list(range(10))
        await consumer.seek(messages[5].message_id)
        assert numbers(await take(consumer, 4)) == [6, 7, 8, 9]
        assert not await consumer.has_message_available()
        await consumer.seek(0)
        assert await consumer.has_message_available()
        assert numbers(await take(consumer, 10)) == list(range(10))
        for wrong in ("x", -1, True):
            with pytest.raises(geminga.InvalidArgumentError):
                await consumer.seek(wrong)


async def test_acknowledged_messages_of_a_batch_dont_come_again(autojump_clock: MockClock) -> None:
    async with consuming(10) as (broker, _, consumer):
        await consumer.acknowledge_all((await take(consumer, 10))[:4])
        consumer.redeliver_unacknowledged_messages()
        assert numbers(await take(consumer, 6)) == [4, 5, 6, 7, 8, 9]
        # Over another connection it is another delivery: the cursor may have been moved back.
        broker.cut()
        assert numbers(await take(consumer, 10)) == list(range(10))


async def test_damaged_entries_are_told_and_skipped(autojump_clock: MockClock) -> None:
    async with consuming(3, batching=False) as (broker, client, _):
        entries = broker.topic("t").entries
        entries[1] = entries[1][:-1] + b"?"
        other = await client.subscribe("t", "s2", initial_position=EARLIEST)
        assert numbers(await take(other, 2)) == [0, 2]
        assert broker.acks[-1].ack.validation_error == CommandAck.ChecksumMismatch


async def test_several_topics_and_partitions(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/p"] = 2
        for topic in ("p", "q"):
            await fill(client, 20, topic, batching=False)
        consumer = await client.subscribe(["p", "q"], "s", initial_position=EARLIEST)
        assert len(consumer.topics) == 3
        messages = await take(consumer, 40)
        assert sorted(numbers(messages)) == sorted([*range(20), *range(20)])
        for message in messages:
            await consumer.acknowledge(message)
        with pytest.raises(geminga.InvalidArgumentError, match="topic"):
            await consumer.acknowledge(geminga.MessageId(1, 1, 9))
        await consumer.aclose()
        for topic in ("p-partition-0", "p-partition-1", "q"):
            held = broker.topic(topic)
            assert held.subscriptions["s"].acked == set(range(len(held.entries)))


async def test_messages_of_others_are_refused(autojump_clock: MockClock) -> None:
    async with consuming(1) as (_, client, consumer):
        other = await client.subscribe("t", "s2", initial_position=EARLIEST)
        message = await other.receive()
        with pytest.raises(geminga.InvalidArgumentError, match="another consumer"):
            await consumer.acknowledge(message)
        with pytest.raises(geminga.InvalidArgumentError, match="Message"):
            await consumer.acknowledge("x")


async def test_unsubscribe(autojump_clock: MockClock) -> None:
    async with consuming(1) as (broker, _, consumer):
        await consumer.unsubscribe()
        assert broker.topic("t").subscriptions == {}
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive()


@pytest.mark.parametrize("batching", [True, False])
async def test_reader(batching: bool, autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        await fill(client, 10, batching=batching)
        reader = await client.create_reader("t", geminga.EARLIEST)
        got = [await reader.read_next() for _ in range(6)]
        broker.cut()
        while await reader.has_message_available():
            got.append(await reader.read_next(5))
        assert numbers(got) == list(range(10))
        middle = await client.create_reader("t", got[3].message_id)
        assert int((await middle.read_next()).data) == 4
        inclusive = await client.create_reader(
            "t", got[3].message_id, start_message_id_inclusive=True
        )
        assert int((await inclusive.read_next()).data) == 3
        async with await client.create_reader("t", geminga.LATEST) as latest:
            assert not await latest.has_message_available()
        last = await client.create_reader("t", geminga.LATEST, start_message_id_inclusive=True)
        assert await last.has_message_available()
        assert int((await last.read_next()).data) == 9
        with pytest.raises(geminga.InvalidArgumentError, match="start_message_id"):
            await client.create_reader("t", 5)
