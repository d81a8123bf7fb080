"""Brokers of one cluster in one process: sessions of one metadata store, one bookie, and calls from
one to another straight into its application.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import trio
from starlette.types import ASGIApp

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker._tests.asgi import request
from geminga_broker._tests.wire import among
from geminga_broker.admin.app import create_app
from geminga_broker.admin.calls import Calls
from geminga_broker.admin.peers import PeerAnswer, PeerUnreachable
from geminga_broker.change_events.reaching import reach_system_topics
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.config import BrokerConfig
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.process import log_options
from geminga_broker.service import BrokerService, open_service
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MetadataStore
from geminga_runtime.metadata.memory import MemoryMetadataStore


class Reply(NamedTuple):
    """A response."""

    status: int
    location: str
    body: bytes

    @property
    def json(self) -> object:
        """The body's JSON, or None without a body."""
        return json.loads(self.body) if self.body else None


class Broker:
    """One of the brokers; `asked` are the calls that others made of it."""

    def __init__(self, number: int, service: BrokerService, cluster: Cluster) -> None:
        host = f"b{number}"
        self.addresses = Addresses(f"pulsar://{host}:6650", f"http://{host}:8080")
        self.service = service
        self.calls = Calls(service)
        self.app: ASGIApp = create_app(service, self.calls)
        self.asked: list[str] = []
        setattr(service.peers, "call", cluster.call)  # noqa: B010 - in place of HTTP calls

    async def ask(
        self, method: str, target: str, body: object = None, *, scheme: str = "http"
    ) -> Reply:
        """One request straight into the application."""
        content = b"" if body is None else msgspec.json.encode(body)
        return await self.ask_raw(method, target, content, scheme=scheme)

    async def ask_raw(
        self, method: str, target: str, content: bytes, *, scheme: str = "http"
    ) -> Reply:
        """The same with the bytes of a body."""
        json = [("content-type", "application/json")]
        reply = await request(self.app, method, target, content, json, scheme=scheme)
        return Reply(reply.status, dict(reply.headers).get("location", ""), reply.body)

    async def own(self, *bundles: BundleId) -> None:
        """Take bundles that nobody owns."""
        for bundle in bundles:
            owner = await self.service.ownership.acquire(bundle)
            assert owner.addresses == self.addresses


class Cluster(list[Broker]):
    """All brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.services: list[BrokerService] = []

    async def call(
        self,
        broker_id: str,
        method: str,
        path_and_query: str,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        follow: bool = True,
    ) -> PeerAnswer:
        """In place of `Peers.call`."""
        del timeout_s
        for _ in range(5):
            broker = next((one for one in self if one.addresses.broker_id == broker_id), None)
            if broker is None:
                raise PeerUnreachable(f"broker {broker_id} is not registered")
            broker.asked.append(f"{method} {path_and_query}")
            reply = await broker.ask_raw(method, path_and_query, body)
            if not follow or reply.status != 307:
                return PeerAnswer(reply.status, reply.body)
            broker_id = urlsplit(reply.location).netloc
            path_and_query = reply.location.partition(broker_id)[2]
        raise PeerUnreachable("redirected too often")

    async def bundles(self, namespace: str = "public/default") -> list[BundleId]:
        """The namespace's bundles."""
        found = await self[0].service.namespaces.bundles(namespace)
        return [BundleId(namespace, name) for name in found.names()]

    async def share(self, namespace: str = "public/default") -> None:
        """Give the namespace's bundles to the brokers in turn."""
        for number, bundle in enumerate(await self.bundles(namespace)):
            await self[number % len(self)].own(bundle)

    async def owner(self, topic: str) -> Broker:
        """Who owns the topic's bundle."""
        bundle = await self[0].service.namespaces.bundle_of(TopicName.parse(topic))
        return next(one for one in self if one.service.ownership.holds(bundle))

    async def topic_of(self, broker: Broker, domain: str = "persistent") -> str:
        """The name of a topic that this broker owns."""
        for number in range(1000):
            name = f"t{number}"
            if await self.owner(f"{domain}://public/default/{name}") is broker:
                return name
        raise AssertionError("no such topic")


@asynccontextmanager
async def joined(
    cluster: Cluster,
    number: int,
    store: MetadataStore,
    bookie: MemoryBookie,
    settings: BrokerConfig,
    connections: trio.Nursery,
) -> AsyncIterator[Broker]:
    """One more broker, on a session of its own. The broker 0 makes the records."""
    client = BookkeeperClient(KnownBookies([bookie]), store)
    async with (
        ManagedLedgerFactory(client, store, log_options(settings)) as logs,
        open_service(settings, store, logs) as service,
    ):
        broker = Broker(number, service, cluster)
        await service.start(broker.addresses, is_whole_cluster=number == 0)
        cluster.services.append(service)
        reach_system_topics(service, among(cluster.services, connections))
        async with service.load_manager.registered(broker.addresses):
            cluster.append(broker)
            try:
                yield broker
            finally:
                cluster.remove(broker)
                cluster.services.remove(service)


@asynccontextmanager
async def cluster_of(
    count: int = 2, config: BrokerConfig | None = None, configs: Sequence[BrokerConfig] = ()
) -> AsyncIterator[Cluster]:
    """That many brokers; the first leads. The namespace public/default has its four bundles."""
    store, bookie, cluster = MemoryMetadataStore(), MemoryBookie(), Cluster()
    async with trio.open_nursery() as connections, AsyncExitStack() as stack:
        for number in range(count):
            own = store if number == 0 else store.another_session()
            settings = configs[number] if configs else config or BrokerConfig()
            one = joined(cluster, number, own, bookie, settings, connections)
            await stack.enter_async_context(one)
        yield cluster
        connections.cancel_scope.cancel()
