"""ACKs that come in one read go to their consumers together (BR-33)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from geminga_broker._tests.wire import Type, WireClient, message, open_broker
from geminga_broker.log.api import Ack
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.topic.api import SubType
from geminga_protocol import ack_set
from geminga_protocol.commands import consuming
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

TOPIC = "persistent://public/default/acks"
UNKNOWN = 9


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, bool]]:
    """Consumer, count and kind of each hand-over."""
    found: list[tuple[int, int, bool]] = []
    apply = Consumer.ack

    def noted(self: Consumer, acks: Sequence[Ack], *, cumulative: bool = False) -> None:
        found.append((self.consumer_id, len(acks), cumulative))
        apply(self, acks, cumulative=cumulative)

    monkeypatch.setattr(Consumer, "ack", noted)
    return found


async def answers(client: WireClient, count: int) -> list[tuple[int, int | None]]:
    """Request ids of the next receipts, with the codes of those that are errors."""
    found: list[tuple[int, int | None]] = []
    for _ in range(count):
        answer = (await client.expect(Type.ACK_RESPONSE)).command.ackResponse
        found.append((answer.request_id, answer.error if answer.HasField("error") else None))
    return found


async def test_one_list_for_each_consumer_and_receipts_in_order(
    runs: list[tuple[int, int, bool]],
) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC, kind=SubType.Shared)
        await client.ask(consuming.subscribe(TOPIC, "other", SubType.Shared, 2, 5), Type.SUCCESS)
        await client.open_producer(TOPIC)
        for number in range(4):
            await client.ask(message(number), Type.SEND_RECEIPT)
        topic = broker.service.topics.loaded[TOPIC]
        ledger_id = topic.log.last_position.ledger_id

        def one(consumer_id: int, entry_id: int, request_id: int | None = None) -> bytes:
            return consuming.ack(
                consumer_id, [MessageId(ledger_id, entry_id)], request_id=request_id
            )

        await client.send(
            one(1, 0)
            + one(2, 0, 10)
            + one(1, 1, 11)
            + one(UNKNOWN, 2, 12)
            + one(2, 1)
            + one(1, 2, 13)
        )
        refused = ServerError.ConsumerNotFound
        assert await answers(client, 4) == [(10, None), (11, None), (12, refused), (13, None)]
        assert runs == [(1, 2, False), (2, 1, False), (2, 1, False), (1, 1, False)]
        assert topic.subscriptions["sub"].backlog_entries() == 1
        assert topic.subscriptions["other"].backlog_entries() == 2


async def test_cumulative_and_long_acks_are_handled_alone_in_order(
    runs: list[tuple[int, int, bool]],
) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC, kind=SubType.Exclusive)
        await client.open_producer(TOPIC)
        for number in range(4):
            await client.ask(message(number), Type.SEND_RECEIPT)
        topic = broker.service.topics.loaded[TOPIC]
        ledger_id = topic.log.last_position.ledger_id
        ids = [MessageId(ledger_id, n) for n in range(4)]
        long = MessageId(ledger_id, 2, ack_set=(1,) * ack_set.WORDS_MAX)
        await client.send(
            consuming.ack(1, ids[3:], request_id=1)
            + consuming.ack(1, ids[:1], cumulative=True, request_id=2)
            + consuming.ack(1, ids[1:2])
            + consuming.ack(1, [long], request_id=3)
            + consuming.ack(1, ids[2:3], request_id=4)
        )
        assert await answers(client, 4) == [(1, None), (2, None), (3, None), (4, None)]
        assert runs == [(1, 1, False), (1, 1, True), (1, 1, False), (1, 1, False), (1, 1, False)]
        assert topic.subscriptions["sub"].backlog_entries() == 0
