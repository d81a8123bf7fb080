"""The composition root of a broker on the metadata store and the bookies of a cluster (spec CL-01,
OP-01).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import trio

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.registered import ChoiceOptions, open_registered_bookies
from geminga_broker.cluster.bookie_affinity import BookieAffinity
from geminga_broker.cluster.records import RECORDS
from geminga_broker.config import ClusterBrokerConfig, ClusterConfig
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.unnamed import ledger_owner
from geminga_broker.ownership.records import OWNERS_PATH
from geminga_broker.process import (
    Running,
    log_options,
    serving,
    until_told_to_stop,
    web_sockets,
)
from geminga_broker.service import BrokerService, open_service
from geminga_protocol.bookkeeper import paths
from geminga_runtime.lasting import open_lasting_nursery
from geminga_runtime.metadata.api import MetadataStore, StoreUnavailable
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.routed import RoutedMetadataStore
from geminga_runtime.metadata.timed import TimedMetadataStore
from geminga_runtime.metadata.zookeeper_url import parse_url, store_of_ledgers, with_scheme
from geminga_runtime.metrics.store_times import OWN_STORE, times_of
from geminga_runtime.settings import ConfigError
from geminga_runtime.tls_settings import NO_PORT

_log = logging.getLogger(__name__)

LOAD_BALANCE = "/loadbalance"
"""The leader, and the brokers with their load."""

FRAME_PADDING_BYTES = 10 * 1024
"""Beside a message of the largest size, as Apache's broker sets it for its bookies."""


