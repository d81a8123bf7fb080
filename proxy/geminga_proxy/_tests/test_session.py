"""A real proxy before a broker that the test plays (spec PX-01, PX-02, PX-04)."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest
import trio

from geminga_protocol import tokens
from geminga_protocol.commands import answers, connection, lookup, producing
from geminga_protocol.frames import Frame, FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandConnect, ServerError
from geminga_proxy.config import load_config
from geminga_proxy.standalone import Running, run_proxy

SECRET = bytes(range(32))
NO_REQUEST = (1 << 64) - 1
TOPIC = "persistent://public/default/t"
AUTH = {
    "authenticationEnabled": "true",
    "authenticationProviders": "token",
    "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
    "brokerClientAuthenticationPlugin": "token",
    "brokerClientAuthenticationParameters": "token:of-the-proxy",
}
_C = BaseCommand.Type


class Wire:
    """Frames over a stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._reader = FrameReader()
        self._frames: list[Frame] = []

    async def next(self) -> Frame | None:
        while not self._frames:
            data = await self.stream.receive_some()
            if not data:
                return None
            self._frames += self._reader.feed(bytes(data))
        return self._frames.pop(0)

    async def expect(self, kind: int) -> BaseCommand:
        with trio.fail_after(5):
            frame = await self.next()
        assert frame is not None, "closed"
        assert frame.type == kind, frame.command
        return frame.command

    async def send(self, *frames: bytes) -> None:
        await self.stream.send_all(b"".join(frames))

    async def ask(self, request: bytes, kind: int) -> BaseCommand:
        await self.send(request)
        return await self.expect(kind)

    async def ended(self) -> bool:
        with trio.fail_after(5):
            return await self.next() is None


@dataclass
class PlayedBroker:
    """Answers CONNECT and lookups; everything else comes back as it is."""

    port: int = 0
    hellos: list[CommandConnect] = field(default_factory=list)
    redirect_to: int | None = None
    refuses: bool = False

    async def serve(self, stream: trio.SocketStream) -> None:
        wire = Wire(stream)
        try:
            while (frame := await wire.next()) is not None:
                await self._answer(wire, frame)
        except trio.BrokenResourceError:
            pass

    async def _answer(self, wire: Wire, frame: Frame) -> None:
        command = frame.command
        if frame.type == _C.CONNECT:
            self.hellos.append(command.connect)
            if self.refuses:
                await wire.send(answers.error(NO_REQUEST, ServerError.AuthorizationError, "no"))
                await wire.stream.aclose()
                return
            await wire.send(connection.connected(f"broker-{self.port}", protocol_version=19))
        elif frame.type == _C.LOOKUP:
            request_id = command.lookupTopic.request_id
            if self.redirect_to is None:
                url = f"pulsar://127.0.0.1:{self.port}"
                await wire.send(lookup.lookup_response(request_id, broker_url=url))
            else:
                url = f"pulsar://127.0.0.1:{self.redirect_to}"
                await wire.send(lookup.lookup_response(request_id, broker_url=url, redirect=True))
        elif frame.type == _C.PARTITIONED_METADATA:
            request_id = command.partitionMetadata.request_id
            await wire.send(lookup.partitioned_metadata_response(request_id, 7))
        elif frame.type == _C.PRODUCER:
            await wire.send(producing.producer_success(command.producer.request_id, "p"))


@asynccontextmanager
async def brokers(count: int = 1) -> AsyncIterator[list[PlayedBroker]]:
    async with trio.open_nursery() as nursery:
        played = [PlayedBroker() for _ in range(count)]
        for one in played:
            listen = partial(trio.serve_tcp, one.serve, 0, host="127.0.0.1")
            (listener,) = await nursery.start(listen)
            one.port = listener.socket.getsockname()[1]
        yield played
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def proxied(broker: PlayedBroker, **settings: str) -> AsyncIterator[Running]:
    values = {
        "bindAddress": "127.0.0.1",
        "servicePort": "0",
        "webServicePort": "-1",
        "brokerServiceURL": f"pulsar://127.0.0.1:{broker.port}",
        "proxyDrainSeconds": "0",
        **settings,
    }
    async with trio.open_nursery() as nursery:
        running: Running = await nursery.start(run_proxy, load_config(None, {}, values))
        try:
            yield running
        finally:
            while opened:
                await trio.aclose_forcefully(opened.pop().stream)
        nursery.cancel_scope.cancel()


opened: list[Wire] = []
"""Clients, closed with the proxy."""


async def client(running: Running) -> Wire:
    port = int(running.urls[0].rpartition(":")[2])
    wire = Wire(await trio.open_tcp_stream("127.0.0.1", port))
    opened.append(wire)
    return wire


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await trio.sleep(0.01)
    raise AssertionError("it did not come to be")


def token(role: str, lasts_s: float | None = None) -> bytes:
    expires = None if lasts_s is None else int(time.time() + lasts_s)
    return tokens.create(SECRET, role, expires_at_s=expires).encode()


async def test_lookups_are_answered_by_a_broker_and_lead_back_to_the_proxy() -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        connected = await wire.ask(connection.connect("c"), _C.CONNECTED)
        assert connected.connected.server_version.startswith("Geminga proxy")
        found = (await wire.ask(lookup.lookup(TOPIC, 5), _C.LOOKUP_RESPONSE)).lookupTopicResponse
        assert (found.request_id, found.proxy_through_service_url) == (5, True)
        assert found.brokerServiceUrl == f"pulsar://127.0.0.1:{broker.port}"
        request = lookup.partitioned_metadata(TOPIC, 6)
        parts = await wire.ask(request, _C.PARTITIONED_METADATA_RESPONSE)
        assert parts.partitionMetadataResponse.partitions == 7
        await wire.ask(connection.PING, _C.PONG)
        assert len(broker.hellos) == 1
        assert broker.hellos[0].proxy_version.startswith("Geminga proxy")
        assert running.service.metrics.lookups == {"lookup": 1, "partitions": 1}
        assert running.service.lookups == 0


