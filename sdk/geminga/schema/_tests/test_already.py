"""Payloads encoded by the program."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from trio.testing import MockClock

import geminga
import geminga.blocking
import geminga.testing
from geminga import schema
from geminga._tests.fake_broker import fake_broker
from geminga.schema import SchemaInfo, SchemaType


@dataclass
class Order:
    id: int
    name: str = "none"


AVRO = schema.Avro(Order)


@pytest.mark.parametrize("batched", [False, True])
async def test_messages_have_the_schema_and_the_bytes(
    autojump_clock: MockClock, batched: bool
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", schema=AVRO)
        already = schema.AlreadyEncoded(AVRO.info)
        producer = await client.create_producer("t", schema=already, batching_enabled=batched)
        await producer.send(AVRO.encode(Order(1, "a")))
        await producer.submit(AVRO.encode(Order(2, "b")), partition_key="k", sequence_id=7)
        await producer.send(None)
        await producer.send(bytearray(AVRO.encode(Order(3))))
        found = [await consumer.receive() for _ in range(4)]
        assert [each.value for each in found] == [Order(1, "a"), Order(2, "b"), None, Order(3)]
        assert {each.schema_version for each in found} == {bytes(8)}
        assert found[1].partition_key == "k"
        assert [each.sequence_id for each in found[:2]] == [0, 7]
        assert [each.is_null for each in found] == [False, False, True, False]
        with pytest.raises(geminga.InvalidValueError):
            await producer.send("text")


def test_many_at_once_through_the_blocking_face() -> None:
    with geminga.testing.broker() as url, geminga.blocking.connect(url) as client:
        already = schema.AlreadyEncoded(AVRO.info)
        with client.create_producer("t", schema=already) as producer:
            reader = client.create_reader("t", geminga.EARLIEST, schema=AVRO)
            receipts = [producer.submit(AVRO.encode(Order(n))) for n in range(3000)]
            producer.flush()
            assert all(each.error is None for each in receipts)
            assert [reader.read_next(10).value for _ in receipts] == [
                Order(n) for n in range(len(receipts))
            ]


def test_what_is_no_schema_of_a_topic_is_refused() -> None:
    with pytest.raises(geminga.InvalidArgumentError, match="AUTO_CONSUME"):
        schema.AlreadyEncoded(SchemaInfo("x", SchemaType.AUTO_CONSUME))
    with pytest.raises(geminga.InvalidArgumentError, match="must be a SchemaInfo"):
        schema.AlreadyEncoded(b"")
