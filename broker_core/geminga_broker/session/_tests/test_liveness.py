"""Connections whose peer is gone without a word, and those that are held back."""

from __future__ import annotations

import pytest
import trio

from geminga_broker._tests.wire import (
    SubType,
    Type,
    open_broker,
    with_network,
)
from geminga_protocol.commands import connection, consuming, producing
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

TOPIC = "persistent://public/default/a"


async def test_a_producer_takes_the_name_from_a_connection_that_is_dead(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_broker() as broker:
        dead, late = broker.client(), broker.client()
        await dead.connect()
        await late.connect()
        request = producing.producer(TOPIC, 1, 1, producer_name="p")
        await dead.ask(request, Type.PRODUCER_SUCCESS)
        began_s = trio.current_time()
        await late.ask(request, Type.PRODUCER_SUCCESS)
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.1)
        assert len(broker.service.connections.sessions) == 1
        await dead.expect(Type.PING)


@pytest.mark.parametrize("answers", [True, False])
async def test_an_exclusive_subscription_is_taken_from_a_dead_connection_only(
    answers: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_broker() as broker:
        first, late = broker.client(), broker.client()
        await first.connect()
        await late.connect()
        await first.subscribe(TOPIC)
        request = consuming.subscribe(TOPIC, "sub", SubType.Exclusive, 1, 7)
        if not answers:
            await late.ask(request, Type.SUCCESS)
            return
        await late.send(request)
        await first.expect(Type.PING)
        await first.send(connection.PONG)
        answer = await late.expect(Type.ERROR)
        assert answer.command.error.error == ServerError.ConsumerBusy


async def test_names_stay_taken_where_the_check_is_switched_off() -> None:
    async with open_broker(with_network(liveness_timeout_ms=0)) as broker:
        first, late = broker.client(), broker.client()
        await first.connect()
        await late.connect()
        request = producing.producer(TOPIC, 1, 1, producer_name="p")
        await first.ask(request, Type.PRODUCER_SUCCESS)
        answer = await late.ask(request, Type.ERROR)
        assert answer.error.error == ServerError.ProducerBusy


async def test_a_client_that_is_held_back_gets_pongs_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        (session,) = broker.service.connections.sessions
        session.backpressure.throttle(100)
        await client.ask(connection.PING, Type.PONG)  # read before the pause
        await client.send(connection.PING)
        pongs_s: list[float] = []
        while (frame := await client.next()) is not None:
            if frame.type == Type.PONG:
                pongs_s.append(trio.current_time())
        # The last two: the PING that was read at last, and the end of that third of an interval.
        # At the end of the pause the keeper may wake before the reader, and tells it once more.
        told = [*range(10, 100, 10), 100, 100]
        assert [round(at_s) for at_s in pongs_s] in (told, [*told, 110])
        assert trio.current_time() > 150
