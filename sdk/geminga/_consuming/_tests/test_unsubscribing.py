"""A subscription that is deleted while its topic moves is not created again by a SUBSCRIBE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga._consuming._tests.test_patterns import (
    MANY,
    TopicSession,
    send,
    tell_watchers,
    topics,
)
from geminga._tests.fake_broker import URL, FakeBroker, FakeSession, fake_broker
from geminga_protocol.commands import answers, consuming
from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

ANSWER_S = 5.0
REFUSED = (ServerError.MetadataError, "it has other consumers")


class Moving(FakeSession):
    """At an UNSUBSCRIBE deletes the subscription, if it isn't to fail, closes its consumers, and
    responds after 5 s.
    """

    assigned: str | None = URL
    refuses: bool = False

    def on_unsubscribe(self, body: Any, frame: Frame) -> None:
        if body.consumer_id not in self.consumers:
            failure = answers.error(body.request_id, ServerError.ConsumerNotFound, "not found")
            self.stream.write(failure)
            return
        subscription = self.consumers[body.consumer_id].subscription
        for consumer in list(subscription.consumers):
            self.close(consumer.id)
        answer = answers.success(body.request_id)
        if self.refuses:
            answer = answers.error(body.request_id, *REFUSED)
        else:
            del subscription.topic.subscriptions[subscription.name]
        self.broker.nursery.start_soon(self._respond, answer)

    def close(self, consumer_id: int) -> None:
        """The broker's own CLOSE_CONSUMER."""
        if consumer_id in self.consumers:
            self.consumers[consumer_id].leave()
        self.stream.write(
            consuming.close_consumer(consumer_id, 0, assigned_broker_url=self.assigned)
        )

    async def _respond(self, answer: bytes) -> None:
        await trio.sleep(ANSWER_S)
        self.stream.write(answer)


@pytest.fixture(params=[URL, None], ids=["assigned", "looked-up"])
def moving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Moving]:
    """Sessions that move topics, to a broker that is named or must be looked up."""
    monkeypatch.setattr(Moving, "assigned", request.param)
    return Moving


def names(broker: FakeBroker) -> dict[str, list[str]]:
    """The subscriptions of each topic."""
    return {
        name.rpartition("/")[2]: list(topic.subscriptions) for name, topic in broker.topics.items()
    }


async def is_served(client: geminga.Client, consumer: geminga.Consumer[bytes], topic: str) -> None:
    """What is sent to the topic gets to the consumer."""
    async with await client.create_producer(topic) as producer:
        await producer.send(b"x")
    assert (await consumer.receive(30)).data == b"x"


