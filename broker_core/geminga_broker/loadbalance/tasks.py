"""What the leader of the brokers does from time to time: it moves bundles off busy brokers, has
large ones split, and writes what it has learnt (spec CL-09, CL-10; Apache's LoadSheddingTask,
LoadResourceQuotaUpdaterTask, and checkNamespaceBundleSplit of ModularLoadManagerImpl).

All of it ends with the leadership. Each step is one call to the broker that owns the bundle, which
carries it out or doesn't, whatever becomes of the leader: a new one begins with what the brokers
report.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

import trio

from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import ResourceMissing
from geminga_broker.loadbalance import candidates
from geminga_broker.loadbalance.bundle_calls import BundleCalls, CallFailed
from geminga_broker.loadbalance.model import (
    BROKER_AVERAGE_PATH,
    BROKERS_PATH,
    BundleData,
    NamespaceBundleStats,
)
from geminga_broker.loadbalance.names import namespace_of, range_of
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.shedding import Move
from geminga_broker.loadbalance.splitting import find_splits, is_too_large, still_too_large
from geminga_broker.loadbalance.store.history import LoadHistory
from geminga_broker.loadbalance.store.rules import RuleReader
from geminga_broker.loadbalance.store.view import SAMPLE_S, LoadView
from geminga_broker.loadbalance.strategies.api import Strategy
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.election import Election
from geminga_runtime.background import run_guarded, side_by_side
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import MetadataError, MetadataStore, SessionPhase

_log = logging.getLogger(__name__)

SETTLE_S = 1.0
"""Reports of several brokers that come together are looked at once."""
SPLIT_S = 60.0
"""Between two looks for bundles that are to be split."""
SPLIT_AGAIN_S = 600.0
"""A bundle whose split failed is left alone for so long."""
SPLITS_REMEMBERED_MAX = 10_000
MOVES_AT_ONCE_MAX = 4
"""Bundles that are unloaded at the same time."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the tasks see and use."""

    store: MetadataStore
    namespaces: Namespaces
    election: Election
    view: LoadView
    history: LoadHistory
    rules: RuleReader
    calls: BundleCalls


