"""A real proxy before a scripted broker (spec PX-01, PX-02, PX-04)."""

from __future__ import annotations

import pytest
import trio

from geminga_protocol import tokens
from geminga_protocol.commands import connection, lookup, producing
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_proxy.addresses import Address
from geminga_proxy.binary._tests.played import (
    AUTH,
    TOPIC,
    C,
    brokers,
    client,
    open_tunnel,
    proxied,
    token,
    until,
)


async def test_lookups_are_answered_by_a_broker_and_lead_back_to_the_proxy() -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        connected = await wire.ask(connection.connect("c"), C.CONNECTED)
        assert connected.connected.server_version.startswith("Geminga proxy")
        found = (await wire.ask(lookup.lookup(TOPIC, 5), C.LOOKUP_RESPONSE)).lookupTopicResponse
        assert (found.request_id, found.proxy_through_service_url) == (5, True)
        assert found.brokerServiceUrl == f"pulsar://127.0.0.1:{broker.port}"
        request = lookup.partitioned_metadata(TOPIC, 6)
        parts = await wire.ask(request, C.PARTITIONED_METADATA_RESPONSE)
        assert parts.partitionMetadataResponse.partitions == 7
        await wire.ask(connection.PING, C.PONG)
        assert len(broker.hellos) == 1
        assert broker.hellos[0].proxy_version.startswith("Geminga proxy")
        assert running.service.metrics.lookups == {"lookup": 1, "partitions": 1}
        assert running.service.budget.waiting == 0


async def test_without_a_limit_connections_are_served() -> None:
    """0 is no limit at Apache's proxy, not a proxy for nobody."""
    async with brokers() as (broker,), proxied(broker, maxConcurrentInboundConnections="0") as on:
        wire = await client(on)
        await wire.ask(connection.connect("c"), C.CONNECTED)


async def test_redirects_are_followed_by_the_proxy() -> None:
    async with brokers(2) as (first, second), proxied(first) as running:
        first.redirect_to = second.port
        known = [Address("127.0.0.1", each.port) for each in (first, second)]
        running.service.brokers.targets.know(known)
        wire = await client(running)
        await wire.ask(connection.connect("c"), C.CONNECTED)
        found = (await wire.ask(lookup.lookup(TOPIC, 5), C.LOOKUP_RESPONSE)).lookupTopicResponse
        assert found.brokerServiceUrl == f"pulsar://127.0.0.1:{second.port}"
        second.redirect_to = first.port
        answer = await wire.ask(lookup.lookup(TOPIC, 6), C.LOOKUP_RESPONSE)
        assert answer.lookupTopicResponse.error == ServerError.ServiceNotReady


async def test_a_tunnel_leads_to_the_broker() -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await open_tunnel(running, broker)
        answer = await wire.ask(producing.producer(TOPIC, 1, 2), C.PRODUCER_SUCCESS)
        assert answer.producer_success.producer_name == "p"
        assert running.service.metrics.tunnels == 1
        await wire.stream.aclose()
        await until(lambda: not running.service.metrics.active_connections)
        assert running.service.metrics.tunnels == 0


@pytest.mark.parametrize("cut_at", [0, 1, 7, 30, 200])
async def test_what_a_broker_says_behind_connected_comes_whole(cut_at: int) -> None:
    """Whole frames, and a part of one: the bytes behind it come through the tunnel."""
    name = "n" * 150
    told = [producing.producer_success(number, name) for number in range(3)]
    stream = b"".join(told)
    cut = len(told[0]) + cut_at
    async with brokers() as (broker,), proxied(broker) as running:
        broker.says = (stream[:cut], stream[cut:])
        wire = await open_tunnel(running, broker)
        for number in range(3):
            said = (await wire.expect(C.PRODUCER_SUCCESS)).producer_success
            assert (said.request_id, said.producer_name) == (number, name)
        await wire.ask(producing.producer(TOPIC, 1, 9), C.PRODUCER_SUCCESS)


@pytest.mark.parametrize(
    "target", ["10.0.0.1:6650", "127.0.0.1:22", "evil.example:6650", "nonsense", "a:b:c", "/etc"]
)
async def test_a_tunnel_to_an_unknown_address_is_refused(target: str) -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        hello = connection.connect("c", proxy_to_broker_url=target)
        answer = (await wire.ask(hello, C.ERROR)).error
        assert answer.message == "Target broker cannot be validated."
        assert await wire.ended()
        assert broker.hellos == []


async def test_a_broker_that_a_lookup_named_may_be_reached() -> None:
    async with brokers(2) as (first, second), proxied(first) as running:
        first.names = second.port
        wire = await client(running)
        await wire.ask(connection.connect("c"), C.CONNECTED)
        await wire.ask(lookup.lookup(TOPIC, 5), C.LOOKUP_RESPONSE)
        await open_tunnel(running, second)


