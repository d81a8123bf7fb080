"""Which of the candidates a bundle is given to (spec CL-08; Apache's ModularLoadManagerStrategy).

Ties are broken by chance, so that several brokers that decide for themselves don't agree on one.
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from math import inf
from typing import Protocol

from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.settings import LoadBalanceConfig


class Selection(Protocol):
    """A strategy of placement."""

    def select(
        self, brokers: Sequence[str], bundle: str, load: LoadData, config: LoadBalanceConfig
    ) -> str | None:
        """The broker for the bundle; None if there are no brokers."""

    def brokers_changed(self, active: Container[str]) -> None:
        """Brokers came or went: what is known of those that went is forgotten."""


class LeastMessageRate:
    """The broker with the lowest long-term message rate, with the bundles that it was chosen for;
    none that is overloaded, if another one is there (Apache's LeastLongTermMessageRate).
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def select(
        self, brokers: Sequence[str], bundle: str, load: LoadData, config: LoadBalanceConfig
    ) -> str | None:
        """The broker for the bundle; any if all are overloaded; None if there are no brokers."""
        weights, overloaded = config.weights, config.overloaded
        best: list[str] = []
        least = inf
        known = load.brokers
        for broker_id in brokers:
            broker = known.get(broker_id)
            if broker is None:
                continue
            rate = broker.reported_rate + broker.preallocated_rate
            if rate > least or broker.usage(weights) > overloaded:
                continue
            if rate < least:
                least = rate
                best.clear()
            best.append(broker_id)
        return _any_of(best or brokers, self._chance)

    def brokers_changed(self, active: Container[str]) -> None:
        """Nothing is remembered of brokers."""


class LeastResourceUsage:
    """Any broker whose use of resources, smoothed, is well below the average (Apache's
    LeastResourceUsageWithWeight).
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._history: dict[str, float] = {}

    def select(
        self, brokers: Sequence[str], bundle: str, load: LoadData, config: LoadBalanceConfig
    ) -> str | None:
        """The broker for the bundle; any if none is well below; None if there are no brokers."""
        if not brokers:
            return None
        usages = {broker_id: self._smoothed(broker_id, load, config) for broker_id in brokers}
        average = sum(usages.values()) / len(usages)
        difference = config.usage_difference_percent / 100.0
        best = [each for each, usage in usages.items() if usage + difference <= average]
        return _any_of(best or brokers, self._chance)

    def _smoothed(self, broker_id: str, load: LoadData, config: LoadBalanceConfig) -> float:
        broker = load.brokers.get(broker_id)
        if broker is None:
            return 1.0
        now = broker.usage(config.weights)
        last = self._history.get(broker_id)
        if last is None or not broker.report.last_stats or broker.rate == 0:
            smoothed = now  # it was restarted, or serves nothing
        else:
            smoothed = last * config.history + now * (1 - config.history)
        self._history[broker_id] = smoothed
        return smoothed

    def brokers_changed(self, active: Container[str]) -> None:
        """Forget the history of brokers that went."""
        self._history = {each: use for each, use in self._history.items() if each in active}


class RoundRobin:
    """One broker after the other (Apache's RoundRobinBrokerSelector)."""

    def __init__(self) -> None:
        self._next = 0

    def select(
        self, brokers: Sequence[str], bundle: str, load: LoadData, config: LoadBalanceConfig
    ) -> str | None:
        """The broker for the bundle; None if there are no brokers."""
        if not brokers:
            return None
        # Sorted, so that the turn doesn't depend on the order in which brokers are known.
        chosen = sorted(brokers)[self._next % len(brokers)]
        self._next += 1
        return chosen

    def brokers_changed(self, active: Container[str]) -> None:
        """Nothing is remembered of brokers."""


def _any_of(brokers: Sequence[str], chance: random.Random) -> str | None:
    return brokers[chance.randrange(len(brokers))] if brokers else None
