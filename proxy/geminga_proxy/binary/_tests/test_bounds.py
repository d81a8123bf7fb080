"""Bounds of the proxy: memory, time, clients (spec PX-02, PX-07)."""

from __future__ import annotations

import logging

import pytest
import trio

from geminga_protocol.commands import connection, lookup, producing
from geminga_proxy.binary import machine as machine_module
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
from geminga_proxy.binary.events import Effects, Event, Received
from geminga_proxy.binary.machine import ClientMachine
from geminga_proxy.binary.session import TURN_BYTES, ProxySession


async def test_a_client_that_says_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        busy = await client(running)
        await busy.ask(connection.connect("c"), C.CONNECTED)
        monkeypatch.setattr(machine_module, "HANDSHAKE_S", 0.1)
        silent = [await client(running) for _ in range(20)]
        for wire in silent:
            assert await wire.ended()
        await busy.ask(connection.PING, C.PONG)
        await until(lambda: running.service.metrics.active_connections == 1)


@pytest.mark.slow
async def test_a_turn_takes_no_more_than_some_hundred_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 0
    handle = ClientMachine.handle

    def noted(machine: ClientMachine, event: Event) -> Effects:
        nonlocal most
        if isinstance(event, Received):
            most = max(most, len(event.data))
        return handle(machine, event)

    monkeypatch.setattr(ClientMachine, "handle", noted)
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        await wire.ask(connection.connect("c"), C.CONNECTED)
        await wire.send(connection.PING * 20_000)
        for _ in range(20_000):
            await wire.expect(C.PONG)
    assert 0 < most <= TURN_BYTES


async def test_an_idle_client_keeps_none_of_its_last_read() -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        await wire.ask(connection.connect("c"), C.CONNECTED)
        await wire.send(connection.PING * 5_000)
        for _ in range(5_000):
            await wire.expect(C.PONG)
        [session] = running.service._sessions
        assert isinstance(session, ProxySession)
        assert session._rest.obj == b""


@pytest.mark.parametrize("hello_bytes", [0, TURN_BYTES])
async def test_commands_ahead_of_a_tunnel_close_the_connection(hello_bytes: int) -> None:
    """Also if they are in the turn after CONNECT's."""
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        url = f"127.0.0.1:{broker.port}"
        length = len(connection.connect("x" * 1000, proxy_to_broker_url=url)) - 1000
        name = "x" * max(hello_bytes - length, 1)
        hello = connection.connect(name, proxy_to_broker_url=url)
        assert hello_bytes in (0, len(hello))
        await wire.send(hello + connection.PING)
        assert await wire.ended()
        assert not broker.hellos


@pytest.mark.slow
async def test_a_lookup_client_that_falls_silent_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two intervals are longer than a busy machine takes for an answer.
    monkeypatch.setattr(machine_module, "KEEP_ALIVE_S", 1.0)
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        await wire.ask(connection.connect("c"), C.CONNECTED)
        for _ in range(3):
            await wire.expect(C.PING)
            await wire.send(connection.PONG)
        assert running.service.metrics.active_connections == 1
        with trio.fail_after(60):
            while await wire.next() is not None:
                pass


@pytest.mark.slow
async def test_a_silent_tunnel_is_dropped() -> None:
    async with brokers() as (broker,), proxied(broker, brokerProxyReadTimeoutMs="5000") as running:
        wire = await open_tunnel(running, broker)
        for number in range(14):
            await wire.ask(producing.producer(TOPIC, 1, number), C.PRODUCER_SUCCESS)
            await trio.sleep(0.4)
        assert len(running.service.tunnels) == 1
        assert await wire.ended()
        await until(lambda: not len(running.service.tunnels))


async def test_a_hello_is_small(caplog: pytest.LogCaptureFixture) -> None:
    async with brokers() as (broker,), proxied(broker, **AUTH) as running:
        wire = await client(running)
        hello = connection.connect(
            "c", auth_method_name="token", auth_data=b"a.b." + bytes(1 << 20)
        )
        with trio.fail_after(60):
            try:
                await wire.send(hello)
                assert (await wire.expect(C.ERROR)).error.message == "Failed to authenticate"
            except trio.BrokenResourceError:
                pass
        assert caplog.text.count("above the limit") == 1


async def test_lookups_are_bounded() -> None:
    settings = {"maxConcurrentLookupRequests": "1"}
    async with brokers() as (broker,), proxied(broker, **settings) as running:
        wire = await client(running)
        await wire.ask(connection.connect("c"), C.CONNECTED)
        await wire.send(*(lookup.lookup(TOPIC, number) for number in range(3)))
        found = [await wire.expect(C.LOOKUP_RESPONSE) for _ in range(3)]
        assert [bool(each.lookupTopicResponse.brokerServiceUrl) for each in found].count(True) == 1
        assert running.service.metrics.rejected == {"lookup": 2}
        text = "\n".join(running.service.metrics.lines())
        assert 'pulsar_proxy_rejected_lookup_requests_total{cluster=""} 2' in text


async def test_a_client_that_does_not_read_its_answers_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_module, "REQUESTS_MAX", 10)
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        await wire.ask(connection.connect("c"), C.CONNECTED)
        requests = [lookup.lookup(TOPIC, number) for number in range(500)]
        await wire.send(*requests)
        most = 0
        for _ in requests:
            await wire.expect(C.LOOKUP_RESPONSE)
            most = max(most, running.service.budget.waiting)
        assert 0 < most <= 10


