"""Commands that take long are done in turns (PR-16)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from geminga_broker._tests.wire import Type, message, open_broker
from geminga_broker.session import serving
from geminga_broker.session.serving import READ_FRAMES, _finish, serve_frames
from geminga_broker.session.session import Session
from geminga_broker.session.turns import STARTS_PER_TURN, STEP_IDS
from geminga_broker.topic.api import SubType
from geminga_protocol import ack_set
from geminga_protocol.commands import connection, consuming, lookup
from geminga_protocol.frames import Frame, FrameReader
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

TOPIC = "persistent://public/default/turns"


class CountedTurns:
    """Counts the turns of commands that take long."""

    def __init__(self) -> None:
        self.taken = 0

    async def __aenter__(self) -> None:
        self.taken += 1
        await trio.lowlevel.checkpoint()

    async def __aexit__(self, *_: object) -> None:
        await trio.lowlevel.checkpoint()


async def test_long_acknowledgements_are_taken_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = 5 * STEP_IDS
    async with open_broker() as broker:
        client, other = broker.client(), broker.client()
        await other.connect()
        await client.connect()
        await client.open_producer(TOPIC)
        await client.subscribe(TOPIC, kind=SubType.Shared)
        [subscription] = broker.service.topics.loaded[TOPIC].subscriptions.values()
        for first in range(0, many, 1000):
            await client.send(*(message(first + number) for number in range(1000)))
            for _ in range(1000):
                await client.expect(Type.SEND_RECEIPT)
        await client.send(consuming.flow(1, many))
        ids = []
        for _ in range(many):
            found = (await client.expect(Type.MESSAGE)).command.message.message_id
            ids.append(MessageId(found.ledgerId, found.entryId))
        turns = CountedTurns()
        monkeypatch.setattr(broker.service.connections, "turn", turns)
        # All are resent; the response to the next frame of the same read follows.
        again = consuming.redeliver_unacknowledged(1, ids)
        await client.send(again, consuming.flow(1, many))
        for _ in range(many):
            assert (await client.expect(Type.MESSAGE)).command.message.redelivery_count == 1
        assert turns.taken >= many // STEP_IDS
        turns.taken = 0
        await client.send(consuming.ack(1, ids, request_id=7), connection.PING)
        answer = (await client.expect(Type.ACK_RESPONSE)).command.ackResponse
        assert not answer.HasField("error")
        assert subscription.backlog_entries() == 0
        await client.expect(Type.PONG)
        assert turns.taken >= 2 * many // STEP_IDS


async def test_a_consumer_that_is_closed_in_between_takes_no_more() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC, kind=SubType.Shared)
        [session] = broker.service.connections.sessions
        ids = [MessageId(0, number) for number in range(3 * STEP_IDS)]
        async with broker.service.connections.turn:
            await client.send(consuming.ack(1, ids, request_id=7))
            await trio.testing.wait_all_tasks_blocked()
            assert not session.liveness.reading
            consumer = session.consumers.get(1)
            assert consumer is not None
            consumer.disconnect()
        await client.expect(Type.CLOSE_CONSUMER)
        answer = (await client.expect(Type.ACK_RESPONSE)).command.ackResponse
        assert answer.error == ServerError.ConsumerNotFound
        await client.ask(connection.PING, Type.PONG)


async def test_a_too_long_ack_set_fails_a_long_acknowledgement() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer(TOPIC)
        await client.subscribe(TOPIC, kind=SubType.Shared)
        await client.ask(message(0), Type.SEND_RECEIPT)
        [subscription] = broker.service.topics.loaded[TOPIC].subscriptions.values()
        ids = [MessageId(0, number) for number in range(2 * STEP_IDS)]
        longer = MessageId(0, 0, ack_set=(1,) * (ack_set.WORDS_MAX + 1))
        await client.send(consuming.ack(1, [*ids, longer], request_id=7))
        answer = (await client.expect(Type.ACK_RESPONSE)).command.ackResponse
        assert answer.error == ServerError.NotAllowedError
        assert subscription.backlog_entries() == 1


async def test_many_small_commands_are_begun_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is short, but a read brings thousands of them."""
    many = 20 * STARTS_PER_TURN
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        turns = CountedTurns()
        monkeypatch.setattr(broker.service.connections, "turn", turns)
        asked = [lookup.partitioned_metadata(TOPIC, number) for number in range(many)]
        await client.send(*asked, connection.PING)
        answers = []
        while (frame := await client.next()) is not None and len(answers) < many:
            if frame.type != Type.PONG:
                answers.append(frame.command.partitionMetadataResponse.request_id)
            if len(answers) == many:
                break
        assert sorted(answers) == list(range(many))
        assert turns.taken >= many // STARTS_PER_TURN


async def test_many_small_acknowledgements_are_taken_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has a few ids, but a read has many; receipts and later frames keep their order."""
    many = 8 * STEP_IDS
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(TOPIC, kind=SubType.Shared)
        [session] = broker.service.connections.sessions
        ids = [MessageId(0, number) for number in range(many)]
        acks = [
            consuming.ack(1, ids[first : first + 20], request_id=first)
            for first in range(0, many, 20)
        ]
        turns = CountedTurns()
        monkeypatch.setattr(broker.service.connections, "turn", turns)
        handed: list[Frame] = [*FrameReader().feed(b"".join([*acks, connection.PING]))]
        await _finish(session, serve_frames(session, handed))
        assert turns.taken == many // STEP_IDS
        for first in range(0, many, 20):
            answer = (await client.expect(Type.ACK_RESPONSE)).command.ackResponse
            assert answer.request_id == first
        await client.expect(Type.PONG)


async def test_reads_that_bring_many_commands_get_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of 256 KiB has 20 000 of the smallest, which would hold the loop for 150 ms."""
    counts: list[int] = []

    def counted(session: Session, frames: Sequence[Frame]) -> None:
        counts.append(len(frames))

    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        monkeypatch.setattr(serving, "serve_frames", counted)
        filler = message(0, bytes(200_000))
        for _ in range(8):  # makes reads large
            await client.send(filler)
        await trio.testing.wait_all_tasks_blocked()
        assert sum(counts) == 8
        counts.clear()
        await client.send(connection.PING * 60_000)
        await trio.testing.wait_all_tasks_blocked()
        assert sum(counts) == 60_000
        assert counts[0] > READ_FRAMES  # without a bound
        assert max(counts[6:]) <= READ_FRAMES