async def run_broker(
    config: ClusterBrokerConfig, *, task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled, or until an administrator says so; `task_status` is set when all
    listeners are open.

    Then it unloads topics and closes their ledgers, for at most `brokerShutdownTimeoutMs`. Raises
    BindFailed, ConfigError, MetadataError.
    """
    if max(config.tls.broker_service_port, config.tls.web_service_port) > NO_PORT:
        config.tls.check()  # raise ConfigError before anything is opened
    config.bookies.placement()
    urls = _urls(config.cluster)
    async with AsyncExitStack() as stack:
        scope = stack.enter_context(trio.CancelScope())
        web = web_sockets(config, stack)
        opened = {url: await _open(stack, key, url, config) for url, key in urls.keys.items()}
        for url in {urls.own, urls.configuration}:
            opened[url] = await _remembering(stack, opened[url], RECORDS)
        store = await _remembering(stack, opened[urls.own], OWNERS_PATH)
        store = await _remembering(stack, store, LOAD_BALANCE)
        if urls.configuration != urls.own:
            store = RoutedMetadataStore(store, opened[urls.configuration])
        await _check_cluster(store, config.network.cluster_name)
        await _check_bookies(opened[urls.ledgers])
        service = await stack.enter_async_context(_open_broker(config, store, opened[urls.ledgers]))
        if urls.ledgers not in {urls.own, urls.configuration}:
            ledgers = times_of(opened[urls.ledgers])
            service.store_times = (*service.store_times, *ledgers)
        served = serving(config, service, web, is_whole_cluster=False)
        running = await stack.enter_async_context(served)
        await stack.enter_async_context(service.load_manager.registered(running.addresses))
        task_status.started(running)
        await until_told_to_stop(service, scope)


class _Urls(NamedTuple):
    """The metadata stores: the cluster's own, the one that clusters share, and the bookies'."""

    own: str
    configuration: str
    ledgers: str

    @property
    def keys(self) -> dict[str, str]:
        """Each store's URL, and the first key that names it."""
        return {
            self.ledgers: "bookkeeperMetadataServiceUri",
            self.configuration: "configurationMetadataStoreUrl",
            self.own: "metadataStoreUrl",
        }


def _urls(cluster: ClusterConfig) -> _Urls:
    """Raises ConfigError."""
    if not cluster.metadata_store_url:
        raise ConfigError(
            "metadataStoreUrl: a broker needs zk:HOST1:2181,HOST2:2181/PATH; for one machine "
            "without ZooKeeper there is `geminga standalone`"
        )
    own = with_scheme(cluster.metadata_store_url)
    found = _Urls(
        own,
        with_scheme(cluster.configuration_store_url or own),
        store_of_ledgers("bookkeeperMetadataServiceUri", cluster.ledgers_uri)
        if cluster.ledgers_uri
        else own,
    )
    for url, key in found.keys.items():
        try:
            parse_url(url)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
    return found


STORE_NAMES = {
    "metadataStoreUrl": OWN_STORE,
    "configurationMetadataStoreUrl": "configuration-metadata-store",
    "bookkeeperMetadataServiceUri": "bookkeeper-metadata-store",
}
"""Of the stores in the metrics, by the keys that name them."""


async def _open(
    stack: AsyncExitStack, key: str, url: str, config: ClusterBrokerConfig
) -> MetadataStore:
    """Raises ConfigError (kazoo is missing), StoreUnavailable."""
    cluster = config.cluster
    try:
        from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore
    except ImportError as error:
        raise ConfigError(str(error)) from None
    try:
        store = await ZooKeeperMetadataStore.open(
            url,
            session_timeout_s=cluster.session_timeout_ms / 1000,
            # What belongs to a session stands in the cluster's own store.
            has_witness=cluster.session_ends_with_process and key == "metadataStoreUrl",
        )
    except StoreUnavailable as error:
        raise StoreUnavailable(f"{key} {url}: {error}") from None
    stack.push_async_callback(store.aclose)
    return TimedMetadataStore(store, STORE_NAMES[key])


async def _remembering(stack: AsyncExitStack, store: MetadataStore, subtree: str) -> MetadataStore:
    cached = await CachedMetadataStore.open(store, subtree)
    stack.push_async_callback(cached.aclose)
    return cached


async def _check_cluster(store: MetadataStore, name: str) -> None:
    if not await store.exists(f"/admin/clusters/{name}"):
        names = await store.children("/admin/clusters")
        known = ", ".join(each for each in names if each != "global") or "none"
        raise ConfigError(
            f"clusterName: the metadata store has no cluster {name!r} (it has: {known}); set one "
            "that it has, or prepare this one by `geminga initialize-cluster-metadata`"
        )


async def _check_bookies(store: MetadataStore) -> None:
    """A mistyped path would look like a cluster without bookies."""
    if not await store.exists(paths.INSTANCE_ID):
        raise ConfigError(
            f"bookkeeperMetadataServiceUri: the metadata store has no {paths.INSTANCE_ID}, so no "
            "bookies: check its path, or prepare it by `geminga initialize-cluster-metadata`"
        )


def warn_of_too_few(writable: Sequence[str], ensemble_size: int) -> None:
    """A warning if fewer bookies take new entries than a ledger needs; others may come later."""
    if len(writable) < ensemble_size:
        _log.warning(
            "managedLedgerDefaultEnsembleSize is %d, but of the bookies only %d take new entries "
            "(%s): publishes fail until there are more; for a smaller cluster set "
            "managedLedgerDefaultEnsembleSize, ...WriteQuorum and ...AckQuorum lower",
            ensemble_size,
            len(writable),
            ", ".join(writable) or "none",
        )


@asynccontextmanager
async def _open_broker(
    config: ClusterBrokerConfig, store: MetadataStore, ledgers: MetadataStore
) -> AsyncIterator[BrokerService]:
    """Ledger client, managed ledgers and broker; closed in reverse order."""
    options = config.bookies.connections(
        config.network.max_message_size_bytes + FRAME_PADDING_BYTES
    )
    chosen = config.bookies
    choice = ChoiceOptions(
        chosen.placement(),
        chosen.health(),
        chosen.reorder_reads,
        free_bytes_interval_s=chosen.weigh_interval_s,
        free_bytes_retry_s=chosen.weigh_retry_s,
    )
    async with (
        open_registered_bookies(ledgers, options, choice=choice, racks_from=store) as bookies,
        open_lasting_nursery() as nursery,
    ):
        warn_of_too_few(bookies.writable(), config.log.ensemble_size)
        client = BookkeeperClient(
            bookies,
            ledgers,
            nursery=nursery,
            options=chosen.client(),
            describe=BookieAffinity(store).of_ledger,
            owner=await ledger_owner(store),
        )
        async with (
            ManagedLedgerFactory(client, store, log_options(config)) as logs,
            open_service(config, store, logs) as service,
        ):
            yield service
