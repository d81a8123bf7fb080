"""Which bundles the leader moves where (spec CL-09; Apache's ModularLoadManagerImpl.doLoadShedding
and its strategies).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from math import inf

from geminga_broker.loadbalance import candidates
from geminga_broker.loadbalance.broker_load import BrokerLoad
from geminga_broker.loadbalance.names import namespace_of
from geminga_broker.loadbalance.overload import OverloadShedder
from geminga_broker.loadbalance.placement import ModularPlacement
from geminga_broker.loadbalance.settings import (
    AVERAGE_SHEDDER,
    OVERLOAD_SHEDDER,
    UNIFORM_SHEDDER,
    LoadBalanceConfig,
)
from geminga_broker.loadbalance.sheds import MARGIN, Shed, Shedder
from geminga_broker.loadbalance.threshold import ThresholdShedder
from geminga_broker.loadbalance.uniform import UniformShedder

REFUSED_MAX = 64
"""Bundles of a broker for which no destination is found before the round gives it up."""
NO_LIMIT = sys.float_info.max
MOVES_MAX = 2000
"""Moves of a round; more than can be carried out until the next one."""
BROKERS_LOOKED_AT_MAX = 40_000
"""Bounds the moves of a round in a large cluster, as each looks at all brokers."""


@dataclass(frozen=True, slots=True)
class Move:
    """A bundle that is to be unloaded from `source`, for `destination` to take."""

    bundle: str
    source: str
    destination: str


class Shedding:
    """Plans rounds of moves over the same load, rules and configuration as the placement."""

    def __init__(self, placement: ModularPlacement) -> None:
        self._placement = placement
        self._name = placement.config.shedding_strategy
        self._shedder = self._shedder_of(placement.config)

    def _shedder_of(self, config: LoadBalanceConfig) -> Shedder:
        name = config.shedding_strategy
        if name == OVERLOAD_SHEDDER:
            return OverloadShedder()
        if name == UNIFORM_SHEDDER:
            return UniformShedder()
        return self._placement.average if name == AVERAGE_SHEDDER else ThresholdShedder()

    def brokers_changed(self, active: Collection[str]) -> None:
        """Brokers came or went."""
        self._shedder.brokers_changed(active)

    def plan(self, active: Collection[str], now_s: float, now_ms: int) -> list[Move]:
        """The moves of a round over the active (registered) brokers, in their order.

        They are counted as if they were done; one that fails is to be given to `failed`. None with
        a single broker, and while load balancing or shedding is off. `now_s` is a monotonic time,
        `now_ms` the time of day.
        """
        config, load = self._placement.config, self._placement.load
        if self._name != config.shedding_strategy:
            self._name, self._shedder = config.shedding_strategy, self._shedder_of(config)
        load.end_grace(now_s - config.grace_s)
        load.expire(now_s)
        if not (config.enabled and config.shedding) or len(active) <= 1:
            return []
        sheds = self._shedder.find(load, config, now_ms)
        return _Round(self._placement, active, now_s).plan(sheds)

    def failed(self, move: Move) -> None:
        """A move was not carried out: the bundle may be moved again at once."""
        self._placement.load.not_moved(move.bundle, move.source, move.destination)


class _Round:
    """One round: what was found, brought to brokers that have room for it."""

    def __init__(self, placement: ModularPlacement, active: Collection[str], now_s: float) -> None:
        self._placement = placement
        self._load = placement.load
        self._now_s = now_s
        weights = placement.config.weights
        self._usages = {
            broker_id: broker.expected_usage(weights)
            for broker_id in active
            if (broker := self._load.brokers.get(broker_id)) is not None
        }
        self._least = min(self._usages.values(), default=0.0)
        """Kept, as it is compared with each bundle and changes with moves only."""
        self._permitted: dict[int, list[str]] = {}
        """Of each isolation policy, and of none."""
        self._moves: list[Move] = []
        self._moves_max = min(MOVES_MAX, BROKERS_LOOKED_AT_MAX // max(len(self._usages), 1))

    def plan(self, sheds: Iterable[Shed]) -> list[Move]:
        for shed in sheds:
            broker = self._load.brokers.get(shed.source)
            if broker is None or shed.source not in self._usages:
                continue
            if not self._shed(shed, broker) and shed.limit is not None:
                self._improve(shed, broker, shed.limit)
        return self._moves

    def _shed(self, shed: Shed, broker: BrokerLoad) -> bool:
        """Move bundles to brokers that stay within the limit; False if there were none."""
        gone, count, refused = 0.0, 0, 0
        keep = len(broker.report.last_stats) - 1  # one stays: alone it would only change places
        for bundle, traffic in shed.bundles:
            if (gone >= shed.wanted and count) or count >= keep or refused >= REFUSED_MAX:
                break
            if len(self._moves) >= self._moves_max:
                break
            share = self._share(bundle, broker)
            room = None if shed.limit is None else shed.limit - share
            if room is not None and room < self._least:
                continue  # it fits nowhere
            if self._move(bundle, shed, share, room):
                gone += traffic
                count += 1
            else:
                refused += 1
        return count > 0

    def _improve(self, shed: Shed, broker: BrokerLoad, limit: float) -> None:
        """No bundle fits within the limit: move the one that leaves the most used of both brokers
        with the least, if that is a gain.

        A bundle that alone is above the limit stays: it would overload any broker, and come back.
        """
        if len(broker.report.last_stats) < 2:
            return
        before, least = self._usages[shed.source], self._least
        best, outcome = None, before - MARGIN
        for bundle, _ in islice(shed.bundles, REFUSED_MAX):
            share = self._share(bundle, broker)
            after = max(before - share, least + share)
            if share <= limit and after < outcome:
                best, outcome = bundle, after
        if best is not None:
            share = self._share(best, broker)
            self._move(best, shed, share, before - MARGIN - share)

    def _share(self, bundle: str, broker: BrokerLoad) -> float:
        """The part of its broker's use that goes with a bundle, by its part of the throughput."""
        if broker.throughput <= 0:
            return 0.0
        throughput = self._load.bundle(bundle).short_term_data.throughput
        usage = broker.usage(self._placement.config.weights)
        return usage * min(1.0, throughput / broker.throughput)

    def _move(self, bundle: str, shed: Shed, share: float, room: float | None) -> bool:
        """Move a bundle to a broker whose use is `room` or less; False if there is none."""
        source, load = shed.source, self._load
        permitted = self._permitted_for(bundle)
        if not any(broker_id != source for broker_id in permitted) or not candidates.may_leave(
            bundle, source, permitted, load, self._placement.rules
        ):
            return False
        if shed.destination is None:
            usages = self._usages
            before, usages[source] = usages[source], inf
            chosen = self._placement.pick(
                bundle, permitted, usages, NO_LIMIT if room is None else room
            )
            usages[source] = before
        else:
            only = {each: 0.0 if each == shed.destination else inf for each in permitted}
            chosen = self._placement.pick(bundle, permitted, only, 0.0)
        if chosen is None:
            return False
        load.preallocate(bundle, chosen, self._now_s)
        load.moved(bundle, source, chosen, share, self._now_s)
        self._usages[source] -= share
        self._usages[chosen] += share
        self._least = min(self._usages.values())
        self._moves.append(Move(bundle, source, chosen))
        return True

    def _permitted_for(self, bundle: str) -> list[str]:
        policy = self._placement.rules.isolation.of(namespace_of(bundle))
        known = self._permitted.get(id(policy))
        if known is None:
            known = self._placement.permitted(bundle, self._usages)
            self._permitted[id(policy)] = known
        return known
