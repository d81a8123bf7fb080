"""Shedding from the most used broker to the least used one, from the second most used one to the
second least used one, and so on (spec CL-09; Apache's AvgShedder).
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Sequence
from math import inf

from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.sheds import ByThroughput, Shed, by_rate


class AverageShedder:
    """A strategy of shedding, and the placement that goes with it.

    Brokers are paired by their use. A pair sheds after its difference was
    `loadBalancerAvgShedderHighThreshold` points for `...HitCountHighThreshold` rounds, or
    `loadBalancerAvgShedderLowThreshold` points for `...HitCountLowThreshold` rounds.
    `maxUnloadPercentage` of the difference in messages goes, else of that in bytes. Bundles are
    placed where the shedding wants them, else by chance.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._high: dict[str, int] = {}
        self._low: dict[str, int] = {}
        self._wanted: dict[str, str] = {}

    def find(self, load: LoadData, config: LoadBalanceConfig, now_ms: int) -> list[Shed]:
        """What is to be taken off which brokers."""
        weights = config.weights
        # Of moves that were not carried out nobody will ask: they are decided anew.
        self._wanted.clear()
        scores = {
            broker_id: broker.expected_usage(weights) * 100
            for broker_id, broker in load.brokers.items()
        }
        ranked = sorted(scores, key=scores.__getitem__)
        pairs = []
        for under, over in zip(ranked, reversed(ranked), strict=True):
            if scores[over] < scores[under] or over == under:
                break
            if self._count(over, under, scores[over] - scores[under], config):
                pairs.append((over, under))
        sheds = []
        for over, under in pairs:
            if self._due(over, config) or self._due(under, config):
                for broker_id in (over, under):
                    self._high.pop(broker_id, None)
                    self._low.pop(broker_id, None)
                if shed := self._shed(over, under, load, config):
                    sheds.append(shed)
        return sheds

    def _count(self, over: str, under: str, difference: float, config: LoadBalanceConfig) -> bool:
        """Count a pair's round; False if its difference is small, and it begins anew."""
        for broker_id in (over, under):
            if difference < config.average_low_percent:
                self._low.pop(broker_id, None)
            else:
                self._low[broker_id] = self._low.get(broker_id, 0) + 1
            if difference < config.average_high_percent:
                self._high.pop(broker_id, None)
            else:
                self._high[broker_id] = self._high.get(broker_id, 0) + 1
        return difference >= config.average_low_percent

    def _due(self, broker_id: str, config: LoadBalanceConfig) -> bool:
        return (
            self._high.get(broker_id, 0) >= config.average_high_hits
            or self._low.get(broker_id, 0) >= config.average_low_hits
        )

    def _shed(
        self, over: str, under: str, load: LoadData, config: LoadBalanceConfig
    ) -> Shed | None:
        most, least = load.brokers[over], load.brokers[under]
        if len(most.report.last_stats) < 2:
            return None
        messages = (most.expected_rate - least.expected_rate) * config.unload_share_max
        data = (most.expected_throughput - least.expected_throughput) * config.unload_share_max
        if messages > config.unload_messages_min:
            left = messages
            ordered: Iterable[tuple[str, float]] = by_rate(most, load)
        elif data > config.unload_bytes_min:
            left, ordered = data, ByThroughput(most, load)
        else:
            return None
        picked = []
        for bundle, traffic in ordered:
            if 0 < traffic <= left:
                left -= traffic
                picked.append((bundle, traffic))
                self._wanted[bundle] = under
        return Shed(over, picked, inf, destination=under) if picked else None

    def select(
        self, brokers: Sequence[str], bundle: str, load: LoadData, config: LoadBalanceConfig
    ) -> str | None:
        """The broker for a bundle; None if there are no brokers."""
        wanted = self._wanted.get(bundle)
        if wanted is not None and wanted in brokers:
            return wanted
        # By chance, so that the bundles of a broker that went are spread over the others.
        return brokers[self._chance.randrange(len(brokers))] if brokers else None

    def brokers_changed(self, active: Container[str]) -> None:
        """Forget the counts of brokers that went."""
        self._high = {each: hits for each, hits in self._high.items() if each in active}
        self._low = {each: hits for each, hits in self._low.items() if each in active}
