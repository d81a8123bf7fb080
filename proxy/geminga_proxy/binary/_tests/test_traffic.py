"""What is counted of tunnels and topics (spec PX-06)."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

from geminga_protocol import payload
from geminga_protocol.commands import consuming, producing
from geminga_protocol.encode import frame as encode
from geminga_protocol.frames import Frame, FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, MessageMetadata
from geminga_proxy import traffic
from geminga_proxy.binary._tests.played import TOPIC, Wire, brokers, open_tunnel, proxied, until
from geminga_proxy.relay import Tunnel
from geminga_proxy.traffic import NAME_CHARS_MAX, Count, Meter, TopicStats, Traffic, TunnelTopics

C = BaseCommand.Type


def with_entry(command: BaseCommand, data: bytes, messages: int) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if messages:
        metadata.num_messages_in_batch = messages
    body = encode(command)[4:] + payload.build(metadata, data)
    return len(body).to_bytes(4, "big") + body


def send(producer_id: int, data: bytes, messages: int = 0) -> bytes:
    command = BaseCommand(type=C.SEND)
    command.send.producer_id, command.send.sequence_id = producer_id, 0
    return with_entry(command, data, messages)


def delivered(consumer_id: int, data: bytes, messages: int = 0) -> bytes:
    command = BaseCommand(type=C.MESSAGE)
    command.message.consumer_id = consumer_id
    command.message.message_id.ledgerId = command.message.message_id.entryId = 1
    return with_entry(command, data, messages)


def subscribe(consumer_id: int, topic: str) -> bytes:
    command = BaseCommand(type=C.SUBSCRIBE)
    asked = command.subscribe
    asked.topic, asked.subscription, asked.subType = topic, "s", asked.Shared
    asked.consumer_id, asked.request_id = consumer_id, 7
    return encode(command)


async def produce(wire: Wire, *frames: bytes) -> None:
    await wire.ask(producing.producer("t", 1, 2), C.PRODUCER_SUCCESS)
    await wire.send(*frames)


async def test_messages_are_counted_by_topic_at_level_2() -> None:
    async with brokers() as (broker,), proxied(broker, proxyLogLevel="2") as running:
        broker.on_subscribe = delivered(5, b"four", 3)
        found = running.service.traffic
        wire = await open_tunnel(running, broker)
        await wire.ask(subscribe(5, "persistent://public/default/other"), C.MESSAGE)
        await produce(wire, send(1, b"hello"), send(1, b"twelve bytes", 4), send(9, b"nobody's"))
        await wire.ask(producing.producer("t", 2, 3), C.PRODUCER_SUCCESS)
        counts = {name: (one.incoming, one.outgoing) for name, one in found._topics.items()}
        assert counts == {
            TOPIC: (Count(5, 17), Count(0, 0)),
            "persistent://public/default/other": (Count(0, 0), Count(3, 4)),
        }
        assert found.topics()[TOPIC].msg_rate_in > found.topics()[TOPIC].msg_rate_out == 0


@pytest.mark.parametrize("level", [0, 1])
async def test_none_are_counted_below(level: int) -> None:
    async with brokers() as (broker,), proxied(broker, proxyLogLevel=str(level)) as running:
        wire = await open_tunnel(running, broker)
        await produce(wire, send(1, b"hello"))
        await wire.ask(producing.producer("t", 2, 3), C.PRODUCER_SUCCESS)
        assert running.service.traffic.topics() == {}


async def test_the_level_holds_for_tunnels_with_a_log(caplog: pytest.LogCaptureFixture) -> None:
    """From 1 to 2 messages are counted of producers that were there before; 0 ends the log."""
    caplog.set_level(logging.INFO)
    async with brokers() as (broker,), proxied(broker, proxyLogLevel="1") as running:
        wire = await open_tunnel(running, broker)
        await produce(wire, send(1, b"secret"))
        await wire.ask(producing.producer("t", 2, 3), C.PRODUCER_SUCCESS)
        assert "secret" not in caplog.text
        running.service.log_level = 2
        await wire.send(send(1, b"shown"))
        await until(lambda: "shown" in caplog.text)
        assert list(running.service.traffic.topics()) == [TOPIC]
        running.service.log_level = 0
        await wire.send(send(1, b"hidden"))
        await wire.ask(producing.producer("t", 3, 4), C.PRODUCER_SUCCESS)
        assert "hidden" not in caplog.text
        quiet = await open_tunnel(running, broker)
        running.service.log_level = 2
        await produce(quiet, send(1, b"unseen"))
        await quiet.ask(producing.producer("t", 2, 3), C.PRODUCER_SUCCESS)
        assert "unseen" not in caplog.text


async def test_connections() -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        found = running.service.traffic
        assert found.connections() == []
        wire = await open_tunnel(running, broker)
        await produce(wire, send(1, b"hello"))
        await until(lambda: len(found.connections()) == 1)
        await until(lambda: found.connections()[0].byte_rate > 0)
        (one,) = found.connections()
        assert isinstance(wire.stream, trio.SocketStream)
        assert one.client_address == f"/127.0.0.1:{wire.stream.socket.getsockname()[1]}"
        assert one.broker_address == f"127.0.0.1/127.0.0.1:{broker.port}"
        assert one.request_rate > 0
        await wire.stream.aclose()
        await until(lambda: found.connections() == [])


async def test_rates_are_of_the_last_period(autojump_clock: trio.testing.MockClock) -> None:
    meter = Meter(trio.current_time())
    assert meter.rates(trio.current_time(), Count(5, 50)) == Count(0, 0)
    await trio.sleep(10)
    assert meter.rates(trio.current_time(), Count(5, 50)) == Count(0.5, 5)
    meter.end_period(trio.current_time(), Count(5, 50))
    await trio.sleep(10)
    assert meter.rates(trio.current_time(), Count(5, 50)) == Count(0.25, 2.5)
    await trio.sleep(30)
    meter.end_period(trio.current_time(), Count(100, 1000))
    assert meter.rates(trio.current_time(), Count(999, 9999)) == Count(2, 20)
    await trio.sleep(60)
    meter.end_period(trio.current_time(), Count(160, 1000))
    assert meter.rates(trio.current_time(), Count(999, 9999)) == Count(1, 0)


async def test_periods_and_bounds(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "TOPICS_MAX", 1)
    found, tunnel = Traffic(), Tunnel()
    found.open(tunnel, "/a:1", "b/b:2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.watch)
        await trio.sleep(1)
        tunnel.up.reads, tunnel.up.bytes = 60, 600
        topic = found.topic("t")
        assert topic is not None
        assert found.topic("too many") is None
        topic.incoming = Count(59, 590)
        await trio.sleep(60)
        assert found.connections()[0].request_rate == 1
        assert found.topics()["t"] == TopicStats(1, 10, 0, 0)
        # Nothing came since: the topic goes, the connection stays.
        await trio.sleep(60)
        assert found.topics() == {}
        assert found.connections()[0].request_rate == 0
        nursery.cancel_scope.cancel()


def frames_of(*data: bytes) -> list[Frame]:
    return FrameReader().feed(b"".join(data))


async def test_names_that_no_broker_takes_are_not_remembered() -> None:
    found = Traffic()
    topics = TunnelTopics(found)
    for name in ("t", "x" * NAME_CHARS_MAX, "x" * (NAME_CHARS_MAX + 1)):
        for frame in frames_of(producing.producer(name, 1, 2), send(1, b"four")):
            topics.up(frame, counts=True)
    assert sorted(map(len, found.topics())) == [len(TOPIC), len(TOPIC) - 1 + NAME_CHARS_MAX]


async def test_what_the_broker_closes_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that move come back under other numbers."""
    monkeypatch.setattr(traffic, "IDS_MAX", 1)
    found = Traffic()
    topics = TunnelTopics(found)
    for number, name in enumerate("ab"):
        for frame in frames_of(
            producing.producer(name, number, 2),
            subscribe(number, name),
            send(number, b"four"),
        ):
            topics.up(frame, counts=True)
        for frame in frames_of(
            delivered(number, b"four"),
            producing.close_producer(number, 0),
            consuming.close_consumer(number, 0),
        ):
            topics.down(frame, counts=True)
    counted = found._topics.values()
    assert [(each.incoming.things, each.outgoing.things) for each in counted] == [(1, 1)] * 2
