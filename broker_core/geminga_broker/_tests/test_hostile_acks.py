"""Acknowledgements that lie about a batch's size (PR-08, PR-16)."""

from __future__ import annotations

import time

from geminga_broker.log.api import Ack
from geminga_broker.topic_api import SubType
from geminga_protocol import ack_set
from geminga_protocol.commands import connection, consuming
from geminga_protocol.message_id import MessageId

from .conftest import World
from .fake_client import FakeConnection, item, position, producer_request, subscribe_request
from .wire import Type, open_broker

TOPIC = "persistent://public/default/acks"


async def test_sizes_cost_nothing(world: World) -> None:
    topic = world.topic(batch_index_ack=True)
    client = FakeConnection()
    consumer = await topic.subscribe(subscribe_request(client, 1, "sub", sub_type=SubType.Shared))
    consumer.flow(100)
    producer = await topic.add_producer(producer_request(client))
    producer.publish([item(0, batch=4)])
    await world.settle()
    began_s = time.process_time()
    consumer.ack([Ack(position(0), (0b1110,), (1 << 31) - 1)] * 1000)
    consumer.ack([Ack(position(0), (0b1101,), -(1 << 31))])
    assert time.process_time() - began_s < 1
    assert consumer.pending[position(0)] == 2


def test_words_of_long_sets_take_linear_time() -> None:
    words = (-1,) * 1_000_000
    began_s = time.process_time()
    assert ack_set.from_bits(ack_set.to_bits(words)) == words
    assert time.process_time() - began_s < 2


async def test_long_sets_are_refused() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC, kind=SubType.Shared)
        longest = MessageId(0, 0, ack_set=(1,) * ack_set.WORDS_MAX)
        longer = MessageId(0, 0, ack_set=(1,) * (ack_set.WORDS_MAX + 1))
        for given, refused in ((longest, False), (longer, True)):
            await client.send(consuming.ack(1, [given], request_id=7))
            answer = (await client.expect(Type.ACK_RESPONSE)).command.ackResponse
            assert answer.request_id == 7
            assert answer.HasField("error") == refused
        await client.send(consuming.seek(1, 8, message_id=longer))
        assert (await client.expect(Type.ERROR)).command.error.request_id == 8
        # Without a receipt there is nothing to answer; the connection goes on.
        await client.send(consuming.ack(1, [longer]))
        await client.ask(connection.PING, Type.PONG)
