"""The brokers that are registered in the metadata store (spec CL-07; Apache's LocalBrokerData)."""

from __future__ import annotations

import re

import msgspec

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.records import ListenerRecord, decode
from geminga_runtime.metadata.api import MetadataStore

BROKERS_PATH = "/loadbalance/brokers"

_ID = re.compile(r"[^/\s\x00-\x1f\x7f]+:[0-9]{1,5}")
"""`host:port`; other texts, as callers of the admin API may give, are no names of nodes."""


class BrokerRecord(msgspec.Struct, rename="camel", frozen=True):
    """The addresses in a broker's node, which also tells its load."""

    web_service_url: str | None = None
    web_service_url_tls: str | None = None
    pulsar_service_url: str | None = None
    pulsar_service_url_tls: str | None = None
    broker_version_string: str | None = None
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    advertised_listeners: dict[str, ListenerRecord] = {}

    @property
    def addresses(self) -> Addresses:
        """The addresses for lookups."""
        return Addresses(
            self.pulsar_service_url or "",
            self.web_service_url or "",
            self.pulsar_service_url_tls or "",
            self.web_service_url_tls or "",
        )


class ActiveBrokers:
    """Brokers with a session; reads the store, which remembers what it read."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def ids(self) -> list[str]:
        """Ids of all brokers, sorted. Raises MetadataError."""
        return list(await self._store.children(BROKERS_PATH))

    async def record(self, broker_id: str) -> BrokerRecord | None:
        """What a broker tells of itself; None if it isn't registered. Raises MetadataError."""
        if not _ID.fullmatch(broker_id):
            return None
        node = await self._store.get(f"{BROKERS_PATH}/{broker_id}")
        return None if node is None else decode(node.value, BrokerRecord)

    async def is_own(self, broker_id: str) -> bool:
        """Whether it is registered by this process. Raises MetadataError."""
        node = await self._store.get(f"{BROKERS_PATH}/{broker_id}")
        return node is not None and node.stat.created_by_self

    async def is_active(self, broker_id: str) -> bool:
        """Whether it is registered. Raises MetadataError."""
        if not _ID.fullmatch(broker_id):
            return False
        return await self._store.exists(f"{BROKERS_PATH}/{broker_id}")
