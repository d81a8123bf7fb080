"""The simple load manager: bundles go by quotas, which follow the load slowly (spec CL-08, CL-09;
Apache's SimpleLoadManagerImpl).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterable, Sequence

from geminga_broker.loadbalance import candidates
from geminga_broker.loadbalance.broker_load import BrokerLoad
from geminga_broker.loadbalance.candidates import Rules
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.model import (
    NamespaceBundleStats,
    ResourceUsage,
    SystemResourceUsage,
)
from geminga_broker.loadbalance.names import fixed_broker, is_system, namespace_of
from geminga_broker.loadbalance.reports import LoadReport, LocalBrokerData, Report
from geminga_broker.loadbalance.settings import (
    LEAST_MSG_PER_SECOND,
    WEIGHTED_RANDOM,
    LoadBalanceConfig,
)
from geminga_broker.loadbalance.shedding import Move
from geminga_broker.loadbalance.store.history import LoadHistory
from geminga_broker.loadbalance.strategies.quotas import Quotas
from geminga_broker.loadbalance.strategies.ranking import BYTES_PER_KBIT, Ranking, rank

_log = logging.getLogger(__name__)


class SimpleStrategy:
    """Implements `Strategy`."""

    splits_own = True

    def __init__(
        self, load: LoadData, config: LoadBalanceConfig, chance: random.Random | None = None
    ) -> None:
        self.load = load
        self.config = config
        self.rules = Rules()
        self.quotas = Quotas()
        self._chance = chance or random.Random()
        self._ranked: dict[str, tuple[object, Ranking]] = {}
        """By broker, with what it was made of."""
        self._recalled = False

    @property
    def centralized(self) -> bool:
        """Chance may be left to each broker."""
        return self.config.simple_placement_strategy != WEIGHTED_RANDOM

    def reconfigure(self, config: LoadBalanceConfig) -> None:
        """Settings have changed."""
        self.config = config

    def brokers_changed(self, active: Collection[str]) -> None:
        """Brokers came or went: choices of those that went are open again."""
        self.load.keep_only(active)
        self._ranked = {each: made for each, made in self._ranked.items() if each in active}

    def reports_read(self, now_ms: int) -> None:
        """The quotas follow the reports."""
        self.quotas.update(
            {broker_id: broker.report for broker_id, broker in self.load.brokers.items()}
        )

    # ---- placement ----

    def choose(self, bundle: str, active: Iterable[str], now_s: float) -> str | None:
        """The broker for a bundle without an owner, which is remembered."""
        active = list(active)
        fixed = fixed_broker(namespace_of(bundle), active)
        if fixed is not None:
            return fixed
        permitted = self.permitted(bundle, active)
        chosen = self.load.remembered(bundle, active, permitted)
        if chosen is not None:
            return chosen
        fitting = self._fitting(bundle, permitted)
        if not fitting:
            return None
        chosen = self._select(fitting)
        self.load.preallocate(bundle, chosen, now_s)
        return chosen

    def permitted(self, bundle: str, active: Iterable[str]) -> list[str]:
        """The brokers that policies allow."""
        return candidates.allowed(bundle, active, self.load, self.rules)

    def _fitting(self, bundle: str, permitted: list[str]) -> list[str]:
        """Of those, the ones with the fewest bundles of the namespace."""
        return candidates.least_of_namespace(bundle, permitted, self.load)

    def _select(self, brokers: Sequence[str]) -> str:
        ranks = {broker_id: self._rank(broker_id) for broker_id in brokers}
        if self.config.simple_placement_strategy == WEIGHTED_RANDOM:
            weights = [each.room for each in ranks.values()]
            if sum(weights) <= 0:
                return self._chance.choice(list(brokers))
            return self._chance.choices(list(ranks), weights)[0]
        return self._least_loaded(ranks)

    def _least_loaded(self, ranks: dict[str, Ranking]) -> str:
        """Fill one broker up to the underload threshold before an idle one gets its first bundle;
        then the least loaded; if that is overloaded, the one with the most left.
        """
        config = self.config
        by_rate = config.simple_placement_strategy == LEAST_MSG_PER_SECOND
        idle = [broker_id for broker_id, each in ranks.items() if each.idle]
        best: str | None = None
        for broker_id, each in ranks.items():
            if each.idle:
                continue
            if best is None or (
                each.rate < ranks[best].rate if by_rate else each.is_below(ranks[best])
            ):
                best = broker_id
        if best is None or (idle and ranks[best].percent > config.underloaded_percent):
            # Several idle ones are alike.
            return self._chance.choice(idle or list(ranks))
        percent = ranks[best].percent
        if by_rate or percent <= config.overloaded_percent:
            return best
        if percent >= 100.0:
            return self._chance.choice(list(ranks))
        return max(ranks, key=lambda each: ranks[each].capacity * (100.0 - ranks[each].percent))

    def _rank(self, broker_id: str) -> Ranking:
        broker = self.load.brokers[broker_id]
        coming = [each for each in broker.preallocated if each not in broker.report.last_stats]
        # A report is replaced, never changed; what was chosen is short.
        mark = (id(broker.report), len(broker.report.last_stats), tuple(coming))
        made = self._ranked.get(broker_id)
        if made is not None and made[0] == (self.quotas.version, mark):
            return made[1]
        quotas = self.quotas
        ranking = rank(
            broker.report,
            quotas.total(broker.report.last_stats),
            quotas.total(coming),
            quotas.average,
            quotas.cpu_factor,
            idle=not (broker.report.last_stats or coming),
        )
        self._ranked[broker_id] = ((quotas.version, mark), ranking)
        return ranking

    # ---- shedding ----

    def plan(self, active: Collection[str], now_s: float, now_ms: int) -> list[Move]:
        """One bundle of each overloaded broker, if another one has room for it; who gets it is
        chosen when its clients ask.
        """
        config, load = self.config, self.load
        load.end_grace(now_s - config.grace_s)
        load.expire(now_s)
        if not (config.enabled and config.shedding) or len(active) <= 1:
            return []
        moves = []
        for broker_id, broker in load.brokers.items():
            if broker_id not in active or _fullest(broker) <= config.overloaded_percent:
                continue
            if len(broker.report.last_stats) == 1:
                _log.warning("broker %s is overloaded by its only bundle, which stays", broker_id)
                continue
            bundle = self._heaviest(broker)
            if bundle is not None and self._has_room(bundle, broker_id, active):
                load.moved(bundle, broker_id, "", 0.0, now_s)
                moves.append(Move(bundle, broker_id, ""))
        return moves

    def _heaviest(self, broker: BrokerLoad) -> str | None:
        """The bundle that uses most of what is scarcest."""
        report = broker.report
        shares = {
            "cpu": report.cpu.percent(),
            "memory": report.memory.percent(),
            "bandwidth_in": report.bandwidth_in.percent(),
            "bandwidth_out": report.bandwidth_out.percent(),
        }
        scarcest = max(shares, key=lambda name: shares[name])

        def used(stats: NamespaceBundleStats) -> float:
            if scarcest == "memory":
                return stats.topics + stats.sessions
            if scarcest == "cpu":
                return stats.rate
            return (
                stats.msg_throughput_in if scarcest == "bandwidth_in" else stats.msg_throughput_out
            )

        found = {
            bundle: stats
            for bundle, stats in report.last_stats.items()
            if stats.is_valid() and not is_system(namespace_of(bundle))
        }
        bundle = max(found, key=lambda each: used(found[each]), default=None)
        return None if bundle is None or self.load.recently_unloaded(bundle) else bundle

    def _has_room(self, bundle: str, source: str, active: Collection[str]) -> bool:
        return any(
            _fullest(self.load.brokers[broker_id]) < self.config.comfort_percent
            for broker_id in self._fitting(bundle, self.permitted(bundle, active))
            if broker_id != source
        )

    def failed(self, move: Move) -> None:
        """It was not moved."""
        self.load.not_moved(move.bundle, move.source, move.destination)

    # ---- what is written ----

    def form(self, report: LocalBrokerData) -> Report:
        """Apache's LoadReport, with what its bundles are allotted."""
        return load_report(report, self.quotas, self.config)

    def metrics(self, own_id: str) -> dict[str, float]:
        """Its rank by the strategy, and how much of it is allotted; none before it is known."""
        broker = self.load.brokers.get(own_id)
        if broker is None:
            return {}
        report, ranking = broker.report, self._rank(own_id)
        allotted = self.quotas.total(report.last_stats)
        cpu = (allotted.msg_rate_in + allotted.msg_rate_out) * self.quotas.cpu_factor
        needs = {
            "cpu": (cpu, report.cpu.limit),
            "memory": (allotted.memory, report.memory.limit),
            "bandwidth_in": (allotted.bandwidth_in / BYTES_PER_KBIT, report.bandwidth_in.limit),
            "bandwidth_out": (allotted.bandwidth_out / BYTES_PER_KBIT, report.bandwidth_out.limit),
        }
        strategy = self.config.simple_placement_strategy
        rank = ranking.rate if strategy == LEAST_MSG_PER_SECOND else ranking.percent
        if strategy == WEIGHTED_RANDOM:
            rank = ranking.room
        return {"lb_load_rank": float(int(rank))} | {
            f"lb_quota_pct_{name}": min(100.0, ResourceUsage(need, limit).percent())
            for name, (need, limit) in needs.items()
        }

    async def recall(self, history: LoadHistory) -> None:
        """What a message and a topic cost, and the quotas of bundles that are new."""
        if not self._recalled:
            await history.quotas.recall_common(self.quotas)
            self._recalled = True
        for broker in list(self.load.brokers.values()):
            await history.quotas.recall(self.quotas, broker.report.last_stats)

    async def write(self, history: LoadHistory) -> None:
        """The same."""
        await history.quotas.write(self.quotas)


