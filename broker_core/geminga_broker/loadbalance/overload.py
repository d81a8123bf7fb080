"""Shedding from overloaded brokers (spec CL-09; Apache's OverloadShedder)."""

from __future__ import annotations

from collections.abc import Container

from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.sheds import MARGIN, ByThroughput, Shed


class OverloadShedder:
    """Takes bundles off each broker whose use reaches
    `loadBalancerBrokerOverloadedThresholdPercentage`: the part of its throughput that it is above
    it, and 5% more.
    """

    def find(self, load: LoadData, config: LoadBalanceConfig, now_ms: int) -> list[Shed]:
        """What is to be taken off which brokers."""
        weights, limit = config.weights, config.overloaded
        sheds = []
        for broker_id, broker in load.brokers.items():
            usage = broker.expected_usage(weights)
            if usage < limit or len(broker.report.last_stats) < 2:
                continue
            wanted = broker.expected_throughput * (usage - limit + MARGIN)
            sheds.append(Shed(broker_id, ByThroughput(broker, load), wanted, limit))
        return sheds

    def brokers_changed(self, active: Container[str]) -> None:
        """Nothing is remembered of brokers."""
