"""Brokers whose loads follow a plan, a leader that balances them, and a clock that jumps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf, nan
from random import Random

import msgspec

from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.model import (
    NamespaceBundleStats,
    ResourceUsage,
    SystemResourceUsage,
)
from geminga_broker.loadbalance.names import namespace_of
from geminga_broker.loadbalance.placement import ModularPlacement
from geminga_broker.loadbalance.reports import (
    LocalBrokerData,
    decode_report,
    encode_report,
    report_change,
)
from geminga_broker.loadbalance.shedding import Move, Shedding
from geminga_broker.loadbalance.splitting import find_splits

from .plan import BROKER_MB, MB, BundleLoad, LoadPlan

EPOCH_MS = 1_700_000_000_000
IN_TRANSIT_S = 2.0
"""From the unload of a bundle to the lookup that gives it to its next owner."""
ROUND_S = 60.0


class SimBroker:
    """A broker: the bundles that it has, and the report that it has written last."""

    def __init__(self, broker_id: str, capacity: float, started_ms: int, manager: str) -> None:
        self.broker_id = broker_id
        self.capacity = capacity
        self.bundles: dict[str, BundleLoad] = {}
        self.report = LocalBrokerData(
            start_timestamp=started_ms,
            broker_version_string="Geminga 1.0.0",
            load_manager_class_name=manager,
        )
        self.written: LocalBrokerData | None = None

    def usage(self, now_s: float) -> float:
        """The part of it that is used, 1 is all."""
        mb = sum(each.mb * each.shape.at(now_s) for each in self.bundles.values())
        return mb / BROKER_MB / self.capacity


class Leader:
    """The leader of a term: what it knows, and how long its decisions take."""

    def __init__(self, plan: LoadPlan, chance: Random) -> None:
        self.load = LoadData()
        self.placement = ModularPlacement(self.load, plan.config, chance=chance)
        self.shedding = Shedding(self.placement)
        self.moved_at: dict[str, float] = {}
        """When each bundle was moved last in this term."""


class Timings:
    """Seconds of CPU of the longest decision of each kind."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        begun_s = time.thread_time()
        yield
        took_s = time.thread_time() - begun_s
        self.longest[kind] = max(self.longest.get(kind, 0.0), took_s)


