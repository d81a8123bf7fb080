"""A broker for each bundle, by the modular load manager (spec CL-08; Apache's
ModularLoadManagerImpl.selectBrokerForAssignment).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping

from geminga_broker.loadbalance import candidates
from geminga_broker.loadbalance.average import AverageShedder
from geminga_broker.loadbalance.candidates import Rules
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.names import SYSTEM_NAMESPACE, fixed_broker, namespace_of
from geminga_broker.loadbalance.selection import (
    LeastMessageRate,
    LeastResourceUsage,
    RoundRobin,
    Selection,
)
from geminga_broker.loadbalance.settings import (
    AVERAGE_SHEDDER,
    LEAST_RESOURCE_USAGE,
    ROUND_ROBIN,
    LoadBalanceConfig,
)


class ModularPlacement:
    """Chooses brokers from the load that is known, and remembers its choices.

    `load` and `rules` are given by the caller, who keeps them up to date; `rules` and `config`
    may be replaced at any time.
    """

    def __init__(
        self,
        load: LoadData,
        config: LoadBalanceConfig,
        rules: Rules | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.load = load
        self.config = config
        self.rules = rules or Rules()
        self._chance = chance or random.Random()
        self.average = AverageShedder(self._chance)
        """The strategy that both places and sheds."""
        self._selection = self._selection_of(config)

    def reconfigure(self, config: LoadBalanceConfig) -> None:
        """Dynamic configuration has changed."""
        if config.placement_strategy != self.config.placement_strategy:
            self._selection = self._selection_of(config)
        self.config = config

    def _selection_of(self, config: LoadBalanceConfig) -> Selection:
        name = config.placement_strategy
        if name == AVERAGE_SHEDDER:
            return self.average
        if name == LEAST_RESOURCE_USAGE:
            return LeastResourceUsage(self._chance)
        return RoundRobin() if name == ROUND_ROBIN else LeastMessageRate(self._chance)

    def brokers_changed(self, active: Collection[str]) -> None:
        """Brokers came or went: choices of those that went are open again."""
        self.load.keep_only(active)
        self._selection.brokers_changed(active)
        self.average.brokers_changed(active)

    def choose(
        self,
        bundle: str,
        active: Iterable[str],
        now_s: float,
    ) -> str | None:
        """The broker for an unowned bundle, of the `active` (registered) ones.

        The same again until it reports the bundle, or its choice is forgotten, or policies that are
        new don't allow it, unless an operator named it. None if they allow no broker.
        """
        active = list(active)
        fixed = fixed_broker(namespace_of(bundle), active)
        if fixed is not None:
            return fixed
        permitted = self.permitted(bundle, active)
        chosen = self.load.remembered(bundle, active, permitted)
        if chosen is not None:
            return chosen
        chosen = self.pick(bundle, permitted)
        if chosen is not None:
            self.load.preallocate(bundle, chosen, now_s)
        return chosen

    def select(self, bundle: str, active: Iterable[str]) -> str | None:
        """The broker that the bundle would be given to, without remembering it."""
        return self.pick(bundle, self.permitted(bundle, active))

    def permitted(self, bundle: str, active: Iterable[str]) -> list[str]:
        """The active brokers that policies allow for the bundle."""
        return candidates.allowed(bundle, active, self.load, self.rules)

    def pick(
        self,
        bundle: str,
        permitted: list[str],
        usages: Mapping[str, float] | None = None,
        usage_max: float = 1.0,
    ) -> str | None:
        """Of the permitted brokers the one for the bundle; None if there is none.

        With `usages` it must be one whose use is `usage_max` or less, and no other rule is passed
        over for it.
        """
        load, config = self.load, self.config
        fitting = candidates.apart(bundle, permitted, load, self.rules)
        if usages is not None:
            permitted = fitting = [each for each in fitting if usages[each] <= usage_max]
        if not permitted:
            return None
        left = self._preferred(bundle, fitting, permitted)
        chosen = self._selection.select(left, bundle, load, config)
        broker = load.brokers.get(chosen) if chosen is not None else None
        if broker is not None and broker.usage(config.weights) > config.overloaded:
            # All that the filters left are overloaded: there may be a better one.
            chosen = self._selection.select(permitted, bundle, load, config)
        return chosen

    def _preferred(self, bundle: str, brokers: list[str], permitted: list[str]) -> list[str]:
        """What the other filters leave; what policies allow if that is nobody."""
        load, config = self.load, self.config
        left = candidates.below_topics(brokers, load, config.broker_topics_max)
        if config.spread_evenly or namespace_of(bundle) == SYSTEM_NAMESPACE:
            left = candidates.least_of_namespace(bundle, left, load)
        left = candidates.same_manager(left, load, config.load_manager)
        if config.prefer_later_versions and left:
            later = candidates.latest(left, load)
            left = permitted if later is None else later
        return left or permitted
