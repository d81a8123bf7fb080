"""A consumer leaves its topics even if its closing is cancelled."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from geminga import AlreadyClosedError, InitialPosition, OperationTimeoutError
from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand


def session_without(broker: FakeBroker, kind: BaseCommand.Type.ValueType) -> FakeSession:
    """The one session, which answers no command of that kind from now on."""
    [session] = broker.sessions
    handle = session.handle

    def handle_others(frame: Frame) -> None:
        if frame.type != kind:
            handle(frame)

    session.handle = handle_others
    return session


@pytest.mark.parametrize("partitions", [0, 3])
async def test_cancelled_before_it_began(partitions: int, autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        if partitions:
            broker.partitions["persistent://public/default/t"] = partitions
        consumer = await client.subscribe("t", "s")
        [session] = broker.sessions
        assert len(session.consumers) == max(partitions, 1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await consumer.aclose()
        assert scope.cancelled_caught
        await trio.sleep(0.1)
        assert not session.consumers


async def test_cancelled_while_receipts_of_acknowledgements_are_missing(
    autojump_clock: MockClock,
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe(
            "t", "s", initial_position=InitialPosition.EARLIEST, ack_receipt_enabled=True
        )
        await (await client.create_producer("t")).send(b"x")
        message = await consumer.receive()
        session = session_without(broker, BaseCommand.ACK)

        async def acknowledge() -> None:
            with pytest.raises(OperationTimeoutError):
                await consumer.acknowledge(message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(acknowledge)
            await trio.sleep(1)
            with trio.move_on_after(1) as scope:
                await consumer.aclose()
            assert scope.cancelled_caught
            await trio.sleep(0.1)
            assert not session.consumers


async def test_cancelled_while_unsubscribing(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s")
        session = session_without(broker, BaseCommand.UNSUBSCRIBE)
        with trio.move_on_after(1) as scope:
            await consumer.unsubscribe()
        assert scope.cancelled_caught
        await trio.sleep(0.1)
        assert not session.consumers
        with pytest.raises(AlreadyClosedError):
            await consumer.receive()
