"""Brokers whose topics have policies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import trio
import trio.testing

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker._tests.wire import among
from geminga_broker.change_events.reaching import reach_system_topics
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import BrokerConfig
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.process import log_options
from geminga_broker.service import BrokerService, open_service
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MetadataStore
from geminga_runtime.metadata.memory import MemoryMetadataStore

T = TopicName.parse("persistent://public/default/t")
U = TopicName.parse("persistent://public/default/u")
PART = TopicName.parse("persistent://public/default/t-partition-1")
NP = TopicName.parse("non-persistent://public/default/t")
EVENTS = TopicName.parse("persistent://public/default/__change_events")
OLDER = "/admin/topic-policies/public/default/persistent"


@asynccontextmanager
async def brokers(
    count: int = 1,
    config: BrokerConfig | None = None,
    *,
    store: MemoryMetadataStore | None = None,
    bookie: MemoryBookie | None = None,
) -> AsyncIterator[list[BrokerService]]:
    """That many brokers of one cluster."""
    config = config or BrokerConfig()
    store, bookie = store or MemoryMetadataStore(), bookie or MemoryBookie()
    found: list[BrokerService] = []
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        for number in range(count):
            session: MetadataStore = store.another_session() if number else store
            client = BookkeeperClient(KnownBookies([bookie]), session)
            factory = ManagedLedgerFactory(client, session, log_options(config))
            logs = await stack.enter_async_context(factory)
            service = await stack.enter_async_context(open_service(config, session, logs))
            addresses = Addresses(f"pulsar://b{number}:1", f"http://b{number}:2")
            await service.start(addresses, is_whole_cluster=not number)
            found.append(service)
            reach_system_topics(service, among(found, nursery))
        yield found
        nursery.cancel_scope.cancel()


def having(**fields: object) -> Callable[[JsonObject], JsonObject]:
    """The change that sets these fields."""
    return lambda old: old | fields
