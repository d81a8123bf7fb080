"""Shedding from brokers that are used more than the average (spec CL-09; Apache's
ThresholdShedder).
"""

from __future__ import annotations

from collections.abc import Container

from geminga_broker.loadbalance.load_data import BrokerLoad, LoadData
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.sheds import MARGIN, MIB, Shed, by_throughput

_LOWER_PART = 0.5
"""Of the threshold, which a broker gives to those below the average (Apache's
LOWER_BOUNDARY_THRESHOLD_MARGIN).
"""


class ThresholdShedder:
    """Takes bundles off each broker whose use is `loadBalancerBrokerThresholdShedderPercentage`
    above the average of all.

    As Apache's, with these differences, which keep brokers from being emptied too far:
    - A broker's use is its smoothed one or what it will be after the moves that are under way,
      whichever is lower, and moves to it are not smoothed. Apache's goes on with a smoothed one,
      which follows by a tenth a minute.
    - A broker that started within the grace period and is well below the average is filled, also
      without `lowerBoundarySheddingEnabled`. In a large cluster the average hardly moves when one
      broker is empty, so that nobody else is above it.
    """

    def __init__(self) -> None:
        self._history: dict[str, tuple[float, float]] = {}
        """The smoothed use of each broker, and what moves had added to it by then."""

    def find(self, load: LoadData, config: LoadBalanceConfig, now_ms: int) -> list[Shed]:
        """What is to be taken off which brokers."""
        levels = {
            broker_id: self._level(broker_id, broker, config)
            for broker_id, broker in load.brokers.items()
        }
        average = sum(levels.values()) / len(levels) if levels else 0.0
        if average == 0:
            return []
        limit = average + config.threshold
        sheds = []
        for broker_id, level in levels.items():
            if level < limit:
                continue
            broker = load.brokers[broker_id]
            wanted = broker.expected_throughput * (level - limit + MARGIN)
            if wanted >= config.unload_mb_min * MIB and len(broker.report.last_stats) > 1:
                sheds.append(Shed(broker_id, by_throughput(broker, load), wanted, limit))
        if not sheds and config.lower_boundary:
            sheds = _lower_boundary(load, config, levels, average)
        return sheds or _fill_started(load, config, levels, average, now_ms)

    def _level(self, broker_id: str, broker: BrokerLoad, config: LoadBalanceConfig) -> float:
        now = broker.expected_usage(config.weights)
        if broker_id in self._history:
            last, gained = self._history[broker_id]
            last += broker.gained_usage - gained
            smoothed = last * config.history + now * (1 - config.history)
        else:
            smoothed = now
        self._history[broker_id] = smoothed, broker.gained_usage
        return min(smoothed, now)

    def brokers_changed(self, active: Container[str]) -> None:
        """Forget the history of brokers that went."""
        self._history = {each: last for each, last in self._history.items() if each in active}


def _lower_boundary(
    load: LoadData, config: LoadBalanceConfig, levels: dict[str, float], average: float
) -> list[Shed]:
    """If a broker is the threshold below the average: a part of the most used one's traffic."""
    if not any(level < average - config.threshold for level in levels.values()):
        return []
    source = _most_used(load, levels, above=average - config.threshold)
    if source is None:
        return []
    broker = load.brokers[source]
    wanted = broker.expected_throughput * config.threshold * _LOWER_PART
    if wanted < config.unload_mb_min * MIB:
        return []
    return [Shed(source, by_throughput(broker, load), wanted, average + config.threshold)]


def _most_used(load: LoadData, levels: dict[str, float], above: float) -> str | None:
    """The most used broker with more than one bundle."""
    several = [
        (level, broker_id)
        for broker_id, level in levels.items()
        if level > above and len(load.brokers[broker_id].report.last_stats) > 1
    ]
    return max(several)[1] if several else None


def _fill_started(
    load: LoadData,
    config: LoadBalanceConfig,
    levels: dict[str, float],
    average: float,
    now_ms: int,
) -> list[Shed]:
    """For each broker that started lately and is the threshold below the average: as much as the
    threshold, from the most used ones, of which none goes below the average.
    """
    since_ms = now_ms - config.grace_minutes * 60_000
    empty = {
        broker_id
        for broker_id, level in levels.items()
        if level < average - config.threshold
        and load.brokers[broker_id].report.start_timestamp > since_ms
    }
    missing = len(empty) * config.threshold
    sheds = []
    for level, broker_id in sorted(((use, each) for each, use in levels.items()), reverse=True):
        if missing <= 0 or level < average:
            break
        broker = load.brokers[broker_id]
        if broker_id in empty or len(broker.report.last_stats) < 2:
            continue
        given = min(missing, config.threshold * _LOWER_PART * level)
        missing -= given
        wanted = broker.expected_throughput * given / level
        sheds.append(Shed(broker_id, by_throughput(broker, load), wanted, average))
    return sheds
