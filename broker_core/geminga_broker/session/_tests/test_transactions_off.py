"""Messages and acknowledgements of transactions, while there is no coordinator: refused as Apache's
broker refuses them with `transactionCoordinatorEnabled=false`.
"""

from __future__ import annotations

import pytest

from geminga_broker._tests.wire import Type, message, open_broker, open_client
from geminga_broker.topic.api import SubType
from geminga_protocol._tests.pair import payload_frame
from geminga_protocol.commands import connection, consuming
from geminga_protocol.message_id import MessageId
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandSend,
    MessageMetadata,
    ServerError,
)

TOPIC = "persistent://public/default/txn"
TXNS = [(0, 0), (0, 5), (3, 5), (1 << 63, 0)]


def send_in(txn: tuple[int | None, int | None], sequence_id: int = 4) -> bytes:
    """SEND within a transaction: (most, least) bits."""
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    send = CommandSend(
        producer_id=1,
        sequence_id=sequence_id,
        num_messages=1,
        txnid_most_bits=txn[0],
        txnid_least_bits=txn[1],
    )
    command = BaseCommand(type=BaseCommand.Type.SEND, send=send)
    return b"".join(payload_frame(command, build(metadata, b"x")))


@pytest.mark.parametrize("txn", TXNS)
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_messages(txn: tuple[int, int], domain: str) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        topic = TOPIC.replace("persistent", domain)
        await client.open_producer(topic)
        await client.send(message(1), send_in(txn), message(5))
        refused = (await client.expect(Type.SEND_ERROR)).command.send_error
        assert (refused.producer_id, refused.sequence_id) == (1, 4)
        assert refused.error == ServerError.NotAllowedError
        for stored in (1, 5):
            receipt = (await client.expect(Type.SEND_RECEIPT)).command.send_receipt
            assert receipt.sequence_id == stored
        assert broker.service.topics.loaded[topic].stats().msg_in_counter == 2


@pytest.mark.parametrize("half", [(3, None), (None, 3)])
async def test_half_a_transaction_id_is_no_transaction(half: tuple[int | None, int | None]) -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC)
        await client.ask(send_in(half), Type.SEND_RECEIPT)


@pytest.mark.parametrize("txn", TXNS)
@pytest.mark.parametrize("kind", [SubType.Exclusive, SubType.Shared])
async def test_acknowledgements(txn: tuple[int, int], kind: SubType.ValueType) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC, kind=kind)
        await client.open_producer(TOPIC)
        receipt = (await client.ask(message(1), Type.SEND_RECEIPT)).send_receipt.message_id
        one = [MessageId(receipt.ledgerId, receipt.entryId)]
        cumulative = kind == SubType.Exclusive
        request = consuming.ack(1, one, cumulative=cumulative, txnid=txn, request_id=8)
        answer = (await client.ask(request, Type.ACK_RESPONSE)).ackResponse
        assert answer.error == ServerError.NotAllowedError
        await client.send(consuming.ack(1, one, cumulative=cumulative, txnid=txn))
        await client.ask(connection.PING, Type.PONG)
        assert broker.service.topics.loaded[TOPIC].subscriptions["sub"].backlog_entries() == 1
