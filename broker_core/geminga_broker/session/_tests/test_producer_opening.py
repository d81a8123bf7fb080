"""Events between a producer's registration in the topic and PRODUCER_SUCCESS (BR-20)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from trio.testing import wait_all_tasks_blocked

from geminga_broker._tests.wire import Type, message, open_broker
from geminga_broker.authz.needs import Place
from geminga_broker.session import producers
from geminga_broker.session.authorization import reauthorize
from geminga_broker.session.registry import Opening
from geminga_broker.session.session import Session
from geminga_protocol.commands import connection, producing
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode, ServerError
from geminga_protocol.topic_name import TopicName

TOPIC = "persistent://public/default/opening"


class Between:
    """Does something while the broker asks a last time whether the client may produce."""

    def __init__(self, what: Callable[[], Awaitable[object]]) -> None:
        self._what = what
        self._calls = 0

    async def __call__(
        self, session: Session, kind: int, command: object, opening: Opening
    ) -> None:
        await reauthorize(session, kind, command, opening)
        self._calls += 1
        opening.place = Place()
        if self._calls == 3:
            await self._what()


@pytest.mark.parametrize("how", ["unload", "delete", "successor"])
async def test_a_producer_closed_while_opening_gets_no_success(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()

        async def close() -> None:
            name = TopicName.parse(TOPIC)
            if how == "unload":
                await broker.service.topics.unload(name)
            elif how == "delete":
                await broker.service.topics.delete(name, force=True)
            else:
                broker.service.topics.loaded[TOPIC].disconnect_producers()

        with monkeypatch.context() as patched:
            patched.setattr(producers, "reauthorize", Between(close))
            answer = await client.ask(producing.producer(TOPIC, 1, 7), Type.ERROR)
        assert answer.error.request_id == 7
        assert answer.error.error == ServerError.ServiceNotReady
        await client.open_producer(TOPIC)
        await client.ask(message(1), Type.SEND_RECEIPT)


async def test_access_granted_before_the_first_response_sends_one_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_broker() as broker:
        first, second = broker.client(), broker.client()
        await first.connect()
        await second.connect()
        await first.open_producer(TOPIC)

        async def turn() -> None:
            await first.ask(producing.close_producer(1, 8), Type.SUCCESS)
            await wait_all_tasks_blocked()

        waiting = producing.producer(TOPIC, 1, 7, access_mode=ProducerAccessMode.WaitForExclusive)
        with monkeypatch.context() as patched:
            patched.setattr(producers, "reauthorize", Between(turn))
            answer = await second.ask(waiting, Type.PRODUCER_SUCCESS)
        assert answer.producer_success.producer_ready
        await second.ask(message(1), Type.SEND_RECEIPT)
        await second.ask(connection.PING, Type.PONG)
