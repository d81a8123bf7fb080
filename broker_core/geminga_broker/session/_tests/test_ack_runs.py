"""ACKs that come in one read go to their consumers together (BR-33)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from geminga_broker._tests.wire import Type, WireClient, message, open_broker
from geminga_broker.log.api import Ack
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.topic.api import SubType
from geminga_protocol import ack_set
from geminga_protocol.commands import consuming
from geminga_protocol.encode import individual_acks
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


@pytest.mark.parametrize("kind", [SubType.Exclusive, SubType.Shared])
async def test_acks_of_neighbouring_entries_are_applied_as_runs(
    runs: list[tuple[int, int, bool]], kind: SubType.ValueType
) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC, kind=kind)
        await client.open_producer(TOPIC)
        for number in range(120):
            await client.ask(message(number), Type.SEND_RECEIPT)
        await client.send(consuming.flow(1, 120))
        for _ in range(120):
            await client.expect(Type.MESSAGE)
        topic = broker.service.topics.loaded[TOPIC]
        ledger_id = topic.log.last_position.ledger_id
        subscription = topic.subscriptions["sub"]

        def of(consumer_id: int, first: int, end: int) -> bytes:
            return individual_acks(consumer_id, [(ledger_id, n, ()) for n in range(first, end)])

        last = consuming.ack(1, [MessageId(ledger_id, 119)], request_id=7)
        await client.send(of(1, 40, 80) + of(UNKNOWN, 0, 120) + of(1, 60, 100) + last)
        assert await answers(client, 1) == [(7, None)]
        assert runs == [(1, 40, False), (1, 40, False), (1, 1, False)]
        assert subscription.backlog_entries() == 120 - 61
        assert subscription.cursor.mark_delete.entry_id == -1
        await client.send(of(1, 0, 40) + last)
        assert await answers(client, 1) == [(7, None)]
        assert subscription.cursor.mark_delete.entry_id == 99
        [consumer] = subscription.consumers
        assert len(consumer.pending) == (19 if kind == SubType.Shared else 0)


async def test_a_run_of_acks_before_connect_closes_the_connection() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.send(individual_acks(1, [(1, n, ()) for n in range(100)]))
        with trio.fail_after(20):  # not only when CONNECT doesn't come in time
            assert await client.next() is None
