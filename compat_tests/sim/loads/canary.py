"""Mistakes in load balancing that the simulation must find: each is put into the running code,
never into its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from math import inf
from unittest import mock

from geminga_broker.loadbalance import candidates, splitting
from geminga_broker.loadbalance.broker_load import BrokerLoad
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.model import NamespaceBundleStats, TimeAverageMessageData
from geminga_broker.loadbalance.placement import ModularPlacement
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.shedding import _Round
from geminga_broker.loadbalance.sheds import Shed
from geminga_broker.loadbalance.threshold import ThresholdShedder

from .run import run_seed


@contextmanager
def _no_grace() -> Iterator[None]:
    """Bundles that were just moved are moved again."""
    moved = LoadData.moved

    def forgetting(
        self: LoadData, bundle: str, source: str, destination: str, usage: float, now_s: float
    ) -> None:
        moved(self, bundle, source, destination, usage, now_s)
        self.unloaded.clear()

    with mock.patch.object(LoadData, "moved", forgetting):
        yield


@contextmanager
def _moves_not_counted() -> Iterator[None]:
    """What is under way doesn't count: brokers are emptied too far."""
    with mock.patch.object(BrokerLoad, "expect"):
        yield


@contextmanager
def _no_room_needed() -> Iterator[None]:
    """Destinations may be above their limit, and hot bundles go anywhere."""
    shed = _Round._shed

    def anywhere(self: _Round, wanted: Shed, broker: BrokerLoad) -> bool:
        loose = Shed(wanted.source, wanted.bundles, wanted.wanted, None, wanted.destination)
        return shed(self, loose, broker)

    with mock.patch.object(_Round, "_shed", anywhere):
        yield


@contextmanager
def _hot_bundle_changes_places() -> Iterator[None]:
    """If nothing fits the largest bundle goes, though it overloads any broker."""

    def largest(self: _Round, shed: Shed, broker: BrokerLoad, limit: float) -> None:
        for bundle, _ in islice(shed.bundles, 1):
            self._move(bundle, shed, self._share(bundle, broker), 1.0)

    def none_fits(self: _Round, shed: Shed, broker: BrokerLoad) -> bool:
        return False

    with (
        mock.patch.object(_Round, "_improve", largest),
        mock.patch.object(_Round, "_shed", none_fits),
    ):
        yield


@contextmanager
def _empty_broker_forgotten() -> Iterator[None]:
    """A broker that was restarted gets nothing until somebody else is above the average."""
    with mock.patch("geminga_broker.loadbalance.threshold._started", return_value=set()):
        yield


@contextmanager
def _no_preallocation() -> Iterator[None]:
    """A burst of lookups goes to the broker that has the least load before it."""
    with mock.patch.object(LoadData, "preallocate"):
        yield


@contextmanager
def _broken_samples_averaged() -> Iterator[None]:
    """NaN and infinite samples enter the averages."""

    with mock.patch.object(NamespaceBundleStats, "is_valid", return_value=True):
        yield


@contextmanager
def _averages_forget_nothing() -> Iterator[None]:
    """Samples never enter the averages."""
    with mock.patch.object(TimeAverageMessageData, "update"):
        yield


@contextmanager
def _no_shedding() -> Iterator[None]:
    with mock.patch.object(ThresholdShedder, "find", return_value=[]):
        yield


@contextmanager
def _threshold_doubled() -> Iterator[None]:
    """Brokers may be twice as far above the average."""
    with mock.patch.object(
        LoadBalanceConfig, "threshold", property(lambda self: self.threshold_percent / 50.0)
    ):
        yield


@contextmanager
def _slow_smoothing() -> Iterator[None]:
    """What lasts is smoothed like a peak."""
    with mock.patch("geminga_broker.loadbalance.threshold.LASTING_ROUNDS", 1000):
        yield


@contextmanager
def _never_split() -> Iterator[None]:
    with mock.patch.object(splitting, "is_too_large", return_value=False):
        yield


@contextmanager
def _most_loaded_broker() -> Iterator[None]:
    """The placement prefers those with the most messages."""

    with mock.patch.object(
        ModularPlacement,
        "pick",
        lambda self, bundle, permitted, usages=None, usage_max=inf: max(
            permitted, key=lambda each: self.load.brokers[each].long_term_rate(), default=None
        ),
    ):
        yield


@contextmanager
def _dead_broker_chosen() -> Iterator[None]:
    """A broker that died stays a candidate, and choices of it stay."""
    with (
        mock.patch.object(LoadData, "keep_only", return_value=[]),
        mock.patch.object(
            candidates, "allowed", lambda bundle, brokers, load, rules, **_: list(load.brokers)
        ),
    ):
        yield


CANARIES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "no grace": _no_grace,
    "moves not counted": _moves_not_counted,
    "no room needed": _no_room_needed,
    "hot bundle changes places": _hot_bundle_changes_places,
    "empty broker forgotten": _empty_broker_forgotten,
    "no preallocation": _no_preallocation,
    "broken samples averaged": _broken_samples_averaged,
    "averages stand still": _averages_forget_nothing,
    "no shedding": _no_shedding,
    "threshold doubled": _threshold_doubled,
    "what lasts is smoothed": _slow_smoothing,
    "never split": _never_split,
    "most loaded broker": _most_loaded_broker,
    "dead broker chosen": _dead_broker_chosen,
}


FOUND_BY: Mapping[str, int] = {
    "no grace": 1,
    "moves not counted": 17,
    "no room needed": 3,
    "hot bundle changes places": 3,
    "empty broker forgotten": 25,
    "no preallocation": 4,
    "broken samples averaged": 8,
    "averages stand still": 3,
    "no shedding": 1,
    "threshold doubled": 1,
    "what lasts is smoothed": 101,
    "never split": 10,
    "most loaded broker": 0,
    "dead broker chosen": 4,
}
"""A seed that finds each mistake."""


def first_seed(name: str, seeds: Iterable[int]) -> int | None:
    """The first of these seeds that finds a mistake."""
    with CANARIES[name]():
        for seed in seeds:
            try:
                found = bool(run_seed(seed).violations)
            except Exception:  # it breaks the simulated cluster itself
                return seed
            if found:
                return seed
    return None
