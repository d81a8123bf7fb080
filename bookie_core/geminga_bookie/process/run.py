"""The composition root of a bookie's process: metadata store, storage, server, registration (spec
BK-08, BK-10, BK-27).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import trio

from geminga_bookie.autorecovery.daemon import run_beside
from geminga_bookie.autorecovery.stats import RecoveryStats
from geminga_bookie.errors import DataDirError
from geminga_bookie.host import Host
from geminga_bookie.inprocess import open_on_disk
from geminga_bookie.options import BookieOptions
from geminga_bookie.process.address import Endpoint
from geminga_bookie.process.config import BookieConfig
from geminga_bookie.process.data_check import end_doubts
from geminga_bookie.process.http import CONNECTIONS_MAX, handle_http
from geminga_bookie.process.identity import (
    BookieIdentity,
    cluster_of,
    mark_for_apache,
    refuse_apaches,
    require_layout,
)
from geminga_bookie.process.live_ledgers import LiveLedgers
from geminga_bookie.process.registration import (
    Registration,
    registered,
    registered_now,
    service_info,
)
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_bookie.storage.health import parts
from geminga_bookie.wire.server import serve_bookie, shared_by
from geminga_runtime.metadata.api import MetadataStore, StoreUnavailable
from geminga_runtime.server import Bound, Handler, check_free, serve
from geminga_runtime.settings import ConfigError

FORCED = "forceReadOnlyBookie"
EXPIRY_S = 5.0
"""ZooKeeper ends a session so much late at most, with ticks of 2 s."""


class ReadOnlyRefused(Exception):
    """A disk is full and `readOnlyModeEnabled` is false: the bookie ends, as Apache's does."""


class RunningBookie(NamedTuple):
    """A bookie that serves."""

    endpoint: Endpoint
    options: BookieOptions
    bookie: InProcessBookie
    http_port: int | None
    """None without `httpServerEnabled`."""

    @property
    def url(self) -> str:
        """Where clients are told that it is."""
        return f"bookie://{self.endpoint.host}:{self.endpoint.port}"


async def run_bookie(
    config: BookieConfig, *, task_status: trio.TaskStatus[RunningBookie] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; `task_status` is set when it serves and is registered.

    When cancelled, it removes its registration, then makes a last checkpoint. Raises ConfigError,
    MetadataError, DataDirError, BindFailed, ReadOnlyRefused.
    """
    endpoint = config.endpoint()
    options = config.bookie_options(endpoint.bookie_id)
    server = config.server_options(endpoint.bind_host)
    remote = config.remote_options()
    config.security.check_user()
    # Later it has a cookie, and belongs to its port.
    listeners = [(server.host, server.port, "bookiePort")]
    if config.http.enabled:
        listeners.append((config.http.host, config.http.port, "httpServerPort"))
    await check_free(*listeners)
    async with AsyncExitStack() as stack:
        store = await _open_store(config)
        stack.push_async_callback(store.aclose)
        bookie = await stack.enter_async_context(open_member(store, options))
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        where, health = config.directories, bookie.health
        if where.read_only_forced:
            health.set(FORCED, {part: FORCED for part, _ in parts(options)})
        shared = shared_by(bookie, server)
        _: list[Bound] = await nursery.start(partial(serve_bookie, bookie, server, shared=shared))
        stats = RecoveryStats()
        more = stats.text if config.daemon.auto_recovery else None
        handler = partial(handle_http, bookie, shared, more=more)
        http_port = await _serve_http(config, handler, nursery)
        registration = Registration(
            store,
            endpoint.bookie_id,
            service_info(endpoint.host, endpoint.port),
            lambda: health.error is not None,
        )
        refused = trio.Event()

        def mode_changed() -> None:
            registration.look()
            if health.error is not None and not where.read_only_enabled:
                refused.set()

        health.on_change = mode_changed
        mode_changed()
        patience_s = config.metadata.session_timeout_ms / 1000 + EXPIRY_S
        await stack.enter_async_context(registered(registration, patience_s))
        nursery.start_soon(end_doubts, store, remote, config.auto_recovery, bookie)
        if config.daemon.auto_recovery:
            beside = partial(run_beside, racks=config.racks, stats=stats)
            nursery.start_soon(beside, store, remote, config.auto_recovery, endpoint.bookie_id)
        task_status.started(RunningBookie(endpoint, options, bookie, http_port))
        await refused.wait()
        raise ReadOnlyRefused(f"readOnlyModeEnabled is false, and the bookie is: {health.error}")


async def _serve_http(config: BookieConfig, handler: Handler, nursery: trio.Nursery) -> int | None:
    """The port, if there is one. Raises BindFailed."""
    if not config.http.enabled:
        return None
    serving = partial(
        serve,
        handler,
        host=config.http.host,
        port=config.http.port,
        key="httpServerPort",
        connections_max=CONNECTIONS_MAX,
    )
    bound: list[Bound] = await nursery.start(serving)
    return bound[0].port


@asynccontextmanager
async def open_member(
    store: MetadataStore, options: BookieOptions, host: Host | None = None
) -> AsyncIterator[InProcessBookie]:
    """Open the storage of a bookie that belongs to the store's cluster. Raises DataDirError,
    MetadataError.
    """
    host = host or Host()
    cluster_id = await cluster_of(store)
    await require_layout(store)
    identity = BookieIdentity(store, replace(options, cluster_id=cluster_id))
    mine = replace(options, cluster_id=cluster_id, may_be_new=not await identity.is_known())
    await host.workers.run(refuse_apaches, host.disk, mine)
    live = LiveLedgers(store, cluster_id)
    storage = open_on_disk(
        mine,
        host,
        live_ledgers=live.ids,
        ledger_exists=live.exists,
        check_identity=identity.check,
    )
    async with AsyncExitStack() as stack:
        try:
            bookie = await stack.enter_async_context(storage)
        except DataDirError as error:
            if mine.may_be_new or isinstance(error.__cause__, BlockingIOError):
                raise
            raise DataDirError(f"{error}{await registered_now(store, mine.bookie_id)}") from error
        await host.workers.run(mark_for_apache, host.disk, mine)
        bookie.health.set("disk", await host.workers.run(bookie.health.full))
        yield bookie


async def _open_store(config: BookieConfig) -> MetadataStore:
    """Raises ConfigError, StoreUnavailable."""
    url = config.metadata.store_url()
    try:
        from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore
    except ImportError as error:
        raise ConfigError(str(error)) from None
    timeout_s = config.metadata.session_timeout_ms / 1000
    try:
        return await ZooKeeperMetadataStore.open(url, session_timeout_s=timeout_s)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"metadata store {url!r}: {error}") from None