async def test_redirects_are_followed_by_the_proxy() -> None:
    async with brokers(2) as (first, second), proxied(first) as running:
        first.redirect_to = second.port
        wire = await client(running)
        await wire.ask(connection.connect("c"), _C.CONNECTED)
        found = (await wire.ask(lookup.lookup(TOPIC, 5), _C.LOOKUP_RESPONSE)).lookupTopicResponse
        assert found.brokerServiceUrl == f"pulsar://127.0.0.1:{second.port}"
        second.redirect_to = first.port
        answer = await wire.ask(lookup.lookup(TOPIC, 6), _C.LOOKUP_RESPONSE)
        assert answer.lookupTopicResponse.error == ServerError.ServiceNotReady


async def open_tunnel(running: Running, broker: PlayedBroker) -> Wire:
    wire = await client(running)
    target = f"127.0.0.1:{broker.port}"
    hello = connection.connect("c", proxy_to_broker_url=target)
    connected = await wire.ask(hello, _C.CONNECTED)
    assert connected.connected.server_version == f"broker-{broker.port}"
    assert connected.connected.protocol_version == 19
    return wire


async def test_a_tunnel_leads_to_the_broker() -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await open_tunnel(running, broker)
        answer = await wire.ask(producing.producer(TOPIC, 1, 2), _C.PRODUCER_SUCCESS)
        assert answer.producer_success.producer_name == "p"
        assert running.service.metrics.tunnels == 1
        await wire.stream.aclose()
        await until(lambda: not running.service.metrics.active_connections)
        assert running.service.metrics.tunnels == 0


@pytest.mark.parametrize(
    "target", ["10.0.0.1:6650", "127.0.0.1:22", "evil.example:6650", "nonsense", "a:b:c", "/etc"]
)
async def test_no_tunnel_leads_to_what_is_no_broker(target: str) -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        hello = connection.connect("c", proxy_to_broker_url=target)
        answer = (await wire.ask(hello, _C.ERROR)).error
        assert answer.message == "Target broker cannot be validated."
        assert await wire.ended()
        assert broker.hellos == []


async def test_a_broker_that_a_lookup_named_may_be_reached() -> None:
    async with brokers(2) as (first, second), proxied(first) as running:
        first.redirect_to = second.port
        wire = await client(running)
        await wire.ask(connection.connect("c"), _C.CONNECTED)
        await wire.ask(lookup.lookup(TOPIC, 5), _C.LOOKUP_RESPONSE)
        await open_tunnel(running, second)


async def test_a_dead_broker_is_told() -> None:
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
            await wire.ask(connection.connect("c"), _C.CONNECTED)
            await wire.ask(lookup.lookup(TOPIC, 5), _C.LOOKUP_RESPONSE)
        wire = await client(running)
        hello = connection.connect("c", proxy_to_broker_url=f"127.0.0.1:{port}")
        assert (await wire.ask(hello, _C.ERROR)).error.error == ServerError.ServiceNotReady
        assert await wire.ended()


async def test_clients_are_authenticated_by_the_proxy() -> None:
    async with brokers() as (broker,), proxied(broker, **AUTH) as running:
        for data in (b"", b"rubbish", token("joe", -5), tokens.create(bytes(32), "x").encode()):
            wire = await client(running)
            hello = connection.connect("c", auth_method_name="token", auth_data=data)
            answer = (await wire.ask(hello, _C.ERROR)).error
            assert (answer.error, answer.message) == (
                ServerError.AuthenticationError,
                "Failed to authenticate",
            )
            assert await wire.ended()
        assert broker.hellos == []
        wire = await client(running)
        hello = connection.connect("c", auth_method_name="token", auth_data=token("joe"))
        await wire.ask(hello, _C.CONNECTED)
        await wire.ask(lookup.lookup(TOPIC, 5), _C.LOOKUP_RESPONSE)
        seen = broker.hellos[0]
        assert (seen.auth_data, seen.original_principal) == (b"of-the-proxy", "joe")
        assert not seen.HasField("original_auth_data")


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
        await wire.ask(hello, _C.CONNECTED)
        seen = broker.hellos[0]
        assert seen.original_auth_data == token("joe").decode()
        assert (seen.original_auth_method, seen.original_principal) == ("token", "joe")


async def test_a_tunnel_ends_with_the_clients_proof() -> None:
    async with brokers() as (broker,), proxied(broker, **AUTH) as running:
        wire = await client(running)
        hello = connection.connect(
            "c",
            auth_method_name="token",
            auth_data=token("joe", 2),
            proxy_to_broker_url=f"127.0.0.1:{broker.port}",
        )
        await wire.ask(hello, _C.CONNECTED)
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
async def test_what_is_out_of_turn_ends_the_connection(frames: list[bytes]) -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        await wire.send(*frames)
        with trio.fail_after(5):
            while (frame := await wire.next()) is not None:
                assert frame.type in (_C.CONNECTED, _C.ERROR)
        await until(lambda: not running.service.metrics.active_connections)


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
            await wire.ask(connection.connect("c"), _C.CONNECTED)
        third = await client(running)
        assert await third.ended()
        assert running.service.metrics.rejected_connections == 1
        await wires[0].stream.aclose()
        await until(lambda: running.service.metrics.active_connections == 1)
        await (await client(running)).ask(connection.connect("c"), _C.CONNECTED)
