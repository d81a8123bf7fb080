from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import InitialPosition, MessageId
from geminga._consuming.inbox import Permits
from geminga._tests.fake_broker import fake_broker

TOPIC = "persistent://public/default/p"


async def test_seek_by_function(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 3
        for n in range(3):
            producer = await client.create_producer(f"p-partition-{n}", batching_enabled=False)
            for text in (b"0", b"1"):
                await producer.send(text)
        consumer = await client.subscribe("p", "s", initial_position=InitialPosition.EARLIEST)
        for _ in range(6):
            await consumer.acknowledge(await consumer.receive(1))
        places: dict[str, MessageId | int | None] = {
            f"{TOPIC}-partition-0": geminga.EARLIEST,
            f"{TOPIC}-partition-1": 0,
            f"{TOPIC}-partition-2": None,
        }
        await consumer.seek(places.__getitem__)
        again = [await consumer.receive(1) for _ in range(4)]
        assert sorted((m.topic_name[-1], m.data) for m in again) == [
            ("0", b"0"),
            ("0", b"1"),
            ("1", b"0"),
            ("1", b"1"),
        ]
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(1)
        with pytest.raises(geminga.InvalidArgumentError):
            await consumer.seek(lambda topic: -1)
        with pytest.raises(geminga.InvalidArgumentError):
            await consumer.seek(lambda topic: topic)


async def test_what_a_seek_passes_is_acknowledged(autojump_clock: MockClock) -> None:
    """The broker begins at the entry of the id; it must not stay in the backlog."""
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_max_messages=2)
        receipts = [await producer.submit(b"%d" % n) for n in range(4)]
        ids = [await receipt.wait() for receipt in receipts]
        last = await producer.send(b"single")
        assert len({(each.ledger_id, each.entry_id) for each in (*ids, last)}) == 3
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.EARLIEST)
        await consumer.seek(ids[2])
        for _ in range(2):
            await consumer.acknowledge(await consumer.receive(1))
        await consumer.seek(last)
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(1)
        assert broker.topic("t").subscriptions["s"].acked == {0, 1, 2}


async def test_the_last_chunk_of_what_a_seek_passes_too(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer(
            "t", batching_enabled=False, chunking_enabled=True, chunk_max_message_size_bytes=100
        )
        large = await producer.send(b"x" * 250)
        await producer.send(b"small")
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.EARLIEST)
        await consumer.seek(large)
        message = await consumer.receive(1)
        assert message.data == b"small"
        await consumer.acknowledge(message)
        await trio.sleep(1)
        subscription = broker.topic("t").subscriptions["s"]
        assert subscription.acked == set(range(len(broker.topic("t").entries)))


def test_a_scaled_queue_doubles_while_the_program_waits() -> None:
    permits = Permits(6, scaled=True)
    assert permits.start() == 1
    assert permits.demand() == 0  # nothing came yet: a larger queue wouldn't help
    sizes = []
    for _ in range(5):
        permits.used(permits.outstanding)
        permits.released(permits.queue_size)
        assert permits.demand() >= 0
        sizes.append(permits.queue_size)
        assert permits.outstanding <= permits.queue_size
    assert sizes == [2, 4, 6, 6, 6]
    assert Permits(0, scaled=True).queue_size == 0


async def test_a_scaled_queue_delivers_everything(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_enabled=False)
        for n in range(300):
            await producer.submit(b"%d" % n)
        await producer.flush()
        consumer = await client.subscribe(
            "t",
            "s",
            initial_position=InitialPosition.EARLIEST,
            receiver_queue_size=100,
            auto_scaled_receiver_queue_size_enabled=True,
        )
        fake = broker.topic("t").subscriptions["s"].consumers[0]
        await trio.sleep(1)
        assert fake.permits_given == 1
        seen: list[int] = []
        while len(seen) < 300:
            await trio.sleep(1)  # the queue fills
            for _ in range(2):
                seen += [int(each.data) for each in await consumer.receive_batch(wait_s=0.1)]
        assert seen == list(range(300))
        await trio.sleep(1)
        permits = consumer._parts.each[0].flow.permits
        assert 4 <= permits.queue_size <= 100
        assert permits.outstanding == fake.permits
