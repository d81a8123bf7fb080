"""The broker's record in the metadata store, for proxies' discovery (spec PX-03;
Apache's LocalBrokerData as its ModularLoadManagerImpl stores it).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

import msgspec
import trio

from geminga_broker.cluster.lookup import Addresses
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    MetadataError,
    MetadataStore,
    NoNode,
    SessionExpired,
)

BROKERS_PATH = "/loadbalance/brokers"
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


async def _anybody() -> None:
    """Every broker may register."""


@asynccontextmanager
async def registered(
    store: MetadataStore, addresses: Addresses, may: Callable[[], Awaitable[None]] = _anybody
) -> AsyncIterator[None]:
    """Keep the record while the context is open, in each session of the store. Raises
    MetadataError if it can't be made at first, and what `may` raises, then or in a later session.
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
    await may()
    try:
        await _register(store, path, value, epoch, may)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_register_again, store, path, value, epoch, may)
            yield
            nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(REMOVE_S, shield=True), suppress(MetadataError):
            await store.delete(path)  # otherwise it is deleted with the session


async def _register(
    store: MetadataStore, path: str, value: bytes, epoch: int, may: Callable[[], Awaitable[None]]
) -> None:
    """Make the node anew: one that is there belongs to an earlier session, and would be deleted
    with it. `may` is asked once more: of two brokers that asked before the other one's node was
    there, at least one sees it now.
    """
    with suppress(NoNode):
        await store.delete(path)
    await store.put(path, value, MUST_NOT_EXIST, epoch=epoch)
    await may()


async def _register_again(
    store: MetadataStore, path: str, value: bytes, epoch: int, may: Callable[[], Awaitable[None]]
) -> None:
    """In each later session, until the store is closed."""
    with suppress(SessionExpired):
        while True:
            epoch = (await store.wait_change(epoch)).epoch
            while store.session.epoch == epoch:
                try:
                    await may()
                    await _register(store, path, value, epoch, may)
                except MetadataError:
                    await trio.sleep(RETRY_S)
                else:
                    _log.info("registered again: the metadata store's session was a new one")
                    break
