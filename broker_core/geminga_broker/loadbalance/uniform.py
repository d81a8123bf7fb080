"""Shedding from the broker with the most messages to the one with the fewest (spec CL-09; Apache's
UniformLoadShedder).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from math import inf

from geminga_broker.loadbalance.broker_load import BrokerLoad
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.sheds import ByThroughput, Shed, by_rate

_ZERO = 1e-6
_DELTA = 1000
"""Traffic of a bundle may be this much more than what is still to go."""


class UniformShedder:
    """Takes bundles off the broker with the highest message rate if it is
    `loadBalancerMsgRateDifferenceShedderThreshold` percent above the lowest; else off the one with
    the highest throughput if that is more than
    `loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold` times the lowest.

    `maxUnloadPercentage` of the difference is to go, in bundles that don't exceed it.
    """

    def find(self, load: LoadData, config: LoadBalanceConfig, now_ms: int) -> list[Shed]:
        """What is to be taken off which broker, one at most."""
        if not load.brokers:
            return []
        rates = _ends(load, _rate)
        throughputs = _ends(load, _throughput)
        rate_exceeded = (
            0 < config.rate_difference_percent < (rates.most - rates.least) * 100 / rates.least
        )
        throughput_exceeded = (
            0 < config.throughput_difference < throughputs.most / throughputs.least
        )
        if rate_exceeded:
            ends, least = rates, config.unload_messages_min
        elif throughput_exceeded:
            ends, least = throughputs, config.unload_bytes_min
        else:
            return []
        broker = load.brokers[ends.broker_id]
        required = int((ends.most - ends.least) * config.unload_share_max)
        if len(broker.report.last_stats) < 2 or required < least:
            return []
        picked: list[tuple[str, float]] = []
        ordered = by_rate(broker, load) if rate_exceeded else ByThroughput(broker, load)
        for bundle, traffic in ordered:
            if 0 <= config.unload_bundles_max <= len(picked):
                break
            if 0 < traffic <= required + _DELTA:
                required = int(required - traffic)
                picked.append((bundle, traffic))
        return [Shed(ends.broker_id, picked, inf)] if picked else []

    def brokers_changed(self, active: Container[str]) -> None:
        """Nothing is remembered of brokers."""


class _Ends:
    """The broker with the most traffic, and how much the most and the least are."""

    def __init__(self, broker_id: str, most: float, least: float) -> None:
        self.broker_id = broker_id
        self.most = most
        self.least = least if least > _ZERO else 1.0


def _rate(broker: BrokerLoad) -> float:
    return broker.expected_rate


def _throughput(broker: BrokerLoad) -> float:
    return broker.expected_throughput


def _ends(load: LoadData, traffic: Callable[[BrokerLoad], float]) -> _Ends:
    of = {broker_id: traffic(broker) for broker_id, broker in load.brokers.items()}
    highest = max(of, key=of.__getitem__)
    return _Ends(highest, of[highest], min(of.values()))
