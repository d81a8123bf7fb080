"""The broker's record in the metadata store, for proxies' discovery (spec PX-03;
Apache's LocalBrokerData as its ModularLoadManagerImpl stores it).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

import msgspec
import trio

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.brokers import BROKERS_PATH
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    MetadataError,
    MetadataStore,
    NoNode,
    SessionExpired,
)

REMOVE_S = 2.0
RETRY_S = 1.0

_log = logging.getLogger(__name__)


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
    """Keep the record while the context is open, in each session of the store. Raises
    MetadataError if it can't be made at first.
    """
    record = _Record(
        addresses.web_url or None,
        addresses.web_url_tls or None,
        addresses.broker_url or None,
        addresses.broker_url_tls or None,
        f"Geminga {version('geminga')}",
        wall_clock_ms(),
    )
    path = f"{BROKERS_PATH}/{addresses.broker_id}"
    value = msgspec.json.encode(record)
    epoch = store.session.epoch
    try:
        await _register(store, path, value, epoch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_register_again, store, path, value, epoch)
            yield
            nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(REMOVE_S, shield=True), suppress(MetadataError):
            await store.delete(path)  # otherwise it is deleted with the session


async def _register(store: MetadataStore, path: str, value: bytes, epoch: int) -> None:
    """Make the node anew: one that is there belongs to an earlier session, and would be deleted
    with it.
    """
    with suppress(NoNode):
        await store.delete(path)
    await store.put(path, value, MUST_NOT_EXIST, epoch=epoch)


async def _register_again(store: MetadataStore, path: str, value: bytes, epoch: int) -> None:
    """In each later session, until the store is closed."""
    with suppress(SessionExpired):
        while True:
            epoch = (await store.wait_change(epoch)).epoch
            while store.session.epoch == epoch:
                try:
                    await _register(store, path, value, epoch)
                except MetadataError:
                    await trio.sleep(RETRY_S)
                else:
                    _log.info("registered again: the metadata store's session was a new one")
                    break
