"""Acknowledgements that lie about a batch's size (PR-08, PR-16)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    position,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker._tests.wire import Type, message, open_broker
from geminga_broker.config import BrokerConfig
from geminga_broker.log.api import Ack
from geminga_broker.topic.api import SubType
from geminga_protocol import ack_set
from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.commands import connection, consuming
from geminga_protocol.ids import LATEST, Position
from geminga_protocol.message_id import MessageId

TOPIC = "persistent://public/default/acks"


@pytest.mark.alone
async def test_sizes_cost_nothing(world: World) -> None:
    topic = world.topic(batch_index_ack=True)
    client = FakeConnection()
    consumer = await topic.subscribe(subscribe_request(client, 1, "sub", sub_type=SubType.Shared))
    consumer.flow(100)
    producer = await topic.add_producer(producer_request(client))
    producer.publish([item(0, batch=4)])
    await world.settle()
    began_s = time.thread_time()
    consumer.ack([Ack(position(0), (0b1110,), (1 << 31) - 1)] * 1000)
    consumer.ack([Ack(position(0), (0b1101,), -(1 << 31))])
    assert time.thread_time() - began_s < 1
    assert consumer.pending[position(0)] == 2


@pytest.mark.alone
def test_words_of_long_sets_take_linear_time() -> None:
    words = (-1,) * 1_000_000
    assert ack_set.from_bits(ack_set.to_bits(words)) == words
    assert cpu_s(lambda: ack_set.from_bits(ack_set.to_bits(words)), 2, tries=3) < 2


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
        # Without a requested receipt there is no response; the connection stays open.
        await client.send(consuming.ack(1, [longer]))
        await client.ask(connection.PING, Type.PONG)


@pytest.mark.parametrize("kind", [SubType.Exclusive, SubType.Failover])
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("batch_index_ack", [True, False])
async def test_acks_beyond_the_end_change_nothing(
    kind: SubType.ValueType, durable: bool, batch_index_ack: bool
) -> None:
    """As Apache's `ManagedCursorImpl.asyncMarkDelete`: the receipt comes, the backlog stays."""
    config = BrokerConfig()
    config = replace(config, clients=replace(config.clients, batch_index_ack=batch_index_ack))
    async with open_broker(config) as broker:
        client = broker.client()
        await client.connect()
        options = consuming.SubscribeOptions(durable=durable)
        subscribe = consuming.subscribe(TOPIC, "sub", kind, 1, 5, options)
        await client.ask(subscribe, Type.SUCCESS)
        if kind == SubType.Failover:
            await client.expect(Type.ACTIVE_CONSUMER_CHANGE)
        await client.open_producer(TOPIC)
        for number in range(3):
            await client.ask(message(number), Type.SEND_RECEIPT)
        topic = broker.service.topics.loaded[TOPIC]
        subscription = topic.subscriptions["sub"]
        ledger_id = topic.log.last_position.ledger_id
        half = (0b10,)
        for beyond in (
            MessageId(LATEST.ledger_id, LATEST.entry_id),
            MessageId(LATEST.ledger_id, 0),
            MessageId(LATEST.ledger_id, LATEST.entry_id, ack_set=half),
            MessageId(ledger_id + 1000, 0),
            MessageId(ledger_id + 1, -1),
            MessageId(ledger_id, 3),
            MessageId(ledger_id, 3, ack_set=half),
            MessageId(ledger_id, 3, ack_set=(0,)),
            MessageId(ledger_id, 1000, ack_set=half),
        ):
            for cumulative in (True, False):
                request = consuming.ack(1, [beyond], cumulative=cumulative, request_id=7)
                answer = (await client.ask(request, Type.ACK_RESPONSE)).ackResponse
                assert not answer.HasField("error")
                assert subscription.backlog_entries() == 3, (beyond, cumulative)
                assert subscription.cursor.mark_delete.entry_id == -1
                assert not subscription.cursor.ack_set(Position(ledger_id, 3))
        last = consuming.ack(1, [MessageId(ledger_id, 2)], cumulative=True, request_id=7)
        await client.ask(last, Type.ACK_RESPONSE)
        assert subscription.backlog_entries() == 0
