from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import CompressionType, ConsumerType, InitialPosition
from geminga._tests.fake_broker import FakeBroker, fake_broker
from geminga_protocol.payload import parse_metadata
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata, ServerError

LARGE = bytes(range(256)) * 20
CHUNKED: dict[str, Any] = {"batching_enabled": False, "chunking_enabled": True}


def described(broker: FakeBroker) -> list[MessageMetadata]:
    return [parse_metadata(memoryview(entry)) for entry in broker.topic("t").entries]


def acked(broker: FakeBroker) -> set[int]:
    return broker.topic("t").subscriptions["s"].acked


@pytest.mark.parametrize("queue_size", [0, 1, 1000])
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZLIB])
async def test_there_and_back(
    autojump_clock: MockClock, compression: CompressionType, queue_size: int
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 1000
        data = LARGE if not compression else bytes(client._core.chance.randbytes(4000))
        consumer = await client.subscribe("t", "s", receiver_queue_size=queue_size)
        producer = await client.create_producer(
            "t", producer_name="p", compression_type=compression, **CHUNKED
        )
        sent = await producer.send(data, properties={"a": "b"})
        small = await producer.send(b"small")
        assert small.first_chunk is None
        assert sent.first_chunk is not None
        assert (sent.first_chunk.entry_id, sent.entry_id) == (0, len(described(broker)) - 2)
        *chunks, plain = described(broker)
        assert [each.chunk_id for each in chunks] == list(range(len(chunks)))
        assert {each.uuid for each in chunks} == {"p-0"}
        assert {each.num_chunks_from_msg for each in chunks} == {len(chunks)}
        assert not plain.HasField("uuid")
        assert producer.last_sequence_id == 1

        message = await consumer.receive(5)
        assert message.data == data
        assert message.properties == {"a": "b"}
        assert message.message_id == sent
        assert message.message_id.first_chunk == sent.first_chunk
        assert message.message_id.serialize() == sent.serialize()
        assert (await consumer.receive(5)).data == b"small"
        await consumer.acknowledge(message)
        await trio.sleep(0.2)
        assert acked(broker) == set(range(len(chunks)))


async def test_limits(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 1000
        with pytest.raises(geminga.InvalidArgumentError, match="batching_enabled"):
            await client.create_producer("t", chunking_enabled=True)
        small = await client.create_producer("t", chunk_max_message_size_bytes=10, **CHUNKED)
        await small.send(b"x" * 35)
        assert [each.chunk_id for each in described(broker)] == [0, 1, 2, 3]
        with pytest.raises(geminga.MessageTooBigError, match="no room"):
            await small.send(b"x", properties={"a": "x" * 1000})
        passing = await client.create_producer("non-persistent://public/default/t", **CHUNKED)
        with pytest.raises(geminga.MessageTooBigError):
            await passing.send(LARGE)


@pytest.mark.parametrize("by_id", [True, False])
async def test_refused_whole(autojump_clock: MockClock, by_id: bool) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 1000
        consumer = await client.subscribe(
            "t", "s", consumer_type=ConsumerType.SHARED, negative_ack_redelivery_delay_s=1
        )
        producer = await client.create_producer("t", **CHUNKED)
        await producer.send(LARGE)
        for count in range(3):
            message = await consumer.receive(5)
            assert message.data == LARGE
            assert message.redelivery_count == count
            consumer.negative_acknowledge(message.message_id if by_id else message)
        message = await consumer.receive(5)
        await consumer.acknowledge(message.message_id if by_id else message)
        await trio.sleep(1)
        assert acked(broker) == set(range(len(broker.topic("t").entries)))


async def test_cut_while_chunks_are_on_their_way(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 1000
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t", producer_name="p", **CHUNKED)
        broker.hold_receipts = True
        receipt = await producer.submit(LARGE)
        await trio.sleep(0.01)
        # Receipts of the first two arrive; the others are resent.
        held, broker.held = broker.held, []
        for answer in held[:2]:
            answer()
        await trio.sleep(0.01)
        broker.cut()
        broker.hold_receipts = False
        sent = await receipt.wait()
        assert (sent.entry_id, sent.first_chunk) == (-1, None)  # all of it was stored before
        message = await consumer.receive(60)
        assert message.data == LARGE
        await producer.send(b"next")
        assert (await consumer.receive(5)).data == b"next"
        assert producer.pending_messages == 0


async def test_a_refused_chunk_fails_the_message_alone(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 1000
        producer = await client.create_producer("t", **CHUNKED)
        broker.fail["send"] = [(ServerError.NotAllowedError, "no")]
        failing = await producer.submit(LARGE)
        after = await producer.submit(b"after")
        with pytest.raises(geminga.NotAllowedError):
            await failing.wait()
        await after.wait()
        assert producer.pending_messages == 0


async def test_one_that_never_gets_whole_expires(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 1000
        producer = await client.create_producer("t", **CHUNKED)
        await producer.send(LARGE)
        del broker.topic("t").entries[2:]
        await producer.send(b"whole")
        consumer = await client.subscribe(
            "t",
            "s",
            initial_position=InitialPosition.EARLIEST,
            expire_time_of_incomplete_chunked_message_s=5,
        )
        assert (await consumer.receive(5)).data == b"whole"
        await trio.sleep(4)
        assert acked(broker) == set()
        await trio.sleep(2)
        assert acked(broker) == {0, 1}


@pytest.mark.parametrize("inclusive", [True, False])
async def test_readers_begin_at_or_after_it(autojump_clock: MockClock, inclusive: bool) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 1000
        producer = await client.create_producer("t", **CHUNKED)
        sent = await producer.send(LARGE)
        await producer.send(b"next")
        reader = await client.create_reader("t", sent, start_message_id_inclusive=inclusive)
        if inclusive:
            assert (await reader.read_next(5)).data == LARGE
        assert (await reader.read_next(5)).data == b"next"
