"""Connections whose peer is gone without a word, and those that are held back."""

from __future__ import annotations

import logging
import os

import pytest
import trio
import trio.testing

from geminga_broker._tests.wire import (
    SubType,
    Type,
    open_broker,
    with_network,
)
from geminga_broker.session import liveness
from geminga_protocol.commands import connection, consuming, producing
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_runtime._tests.test_pace import turned
from geminga_runtime.logs import FewLines
from geminga_runtime.pace import ENDS_A_TURN
from geminga_runtime.stream import FramedStream

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


async def test_names_stay_taken_if_the_check_is_off() -> None:
    async with open_broker(with_network(liveness_timeout_ms=0)) as broker:
        first, late = broker.client(), broker.client()
        await first.connect()
        await late.connect()
        request = producing.producer(TOPIC, 1, 1, producer_name="p")
        await first.ask(request, Type.PRODUCER_SUCCESS)
        answer = await late.ask(request, Type.ERROR)
        assert answer.error.error == ServerError.ProducerBusy


async def test_a_client_that_is_not_read_gets_pongs(
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
        # At the end of the pause the keeper may run before the reader, and send one more PONG.
        told = [*range(10, 100, 10), 100, 100]
        assert [round(at_s) for at_s in pongs_s] in (told, [*told, 110])
        assert trio.current_time() > 150


async def test_a_client_that_is_not_read_and_takes_nothing_is_dropped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_broker() as broker:
        client = broker.client(sockets=True)
        await client.connect()
        (session,) = broker.service.connections.sessions
        session.stream.write(bytes(10 << 20))
        await client.send(connection.PING)
        await trio.testing.wait_all_tasks_blocked(0.01)
        for _ in range(4):  # as long as it takes something it is only slow
            await trio.sleep(25)
            taken = 0
            while taken < 1 << 20:
                taken += len(await client.stream.receive_some(100_000))
        assert not session.liveness.reading
        assert session in broker.service.connections.sessions
        await trio.sleep(100)
        assert session not in broker.service.connections.sessions
        await client.stream.aclose()


async def test_clients_outlive_a_broker_that_stood_still(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with open_broker() as broker:
        clients = [broker.client(sockets=True) for _ in range(20)]
        for client in clients:
            await client.connect()
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            for client in clients:  # it comes while the broker can't read
                assert isinstance(client.stream, trio.SocketStream)
                os.write(client.stream.socket.fileno(), connection.PONG)
            mock_clock.jump(75)
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(broker.service.connections.sessions) == len(clients)
        for _ in range(8):  # but who is silent is dropped in time
            mock_clock.jump(10)
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert not broker.service.connections.sessions
        for client in clients:
            await client.stream.aclose()


async def test_many_that_are_silent_together_are_dropped_in_turns_and_in_few_lines(
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(liveness, "_few", FewLines(logging.getLogger("geminga_broker.session")))
    caplog.set_level(logging.INFO)
    many = 10 * ENDS_A_TURN
    async with open_broker() as broker:
        clients = [broker.client() for _ in range(many)]
        await trio.testing.wait_all_tasks_blocked()
        sessions = broker.service.connections.sessions
        assert len(sessions) == many
        with turned() as turns:
            abort = FramedStream.abort

            def aborting(stream: FramedStream, reason: str) -> None:
                turns.note()
                abort(stream, reason)

            monkeypatch.setattr(FramedStream, "abort", aborting)
            await trio.sleep(31)
        assert not sessions
        assert sum(turns.noted.values()) == many
        assert max(turns.noted.values()) <= ENDS_A_TURN
        assert len(clients) == many
    assert caplog.text.count("or no CONNECT") == FewLines.LINES
