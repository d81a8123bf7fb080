"""The broker, composed of its parts (spec CL-05, OP-08)."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.api import BookieInfo
from geminga_bookie.client.read import LedgerReader
from geminga_broker.admin.peers import Peers
from geminga_broker.authz.authorizer import Authorizer
from geminga_broker.authz.needs import Place
from geminga_broker.authz.settings import check_settings
from geminga_broker.change_events.store import SystemTopicPolicies
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.bookie_racks import BookieRacks
from geminga_broker.cluster.catalog import TopicCatalog
from geminga_broker.cluster.changes import PolicyChanges
from geminga_broker.cluster.inactivity import delete_inactive
from geminga_broker.cluster.load_needs import Logs
from geminga_broker.cluster.loader import TopicLoader
from geminga_broker.cluster.lookup import Lookup
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.policy_applier import PolicyApplier
from geminga_broker.cluster.topics import Topics
from geminga_broker.config import BrokerConfig
from geminga_broker.dynamic_config import (
    BOUNDS,
    LIMITS,
    LOAD_BALANCE,
    POLICIES,
    SUPER_USERS,
    DynamicConfiguration,
)
from geminga_broker.loadbalance.manager import BrokerParts, LoadManager
from geminga_broker.log.cache import EntryCache
from geminga_broker.log.deletion import DELETION_S, LogEraser
from geminga_broker.log.options import LogOptions
from geminga_broker.network_config import NetworkConfig
from geminga_broker.ownership.brokers import ActiveBrokers
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.deserted import DesertedBundles
from geminga_broker.ownership.election import Election
from geminga_broker.ownership.finder import OwnerFinder
from geminga_broker.ownership.gate import BundleGate
from geminga_broker.ownership.handing_over import LookupHandover
from geminga_broker.ownership.hold_over import HoldOver
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.splitting import BundleSplitter
from geminga_broker.ownership.unloading import BundleUnloader
from geminga_broker.policies.apply import broker_limits, broker_unacked_limit
from geminga_broker.policies.broker_options import broker_options
from geminga_broker.policies.maintenance import TopicMaintenance
from geminga_broker.policies.rate_limit import RequestLimit
from geminga_broker.policies.resolve import NoTopicPolicies, PolicyResolver, TopicPoliciesStore
from geminga_broker.schema.registry import SchemaRegistry
from geminga_broker.schema.storage import SchemaStorage
from geminga_broker.schema.topic_schemas import TopicSchemas
from geminga_broker.session.connections import Connections
from geminga_broker.topic.api import TopicEnvironment
from geminga_runtime.auth.service import load_authenticator
from geminga_runtime.background import run_guarded
from geminga_runtime.metadata.api import MetadataStore
from geminga_runtime.metrics.store_times import times_of

_COUNTER = "/counters/producer-name"


class Storage(Logs, Protocol):
    """Managed ledgers, and the ledgers beneath them: `log.factory.ManagedLedgerFactory`."""

    client: BookkeeperClient
    options: LogOptions
    eraser: LogEraser
    cache: EntryCache

    async def finish_deletions(self, begun_before_ms: float = math.inf) -> None:
        """See `ManagedLedgerFactory.finish_deletions`."""


class ProducerNames:
    """Generates unique producer names of a cluster, in Apache's form."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._instance = ""
        self._given = 0

    async def start(self, store: MetadataStore) -> None:
        """Take a number that no broker has used before."""
        path, _ = await store.put(f"{_COUNTER}-", b"", sequential=True)
        self._instance = str(int(path.rpartition("-")[2]))

    def next(self) -> str:
        """A new name."""
        self._given += 1
        return f"{self._cluster}-{self._instance}-{self._given - 1}"


def _request_limit(network: NetworkConfig) -> RequestLimit | None:
    if not network.http_requests_limited:
        return None
    return RequestLimit(network.http_requests_per_s_max, trio.current_time)