async def test_lookups_that_come_with_the_connect_fill_the_machine_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_module, "REQUESTS_MAX", 2)
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        requests = [lookup.lookup(TOPIC, number) for number in range(50)]
        await wire.send(b"".join([connection.connect("c"), *requests]))
        await wire.send(connection.PONG)
        await wire.expect(C.CONNECTED)
        for _ in requests:
            await wire.expect(C.LOOKUP_RESPONSE)


async def test_drained_clients_are_answered_and_tunnels_go_on() -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        tunnel = await open_tunnel(running, broker)
        wire = await client(running)
        await wire.ask(connection.connect("c"), C.CONNECTED)
        await wire.send(lookup.lookup(TOPIC, 1))
        await until(lambda: running.service.budget.waiting == 1 or len(broker.hellos) == 2)
        running.service.drain()
        assert (await wire.expect(C.LOOKUP_RESPONSE)).lookupTopicResponse.request_id == 1
        assert await wire.ended()
        await tunnel.ask(producing.producer(TOPIC, 1, 2), C.PRODUCER_SUCCESS)
        late = await client(running)
        assert await late.ended()


async def test_a_flood_of_proofs_is_refused_once(caplog: pytest.LogCaptureFixture) -> None:
    async with brokers() as (broker,), proxied(broker, **AUTH) as running:
        wire = await client(running)
        hello = connection.connect("c", auth_method_name="token", auth_data=b"rubbish")
        answer = connection.auth_response("c", "token", b"rubbish")
        await wire.send(hello, *[answer] * 200)
        await wire.expect(C.ERROR)
        assert await wire.ended()
        assert caplog.text.count("authentication failed") == 1


async def test_tls_on_the_plaintext_port(caplog: pytest.LogCaptureFixture) -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        await wire.send(bytes.fromhex("1603010200010001fc0303") + bytes(200))
        assert await wire.ended()
        assert caplog.text.count("the peer speaks TLS on the plaintext port") == 1


@pytest.mark.parametrize(
    ("settings", "reaches"),
    [
        ({"brokerProxyAllowedHostNames": "local*"}, True),
        ({"brokerProxyAllowedIPAddresses": "127.0.0.0/8"}, True),
        (
            {
                "brokerProxyAllowedHostNames": "localhost",
                "brokerProxyAllowedIPAddresses": "192.0.2.0/24",
            },
            False,
        ),
    ],
)
async def test_resolved_addresses_are_checked(settings: dict[str, str], reaches: bool) -> None:
    async with (
        brokers(2) as (known, other),
        proxied(known, brokerProxyAllowedTargetPorts="*", **settings) as running,
    ):
        wire = await client(running)
        hello = connection.connect("c", proxy_to_broker_url=f"localhost:{other.port}")
        await wire.ask(hello, C.CONNECTED if reaches else C.ERROR)
        assert len(other.hellos) == reaches


@pytest.mark.parametrize("allowed", [True, False])
async def test_ports_that_the_configuration_allows(allowed: bool) -> None:
    """On allowed hosts; the brokers' own ports are always allowed."""
    async with brokers(2) as (known, other):
        ports = f"1,{other.port}" if allowed else f"1,{known.port}"
        settings = {"brokerProxyAllowedHostNames": "*", "brokerProxyAllowedTargetPorts": ports}
        async with proxied(known, **settings) as running:
            wire = await client(running)
            hello = connection.connect("c", proxy_to_broker_url=f"127.0.0.1:{other.port}")
            await wire.ask(hello, C.CONNECTED if allowed else C.ERROR)
            assert len(other.hellos) == allowed
            wire = await client(running)
            hello = connection.connect("c", proxy_to_broker_url=f"127.0.0.1:{known.port}")
            await wire.ask(hello, C.CONNECTED)


async def test_proxy_header_names_the_client_to_the_broker() -> None:
    settings = {"haProxyProtocolEnabled": "true", "haProxyProtocolToBrokerEnabled": "true"}
    async with brokers() as (broker,), proxied(broker, **settings) as running:
        broker.reads_proxy_header = True
        wire = await client(running)
        await wire.send(b"PROXY TCP6 2001:db8::7 ::1 4711 6650\r\n")
        await wire.ask(connection.connect("c"), C.CONNECTED)
        await wire.ask(lookup.lookup(TOPIC, 1), C.LOOKUP_RESPONSE)
        assert broker.sources == ["[2001:db8::7]:4711"]


async def test_the_command_log_has_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with brokers() as (broker,), proxied(broker, proxyLogLevel="2", **AUTH) as running:
        wire = await client(running)
        secret = token("joe")
        hello = connection.connect(
            "c",
            auth_method_name="token",
            auth_data=secret,
            proxy_to_broker_url=f"127.0.0.1:{broker.port}",
        )
        await wire.ask(hello, C.CONNECTED)
        await wire.ask(producing.producer(TOPIC, 1, 2), C.PRODUCER_SUCCESS)
        await wire.send(connection.auth_response("c", "token", secret))
        await until(lambda: "AUTH_RESPONSE" in caplog.text)
        assert "role=joe" in caplog.text
        assert f'PRODUCER {{topic: "{TOPIC}"' in caplog.text
        assert "PRODUCER_SUCCESS" in caplog.text
        assert secret.decode() not in caplog.text
