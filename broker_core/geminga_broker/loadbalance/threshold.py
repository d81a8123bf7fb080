"""Shedding from brokers that are used more than the average (spec CL-09; Apache's
ThresholdShedder).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from geminga_broker.loadbalance.broker_load import BrokerLoad
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.sheds import MARGIN, MIB, ByThroughput, Shed

_LOWER_PART = 0.5
"""Of the threshold, which a broker gives to those below the average (Apache's
LOWER_BOUNDARY_THRESHOLD_MARGIN).
"""


LASTING_ROUNDS = 5
"""A use that was reached in so many rounds is no peak."""


class _Past:
    """The use of a broker in earlier rounds."""

    def __init__(self, now: float, gained: float) -> None:
        self.smoothed = now
        self.gained = gained
        """What moves to it had added to its use by then."""
        self.rounds = deque([now], LASTING_ROUNDS)

    def add(self, now: float, gained: float, history: float) -> None:
        """Another round."""
        last = self.smoothed + gained - self.gained
        self.smoothed = last * history + now * (1 - history)
        self.gained = gained
        self.rounds.append(now)


class ThresholdShedder:
    """Takes bundles off each broker whose use is `loadBalancerBrokerThresholdShedderPercentage`
    above the average of all.

    As Apache's, with these differences, which keep brokers from being emptied too far:
    - A broker's use is its smoothed one or what it will be after the moves that are under way,
      whichever is lower, and moves to it are not smoothed. Apache's goes on with a smoothed one,
      which follows by a tenth a minute.
    - What it was in each of the last five rounds is no peak, and counts without smoothing. By the
      smoothed one alone a broker that is 14 points above the average is left alone for 12 minutes.
    - A broker that started within the grace period and is well below the average is filled, also
      without `lowerBoundarySheddingEnabled`. In a large cluster the average hardly moves when one
      broker is empty, so that nobody else is above it.
    """

    def __init__(self) -> None:
        self._history: dict[str, _Past] = {}

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
                sheds.append(Shed(broker_id, ByThroughput(broker, load), wanted, limit))
        low = {
            broker_id
            for broker_id, level in levels.items()
            if max(level, self._history[broker_id].smoothed) < average - config.threshold
        }
        if low and not sheds and config.lower_boundary:
            sheds = _lower_boundary(load, config, levels, average)
        sources = {shed.source for shed in sheds}
        filling = _fill(load, config, levels, average, _started(low, load, config, now_ms))
        return sheds + [shed for shed in filling if shed.source not in sources]

    def _level(self, broker_id: str, broker: BrokerLoad, config: LoadBalanceConfig) -> float:
        now = broker.expected_usage(config.weights)
        past = self._history.get(broker_id)
        if past is None:
            past = self._history[broker_id] = _Past(now, broker.gained_usage)
        else:
            past.add(now, broker.gained_usage, config.history)
        lasting = min(past.rounds) if len(past.rounds) == LASTING_ROUNDS else 0.0
        return max(min(past.smoothed, now), lasting)

    def brokers_changed(self, active: Container[str]) -> None:
        """Forget the history of brokers that went."""
        self._history = {each: last for each, last in self._history.items() if each in active}


def _lower_boundary(
    load: LoadData, config: LoadBalanceConfig, levels: dict[str, float], average: float
) -> list[Shed]:
    """As some broker is the threshold below the average: a part of the most used one's traffic."""
    source = _most_used(load, levels, above=average - config.threshold)
    if source is None:
        return []
    broker = load.brokers[source]
    wanted = broker.expected_throughput * config.threshold * _LOWER_PART
    if wanted < config.unload_mb_min * MIB:
        return []
    return [Shed(source, ByThroughput(broker, load), wanted, average + config.threshold)]


def _most_used(load: LoadData, levels: dict[str, float], above: float) -> str | None:
    """The most used broker with more than one bundle."""
    several = [
        (level, broker_id)
        for broker_id, level in levels.items()
        if level > above and len(load.brokers[broker_id].report.last_stats) > 1
    ]
    return max(several)[1] if several else None


def _started(low: set[str], load: LoadData, config: LoadBalanceConfig, now_ms: int) -> set[str]:
    """Those that started within the grace period."""
    since_ms = now_ms - config.grace_minutes * 60_000
    return {each for each in low if load.brokers[each].report.start_timestamp > since_ms}


def _fill(
    load: LoadData,
    config: LoadBalanceConfig,
    levels: dict[str, float],
    average: float,
    empty: set[str],
) -> list[Shed]:
    """For each broker that is to be filled: as much as the threshold, from the most used ones,
    of which none goes below the average.
    """
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
        sheds.append(Shed(broker_id, ByThroughput(broker, load), wanted, average))
    return sheds
