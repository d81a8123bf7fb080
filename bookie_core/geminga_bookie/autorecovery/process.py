"""The composition root of an auto-recovery process (spec BK-26; Apache's AutoRecoveryMain)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import trio

from geminga_bookie.autorecovery.config import AutoRecoveryConfig
from geminga_bookie.autorecovery.daemon import run
from geminga_bookie.autorecovery.stats import RecoveryStats
from geminga_bookie.errors import DataDirError
from geminga_bookie.process.config import HttpConfig
from geminga_bookie.process.http import CONNECTIONS_MAX, TEXT, Answer, respond_once
from geminga_bookie.process.identity import cluster_of
from geminga_bookie.registered import RegisteredBookies, open_registered_bookies
from geminga_runtime.metadata.api import MetadataStore, StoreUnavailable
from geminga_runtime.server import Bound, serve
from geminga_runtime.settings import ConfigError


class Running(NamedTuple):
    """A daemon that works."""

    owner: str
    store_url: str
    http_port: int | None
    """None without `httpServerEnabled`."""


@asynccontextmanager
async def open_cluster(
    config: AutoRecoveryConfig,
) -> AsyncIterator[tuple[MetadataStore, RegisteredBookies]]:
    """The metadata store and the bookies. Raises ConfigError, also for a store that has not been
    prepared; MetadataError.
    """
    url = config.metadata.store_url()
    options = config.remote_options()
    try:
        from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore
    except ImportError as error:
        raise ConfigError(str(error)) from None
    try:
        store = await ZooKeeperMetadataStore.open(
            url, session_timeout_s=config.metadata.session_timeout_ms / 1000
        )
    except StoreUnavailable as error:
        raise StoreUnavailable(f"metadata store {url}: {error}") from None
    try:
        await _require_cluster(store)
        choice = config.racks.choice()
        async with open_registered_bookies(store, options, choice=choice) as bookies:
            yield store, bookies
    finally:
        await store.aclose()  # noqa: ASYNC102 - it is shielded inside


async def _require_cluster(store: MetadataStore) -> None:
    """A mistyped path would look like a cluster without bookies, and get nodes of its own."""
    try:
        await cluster_of(store)
    except DataDirError as error:
        raise ConfigError(str(error)) from None


async def run_autorecovery(
    config: AutoRecoveryConfig, *, task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED
) -> None:
    """Work until cancelled. Raises ConfigError, MetadataError, BindFailed."""
    owner = config.daemon.owner()
    async with open_cluster(config) as (store, bookies), trio.open_nursery() as nursery:
        stats = RecoveryStats()
        working = partial(run, store, bookies, config.options, owner=owner, stats=stats)
        await nursery.start(working)
        http_port = await _start_http(config.http, stats, nursery)
        task_status.started(Running(owner, config.metadata.store_url(), http_port))


async def _start_http(
    config: HttpConfig, stats: RecoveryStats, nursery: trio.Nursery
) -> int | None:
    """The port, if there is one. Raises BindFailed."""
    if not config.enabled:
        return None
    serving = partial(
        serve,
        partial(respond_once, partial(_answer, stats)),
        host=config.host,
        port=config.port,
        key="httpServerPort",
        connections_max=CONNECTIONS_MAX,
    )
    bound: list[Bound] = await nursery.start(serving)
    return bound[0].port


def _answer(stats: RecoveryStats, method: str, path: str) -> Answer:
    """What is said to one request on the HTTP port (Apache's with `httpServerEnabled=true`)."""
    if method != "GET":
        return 405, TEXT, "only GET\n"
    where = path.partition("?")[0].rstrip("/")
    if where == "/metrics":
        return 200, TEXT, stats.text()
    return (200, TEXT, "OK\n") if where == "/heartbeat" else (404, TEXT, "not found\n")
