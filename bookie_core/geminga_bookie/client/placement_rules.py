"""Which bookies a ledger may have: racks, regions, groups, free space (spec BK-25; Apache's
RackawareEnsemblePlacementPolicy, RegionAwareEnsemblePlacementPolicy and Pulsar's
IsolatedBookieEnsemblePlacementPolicy). Pure.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from geminga_runtime.json_text import BadJson, read_json

DEFAULT_RACK = "/default-rack"
"""Location of a bookie that no rack is set for (Apache's NetworkTopology.DEFAULT_RACK)."""
DEFAULT_REGION_RACK = "/default-region/default-rack"
"""The same where racks are within regions."""
ANY_GROUP = "*"
"""As a primary group: the groups don't matter."""

POLICY_KEY = "EnsemblePlacementPolicyConfig"
"""Custom metadata of a ledger that has groups of its own."""
_ISOLATED = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"


@dataclass(frozen=True, slots=True)
class Isolation:
    """Groups of bookies: of the primary ones, of the secondary ones too if those have too few."""

    primary: frozenset[str] = frozenset()
    secondary: frozenset[str] = frozenset()

    @classmethod
    def of(cls, primary: str, secondary: str) -> Isolation:
        """From names that commas separate, as in Pulsar's settings."""
        return cls(_names(primary), _names(secondary))


def _names(text: str) -> frozenset[str]:
    return frozenset(each.strip() for each in text.split(",") if each.strip())


@dataclass(frozen=True, slots=True)
class PlacementOptions:
    """Settings; the defaults are those of Pulsar's broker."""

    by_rack: bool = True
    by_region: bool = False
    """Locations are `/region/rack`: regions get equal shares, and racks count within them."""
    min_racks: int = 2
    """A write quorum has its bookies in so many racks, if it is as large."""
    enforce_racks: bool = False
    """Rather no ledger than one with fewer racks; bookies without a rack get no entries."""
    regions: frozenset[str] = frozenset()
    """If given, an ack quorum has its bookies in `min_regions` of them (reppRegionsToWrite)."""
    min_regions: int = 2
    enforce_regions_in_replace: bool = True
    isolation: Isolation = Isolation()
    """Groups of ledgers that name none."""
    by_weight: bool = False
    """Bookies with more free space get more ledgers."""
    weight_multiple_max: int = 3
    """One bookie has at most so many times the median's share."""


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """The options, and what is known of the bookies now."""

    options: PlacementOptions = PlacementOptions()
    racks: Mapping[str, str] = field(default_factory=dict)
    """By bookie: its location. Others are in the default rack."""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By group: its bookies."""
    free_bytes: Mapping[str, int] = field(default_factory=dict)
    quarantined: Collection[str] = ()
    """Bookies that are taken only if the others are too few."""

    def rack(self, bookie_id: str) -> str:
        """The bookie's location."""
        return self.racks.get(bookie_id, self.default_rack)

    @property
    def default_rack(self) -> str:
        """The location of bookies without one."""
        return DEFAULT_REGION_RACK if self.options.by_region else DEFAULT_RACK

    def region(self, bookie_id: str) -> str:
        """The first part of the bookie's location."""
        return self.rack(bookie_id).split("/")[1]

    def usable(
        self, bookies: Collection[str], ensemble_size: int, custom_metadata: Mapping[str, bytes]
    ) -> list[str]:
        """Those that a ledger with this custom metadata may have. As in Apache's policy the
        secondary groups count if the primary ones have fewer than an ensemble, and bookies without
        a group if both have.
        """
        options = self.options
        left = sorted(bookies)
        if options.enforce_racks and (options.by_rack or options.by_region):
            left = [each for each in left if self.rack(each) != self.default_rack]
        isolation = isolation_of(custom_metadata) or options.isolation
        is_free = not isolation.primary and not isolation.secondary
        if is_free or not self.groups or ANY_GROUP in isolation.primary:
            return left
        grouped = self._members(self.groups)
        primary = self._members(isolation.primary)
        secondary = primary | self._members(isolation.secondary)
        found: list[str] = []
        for allowed in (primary, secondary):
            found = [each for each in left if each in allowed]
            if len(found) >= ensemble_size:
                return found
        return [each for each in left if each in secondary or each not in grouped]

    def _members(self, names: Collection[str]) -> set[str]:
        return {each for name in names for each in self.groups.get(name, ())}

    def in_order(self, bookies: Sequence[str], ledger_id: int) -> list[str]:
        """The order in which a ledger prefers the bookies; another one for each ledger, the same
        each time. Those that are quarantined come last.
        """
        ordered = sorted(bookies)
        if self.options.by_weight:
            ordered = _by_weight(self._weights(ordered), random.Random(ledger_id))
        elif len({self.rack(each) for each in ordered}) > 1:
            # Racks aren't equally large, and neighbours may be in one.
            random.Random(ledger_id).shuffle(ordered)
        else:
            ordered = in_turn(ordered, ledger_id)
        return sorted(ordered, key=lambda each: each in self.quarantined)

    def _weights(self, bookies: Sequence[str]) -> dict[str, float]:
        """As Apache's WeightedRandomSelection: unknown weights are the least one, and none is above
        a multiple of the median.
        """
        known = {each: self.free_bytes.get(each, 0) for each in bookies}
        least = min((each for each in known.values() if each > 0), default=1)
        values = sorted(known.values())
        middle = len(values) // 2
        median = (values[middle] + values[~middle]) / 2 if values else 0
        most = self.options.weight_multiple_max * median or float("inf")
        return {each: min(weight if weight > 0 else least, most) for each, weight in known.items()}


def in_turn(bookies: Collection[str], turn: int) -> list[str]:
    """The bookies, sorted, from another place on for each turn."""
    ordered = sorted(bookies)
    start = turn % len(ordered) if ordered else 0
    return ordered[start:] + ordered[:start]


def _by_weight(weights: Mapping[str, float], chance: random.Random) -> list[str]:
    """A random order in which each next one is drawn by its weight among those left."""
    drawn = {each: chance.random() ** (1 / weight) for each, weight in _scaled(weights).items()}
    return sorted(drawn, key=drawn.__getitem__, reverse=True)


def _scaled(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights around one: powers of numbers of bytes would all be one."""
    most = max(weights.values(), default=1.0)
    return {each: weight / most for each, weight in weights.items()}


def isolation_policy(primary: str, secondary: str) -> bytes:
    """The value of POLICY_KEY for groups that commas separate, as Pulsar's broker writes it."""
    groups = {"isolationBookieGroups": primary, "secondaryIsolationBookieGroups": secondary}
    return json.dumps({"policyClass": _ISOLATED, "properties": groups}).encode()


class _Placement(msgspec.Struct, rename="camel"):
    policy_class: object
    properties: dict[str, object] | None = None


def isolation_of(custom_metadata: Mapping[str, bytes]) -> Isolation | None:
    """The groups that Pulsar's broker writes into a ledger's custom metadata for a namespace with
    bookie affinity groups; None without them.
    """
    value = custom_metadata.get(POLICY_KEY)
    if value is None:
        return None
    try:
        found = read_json(value, _Placement)
    except BadJson:
        return None
    if found.policy_class != _ISOLATED:
        return Isolation()
    properties = found.properties or {}
    return Isolation.of(
        str(properties.get("isolationBookieGroups") or ""),
        str(properties.get("secondaryIsolationBookieGroups") or ""),
    )
