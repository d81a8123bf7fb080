"""A client's session at the wire: hand-shake, bounds, commands and their refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from geminga_broker._tests.wire import (
    Type,
    message,
    open_broker,
    open_client,
    with_network,
)
from geminga_broker.config import BrokerConfig, TopicConfig, load_config
from geminga_broker.health import check_health
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.commands import (
    connection,
    consuming,
    lookup,
    producing,
)
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    ServerError,
)
from geminga_protocol.topic_name import TopicName

TOPIC = "persistent://public/default/a"


async def test_connected_tells_version_size_and_features() -> None:
    async with open_broker() as broker:
        client = broker.client()
        answer = await client.ask(connection.connect("c", protocol_version=25), Type.CONNECTED)
        assert answer.connected.protocol_version == 21
        assert answer.connected.max_message_size == 5 * 1024 * 1024
        assert answer.connected.feature_flags.supports_topic_watchers
        old = broker.client()
        answer = await old.ask(connection.connect("c", protocol_version=10), Type.CONNECTED)
        assert answer.connected.protocol_version == 10
        assert not answer.connected.HasField("max_message_size")


@pytest.mark.parametrize(
    "bad",
    [
        lookup.lookup(TOPIC, 1),
        message(1),
        b"\x00\x00\x00\x02\x00\x00",
        b"\xff\xff\xff\xff\x00\x00\x00\x01",
        b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff",
    ],
)
async def test_nonsense_before_connect_closes(bad: bytes) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.send(bad)
        assert await client.next() is None
        assert not broker.service.connections.sessions


async def test_a_second_connect_closes() -> None:
    async with open_client() as client:
        await client.send(connection.connect("again"))
        assert await client.next() is None


async def test_ping_is_answered_even_before_connect() -> None:
    async with open_broker() as broker:
        await broker.client().ask(connection.PING, Type.PONG)


async def test_a_silent_client_is_pinged_and_dropped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_client() as client:
        began = trio.current_time()
        await client.expect(Type.PING)
        assert await client.next() is None
        assert 59 < trio.current_time() - began < 62


async def test_a_client_that_answers_pings_stays(autojump_clock: trio.testing.MockClock) -> None:
    async with open_client() as client:
        for _ in range(10):
            await client.expect(Type.PING)
            await client.send(connection.PONG)
        assert trio.current_time() > 290


async def test_unknown_and_server_commands_are_ignored() -> None:
    async with open_client() as client:
        unknown = b"\x00\x00\x00\x06\x00\x00\x00\x02\x08\x63"
        await client.send(unknown, consuming.reached_end_of_topic(1))
        await client.ask(connection.PING, Type.PONG)


async def test_a_request_without_its_required_fields_is_refused_alone() -> None:
    broken = BaseCommand(type=Type.LOOKUP, lookupTopic=CommandLookupTopic(request_id=7))
    body = broken.SerializePartialToString()
    raw = (len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body
    async with open_client() as client:
        answer = await client.ask(raw, Type.ERROR)
        assert answer.error.request_id == 7
        await client.ask(connection.PING, Type.PONG)


async def test_a_frame_above_the_limit_closes_after_what_came_before_it() -> None:
    async with open_client(with_network(max_message_size_bytes=1000)) as client:
        await client.send(connection.PING + (20_000).to_bytes(4, "big") + bytes(100))
        await client.expect(Type.PONG)
        assert await client.next() is None


async def test_shutdown_tells_clients_and_ends_their_sessions() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer(TOPIC)
        await client.subscribe(TOPIC)
        await broker.service.shutdown()
        kinds = {(await client.next() or pytest.fail("closed")).type for _ in range(2)}
        assert kinds == {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER}
        assert await client.next() is None
        late = broker.client()
        await late.connect()
        answer = await late.ask(producing.producer(TOPIC, 1, 1), Type.ERROR)
        assert answer.error.error == ServerError.ServiceNotReady


@pytest.mark.parametrize("makes_topics", [True, False])
async def test_health(makes_topics: bool) -> None:
    """Whether topics are made automatically is a matter of clients' topics."""
    topics = TopicConfig(allow_auto_creation=makes_topics)
    async with open_broker(replace(BrokerConfig(), topics=topics)) as broker:
        await check_health(broker.service)
        await check_health(broker.service)
        assert await broker.service.namespaces.exists("pulsar/here:2")


async def test_the_load_manager_hears_of_the_kind_of_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    async with open_broker() as broker:
        service = broker.service
        monkeypatch.setattr(service.finder.placement, "has_non_persistent", told.append)
        for text in (TOPIC, TOPIC.replace("persistent", "non-persistent")):
            name = TopicName.parse(text)
            await service.lookup.locate(name)
            bundle = await service.namespaces.bundle_of(name)
            assert told == ([] if name.is_persistent else [bundle])


async def test_producers_of_health_checks_are_not_remembered() -> None:
    async with open_broker(load_config(None, {}, {"brokerDeduplicationEnabled": "true"})) as broker:
        for _ in range(3):
            await check_health(broker.service)
        topic = broker.service.topics.loaded["persistent://pulsar/here:2/healthcheck"]
        assert isinstance(topic, PersistentTopic)
        assert topic.deduplication is None


async def test_a_client_that_never_reads_is_not_read() -> None:
    async with open_broker() as broker:
        client = broker.client(sockets=True)
        await client.connect()
        (session,) = broker.service.connections.sessions

        async def flood() -> None:
            while True:
                await client.send(connection.PING * 2000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            with trio.fail_after(60):
                while session.liveness.reading:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert session.stream.pending_bytes < 2 << 20
            nursery.cancel_scope.cancel()
        await client.stream.aclose()
