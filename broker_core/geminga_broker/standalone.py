"""The composition root: store, bookie, broker and web server in one process (spec OP-02)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.options import AgeCheck
from geminga_broker.cluster.records import RECORDS
from geminga_broker.data_dir import METADATA_FILE, DataDirUnusable, missing_metadata
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.metadata_loss import AcceptedAge, DataAge
from geminga_broker.process import (
    Running,
    log_options,
    serving,
    until_told_to_stop,
    web_sockets,
)
from geminga_broker.service import BrokerService, open_service
from geminga_broker.standalone_parts import StandaloneOptions, bookie_options, open_store
from geminga_runtime.metadata.api import MetadataStore
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.integrity.aside import set_aside
from geminga_runtime.metadata.integrity.check import StoreDamaged
from geminga_runtime.metadata.sqlite import SqliteMetadataStore
from geminga_runtime.metadata.timed import TimedMetadataStore
from geminga_runtime.metrics.store_times import OWN_STORE
from geminga_runtime.tls_settings import NO_PORT


async def run_standalone(
    options: StandaloneOptions,
    *,
    task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, or until an administrator says so; `task_status` is set when all
    listeners are open.

    Then it unloads topics, closes ledgers and flushes, for at most `brokerShutdownTimeoutMs`.
    Raises BindFailed, ConfigError (certificates), DataDirUnusable, and the storage's errors for an
    unusable directory.
    """
    if max(options.config.tls.broker_service_port, options.config.tls.web_service_port) > NO_PORT:
        options.config.tls.check()  # raise ConfigError before anything is created
    async with AsyncExitStack() as stack:
        scope = stack.enter_context(trio.CancelScope())
        web = web_sockets(options.config, stack)
        embedded = await open_store(options)
        stack.push_async_callback(embedded.aclose)
        store = await CachedMetadataStore.open(TimedMetadataStore(embedded, OWN_STORE), RECORDS)
        stack.push_async_callback(store.aclose)
        age = DataAge(embedded, options.data_dir)
        service = await stack.enter_async_context(_open_broker(options, store, age))
        running = await stack.enter_async_context(serving(options.config, service, web))
        await stack.enter_async_context(service.load_manager.registered(running.addresses))
        task_status.started(running)
        await until_told_to_stop(service, scope)


async def accept_metadata_loss(options: StandaloneOptions) -> list[str]:
    """Let a standalone that isn't running start with the metadata that are there, or with what can
    be saved of them. Returns what was accepted, as sentences. Killed in between, it can be
    repeated. Raises DataDirUnusable, StoreOpenError, DataDirError, MetadataError.
    """
    assert options.data_dir is not None
    file = options.data_dir / METADATA_FILE
    said: list[str] = []
    if missing := missing_metadata(options.data_dir):
        said.append(missing)
    elif not file.exists() and not any(options.data_dir.glob(f"{METADATA_FILE}[-.]*")):
        raise DataDirUnusable(f"{file} is not there")  # nothing is made here
    try:
        store = await SqliteMetadataStore.open(file)
    except StoreDamaged as error:
        said.append(str(error))
        said += await trio.to_thread.run_sync(set_aside, file)
        store = await SqliteMetadataStore.open(file)
    age = AcceptedAge(store)
    try:
        # Without a list of ledgers it collects nothing.
        bookie = bookie_options(options)
        async with open_bookie(bookie, metadata=store, age=age, adopts_unknown=True):
            return said + age.said
    finally:
        await store.aclose()


@asynccontextmanager
async def _open_broker(
    options: StandaloneOptions, store: MetadataStore, age: AgeCheck
) -> AsyncIterator[BrokerService]:
    """Bookie, ledger client, managed ledgers and broker; closed in reverse order."""
    async with (
        open_ledgers(options, store, age) as client,
        ManagedLedgerFactory(client, store, log_options(options.config)) as logs,
        open_service(options.config, store, logs) as service,
    ):
        yield service


@asynccontextmanager
async def open_ledgers(
    options: StandaloneOptions, store: MetadataStore, age: AgeCheck
) -> AsyncIterator[BookkeeperClient]:
    """Bookie and ledger client. Raises as `open_bookie`."""
    bookies = KnownBookies()
    client = BookkeeperClient(bookies, store)
    settings = bookie_options(options)
    async with open_bookie(settings, client.ledgers, metadata=store, age=age) as bookie:
        bookies.join(bookie)
        yield client
