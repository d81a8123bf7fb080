"""Lets a broker's service reach system topics, once it may be asked for topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from geminga_broker.change_events.api import Events
from geminga_broker.change_events.store import SystemTopicPolicies
from geminga_broker.service import BrokerService
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import run_guarded

if TYPE_CHECKING:
    import geminga
    from geminga_broker.inner_client import Connector


def reach_system_topics(service: BrokerService, elsewhere: Connector | None = None) -> None:
    """From now on policies of topics can be read and changed. `elsewhere`: how other brokers are
    reached, if not over TCP. The client is loaded when a topic has policies.
    """
    store = service.policies.store
    if not isinstance(store, SystemTopicPolicies):
        return

    @asynccontextmanager
    async def opening() -> AsyncIterator[geminga.Client]:
        from geminga_broker.inner_client import client_of_broker

        made = client_of_broker(service, elsewhere) if elsewhere else client_of_broker(service)
        async with made as client:
            yield client

    async def schema_of(topic: TopicName, version: bytes) -> bytes | None:
        found = await service.schemas.get(topic, version)
        return None if found is None else found.schema.data

    def events(nursery: trio.Nursery) -> Events:
        from geminga_broker.change_events.client_events import ClientEvents

        return ClientEvents(opening, schema_of, nursery)

    store.open_events = events
    # A deleted topic's policies go with it, which nobody could be told before.
    store.nursery.start_soon(run_guarded, service.finish_deletions)
