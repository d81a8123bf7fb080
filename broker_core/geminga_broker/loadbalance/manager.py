"""The load manager of a broker: where bundles without an owner go, what is told of this broker's
load, and what is done about it (spec CL-07 to CL-10; Apache's LoadManager, and its implementations
ModularLoadManagerImpl, SimpleLoadManagerImpl and NoopLoadManager).
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from time import perf_counter

import msgspec
import trio

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.config import BrokerConfig
from geminga_broker.loadbalance.bundle_calls import BundleCalls, Peers
from geminga_broker.loadbalance.candidates import why_nobody
from geminga_broker.loadbalance.collect import BundleStatsCollector
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.report import LoadReporter
from geminga_broker.loadbalance.reports import LocalBrokerData
from geminga_broker.loadbalance.settings import NOOP, SIMPLE, LoadBalanceConfig
from geminga_broker.loadbalance.store.history import LoadHistory
from geminga_broker.loadbalance.store.rules import RuleReader
from geminga_broker.loadbalance.store.view import LoadView
from geminga_broker.loadbalance.strategies.api import Strategy
from geminga_broker.loadbalance.strategies.modular import ModularStrategy
from geminga_broker.loadbalance.strategies.simple import SimpleStrategy
from geminga_broker.loadbalance.tasks import SPLIT_S, LeaderTasks, Surroundings
from geminga_broker.loadbalance.usage import HostUsage, Machine
from geminga_broker.ownership.brokers import ActiveBrokers
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.election import Election
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.records import listener_records
from geminga_broker.topic.topic import Topic
from geminga_runtime.background import run_guarded
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import MetadataStore
from geminga_runtime.metrics.distribution import Distribution

_log = logging.getLogger(__name__)

FRESH_S = 5.0
"""What a broker that doesn't lead knows of the others may be so old when it has to choose."""


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of a broker that the load manager uses."""

    store: MetadataStore
    namespaces: Namespaces
    ownership: BundleOwnership
    election: Election
    brokers: ActiveBrokers
    peers: Peers
    unload: Callable[[BundleId, str], Awaitable[bool]]
    """`BundleUnloader.unload`."""
    topics: Callable[[], Mapping[str, Topic]]
    """The loaded ones by name."""


class LoadManager:
    """One broker's. Implements `ownership.finder.Placement`."""

    def __init__(
        self,
        config: BrokerConfig,
        parts: BrokerParts,
        *,
        machine: Machine | None = None,
        chance: random.Random | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`machine` and `chance` are for tests."""
        # A copy: dynamic configuration changes the broker's settings in place.
        balance = replace(config.load_balance)
        self._parts = parts
        self.choices = Distribution()
        """How long choices of brokers took, s."""
        self._rules = RuleReader(parts.store, config.network.cluster_name)
        self._history = LoadHistory(parts.store)
        self._view = LoadView(parts.store, self._history, LoadData(), clock_ms=clock_ms)
        self._chance = chance
        self._clock_ms = clock_ms
        self._strategy = self._strategy_of(balance)
        self.reporter = LoadReporter(
            parts.store,
            BundleStatsCollector(parts.topics, parts.ownership.owned),
            HostUsage(balance.nic_speed_gbps or None, machine=machine),
            balance,
            _described(config, clock_ms()),
            clock_ms=clock_ms,
        )
        calls = BundleCalls(
            parts.ownership,
            parts.unload,
            parts.peers,
            timeout_s=lambda: config.topics.bundle_unload_timeout_ms / 1000,
        )
        around = Surroundings(
            parts.store,
            parts.namespaces,
            parts.election,
            self._view,
            self._history,
            self._rules,
            calls,
        )
        self.tasks = LeaderTasks(around, self._strategy, clock_ms=clock_ms)
        self._use(self._strategy)

    def _strategy_of(self, config: LoadBalanceConfig) -> Strategy:
        if config.load_manager == SIMPLE:
            return SimpleStrategy(self._view.load, config, self._chance)
        return ModularStrategy(self._view.load, config, self._chance)

    def _use(self, strategy: Strategy) -> None:
        self._strategy = self.tasks.strategy = strategy
        self.reporter.form = strategy.form

    def reconfigure(self, config: LoadBalanceConfig) -> None:
        """The settings have changed, perhaps the class of the load manager. `config` must not
        change afterwards.
        """
        before = self.config
        if config.load_manager == before.load_manager:
            self._strategy.reconfigure(config)
        else:
            _log.info("the load manager is %s from now on", config.load_manager)
            self._use(self._strategy_of(config))
        self.reporter.reconfigure(config)

    @property
    def config(self) -> LoadBalanceConfig:
        """The settings of now."""
        return self._strategy.config

    @property
    def load(self) -> LoadData:
        """What is known of all brokers; kept up to date at the leader."""
        return self._view.load

    def strategy_metrics(self) -> dict[str, float]:
        """See `Strategy.metrics`."""
        return self._strategy.metrics(self._parts.ownership.addresses.broker_id)

    # ---- Placement ----

    @property
    def centralized(self) -> bool:
        """See `Placement.centralized`."""
        return self.config.load_manager != NOOP and self._strategy.centralized

    def has_non_persistent(self, bundle: BundleId) -> None:
        """See `Placement.has_non_persistent`."""
        self.load.has_non_persistent(str(bundle))

    async def choose(self, bundle: BundleId) -> str | None:
        """See `Placement.choose`; remembered until the broker reports the bundle. Raises
        MetadataError.
        """
        began_s = perf_counter()
        try:
            return await self._choose(bundle)
        finally:
            self.choices.add(perf_counter() - began_s)

    async def _choose(self, bundle: BundleId) -> str | None:
        own_id = self._parts.ownership.addresses.broker_id
        if self.config.load_manager == NOOP:
            return own_id
        active = await self._parts.brokers.ids()
        if not active:
            return own_id  # it isn't registered yet
        await self._refresh(active)
        name = str(bundle)
        await self._history.recall(self.load, [name])
        alone = len(active) == 1
        self._strategy.rules = await self._rules.current(
            () if alone else (bundle.namespace,), with_domains=self.config.failure_domains
        )
        chosen = self._strategy.choose(name, active, trio.current_time())
        if chosen is None:
            rules = self._strategy.rules
            reason = why_nobody(name, active, self.load, rules)
            _log.warning("bundle=%s no broker may own it: %s", name, reason)
        return chosen

    async def _refresh(self, active: list[str]) -> None:
        """Know the load of the active brokers."""
        age_s = trio.current_time() - self._view.refreshed_s
        follows = self._parts.election.is_leader and self.config.enabled
        is_known = all(broker_id in self.load.brokers for broker_id in active)
        if not is_known or (age_s > FRESH_S and not follows):
            await self._view.refresh()
            await self._strategy.recall(self._history)
            self._strategy.reports_read(self._clock_ms())

    def prefer(self, bundle: BundleId, broker_id: str) -> None:
        """The bundle is being unloaded for this broker: choose it while it doesn't own it (Apache's
        setNamespaceBundleAffinity).
        """
        self.load.preallocate(str(bundle), broker_id, trio.current_time(), is_named=True)

    # ---- what runs ----

    @asynccontextmanager
    async def registered(self, addresses: Addresses) -> AsyncIterator[None]:
        """Be known to the other brokers while the context is open. Raises MetadataError."""
        self.reporter.report = msgspec.structs.replace(
            self.reporter.report,
            web_service_url=addresses.web_url or None,
            web_service_url_tls=addresses.web_url_tls or None,
            pulsar_service_url=addresses.broker_url or None,
            pulsar_service_url_tls=addresses.broker_url_tls or None,
        )
        async with self.reporter.registered(addresses.broker_id):
            yield

    async def leave(self) -> None:
        """See `LoadReporter.leave`."""
        await self.reporter.leave()

    async def run(self) -> None:
        """Until cancelled: hear of changed rules; when this broker leads, balance the load."""
        async with self._rules.following(), trio.open_nursery() as nursery:
            nursery.start_soon(self._split_own)
            nursery.start_soon(self.tasks.run)

    async def _split_own(self) -> None:
        while True:
            await trio.sleep(SPLIT_S)
            if self.config.enabled and self._strategy.splits_own:
                own_id = self._parts.ownership.addresses.broker_id
                stats = self.reporter.report.last_stats
                await run_guarded(self.tasks.split_own, own_id, stats)


def _described(config: BrokerConfig, now_ms: int) -> LocalBrokerData:
    """What a report says of the broker itself, but for its addresses."""
    return LocalBrokerData(
        persistent_topics_enabled=config.topics.enable_persistent,
        non_persistent_topics_enabled=config.topics.enable_non_persistent,
        start_timestamp=now_ms,
        broker_version_string=f"Geminga {version('geminga')}",
        advertised_listeners=listener_records(config.network.listeners().by_name),
        load_manager_class_name=config.load_balance.load_manager,
    )