def _fullest(broker: BrokerLoad) -> float:
    """Percent of the fullest resource; memory doesn't count (isAboveLoadLevel)."""
    return broker.report.max_usage() * 100.0


def load_report(report: LocalBrokerData, quotas: Quotas, config: LoadBalanceConfig) -> LoadReport:
    """A broker's report in the form of the simple load manager."""
    allotted = quotas.total(report.last_stats)
    percent = report.max_usage() * 100.0
    return LoadReport(
        name=(report.web_service_url or report.web_service_url_tls or "").partition("://")[2],
        broker_version_string=report.broker_version_string,
        web_service_url=report.web_service_url,
        web_service_url_tls=report.web_service_url_tls,
        pulsar_service_url=report.pulsar_service_url,
        pulsar_service_url_tls=report.pulsar_service_url_tls,
        persistent_topics_enabled=report.persistent_topics_enabled,
        non_persistent_topics_enabled=report.non_persistent_topics_enabled,
        under_loaded=percent < config.underloaded_percent,
        over_loaded=percent > config.overloaded_percent,
        timestamp=report.last_update,
        start_timestamp=report.start_timestamp,
        msg_rate_in=report.msg_rate_in,
        msg_rate_out=report.msg_rate_out,
        num_topics=report.num_topics,
        num_consumers=report.num_consumers,
        num_producers=report.num_producers,
        num_bundles=report.num_bundles,
        protocols=report.protocols,
        advertised_listeners=report.advertised_listeners,
        system_resource_usage=SystemResourceUsage(
            cpu=report.cpu,
            memory=report.memory,
            direct_memory=report.direct_memory,
            bandwidth_in=report.bandwidth_in,
            bandwidth_out=report.bandwidth_out,
        ),
        bundle_stats=report.last_stats,
        bundle_gains=report.last_bundle_gains,
        bundle_losses=report.last_bundle_losses,
        allocated_cpu=(allotted.msg_rate_in + allotted.msg_rate_out) * quotas.cpu_factor,
        allocated_memory=allotted.memory,
        allocated_bandwidth_in=allotted.bandwidth_in,
        allocated_bandwidth_out=allotted.bandwidth_out,
        allocated_msg_rate_in=allotted.msg_rate_in,
        allocated_msg_rate_out=allotted.msg_rate_out,
        load_manager_class_name=report.load_manager_class_name,
    )
