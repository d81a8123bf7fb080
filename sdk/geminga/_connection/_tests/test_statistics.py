from __future__ import annotations

import dataclasses
import logging
import math
from collections import defaultdict

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

import geminga
from geminga import ProducerStatistics
from geminga._connection.statistics import Counts, percentiles_ms
from geminga._tests.fake_broker import fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

T = "persistent://public/default/t"


async def test_totals_of_a_producer(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_max_messages=2)
        assert producer.statistics() == ProducerStatistics(partitions_connected=1)
        for _ in range(4):
            await producer.submit(b"12345")
        await producer.flush()
        totals = ProducerStatistics(
            total_msgs_sent=4,
            total_bytes_sent=20,
            total_acks_received=4,
            total_entries_acknowledged=2,
            partitions_connected=1,
        )
        assert producer.statistics() == totals
        broker.fail["send"] = [(ServerError.NotAllowedError, "no")]
        with pytest.raises(geminga.NotAllowedError):
            await producer.send(b"123")
        broker.hold_receipts = True
        await producer.submit(b"1")
        found = producer.statistics()
        assert found == dataclasses.replace(
            totals,
            total_msgs_sent=6,
            total_bytes_sent=24,
            total_send_failed=1,
            pending_queue_size=1,
            pending_bytes=1,
        )
        with pytest.raises(dataclasses.FrozenInstanceError):
            found.total_msgs_sent = 0
        broker.hold_receipts = False
        broker.release_receipts()


async def test_partitions_are_summed(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(stats_interval_s=10) as client:
        broker.partitions[T] = 2
        producer = await client.create_producer("t", batching_max_messages=2)
        broker.hold_receipts = True
        for _ in range(4):
            await producer.submit(b"12345")
        await trio.sleep(2)
        broker.hold_receipts = False
        broker.release_receipts()
        await producer.flush()
        assert producer.statistics().num_msgs_sent == 0
        await trio.sleep(9)
        found = producer.statistics()
        assert set(found.partition_stats) == {f"{T}-partition-0", f"{T}-partition-1"}
        assert [part.num_msgs_sent for part in found.partition_stats.values()] == [2, 2]
        assert (found.num_msgs_sent, found.num_bytes_sent, found.num_acks_received) == (4, 20, 4)
        assert (found.send_msgs_rate, found.send_bytes_rate) == (0.4, 2.0)
        assert found.send_latency_max_ms == pytest.approx(2000)
        assert found.send_latency_50pct_ms == pytest.approx(2000)
        assert found.partitions_connected == 2
        await trio.sleep(10)
        quiet = producer.statistics()
        assert (quiet.num_msgs_sent, quiet.send_latency_max_ms) == (0, 0)
        assert quiet.total_msgs_sent == 4


async def test_intervals_are_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "geminga")
    async with fake_broker() as broker, broker.client(stats_interval_s=10) as client:
        async with await client.create_producer("t", producer_name="p") as producer:
            await producer.send(b"x")
            await trio.sleep(25)
        await trio.sleep(100)
    told = [each.getMessage() for each in caplog.records if "msg/s" in each.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(f"{T}: producer p: 0.1 msg/s")


async def test_without_intervals_nothing_is_timed(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(stats_interval_s=0) as client:
        producer = await client.create_producer("t")
        await producer.send(b"x")
        await trio.sleep(100)
        found = producer.statistics()
        assert (found.total_acks_received, found.num_acks_received) == (1, 0)
        assert producer._parts[0].counts._slots is None


async def test_chunks_are_one_message(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer(
            "t", batching_enabled=False, chunking_enabled=True, chunk_max_message_size_bytes=10
        )
        await producer.send(b"x" * 25)
        found = producer.statistics()
        assert found.total_msgs_sent == found.total_acks_received == 1
        assert (found.total_bytes_sent, found.total_entries_acknowledged) == (25, 3)


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=100), st.floats(1, 100))
def test_percentiles_are_near(latencies: list[float], percent: float) -> None:
    counts = Counts()
    for each in latencies:
        counts.begin_run(each, 0.0, 1)
        counts.messages += 1
    counts.roll(1.0, 0, 0)
    ordered = sorted(latencies)
    exact = ordered[max(1, math.ceil(len(ordered) * percent / 100 - 1e-9)) - 1]
    (found,) = percentiles_ms(counts.last.slots, counts.last.latency_max_s, [percent])
    assert exact * 1000 * 0.999 <= found <= max(exact * 1.02, exact + 1e-8) * 1000


def test_no_latencies() -> None:
    assert percentiles_ms(defaultdict(int), 0.0, (50, 99)) == [0.0, 0.0]