class World:
    """A run of a plan. `note` is told each event."""

    def __init__(self, plan: LoadPlan, chance: Random, note: Callable[[str], None]) -> None:
        self.plan = plan
        self.now_s = 0.0
        self.timings = Timings()
        self.moves: list[tuple[float, Move]] = []
        self.splits = 0
        self.brokers: dict[str, SimBroker] = {}
        self.loads: dict[str, BundleLoad] = {each.name: each for each in plan.bundles}
        self.in_transit: list[tuple[float, str]] = []
        self.refused: list[str] = []
        """Bundles that nobody was found for."""
        self.orphans: set[str] = set()
        """Bundles of brokers that died since the last check."""
        self._chance = chance
        self._note = note
        self._counts: dict[str, int] = {}
        for each in self.loads:
            namespace = namespace_of(each)
            self._counts[namespace] = self._counts.get(namespace, 0) + 1
        self.leader = Leader(plan, chance)

    @property
    def active(self) -> list[str]:
        """The registered brokers."""
        return list(self.brokers)

    def run(self, check: Callable[[World], None]) -> None:
        """To the plan's end; `check` looks at it after each step."""
        first = self.plan.owned_by or self.plan.brokers
        for at in range(first):
            self._start(at)
        if self.plan.owned_by is not None:
            for at, load in enumerate(self.loads.values()):
                self.brokers[_id(at % first)].bundles[load.name] = load
        self._sample()
        if self.plan.owned_by is None:
            waiting = list(self.loads)
            self._chance.shuffle(waiting)
            for name in waiting:
                self._look_up(name)
        rounds = 0
        while self.now_s < self.plan.length_s:
            self.now_s += self.plan.step_s
            self._disturb()
            self._land()
            self._sample()
            if self.now_s >= (rounds + 1) * ROUND_S:
                rounds += 1
                self._balance()
            check(self)

    # ---- what happens to it ----

    def _start(self, at: int) -> None:
        capacity = self.plan.capacities[at]
        started_ms = EPOCH_MS + int(self.now_s * 1000)
        broker_id = _id(at)
        self.brokers[broker_id] = SimBroker(
            broker_id, capacity, started_ms, self.plan.config.load_manager
        )
        self._note(f"{broker_id} started")

    def _stop(self, at: int) -> None:
        broker = self.brokers.pop(_id(at), None)
        if broker is None:
            return
        self._note(f"{broker.broker_id} died")
        self.leader.placement.brokers_changed(self.active)
        self.leader.shedding.brokers_changed(self.active)
        lost = list(broker.bundles)
        self.orphans.update(lost)
        self._chance.shuffle(lost)
        self.in_transit += [(self.now_s + self._chance.uniform(1, 10), name) for name in lost]

    def _disturb(self) -> None:
        last_s = self.now_s - self.plan.step_s
        if last_s < self.plan.joins_s <= self.now_s:
            for at in range(self.plan.owned_by or 0, self.plan.brokers):
                self._start(at)
        for down_s, up_s, at in self.plan.restarts:
            if last_s < down_s <= self.now_s:
                self._stop(at)
            if last_s < up_s <= self.now_s:
                self._start(at)
        if any(last_s < at_s <= self.now_s for at_s in self.plan.leader_changes_s):
            self._note("another leader")
            self.leader = Leader(self.plan, self._chance)
            for broker_id, broker in self.brokers.items():
                if broker.written is not None:
                    self.leader.load.report(broker_id, _stored(broker.written), self.now_s)

    def _land(self) -> None:
        """Bundles that were unloaded are looked up again."""
        due = [name for at_s, name in self.in_transit if at_s <= self.now_s]
        self.in_transit = [each for each in self.in_transit if each[0] > self.now_s]
        for name in due:
            self._look_up(name)

    def _look_up(self, name: str) -> None:
        with self.timings.of("placement"):
            chosen = self.leader.placement.choose(name, self.active, self.now_s)
        if chosen is None:
            self.refused.append(name)
            self.in_transit.append((self.now_s + 1, name))
        else:
            self.brokers[chosen].bundles[name] = self.loads[name]

    # ---- what brokers do ----

    def _sample(self) -> None:
        config = self.plan.config
        for broker in self.brokers.values():
            broker.report = broker.report.refreshed(self._usage(broker), self._stats(broker))
            last = broker.written
            oldest_ms = self._now_ms() - config.report_interval_minutes_max * 60_000
            if (
                last is not None
                and last.last_update > oldest_ms
                and report_change(last, broker.report, config.weights)
                <= config.report_change_percent
            ):
                continue
            broker.written = msgspec.structs.replace(broker.report, last_update=self._now_ms())
            broker.report = broker.report.written()
            raw = encode_report(broker.written)
            with self.timings.of("report"):
                report = decode_report(raw)
                assert isinstance(report, LocalBrokerData)
                self.leader.load.report(broker.broker_id, report, self.now_s)
            self._split(broker)

    def _stats(self, broker: SimBroker) -> dict[str, NamespaceBundleStats]:
        noise, chance, now_s = self.plan.noise, self._chance, self.now_s
        found = {}
        for name, load in broker.bundles.items():
            factor = load.shape.at(now_s) * (1 + noise * (2 * chance.random() - 1))
            data, rate = load.mb * factor * MB / 2, load.rate * factor / 2
            if self.plan.broken_share and chance.random() < self.plan.broken_share:
                data, rate = chance.choice((nan, inf, -1.0)), chance.choice((nan, inf, rate))
            found[name] = NamespaceBundleStats(
                msg_rate_in=rate,
                msg_rate_out=rate,
                msg_throughput_in=data,
                msg_throughput_out=data,
                topics=load.topics,
                producer_count=load.topics,
            )
        return found

    def _usage(self, broker: SimBroker) -> SystemResourceUsage:
        used = broker.usage(self.now_s) * (1 + self.plan.noise * (2 * self._chance.random() - 1))
        broken = self.plan.broken_share and self._chance.random() < self.plan.broken_share
        return SystemResourceUsage(
            cpu=ResourceUsage(100 * used, 100.0),
            memory=ResourceUsage(self._chance.uniform(50, 95), 100.0),
            bandwidth_in=ResourceUsage(nan if broken else 50 * used, 100.0),
            bandwidth_out=ResourceUsage(50 * used, 0.0 if broken else 100.0),
        )

    # ---- what the leader does ----

    def _split(self, broker: SimBroker) -> None:
        leader, config = self.leader, self.plan.config
        with self.timings.of("split"):
            found = find_splits(leader.load, config, self._counts.__getitem__, [broker.broker_id])
        for name in found:
            load = broker.bundles.pop(name, None)
            if load is None:
                continue
            leader.load.forget_bundle(name)
            self.splits += 1
            self._note(f"{name} is split")
            del self.loads[name]
            self._counts[namespace_of(name)] += 1
            half = load.topics // 2
            for part, topics in (("a", half), ("b", load.topics - half)):
                share = topics / load.topics
                child = replace(
                    load,
                    name=f"{name}{part}",
                    mb=load.mb * share,
                    rate=load.rate * share,
                    topics=topics,
                )
                self.loads[child.name] = child
                # Split bundles are unloaded, and looked up again.
                self.in_transit.append((self.now_s + IN_TRANSIT_S, child.name))

    def _balance(self) -> None:
        leader = self.leader
        with self.timings.of("shedding"):
            moves = leader.shedding.plan(self.active, self.now_s, EPOCH_MS + int(self.now_s * 1000))
        for move in moves:
            source = self.brokers.get(move.source)
            if source is None or move.bundle not in source.bundles:
                leader.shedding.failed(move)
                continue
            if self.plan.failing_share and self._chance.random() < self.plan.failing_share:
                self._note(f"{move.bundle} could not be moved")
                leader.shedding.failed(move)
                continue
            del source.bundles[move.bundle]
            self.in_transit.append((self.now_s + IN_TRANSIT_S, move.bundle))
            self.moves.append((self.now_s, move))
            self._note(f"{move.bundle} {move.source} -> {move.destination}")

    def _now_ms(self) -> int:
        return EPOCH_MS + int(self.now_s * 1000)


def _id(at: int) -> str:
    return f"broker-{at}:8080"


def _stored(report: LocalBrokerData) -> LocalBrokerData:
    found = decode_report(encode_report(report))
    assert isinstance(found, LocalBrokerData)
    return found