async def test_unsubscribed_while_it_moves(moving: type[Moving], autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = moving
        consumer = await client.subscribe("t", "s")
        await consumer.unsubscribe()
        await trio.sleep(60)
        assert names(broker) == {"t": []}
        assert broker.seen.count("subscribe") == 1
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive()


async def test_refused_while_it_moves(
    moving: type[Moving], monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(moving, "refuses", True)
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = moving
        consumer = await client.subscribe("t", "s")
        with pytest.raises(geminga.GemingaError, match="other consumers"):
            await consumer.unsubscribe()
        assert broker.seen.count("subscribe") == 1
        await is_served(client, consumer, "t")
        monkeypatch.setattr(moving, "refuses", False)
        with trio.fail_after(60):
            await consumer.unsubscribe()
        await trio.sleep(60)
        assert names(broker) == {"t": []}


@pytest.mark.parametrize("deleted", [True, False])
async def test_the_connection_is_lost_before_the_answer(
    deleted: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """The outcome is unknown: the caller is told, and the consumer works."""
    on_unsubscribe = FakeSession.on_unsubscribe

    def cutting(self: FakeSession, body: Any, frame: Frame) -> None:
        if deleted:
            on_unsubscribe(self, body, frame)
        self.stream.abort("cut")

    monkeypatch.setattr(FakeSession, "on_unsubscribe", cutting)
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s")
        with pytest.raises(geminga.ConnectionFailedError):
            await consumer.unsubscribe()
        await trio.sleep(10)
        assert names(broker) == {"t": ["s"]}
        await is_served(client, consumer, "t")


async def test_not_connected_now(autojump_clock: MockClock) -> None:
    """While it is attached again nothing is asked for, and it goes on."""
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s")
        broker.refuse_connections = 3
        broker.cut()
        await trio.sleep(0.01)
        with pytest.raises(geminga.ConnectionFailedError):
            await consumer.unsubscribe()
        assert "unsubscribe" not in broker.seen
        await trio.sleep(10)
        await is_served(client, consumer, "t")


async def test_two_at_once(moving: type[Moving], autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = moving
        consumer = await client.subscribe("t", "s")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.unsubscribe)
            nursery.start_soon(consumer.unsubscribe)
        await trio.sleep(60)
        assert broker.seen.count("unsubscribe") == 1
        assert names(broker) == {"t": []}


async def test_the_second_of_two_forces(autojump_clock: MockClock) -> None:
    """The first one's refusal is its own: the other one asks for itself."""
    forced: list[bool] = []

    class Strict(FakeSession):
        def on_unsubscribe(self, body: Any, frame: Frame) -> None:
            forced.append(body.force)
            if body.force:
                super().on_unsubscribe(body, frame)
            else:
                self.broker.nursery.start_soon(self._refuse, body.request_id)

        async def _refuse(self, request_id: int) -> None:
            await trio.sleep(ANSWER_S)
            self.stream.write(answers.error(request_id, *REFUSED))

    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = Strict
        consumer = await client.subscribe("t", "s")

        async def refused() -> None:
            with pytest.raises(geminga.GemingaError, match="other consumers"):
                await consumer.unsubscribe()

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refused)
                await trio.sleep(1)
                await consumer.unsubscribe(force=True)
        assert forced == [False, True]
        assert names(broker) == {"t": []}


@pytest.mark.parametrize("partitions", [0, 2])
async def test_cancelled_before_the_answer(
    partitions: int, moving: type[Moving], autojump_clock: MockClock
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = moving
        if partitions:
            broker.partitions["persistent://public/default/t"] = partitions
        consumer = await client.subscribe("t", "s")
        subscribed = broker.seen.count("subscribe")
        with trio.move_on_after(1) as scope:
            await consumer.unsubscribe()
        assert scope.cancelled_caught
        await trio.sleep(60)
        assert broker.seen.count("subscribe") == subscribed
        if partitions:
            assert names(broker) == {"t-partition-0": [], "t-partition-1": ["s"]}
        else:
            assert names(broker) == {"t": []}
        assert not any(session.consumers for session in broker.sessions)
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive()


@pytest.mark.parametrize("refuses", [True, False])
async def test_closed_before_the_answer(
    refuses: bool,
    moving: type[Moving],
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    monkeypatch.setattr(moving, "refuses", refuses)
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = moving
        consumer = await client.subscribe("t", "s")
        answered: list[bool] = []

        async def unsubscribe() -> None:
            try:
                await consumer.unsubscribe()
            except geminga.GemingaError:
                answered.append(False)
            else:
                answered.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(unsubscribe)
            await trio.sleep(1)
            await consumer.aclose()
            assert trio.current_time() < ANSWER_S
        await trio.sleep(60)
        assert answered == [not refuses]
        assert broker.seen.count("subscribe") == 1
        assert names(broker) == {"t": ["s"] if refuses else []}


@pytest.mark.usefixtures("moving")
async def test_one_partition_moves_while_another_is_asked(autojump_clock: MockClock) -> None:
    """What is deleted already stays so, also if the next one is refused."""
    asked: list[int] = []

    class Partial(Moving):
        def on_unsubscribe(self, body: Any, frame: Frame) -> None:
            asked.append(body.consumer_id)
            if len(asked) == 1:
                FakeSession.on_unsubscribe(self, body, frame)
                return
            self.close(asked[0])
            self.refuses = len(asked) == 2
            super().on_unsubscribe(body, frame)

    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = Partial
        broker.partitions["persistent://public/default/t"] = 2
        consumer = await client.subscribe("t", "s")
        with pytest.raises(geminga.GemingaError, match="other consumers"):
            await consumer.unsubscribe()
        await trio.sleep(60)
        assert names(broker) == {"t-partition-0": [], "t-partition-1": ["s"]}
        await is_served(client, consumer, "t-partition-1")
        with trio.fail_after(60):
            await consumer.unsubscribe()
        await trio.sleep(60)
        assert asked == [asked[0], asked[1], asked[1]]
        assert names(broker) == {"t-partition-0": [], "t-partition-1": []}


class SlowTopics(TopicSession):
    """Responds to UNSUBSCRIBE after 5 s, and to SUBSCRIBE in the topic `many-2` after 10 s."""

    refuses: bool = False

    def on_subscribe(self, body: Any, frame: Frame) -> None:
        if body.topic.endswith("many-2"):
            later = 2 * ANSWER_S, super().on_subscribe
            self.broker.nursery.start_soon(self._later, *later, body, frame)
        else:
            super().on_subscribe(body, frame)

    def on_unsubscribe(self, body: Any, frame: Frame) -> None:
        if self.refuses:
            self.stream.write(answers.error(body.request_id, *REFUSED))
        else:
            later = ANSWER_S, super().on_unsubscribe
            self.broker.nursery.start_soon(self._later, *later, body, frame)

    async def _later(
        self, delay_s: float, do: Callable[[Any, Frame], None], body: Any, frame: Frame
    ) -> None:
        await trio.sleep(delay_s)
        do(body, frame)


@pytest.mark.parametrize("before", [True, False])
async def test_a_topic_is_found_meanwhile(before: bool, autojump_clock: MockClock) -> None:
    """Before: it is being subscribed to when the others are asked."""
    async with topics("many-1", kind=SlowTopics) as (broker, client):
        consumer = await client.subscribe(MANY, "s")
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            if not before:
                nursery.start_soon(consumer.unsubscribe)
                await trio.sleep(1)
            name = broker.topic("many-2").name
            tell_watchers(new=[name])
            await trio.sleep(1)
            assert broker.seen.count("subscribe") == 1 + before
            if before:
                nursery.start_soon(consumer.unsubscribe)
        await trio.sleep(200)
        assert names(broker) == {"many-1": [], "many-2": []}
        assert broker.seen.count("unsubscribe") == 1 + before


async def test_a_topic_is_found_while_a_listener_ends(autojump_clock: MockClock) -> None:
    """The subscription is deleted, and the consumer waits for the listener before it is closed."""

    async def slow(_: geminga.Consumer[bytes], message: geminga.Message[bytes]) -> None:
        await trio.sleep(60)

    async with topics("many-1", kind=SlowTopics) as (broker, client):
        consumer = await client.subscribe(MANY, "s", message_listener=slow)
        await send(client, "many-1", b"x")
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.unsubscribe)
            await trio.sleep(10)
            assert names(broker) == {"many-1": []}
            tell_watchers(new=[broker.topic("many-3").name])
        assert names(broker) == {"many-1": [], "many-3": []}


async def test_topics_are_found_after_a_refusal(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(SlowTopics, "refuses", True)
    async with topics("many-1", kind=SlowTopics) as (broker, client):
        consumer = await client.subscribe(MANY, "s")
        await trio.sleep(1)
        with pytest.raises(geminga.GemingaError, match="other consumers"):
            await consumer.unsubscribe()
        tell_watchers(new=[broker.topic("many-3").name])
        await trio.sleep(10)
        await is_served(client, consumer, "many-3")
        monkeypatch.setattr(SlowTopics, "refuses", False)
        await consumer.unsubscribe()
        assert names(broker) == {"many-1": [], "many-3": []}


class OneTopic(TopicSession):
    """Answers SUBSCRIBE in the topic `many-1` alone."""

    def on_subscribe(self, body: Any, frame: Frame) -> None:
        if body.topic.endswith("many-1"):
            super().on_subscribe(body, frame)


async def test_many_topics_that_do_not_answer_hold_it_up_once(autojump_clock: MockClock) -> None:
    """They are joined some at a time, and no more of them is begun."""
    async with topics("many-1", kind=OneTopic) as (broker, client):
        consumer = await client.subscribe(MANY, "s")
        await trio.sleep(1)
        tell_watchers(new=[broker.topic(f"many-{n}").name for n in range(2, 102)])
        await trio.sleep(1)
        with trio.fail_after(35):  # one operation's timeout is 30 s
            await consumer.unsubscribe()
        assert broker.seen.count("subscribe") < 100