class BrokerService:
    """One broker's parts, for sessions, REST API and metrics. Made by `open_service`."""

    health = -1
    """The last health check's result: 1, or 0 if it failed; -1 before the first."""

    def __init__(
        self, config: BrokerConfig, store: MetadataStore, logs: Storage, nursery: trio.Nursery
    ) -> None:
        """Raises ConfigError for invalid settings of authentication or authorization."""
        check_settings(config.authorization, authenticates=config.auth.enabled)
        self.authenticator = load_authenticator(config.auth)
        self.config = config
        self.store = store
        self.store_times = times_of(store)
        """Calls of the metadata stores, for `/metrics`."""
        self.request_limit = _request_limit(config.network)
        """Of HTTP, where there is one."""
        self.namespaces = Namespaces(store)
        self.racks = BookieRacks(store)
        self.bookies = logs.client.bookies
        """Ids of the cluster's bookies."""
        self.peers = Peers(store, config.peers, refresh_check_s=config.tls.refresh_check_s)
        self.authorizer = Authorizer(config.authorization, self.namespaces)
        self.catalog = TopicCatalog(store, self.namespaces, config.topics)
        self._nursery = nursery
        self._logs = logs
        self.ownership = BundleOwnership(store, self._bundles_lost)
        self.election = Election(store)
        self.brokers = ActiveBrokers(store)
        self.load_manager = LoadManager(config, self._parts_for_load_manager())
        self.finder = self._owner_finder()
        self.lookup = Lookup(self.namespaces, self.finder, config.topics.lookups_max)
        self.policies = PolicyResolver(
            self._topic_policies(), self.namespaces, config, broker_options(config)
        )
        storage = SchemaStorage(store, logs.client, logs.options.durability)
        self.schemas = TopicSchemas(
            SchemaRegistry(storage), self.namespaces, self.policies.store, config.schemas
        )
        environment = TopicEnvironment(nursery, unacked_limit=broker_unacked_limit(config.clients))
        self.connections = Connections(config.network.publish_buffer_mb_max << 20)
        gate = BundleGate(self.namespaces, self.finder, self.ownership)
        loader = TopicLoader(
            config, self.catalog, self.namespaces, logs, environment, self.policies, gate
        )
        self.unloader = BundleUnloader(
            self.ownership, loader, timeout_s=config.topics.bundle_unload_timeout_ms / 1000
        )
        self.unloader.handover = LookupHandover(self.peers)
        self.splitter = BundleSplitter(self.namespaces, self.ownership, self.unloader)
        self.hold_over = HoldOver(
            store, self.ownership, self.brokers, self.unloader, self.namespaces.has_bundle
        )
        self.changes = PolicyChanges(store, loader.applier.apply, self._recheck)
        self.topics = Topics(
            loader, self.catalog, self.namespaces, self.policies.store, self.schemas, self.changes
        )
        self._follow_topic_policies()
        logs.eraser.forget = self.topics.forget_log
        self.maintenance = TopicMaintenance(self.topics.loaded, config.policies)
        self.log_cache = logs.cache
        self.dynamic = DynamicConfiguration(store, config)
        follow_settings(self, loader.applier)
        self.producer_names = ProducerNames(config.network.cluster_name)
        self.stop_requested = trio.Event()
        """Set by an administrator; whoever runs the broker stops it then."""

    async def finish_deletions(self) -> None:
        """Finish interrupted deletions of topics; some need what the broker reaches only while it
        serves. If other brokers live, a young one may be under way at one of them. Raises
        MetadataError.
        """
        others = set(await self.brokers.ids()) - {self.addresses.broker_id}
        now_ms = self._logs.options.now_ms()
        before_ms = now_ms - DELETION_S * 1000 if others else math.inf
        await self._logs.finish_deletions(before_ms)

    async def bookie_space(self) -> dict[str, BookieInfo | None]:
        """See `BookkeeperClient.space`."""
        return await self._logs.client.space()

    async def open_ledger(self, ledger_id: int) -> LedgerReader:
        """A ledger of a log, as far as it is known to be written; it stays open to its writer.
        Raises BookkeeperError, MetadataError.
        """
        password = self._logs.options.durability.password
        return await self._logs.client.open(ledger_id, password, recover=False)

    def _owner_finder(self) -> OwnerFinder:
        exists = self.namespaces.has_bundle
        return OwnerFinder(self.ownership, self.election, self.brokers, self.load_manager, exists)

    def _topic_policies(self) -> TopicPoliciesStore:
        topics = self.config.topics
        if not (topics.system_topics and topics.topic_policies):
            return NoTopicPolicies()
        cluster = self.config.network.cluster_name
        return SystemTopicPolicies(
            self.store, self.namespaces, self.catalog, cluster, self._nursery
        )

    def _follow_topic_policies(self) -> None:
        if isinstance(self.policies.store, SystemTopicPolicies):
            self.policies.store.changed = self.changes.topics_changed

    def _parts_for_load_manager(self) -> BrokerParts:
        return BrokerParts(
            self.store,
            self.namespaces,
            self.ownership,
            self.election,
            self.brokers,
            self.peers,
            lambda bundle, destination: self.unloader.unload(bundle, destination),
            lambda: self.topics.loaded,
        )

    @property
    def addresses(self) -> Addresses:
        """This broker's; empty until it serves."""
        return self.ownership.addresses

    def _bundles_lost(self, bundles: list[BundleId]) -> None:
        self._nursery.start_soon(run_guarded, self.hold_over.lost, bundles)

    async def permissions_changed(self, tenant: str, namespace: str | None = None) -> None:
        """This broker has revoked grants: close producers and consumers that lost their right."""
        await self.changes.grants_changed(tenant, namespace)

    async def _recheck(self, concerned: Callable[[Place], bool]) -> None:
        if self.authorizer.enabled:
            await self.connections.recheck(concerned)

    async def start(self, addresses: Addresses, *, is_whole_cluster: bool = True) -> None:
        """Publish these addresses to clients. A standalone is the whole cluster, and creates its
        records; brokers of a cluster leave them as the set-up made them.
        """
        self.ownership.addresses = addresses
        self.namespaces.deletions.broker_id = addresses.broker_id
        self.ownership.listeners = self.config.network.listeners().by_name
        if is_whole_cluster:
            await self._bootstrap(addresses)
        await self.dynamic.load()
        await self.producer_names.start(self.store)
        await self._nursery.start(self.election.run, addresses)
        self.lookup.is_open = True

    async def _bootstrap(self, addresses: Addresses) -> None:
        urls = {
            "serviceUrl": addresses.web_url,
            "serviceUrlTls": addresses.web_url_tls,
            "brokerServiceUrl": addresses.broker_url,
            "brokerServiceUrlTls": addresses.broker_url_tls,
        }
        await self.namespaces.bootstrap(
            self.config.network.cluster_name,
            {name: url for name, url in urls.items() if url},
            self.config.topics.namespace_bundles,
        )

    @property
    def shutdown_s(self) -> float:
        """How long `shutdown` may take."""
        return self.config.network.shutdown_timeout_ms / 1000

    async def take_no_more(self) -> None:
        """Take no bundles from now on, and be no candidate for them, so that what is given up goes
        to other brokers. Idempotent.
        """
        self.lookup.is_open = False
        self.finder.is_closing = True
        await self.load_manager.leave()

    async def shutdown(self) -> None:
        """Give up all bundles, unload all topics, notify the clients, and end their sessions. No
        topic takes longer than `shutdown_s` from the first call on. Idempotent.
        """
        self.topics.end_by(trio.current_time() + self.shutdown_s)
        await self.take_no_more()
        self.topics.refuse_loads()
        if isinstance(self.policies.store, SystemTopicPolicies):
            self.policies.store.stop()
        await self.unloader.unload_all()
        await self.topics.shut_down()
        self.connections.stop()

    async def run(self) -> None:
        """Background work, until cancelled."""
        deserted = DesertedBundles(self.store, self.namespaces, self.ownership, self.unloader)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete_inactive, self.topics, self.config.topics)
            nursery.start_soon(self.changes.run)
            if isinstance(self.policies.store, SystemTopicPolicies):
                nursery.start_soon(self.policies.store.run)
            nursery.start_soon(self.dynamic.run)
            nursery.start_soon(self.schemas.run)
            nursery.start_soon(self.ownership.run)
            nursery.start_soon(self.hold_over.run)
            nursery.start_soon(deserted.run)
            nursery.start_soon(self.load_manager.run)
            nursery.start_soon(self.maintenance.run)


