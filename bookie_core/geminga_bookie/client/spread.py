"""Filling the free places of an ensemble so that write quorums span racks and regions (spec BK-25).
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from geminga_bookie.client.placement_rules import PlacementRules
from geminga_bookie.client.quorum import Quorums

STEPS_MAX = 2000
"""Bound of the search for one ensemble; beyond it, a looser rule is tried."""

Ensemble = list[str | None]


class Demand(NamedTuple):
    """What a write quorum must have."""

    racks: int
    regions: int
    """In how many regions each ack quorum has a bookie."""
    shares: Mapping[str, int] | None
    """Bookies of each region, at most; None: any."""


def fill(
    ensemble: Ensemble,
    orders: Mapping[int, Sequence[str]],
    rules: PlacementRules,
    quorums: Quorums,
    demand: Demand,
) -> list[str] | None:
    """The ensemble with bookies at its free places, of which `orders` says who is preferred; None
    if none is found that meets the demand at these places.
    """
    return _Search(ensemble, orders, rules, quorums, demand).run()


class _Search:
    """Depth first: bookies of one rack are alike, so one of each rack is tried at each place."""

    def __init__(
        self,
        ensemble: Ensemble,
        orders: Mapping[int, Sequence[str]],
        rules: PlacementRules,
        quorums: Quorums,
        demand: Demand,
    ) -> None:
        self._ensemble = list(ensemble)
        self._orders = orders
        self._rules = rules
        self._quorums = quorums
        self._demand = demand
        self._free = [place for place, each in enumerate(ensemble) if each is None]
        self._steps = 0
        self._racks_in = self._known_racks()

    def _known_racks(self) -> dict[str, int]:
        """By region: in how many racks its bookies are."""
        known = {each for order in self._orders.values() for each in order}
        known.update(each for each in self._ensemble if each is not None)
        found: dict[str, set[str]] = {}
        for bookie_id in known:
            region = self._rules.region(bookie_id) if self._rules.options.by_region else ""
            found.setdefault(region, set()).add(self._rules.rack(bookie_id))
        return {region: len(racks) for region, racks in found.items()}

    def run(self) -> list[str] | None:
        if not self._is_possible() or not self._place(0):
            return None
        return [each for each in self._ensemble if each is not None]

    def _is_possible(self) -> bool:
        """Whether there are racks and regions enough: a search would only find out step by step
        that there aren't.
        """
        _, write, ack = self._quorums
        if not self._rules.options.by_region:
            return sum(self._racks_in.values()) >= self._demand.racks
        regions = len(self._racks_in)
        if self._demand.regions <= 1 or not regions:
            return True
        # At best a write quorum has equal shares of all regions; see `_meets`.
        each, more = divmod(write, regions)
        fewer = self._demand.regions - 1
        return fewer * each + min(fewer, more) < ack

    def _place(self, at: int) -> bool:
        if at == len(self._free):
            return True
        place = self._free[at]
        for bookie_id in self._candidates(place):
            self._steps += 1
            if self._steps > STEPS_MAX:
                return False
            self._ensemble[place] = bookie_id
            if self._fits(place) and self._place(at + 1):
                return True
            self._ensemble[place] = None
        return False

    def _candidates(self, place: int) -> Iterator[str]:
        tried: set[str] = set()
        for bookie_id in self._orders[place]:
            rack = self._rules.rack(bookie_id)
            if rack not in tried and bookie_id not in self._ensemble:
                tried.add(rack)
                yield bookie_id

    def _fits(self, place: int) -> bool:
        """Whether each write set with that place can still meet the demand."""
        size, write, _ = self._quorums
        shares = self._demand.shares
        if shares is not None:
            region = self._rules.region(self._ensemble[place] or "")
            has = sum(each is not None and self._rules.region(each) == region
                      for each in self._ensemble)  # fmt: skip
            if has > shares.get(region, 0):
                return False
        starts = range(1) if write == size else range(place - write + 1, place + 1)
        return all(
            self._meets([self._ensemble[(start + n) % size] for n in range(write)])
            for start in starts
        )

    def _meets(self, members: Sequence[str | None]) -> bool:
        known = [each for each in members if each is not None]
        unknown = len(members) - len(known)
        rules, demand = self._rules, self._demand
        if not rules.options.by_region:
            return len({rules.rack(each) for each in known}) + unknown >= demand.racks
        regions = Counter(rules.region(each) for each in known)
        if demand.regions > 1:
            # The largest shares of one region less must not be an ack quorum.
            largest = sum(count for _, count in regions.most_common(demand.regions - 1))
            if largest >= self._quorums.ack:
                return False
        for region, count in regions.items():
            racks = {rules.rack(each) for each in known if rules.region(each) == region}
            wanted = min(count, demand.racks)
            if not rules.options.enforce_racks:
                wanted = min(wanted, self._racks_in[region])
            if len(racks) + unknown < wanted:
                return False
        return True


def equal_shares(available: Mapping[str, int], size: int, order: Sequence[str]) -> dict[str, int]:
    """How many bookies each region gives: as equal as its number of them allows; where they aren't
    equal, the first ones of `order` give one more.
    """
    shares = dict.fromkeys(order, 0)
    while size:
        open_regions = [each for each in order if shares[each] < available.get(each, 0)]
        if not open_regions:
            break
        for region in open_regions[:size]:
            shares[region] += 1
            size -= 1
    return shares
