"""The broker's record in the metadata store, for proxies' discovery (spec PX-03;
Apache's LocalBrokerData as its ModularLoadManagerImpl stores it).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import msgspec
import trio

from geminga_broker.cluster.lookup import Addresses
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import MetadataError, MetadataStore

BROKERS_PATH = "/loadbalance/brokers"
REMOVE_S = 2.0


class _Record(msgspec.Struct, rename="camel"):
    """The part of Apache's record with the broker's addresses, without its load."""

    web_service_url: str | None
    web_service_url_tls: str | None
    pulsar_service_url: str | None
    pulsar_service_url_tls: str | None
    broker_version_string: str
    start_timestamp: int
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    protocols: dict[str, str] = {}
    advertised_listeners: dict[str, str] = {}
    load_report_type: str = "LocalBrokerData"


@asynccontextmanager
async def registered(store: MetadataStore, addresses: Addresses) -> AsyncIterator[None]:
    """Keep the record while the context is open and the session lives. Raises MetadataError."""
    record = _Record(
        addresses.web_url or None,
        addresses.web_url_tls or None,
        addresses.broker_url or None,
        addresses.broker_url_tls or None,
        f"Geminga {version('geminga')}",
        wall_clock_ms(),
    )
    path = f"{BROKERS_PATH}/{addresses.broker_id}"
    await store.put(path, msgspec.json.encode(record), epoch=store.session.epoch)
    try:
        yield
    finally:
        with trio.move_on_after(REMOVE_S, shield=True):
            try:
                await store.delete(path)
            except MetadataError:  # it is deleted with the session
                pass
