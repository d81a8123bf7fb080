"""A broker in memory and a client that speaks frames, for tests at the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import trio
from trio.testing import memory_stream_pair

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker.authz.authorizer import THIS_BROKER
from geminga_broker.change_events.reaching import reach_system_topics
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.records import RECORDS
from geminga_broker.config import BrokerConfig
from geminga_broker.inner_client import Connector
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.process import log_options
from geminga_broker.service import BrokerService, open_service
from geminga_broker.session.serving import handle_connection
from geminga_protocol.commands import connection, consuming, producing
from geminga_protocol.encode import send
from geminga_protocol.frames import SUBMESSAGE, Frame, FrameReader
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts

WRITE_HIGH_BYTES = 1 << 16

Type = BaseCommand.Type
SubType = CommandSubscribe.SubType


class WireClient:
    """Sends and reads frames. Not a client library: every step is in the test."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._reader = FrameReader()
        self._frames: list[Frame] = []

    async def send(self, *frames: bytes) -> None:
        """Write raw frames."""
        await self.stream.send_all(b"".join(frames))

    async def next(self) -> Frame | None:
        """The next frame, None at the end of the stream."""
        while not self._frames:
            data = await self.stream.receive_some()
            if not data:
                return None
            self._frames += self._reader.feed(bytes(data))
        return self._frames.pop(0)

    async def expect(self, kind: int) -> Frame:
        """The next frame, which must be of that type."""
        frame = await self.next()
        assert frame is not None, f"the broker closed instead of {SUBMESSAGE[kind]}"
        assert frame.type == kind, f"{frame.command} instead of {SUBMESSAGE[kind]}"
        return frame

    async def ask(self, request: bytes, kind: int) -> BaseCommand:
        """Send and expect."""
        await self.send(request)
        return (await self.expect(kind)).command

    async def connect(self) -> None:
        """CONNECT and CONNECTED."""
        await self.ask(connection.connect("test"), Type.CONNECTED)

    async def open_producer(self, topic: str, producer_id: int = 1) -> None:
        """PRODUCER and PRODUCER_SUCCESS."""
        request = producing.producer(topic, producer_id, 100 + producer_id)
        await self.ask(request, Type.PRODUCER_SUCCESS)

    async def subscribe(
        self,
        topic: str,
        consumer_id: int = 1,
        *,
        kind: CommandSubscribe.SubType = SubType.Exclusive,
    ) -> None:
        """SUBSCRIBE and SUCCESS."""
        request = consuming.subscribe(topic, "sub", kind, consumer_id, 200 + consumer_id)
        await self.ask(request, Type.SUCCESS)


def message(sequence_id: int, content: bytes = b"x", producer_id: int = 1) -> bytes:
    """A SEND frame with one message."""
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    payload = build(metadata, content)
    return send(producer_id, sequence_id, 1, len(payload)) + payload


class WireBroker:
    """A broker whose connections are memory streams."""

    def __init__(self, service: BrokerService, nursery: trio.Nursery) -> None:
        self.service = service
        self._nursery = nursery

    def client(self, *, sockets: bool = False) -> WireClient:
        """A new connection; only one over `sockets` has bounded buffers."""
        ours: trio.abc.Stream
        theirs: trio.abc.Stream
        if sockets:
            ours, theirs = (trio.SocketStream(half) for half in trio.socket.socketpair())
        else:
            ours, theirs = memory_stream_pair()
        stream = FramedStream(theirs, name="test:1", write_high_bytes=WRITE_HIGH_BYTES)
        self._nursery.start_soon(self._serve, stream)
        return WireClient(ours)

    async def _serve(self, stream: FramedStream) -> None:
        try:
            await handle_connection(stream, self.service)
        finally:
            await stream.aclose()


def among(brokers: Sequence[BrokerService], nursery: trio.Nursery) -> Connector:
    """Connects the brokers of a test, which listen on no port, with one another."""

    async def serve(stream: FramedStream, service: BrokerService) -> None:
        try:
            await handle_connection(stream, service, THIS_BROKER)
        except* ConnectionLost:
            pass
        finally:
            await stream.aclose()

    async def connect(
        host: str, port: int, deadline: float, tls: TlsContexts | None
    ) -> FramedStream:
        url = f"pulsar://{host}:{port}"
        (to,) = (each for each in brokers if each.addresses.broker_url == url)
        ours, theirs = (trio.SocketStream(half) for half in trio.socket.socketpair())
        nursery.start_soon(serve, FramedStream(theirs, name="test:2"), to)
        return FramedStream(ours, name="test:2")

    return connect


@asynccontextmanager
async def open_broker(config: BrokerConfig | None = None) -> AsyncIterator[WireBroker]:
    """A broker with everything real but disk and network."""
    config = config or BrokerConfig()
    store = await CachedMetadataStore.open(MemoryMetadataStore(), RECORDS)
    bookie = MemoryBookie()
    client = BookkeeperClient(KnownBookies([bookie]), store)
    async with (
        ManagedLedgerFactory(client, store, log_options(config)) as logs,
        trio.open_nursery() as connections,
    ):
        async with open_service(config, store, logs) as service:
            await service.start(Addresses("pulsar://here:1", "http://here:2"))
            reach_system_topics(service)
            yield WireBroker(service, connections)
        connections.cancel_scope.cancel()
    await store.aclose()


@asynccontextmanager
async def open_client(config: BrokerConfig | None = None) -> AsyncIterator[WireClient]:
    """A connected client of a fresh broker."""
    async with open_broker(config) as broker:
        client = broker.client()
        await client.connect()
        yield client


def with_network(**settings: object) -> BrokerConfig:
    """A configuration with other network settings."""
    config = BrokerConfig()
    return replace(config, network=replace(config.network, **settings))
