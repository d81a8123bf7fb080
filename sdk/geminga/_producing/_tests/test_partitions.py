from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import ProducerAccessMode
from geminga._tests.fake_broker import FakeBroker, fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

TOPIC = "persistent://public/default/p"


def producers(broker: FakeBroker) -> int:
    return sum(bool(topic.producers) for topic in broker.topics.values())


def entries(broker: FakeBroker) -> list[int]:
    count = broker.partitions[TOPIC]
    return [len(broker.topic(f"{TOPIC}-partition-{n}").entries) for n in range(count)]


async def test_lazy_start(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 4
        broker.topic(f"{TOPIC}-partition-2").last_sequence_ids["me"] = 41
        producer = await client.create_producer(
            "p",
            producer_name="me",
            lazy_start_partitioned_producers=True,
            message_router=lambda message, _: int(message.data),
        )
        assert producers(broker) == 1
        assert producer.is_connected
        receipts = [producer.send_nowait(b"2") for _ in range(5)]
        assert not receipts[0].is_done
        await producer.flush()
        assert [receipt.message_id.partition for receipt in receipts] == [2] * 5
        assert producer.last_sequence_id == 46
        assert 1 <= producers(broker) <= 2
        await producer.send(b"3")
        await producer.submit(b"1")
        await producer.aclose()
        assert producers(broker) == 0
        assert entries(broker) == [0, 1, 1, 1]


async def test_lazy_failures_are_the_messages(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 2
        broker.fail["producer"] = [(ServerError.AuthorizationError, "no")]
        with pytest.raises(geminga.AuthorizationError):
            await client.create_producer("p", lazy_start_partitioned_producers=True)
        producer = await client.create_producer("p", lazy_start_partitioned_producers=True)
        broker.fail["producer"] = [(ServerError.TopicNotFound, "no")]
        results = []
        for _ in range(2):
            try:
                results.append(await producer.send(b""))
            except geminga.TopicNotFoundError:
                results.append(None)
        assert results.count(None) == 1
        assert producer.pending_messages == 0


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_lazy_partition_whose_brokers_were_away_is_started_anew(
    keyed: bool, autojump_clock: MockClock
) -> None:
    async with fake_broker() as broker, broker.client(operation_timeout_s=5) as client:
        broker.partitions[TOPIC] = 2
        producer = await client.create_producer(
            "p",
            lazy_start_partitioned_producers=True,
            message_router=(lambda message, _: int(message.data)) if keyed else None,
            batching_enabled=False,
        )
        (lazy,) = [part for part in producer._parts if not part.is_started]
        broker.refuse_connections = 10**6
        broker.cut()
        with pytest.raises(geminga.ConnectionFailedError):
            while True:
                with trio.move_on_after(10):
                    await producer.send(b"%d" % producer._parts.index(lazy))
        broker.refuse_connections = 0
        await trio.sleep(100)
        for n in range(10):
            await producer.send(b"%d" % (n % 2))
        assert all(count >= 5 for count in entries(broker))
        assert producer.is_connected
        assert producer.statistics().partition_stats[lazy.topic].total_send_failed == 1


async def test_exclusive_is_never_lazy(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 3
        await client.create_producer(
            "p", lazy_start_partitioned_producers=True, access_mode=ProducerAccessMode.EXCLUSIVE
        )
        assert producers(broker) == 3


@pytest.mark.parametrize("lazy", [True, False])
async def test_growing(autojump_clock: MockClock, lazy: bool) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 1
        producer = await client.create_producer(
            "p",
            auto_update_partitions_interval_s=10,
            batching_enabled=False,
            lazy_start_partitioned_producers=lazy,
        )
        still = await client.create_producer("p", auto_update_partitions=False)
        await producer.send(b"")
        broker.partitions[TOPIC] = 3
        broker.fail["partitionMetadata"] = [(ServerError.AuthorizationError, "not now")]
        await trio.sleep(25)
        for _ in range(9):
            await producer.send(b"")
            await still.send(b"")
        assert entries(broker)[0] >= 12
        assert entries(broker)[1:] == [3, 3]
        broker.partitions[TOPIC] = 2
        await trio.sleep(11)
        assert (await producer.send(b"")).partition in (0, 1, 2)
        await producer.aclose()
        asked = broker.seen.count("partitionMetadata")
        await trio.sleep(30)
        assert broker.seen.count("partitionMetadata") == asked
