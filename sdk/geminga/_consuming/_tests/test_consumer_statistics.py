from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from geminga import ConsumerStatistics, InitialPosition
from geminga._consuming._tests.test_consumer import consuming
from geminga._tests.fake_broker import fake_broker

T = "persistent://public/default/t"


@pytest.mark.parametrize("batching", [False, True])
async def test_totals(batching: bool, autojump_clock: MockClock) -> None:
    async with consuming(100, batching=batching) as (_, _, consumer):
        await trio.sleep(0.1)
        found = consumer.statistics()
        assert found.total_msgs_received == 0
        assert found.msg_num_in_receiver_queue == 100
        messages = [await consumer.receive() for _ in range(33)]
        found = consumer.statistics()
        assert found.total_msgs_received == 33
        assert found.total_bytes_received == 10 + 23 * 2
        assert found.msg_num_in_receiver_queue == 67
        assert found.partitions_connected == 1
        assert found.partition_stats == {}
        await consumer.acknowledge_all(messages[:20])
        await consumer.acknowledge_all(each.message_id for each in messages[20:30])
        await consumer.acknowledge_cumulative(messages[32])
        assert consumer.statistics().total_acks_sent == 31
        assert len(await consumer.receive_batch()) == 67
        assert consumer.statistics().total_bytes_received == 10 + 90 * 2


async def test_rates_of_the_last_whole_interval(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "geminga")
    async with fake_broker() as broker, broker.client(stats_interval_s=10) as client:
        consumer = await client.subscribe("t", "s", consumer_name="me")
        producer = await client.create_producer("t")
        for _ in range(50):
            await producer.send(bytes(100))
            await consumer.acknowledge(await consumer.receive())
        assert consumer.statistics().num_msgs_received == 0
        await trio.sleep(11)
        found = consumer.statistics()
        assert (found.num_msgs_received, found.num_bytes_received) == (50, 5000)
        assert (found.rate_msgs_received, found.rate_bytes_received) == (5.0, 500.0)
        assert found.num_acks_sent == 50
        logged = [each.getMessage() for each in caplog.records if "consumer me" in each.message]
        assert logged == [
            "s: consumer me: 5.0 msg/s, 0.004 Mbit/s, 50 acknowledged, 0 failed, 0 in the queue"
        ]
        await trio.sleep(10)
        assert consumer.statistics().num_msgs_received == 0
        assert consumer.statistics().total_msgs_received == 50
        await consumer.aclose()
        assert consumer.statistics().total_msgs_received == 50


async def test_damaged_entries(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.EARLIEST)
        producer = await client.create_producer("t")
        await producer.send(b"fine")
        topic = broker.topic("t")
        damaged = bytearray(topic.entries[0])
        damaged[-1] ^= 1
        topic.entries.append(bytes(damaged))
        topic.subscriptions["s"].dispatch()
        assert (await consumer.receive()).data == b"fine"
        await trio.sleep(1)
        assert consumer.statistics().total_receive_failed == 1
        assert consumer.statistics().total_msgs_received == 1


async def test_of_each_partition(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(stats_interval_s=1) as client:
        broker.partitions[T] = 3
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.EARLIEST)
        for partition in range(3):
            producer = await client.create_producer(f"{T}-partition-{partition}")
            for _ in range(partition + 1):
                await producer.send(b"12345")
        messages = [await consumer.receive() for _ in range(6)]
        await consumer.acknowledge(messages[0])
        await trio.sleep(1.5)
        found = consumer.statistics()
        assert {k[-1]: v.total_msgs_received for k, v in found.partition_stats.items()} == {
            "0": 1,
            "1": 2,
            "2": 3,
        }
        assert found.total_msgs_received == found.num_msgs_received == 6
        assert found.total_bytes_received == found.num_bytes_received == 30
        assert found.total_acks_sent == found.num_acks_sent == 1
        assert found.rate_msgs_received == pytest.approx(6)
        assert found.partitions_connected == 3
        assert isinstance(found, ConsumerStatistics)
