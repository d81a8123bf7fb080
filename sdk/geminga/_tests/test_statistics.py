from __future__ import annotations

import dataclasses

import pytest
from trio.testing import MockClock

import geminga
from geminga import ProducerStatistics
from geminga._tests.fake_broker import fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


async def test_counts_of_a_producer(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/t"] = 2
        producer = await client.create_producer("t", batching_max_messages=2)
        assert producer.statistics() == ProducerStatistics(0, 0, 0, 0, 0, 0, 2)
        for _ in range(4):
            await producer.send_soon(b"12345", partition_key="k")
        await producer.flush()
        assert producer.statistics() == ProducerStatistics(4, 20, 2, 0, 0, 0, 2)
        broker.fail["send"] = [(ServerError.NotAllowedError, "no")]
        with pytest.raises(geminga.NotAllowed):
            await producer.send(b"123")
        broker.hold_receipts = True
        await producer.send_soon(b"1", partition_key="k")
        found = producer.statistics()
        assert found == ProducerStatistics(4, 20, 2, 1, 1, 1, 2)
        with pytest.raises(dataclasses.FrozenInstanceError):
            found.messages_failed = 0
        broker.release_receipts()
        broker.hold_receipts = False


async def test_chunks_are_one_message(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer(
            "t", batching_enabled=False, chunking_enabled=True, chunk_max_message_size_bytes=10
        )
        await producer.send(b"x" * 25)
        assert producer.statistics() == ProducerStatistics(1, 25, 3, 0, 0, 0, 1)