class LeaderTasks:
    """Runs while this broker leads."""

    def __init__(
        self,
        around: Surroundings,
        strategy: Strategy,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.unloaded_bundles = 0
        self.unloaded_brokers = 0
        """Rounds of shedding, counted once for each broker that lost bundles."""
        self.split_bundles = 0
        self.strategy = strategy
        """May be replaced."""
        self._around = around
        self._clock_ms = clock_ms
        self._active: list[str] = []
        self._not_split: dict[str, float] = {}
        """Bundles whose split failed, and when; the oldest first."""

    @property
    def _config(self) -> LoadBalanceConfig:
        return self.strategy.config

    async def run(self) -> None:
        """Until cancelled: follow the reports, shed, split and write whenever this broker leads."""
        election = self._around.election
        while True:
            if election.is_leader:
                await self._lead()
            else:
                await election.wait_change()

    async def _lead(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_guarded, self._follow)
            nursery.start_soon(self._every, lambda: SPLIT_S, self.split)
            nursery.start_soon(
                self._every, lambda: self._config.shedding_interval_minutes * 60, self.shed
            )
            nursery.start_soon(
                self._every, lambda: self._config.averages_write_minutes * 60, self.write
            )
            while self._around.election.is_leader:
                await self._around.election.wait_change()
            nursery.cancel_scope.cancel()

    async def _every(
        self, interval_s: Callable[[], float], job: Callable[[], Awaitable[None]]
    ) -> None:
        """Run the job with a pause between two runs."""
        while True:
            await trio.sleep(interval_s())
            if self._config.enabled:
                await run_guarded(self._logged, job)

    async def _logged(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except MetadataError as error:
            _log.warning("load balancing waits for the metadata store: %s", error)

    async def _follow(self) -> None:
        """Keep the view fresh: at each report, and for the samples."""
        async with self._around.store.watch(BROKERS_PATH) as changes:
            while True:
                if self._config.enabled:
                    await self._logged(self.look)
                with trio.move_on_after(SAMPLE_S):
                    await changes.receive()
                    await trio.sleep(SETTLE_S)
                    while changes.statistics().current_buffer_used:
                        changes.receive_nowait()

    # ---- the steps, also for tests ----

    async def look(self) -> None:
        """Read what is new. Raises MetadataError."""
        around = self._around
        averages = await around.store.children(BROKER_AVERAGE_PATH)
        await self._refresh()
        for broker_id in averages:
            if broker_id not in around.view.active:
                await around.history.forget_broker(broker_id)

    async def _refresh(self) -> None:
        around = self._around
        await around.view.refresh()
        active = around.view.active
        if active != self._active:
            self._active = active
            self.strategy.brokers_changed(active)
        namespaces: set[str] = set()
        if len(active) > 1:
            for broker in around.view.load.brokers.values():
                namespaces.update(broker.by_namespace)
        self.strategy.rules = await around.rules.current(
            namespaces, with_domains=self._config.failure_domains
        )
        await self.strategy.recall(around.history)
        self.strategy.reports_read(self._clock_ms())

    async def shed(self) -> None:
        """One round of shedding. Raises MetadataError."""
        if self._around.store.session.phase is not SessionPhase.CONNECTED:
            return
        await self._refresh()
        moves = self.strategy.plan(self._active, trio.current_time(), self._clock_ms())
        done: set[str] = set()
        await side_by_side((partial(self._move, move, done) for move in moves), MOVES_AT_ONCE_MAX)
        self.unloaded_brokers += len(done)

    async def _move(self, move: Move, done: set[str]) -> None:
        around = self._around
        if not around.election.is_leader:
            self.strategy.failed(move)
            return
        broker = around.view.load.brokers.get(move.source)
        version = (broker.report.broker_version_string if broker else None) or ""
        # Apache's owner would send the call back to the leader for the destination, which sends it
        # to the owner. Its clients ask the leader, who remembers the choice.
        destination = move.destination if version.startswith("Geminga") else ""
        to = move.destination or "who is chosen then"
        _log.info("bundle=%s is moved from broker %s to %s", move.bundle, move.source, to)
        try:
            await around.calls.unload(move.bundle, move.source, destination)
        except CallFailed as error:
            self.strategy.failed(move)
            _log.warning("bundle=%s is not moved from %s: %s", move.bundle, move.source, error)
        else:
            self.unloaded_bundles += 1
            done.add(move.source)

    async def split(self) -> None:
        """Have the bundles split that are too large. Raises MetadataError."""
        around, load = self._around, self._around.view.load
        if len(self._active) <= 1 or self.strategy.splits_own:
            return
        large: list[str] = []
        for broker_id in list(load.brokers):
            large += find_splits(load, self._config, lambda namespace: 0, [broker_id])
            # A look at all bundles of a cluster would hold up the loop.
            await trio.lowlevel.checkpoint()
        if not large:
            return
        names = await self._bundles_of(set(map(namespace_of, large)))
        limit = self._config.namespace_bundles_max
        counts = {namespace: len(found) for namespace, found in names.items()}
        wanted = still_too_large(
            load, self._config, lambda namespace: counts.get(namespace, limit), large
        )
        for bundle, owner in wanted.items():
            if not around.election.is_leader:
                return
            if range_of(bundle) in names[namespace_of(bundle)] and self._may_split(bundle):
                await self._split(bundle, owner, unload=self._may_leave(bundle, owner))

    async def split_own(self, own_id: str, stats: Mapping[str, NamespaceBundleStats]) -> None:
        """As any broker whose load manager wants it: have its own bundles split that are too large
        now. Raises MetadataError.
        """
        if not (self._config.split and self.strategy.splits_own):
            return
        wanted = []
        for bundle, each in stats.items():
            now = BundleData()
            now.update(each)
            if is_too_large(each, now, self._config):
                wanted.append(bundle)
        names = await self._bundles_of(set(map(namespace_of, wanted)))
        for bundle in wanted:
            found = names.get(namespace_of(bundle), [])
            room = len(found) < self._config.namespace_bundles_max
            if range_of(bundle) in found and room and self._may_split(bundle):
                await self._split(bundle, own_id, unload=self._config.unload_split)
                names[namespace_of(bundle)] = [*found, ""]

    async def _bundles_of(self, namespaces: Collection[str]) -> dict[str, list[str]]:
        found = {}
        for namespace in namespaces:
            try:
                found[namespace] = (await self._around.namespaces.bundles(namespace)).names()
            except (ResourceMissing, ValueError):
                continue
        return found

    def _may_split(self, bundle: str) -> bool:
        """Whether its range can be cut, and it wasn't tried just now."""
        now_s = trio.current_time()
        for each, at_s in list(self._not_split.items()):
            if now_s - at_s < SPLIT_AGAIN_S and len(self._not_split) <= SPLITS_REMEMBERED_MAX:
                break
            del self._not_split[each]
        if bundle in self._not_split:
            return False
        try:
            low, end = BundleId.parse(bundle).bounds
        except ValueError:
            return False
        return end - low > 1

    def _may_leave(self, bundle: str, owner: str) -> bool:
        """Whether the new bundles are to be unloaded, and may go to another broker."""
        permitted = self.strategy.permitted(bundle, self._active)
        load, rules = self._around.view.load, self.strategy.rules
        return (
            self._config.unload_split
            and any(broker_id != owner for broker_id in permitted)
            and candidates.may_leave(bundle, owner, permitted, load, rules)
        )

    async def _split(self, bundle: str, owner: str, *, unload: bool) -> None:
        around, load = self._around, self._around.view.load
        _log.info("bundle=%s is split by broker %s, then unloaded: %s", bundle, owner, unload)
        try:
            await around.calls.split(bundle, owner, unload=unload)
        except CallFailed as error:
            self._not_split[bundle] = trio.current_time()
            _log.warning("bundle=%s is not split: %s", bundle, error)
            return
        self.split_bundles += 1
        load.forget_bundle(bundle)
        await around.history.forget_bundle(bundle)

    async def write(self) -> None:
        """Write what a later leader shall know. Raises MetadataError."""
        await self._refresh()
        await self.strategy.write(self._around.history)
