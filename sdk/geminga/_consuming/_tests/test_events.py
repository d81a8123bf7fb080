from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import ConsumerEventListener, ConsumerType
from geminga._tests.fake_broker import FakeBroker, fake_broker
from geminga_protocol.commands import consuming

TOPIC = "persistent://public/default/t"


class Heard(ConsumerEventListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def became_active(self, topic: str) -> None:
        self.events.append(("active", topic))

    def became_inactive(self, topic: str) -> None:
        self.events.append(("inactive", topic))
        raise ValueError("listeners may fail")

    def reached_end_of_topic(self, topic: str) -> None:
        self.events.append(("end", topic))


async def tell(broker: FakeBroker, frame: bytes) -> None:
    broker.sessions[0].stream.write(frame)
    await trio.sleep(0.01)


async def test_active_and_inactive(autojump_clock: MockClock) -> None:
    heard = Heard()
    async with fake_broker() as broker, broker.client() as client:
        await client.subscribe(
            "t", "s", consumer_type=ConsumerType.FAILOVER, consumer_event_listener=heard
        )
        for is_active in (False, False, True, True, False):
            await tell(broker, consuming.active_consumer_change(0, is_active))
        assert [what for what, _ in heard.events] == ["inactive", "active", "inactive"]
        assert {topic for _, topic in heard.events} == {TOPIC}
        await tell(broker, consuming.active_consumer_change(0, True))
        broker.cut()
        await trio.sleep(1)
        assert [what for what, _ in heard.events[3:]] == ["active", "inactive"]
        await tell(broker, consuming.active_consumer_change(0, True))
        assert heard.events[-1] == ("active", TOPIC)
    assert heard.events[-1] == ("inactive", TOPIC)


async def test_end_of_topic(autojump_clock: MockClock) -> None:
    heard = Heard()
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", consumer_event_listener=heard)
        for _ in range(2):
            await tell(broker, consuming.reached_end_of_topic(0))
        assert heard.events == [("end", TOPIC)]
        assert consumer.reached_end_of_topic
        await consumer.seek(geminga.EARLIEST)
        assert not consumer.reached_end_of_topic


async def test_a_listener_has_to_be_one(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        with pytest.raises(geminga.InvalidArgumentError, match="consumer_event_listener"):
            await client.subscribe("t", "s", consumer_event_listener=print)
