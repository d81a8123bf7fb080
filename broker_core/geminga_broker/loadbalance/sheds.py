"""What a shedding strategy wants to be taken off a broker (spec CL-09)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

from geminga_broker.loadbalance.broker_load import BrokerLoad
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.names import SYSTEM_TENANTS, is_system, namespace_of
from geminga_broker.loadbalance.settings import LoadBalanceConfig

MARGIN = 0.05
"""How far below its limit a broker is brought (Apache's ADDITIONAL_THRESHOLD_PERCENT_MARGIN)."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Shed:
    """Bundles that may leave a broker, the first ones first, until enough is gone."""

    source: str
    bundles: Iterable[tuple[str, float]]
    """Each with its traffic; may be gone through again."""
    wanted: float
    """Traffic that is to go; at least one bundle goes. Infinite: all of them."""
    limit: float | None = None
    """A destination's use must stay at this or below, 1 is all: above it, it would have to shed
    bundles itself. None: the strategy has looked at that.
    """
    destination: str | None = None
    """The only broker that they may go to; None: the placement chooses."""


class Shedder(Protocol):
    """A strategy of shedding."""

    def find(self, load: LoadData, config: LoadBalanceConfig, now_ms: int) -> list[Shed]:
        """What is to be taken off which brokers. `now_ms` is the time of day."""

    def brokers_changed(self, active: Container[str]) -> None:
        """Brokers came or went: what is known of those that went is forgotten."""


@dataclass(frozen=True, slots=True)
class ByThroughput:
    """Bundles of a broker that may be shed, those with the highest short-term throughput first.

    None of system namespaces, and none that was moved within the grace period. Only those that a
    round asks for are looked at: the leader of many brokers must not look at all bundles.
    """

    broker: BrokerLoad
    load: LoadData

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Each with its throughput, in bytes a second."""
        unloaded = self.load.unloaded
        for bundle, throughput, _ in self.broker.traffic:
            if bundle not in unloaded and _may_move(bundle):
                yield bundle, throughput


def by_rate(broker: BrokerLoad, load: LoadData) -> list[tuple[str, float]]:
    """As `ByThroughput`, by messages a second. Looks at all bundles of the broker."""
    unloaded = load.unloaded
    return [
        (bundle, rate)
        for bundle, _, rate in sorted(broker.traffic, key=itemgetter(2), reverse=True)
        if bundle not in unloaded and _may_move(bundle)
    ]


def _may_move(bundle: str) -> bool:
    # Names are compared by their beginnings first: there are very many.
    return not (bundle.startswith(SYSTEM_TENANTS) and is_system(namespace_of(bundle)))
