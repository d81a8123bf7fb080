"""Publishing and consuming at the wire."""

from __future__ import annotations

from functools import partial

import pytest

from geminga_broker._tests.wire import (
    Type,
    message,
    open_broker,
    open_client,
)
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.subscription.subscription import Subscription
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.commands import (
    connection,
    consuming,
    producing,
)
from geminga_protocol.encode import framed
from geminga_protocol.ids import Position
from geminga_protocol.message_id import EARLIEST_ID, MessageId
from geminga_protocol.pb.pulsar_api_pb2 import CommandSend, ServerError
from geminga_protocol.topic_name import TopicName

TOPIC = "persistent://public/default/a"


@pytest.mark.parametrize("has_others", [True, False])
@pytest.mark.parametrize("kind", ["one", "run", "cumulative"])
async def test_receipts_of_acknowledgements_without_a_session(
    kind: str, has_others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stood still goes on with what it was sent meanwhile, when its topics may be
    another one's. If there is no other, they go on.
    """
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC)
        first = consuming.ack(1, [MessageId(1, 1)], cumulative=kind == "cumulative", request_id=8)
        assert not (await client.ask(first, Type.ACK_RESPONSE)).ackResponse.HasField("error")
        monkeypatch.setattr(BundleOwnership, "has_session", False)
        monkeypatch.setattr(broker.service.hold_over, "_has_others", has_others)
        count = 2 if kind == "run" else 1
        await client.send(*(first for _ in range(count)))
        for _ in range(count):
            answer = (await client.expect(Type.ACK_RESPONSE)).command.ackResponse
            assert answer.HasField("error") == has_others
            assert not has_others or answer.error == ServerError.ServiceNotReady


async def test_publish_and_consume() -> None:
    async with open_client() as client:
        await client.subscribe(TOPIC)
        await client.open_producer(TOPIC)
        await client.send(message(0, b"one"), message(1, b"two"))
        receipts = [await client.expect(Type.SEND_RECEIPT) for _ in range(2)]
        ids = [each.command.send_receipt.message_id for each in receipts]
        assert [each.command.send_receipt.sequence_id for each in receipts] == [0, 1]
        await client.send(consuming.flow(1, 10))
        for expected, place in zip((b"one", b"two"), ids, strict=True):
            got = await client.expect(Type.MESSAGE)
            assert got.payload is not None
            assert bytes(got.payload).endswith(expected)
            assert got.command.message.message_id.entryId == place.entryId
        acked = [MessageId(place.ledgerId, place.entryId) for place in ids]
        answer = await client.ask(consuming.ack(1, acked, request_id=9), Type.ACK_RESPONSE)
        assert not answer.ackResponse.HasField("error")
        answer = await client.ask(
            consuming.get_last_message_id(1, 3), Type.GET_LAST_MESSAGE_ID_RESPONSE
        )
        assert answer.getLastMessageIdResponse.last_message_id.entryId == ids[1].entryId
        await client.subscribe(TOPIC + "-empty", 2)
        answer = await client.ask(
            consuming.get_last_message_id(2, 4), Type.GET_LAST_MESSAGE_ID_RESPONSE
        )
        empty = MessageId.from_wire(answer.getLastMessageIdResponse.last_message_id)
        assert (empty.ledger_id, empty.entry_id) == (-1, -1)
        answer = await client.ask(consuming.consumer_stats(4, 1), Type.CONSUMER_STATS_RESPONSE)
        assert answer.consumerStatsResponse.msgBacklog == 0


async def test_a_bad_checksum_is_refused_alone() -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC)
        bad = bytearray(message(1))
        bad[-1] ^= 1
        await client.send(message(0), bytes(bad), message(2))
        answers = [await client.next() for _ in range(3)]
        errors = [a.command.send_error for a in answers if a and a.type == Type.SEND_ERROR]
        assert [(e.sequence_id, e.error) for e in errors] == [(1, ServerError.ChecksumError)]
        receipts = [a.command.send_receipt for a in answers if a and a.type == Type.SEND_RECEIPT]
        assert [r.sequence_id for r in receipts] == [0, 2]


async def test_a_send_without_payload_is_refused() -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC)
        empty = framed(CommandSend(producer_id=1, sequence_id=5))
        answer = await client.ask(empty, Type.SEND_ERROR)
        assert answer.send_error.sequence_id == 5


async def test_send_for_an_unknown_producer_closes_the_connection() -> None:
    async with open_client() as client:
        await client.send(message(0, producer_id=9))
        assert await client.next() is None


async def test_sends_after_the_broker_closed_the_producer_are_dropped() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer(TOPIC)
        from geminga_protocol.topic_name import TopicName

        assert await broker.service.topics.unload(TopicName.parse(TOPIC))
        assert (await client.expect(Type.CLOSE_PRODUCER)).command.close_producer.producer_id == 1
        await client.send(message(0))
        await client.ask(connection.PING, Type.PONG)
        await client.open_producer(TOPIC)


async def test_interleaved_producers_keep_their_orders() -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC, 1)
        await client.open_producer(TOPIC, 2)
        frames = [message(n, producer_id=1 + n % 2) for n in range(20)]
        await client.send(*frames)
        seen: dict[int, list[int]] = {1: [], 2: []}
        for _ in frames:
            receipt = (await client.expect(Type.SEND_RECEIPT)).command.send_receipt
            seen[receipt.producer_id].append(receipt.sequence_id)
        assert seen == {1: list(range(0, 20, 2)), 2: list(range(1, 20, 2))}


async def test_opening_twice_is_confirmed_twice_and_closing_forgets() -> None:
    async with open_client() as client:
        await client.open_producer(TOPIC)
        await client.open_producer(TOPIC)
        await client.ask(producing.close_producer(1, 5), Type.SUCCESS)
        await client.ask(producing.close_producer(1, 6), Type.SUCCESS)
        await client.ask(producing.close_producer(77, 7), Type.ERROR)
        await client.subscribe(TOPIC)
        await client.subscribe(TOPIC)
        await client.ask(consuming.close_consumer(1, 8), Type.SUCCESS)
        await client.ask(consuming.close_consumer(1, 9), Type.SUCCESS)
        await client.ask(consuming.close_consumer(77, 9), Type.ERROR)


async def test_producer_opened_and_closed_in_one_breath() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        open_it = producing.producer(TOPIC, 1, 1, producer_name="p")
        await client.send(open_it, producing.close_producer(1, 2))
        answer = await client.expect(Type.SUCCESS)
        assert answer.command.success.request_id == 2
        await client.ask(producing.producer(TOPIC, 1, 3, producer_name="p"), Type.PRODUCER_SUCCESS)
        assert list(broker.service.topics.loaded[TOPIC].producers) == ["p"]


async def test_unknown_consumers() -> None:
    async with open_client() as client:
        await client.send(consuming.flow(5, 1), consuming.redeliver_unacknowledged(5))
        answer = await client.ask(
            consuming.ack(5, [MessageId(1, 1)], request_id=2), Type.ACK_RESPONSE
        )
        assert answer.ackResponse.error == ServerError.ConsumerNotFound
        for request in (
            consuming.seek(5, 1, message_id=EARLIEST_ID),
            consuming.unsubscribe(5, 1),
            consuming.get_last_message_id(5, 1),
        ):
            assert (await client.ask(request, Type.ERROR)).error.request_id == 1
        answer = await client.ask(consuming.consumer_stats(1, 5), Type.CONSUMER_STATS_RESPONSE)
        assert answer.consumerStatsResponse.error_code == ServerError.ConsumerNotFound


async def test_seek_closes_the_consumer_which_reads_again() -> None:
    async with open_client() as client:
        await client.subscribe(TOPIC)
        await client.open_producer(TOPIC)
        await client.send(message(0))
        await client.expect(Type.SEND_RECEIPT)
        await client.send(consuming.flow(1, 10))
        first = (await client.expect(Type.MESSAGE)).command.message.message_id
        await client.send(consuming.seek(1, 5, message_id=EARLIEST_ID))
        kinds = [frame.type for frame in (await client.next(), await client.next()) if frame]
        assert sorted(kinds) == [Type.SUCCESS, Type.CLOSE_CONSUMER]
        await client.subscribe(TOPIC)
        await client.send(consuming.flow(1, 10))
        again = (await client.expect(Type.MESSAGE)).command.message.message_id
        assert Position(again.ledgerId, again.entryId) == Position(first.ledgerId, first.entryId)


async def test_unsubscribe() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC)
        await client.ask(consuming.unsubscribe(1, 5), Type.SUCCESS)
        assert not broker.service.topics.loaded[TOPIC].subscriptions


@pytest.mark.parametrize("request_name", ["seek", "unsubscribe"])
async def test_what_an_unload_overtakes_is_refused(
    request_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, drop = TopicLog.find_by_time, PersistentTopic.drop_subscription
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC)
        unload = partial(broker.service.topics.unload, TopicName.parse(TOPIC))

        async def unload_and_find(self: TopicLog, timestamp_ms: int) -> Position:
            await unload()
            return await find(self, timestamp_ms)

        async def unload_and_drop(self: PersistentTopic, subscription: Subscription) -> None:
            await unload()
            await drop(self, subscription)

        monkeypatch.setattr(TopicLog, "find_by_time", unload_and_find)
        monkeypatch.setattr(PersistentTopic, "drop_subscription", unload_and_drop)
        if request_name == "seek":
            await client.send(consuming.seek(1, 5, publish_time_ms=7))
            await client.expect(Type.CLOSE_CONSUMER)
        else:
            await client.send(consuming.unsubscribe(1, 5))
        refused = (await client.expect(Type.ERROR)).command.error
        assert refused.request_id == 5
        await client.open_producer(TOPIC)
        assert list(broker.service.topics.loaded[TOPIC].subscriptions) == ["sub"]