def follow_settings(service: BrokerService, applier: PolicyApplier) -> None:
    """Tell the broker's parts of settings that are changed while it runs (`dynamic_config`); those
    that read them when they are used need not be told.
    """
    config, when = service.config, service.dynamic.when

    async def policies(changed: Mapping[str, object]) -> None:
        if not LIMITS.isdisjoint(changed):
            applier.limits = broker_limits(config.policies)
        service.policies.options = broker_options(config)
        service.changes.settings_changed()

    async def sizes(_changed: Mapping[str, object]) -> None:
        service.lookup.lookups_max = config.topics.lookups_max
        service.topics.resize(config.topics.loads_max)
        service.unloader.timeout_s = config.topics.bundle_unload_timeout_ms / 1000
        service.log_cache.resize(config.log.cache_mb << 20)
        service.connections.publish_bytes_max = config.network.publish_buffer_mb_max << 20

    async def super_users(_changed: Mapping[str, object]) -> None:
        service.authorizer.reload()
        service.changes.super_users_changed()

    async def load_balance(_changed: Mapping[str, object]) -> None:
        service.load_manager.reconfigure(replace(config.load_balance))

    when(POLICIES | LIMITS, policies)
    when(LOAD_BALANCE, load_balance)
    when(BOUNDS, sizes)
    when((SUPER_USERS,), super_users)


@asynccontextmanager
async def open_service(
    config: BrokerConfig, store: MetadataStore, logs: Storage
) -> AsyncIterator[BrokerService]:
    """A broker over a metadata store and managed ledgers; on exit it unloads all topics."""
    async with trio.open_nursery() as nursery:
        service = BrokerService(config, store, logs, nursery)
        await service.finish_deletions()
        nursery.start_soon(service.run)
        try:
            yield service
        finally:
            with trio.move_on_after(service.shutdown_s, shield=True):
                await service.shutdown()
            nursery.cancel_scope.cancel()