async def test_an_unreachable_broker_is_reported() -> None:
    async with brokers(2) as (broker, gone):
        port = gone.port
    async with (
        brokers() as (broker,),
        proxied(
            broker, brokerServiceURL=f"pulsar://127.0.0.1:{port},127.0.0.1:{broker.port}"
        ) as running,
    ):
        for _ in range(3):
            wire = await client(running)
            await wire.ask(connection.connect("c"), C.CONNECTED)
            await wire.ask(lookup.lookup(TOPIC, 5), C.LOOKUP_RESPONSE)
        wire = await client(running)
        hello = connection.connect("c", proxy_to_broker_url=f"127.0.0.1:{port}")
        assert (await wire.ask(hello, C.ERROR)).error.error == ServerError.ServiceNotReady
        assert await wire.ended()


async def test_clients_are_authenticated_by_the_proxy() -> None:
    async with brokers() as (broker,), proxied(broker, **AUTH) as running:
        for data in (b"", b"rubbish", token("joe", -5), tokens.create(bytes(32), "x").encode()):
            wire = await client(running)
            hello = connection.connect("c", auth_method_name="token", auth_data=data)
            answer = (await wire.ask(hello, C.ERROR)).error
            assert (answer.error, answer.message) == (
                ServerError.AuthenticationError,
                "Failed to authenticate",
            )
            assert await wire.ended()
        assert broker.hellos == []
        wire = await client(running)
        hello = connection.connect("c", auth_method_name="token", auth_data=token("joe"))
        await wire.ask(hello, C.CONNECTED)
        await wire.ask(lookup.lookup(TOPIC, 5), C.LOOKUP_RESPONSE)
        seen = broker.hellos[0]
        assert (seen.auth_data, seen.original_principal) == (b"of-the-proxy", "joe")
        assert not seen.HasField("original_auth_data")


async def test_a_proxy_without_credentials_is_told_of_in_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for code, hint in (
        (ServerError.AuthenticationError, "; the proxy has no credentials: give it brokerClient"),
        (ServerError.AuthorizationError, ""),
    ):
        caplog.clear()
        async with brokers() as (broker,), proxied(broker) as running:
            broker.refuses = code
            wire = await client(running)
            hello = connection.connect("c", proxy_to_broker_url=f"127.0.0.1:{broker.port}")
            assert (await wire.ask(hello, C.ERROR)).error.error == code
        [line] = [each for each in caplog.messages if "refused the proxy: no" in each]
        assert hint in line
        assert bool(hint) or line.endswith("no")


async def test_credentials_are_forwarded_when_asked_for() -> None:
    settings = AUTH | {"forwardAuthorizationCredentials": "true"}
    async with brokers() as (broker,), proxied(broker, **settings) as running:
        wire = await client(running)
        hello = connection.connect(
            "c",
            auth_method_name="token",
            auth_data=token("joe"),
            proxy_to_broker_url=f"127.0.0.1:{broker.port}",
        )
        await wire.ask(hello, C.CONNECTED)
        seen = broker.hellos[0]
        assert seen.original_auth_data == token("joe").decode()
        assert (seen.original_auth_method, seen.original_principal) == ("token", "joe")


@pytest.mark.slow
async def test_a_tunnel_ends_with_the_clients_proof() -> None:
    async with brokers() as (broker,), proxied(broker, **AUTH) as running:
        wire = await client(running)
        hello = connection.connect(
            "c",
            auth_method_name="token",
            auth_data=token("joe", 4),
            proxy_to_broker_url=f"127.0.0.1:{broker.port}",
        )
        await wire.ask(hello, C.CONNECTED)
        assert await wire.ended()


@pytest.mark.parametrize(
    "frames",
    [
        [connection.PING],
        [connection.connect("c"), producing.producer(TOPIC, 1, 2)],
        [b"\xff" * 16],
        [connection.connect("c"), connection.connect("c")],
    ],
)
async def test_a_command_out_of_turn_ends_the_connection(frames: list[bytes]) -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        await wire.send(*frames)
        with trio.fail_after(60):
            while (frame := await wire.next()) is not None:
                assert frame.type in (C.CONNECTED, C.ERROR)
        await until(lambda: not running.service.metrics.active_connections)


@pytest.mark.slow
async def test_a_slow_reader_stops_the_sender() -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await open_tunnel(running, broker)
        sent = 0
        data = producing.producer(TOPIC, 1, 2) * 1000
        with trio.move_on_after(1) as patience:
            while True:
                await wire.stream.send_all(data)
                sent += len(data)
        assert patience.cancelled_caught
        assert sent < 64 << 20


async def test_connections_of_one_address_are_bounded() -> None:
    async with (
        brokers() as (broker,),
        proxied(broker, maxConcurrentInboundConnectionsPerIp="2") as running,
    ):
        wires = [await client(running) for _ in range(2)]
        for wire in wires:
            await wire.ask(connection.connect("c"), C.CONNECTED)
        third = await client(running)
        assert await third.ended()
        assert running.service.connections.rejected == 1
        await wires[0].stream.aclose()
        await until(lambda: running.service.metrics.active_connections == 1)
        await (await client(running)).ask(connection.connect("c"), C.CONNECTED)
