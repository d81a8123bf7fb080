"""Placement of entries on bookies (pure; spec BK-20, BK-25; Apache's
RoundRobinDistributionSchedule, and the policies that `placement_rules` names)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.client.placement_rules import PlacementRules
from geminga_bookie.client.quorum import Quorums
from geminga_bookie.client.spread import Demand, Ensemble, equal_shares, fill
from geminga_bookie.errors import NotEnoughBookies

NO_RULES = PlacementRules()
"""Bookies without racks, regions and groups: any will do."""
_NAMED_MAX = 10
"""Bookies that an error names."""


def choose_ensemble(
    bookies: Collection[str],
    ensemble_size: int,
    turn: int,
    *,
    write_quorum: int = 1,
    ack_quorum: int = 1,
    custom_metadata: Mapping[str, bytes] | None = None,
    rules: PlacementRules = NO_RULES,
) -> list[str]:
    """The bookies of a new ledger; `turn`, its id where it is known, says which come first. Raises
    NotEnoughBookies.

    Rules that can't be kept are loosened before a bookie in quarantine is taken, unless the options
    say that they are enforced.
    """
    quorums = Quorums(ensemble_size, write_quorum, ack_quorum)
    usable = rules.usable(bookies, ensemble_size, custom_metadata or {})
    healthy = [each for each in usable if each not in rules.quarantined]
    for pool in (healthy, usable) if len(healthy) < len(usable) else (usable,):
        if len(pool) < ensemble_size:
            continue
        order = rules.in_order(pool, turn)
        if not rules.options.by_region and _racks(rules, quorums) == 1:
            return order[:ensemble_size]  # any will do: no search
        free: Ensemble = [None] * ensemble_size
        orders = dict.fromkeys(range(ensemble_size), order)
        for demand in _demands(rules, quorums, order):
            found = fill(free, orders, rules, quorums, demand)
            if found is not None:
                return found
    raise NotEnoughBookies(
        f"a ledger needs {ensemble_size} bookies{_asked(rules, quorums)}, "
        f"{len(usable)} are writable{_located(rules, usable)}"
    )


def change_ensemble(
    metadata: LedgerMetadata,
    failed: Collection[str],
    lac: int,
    candidates: Collection[str],
    rules: PlacementRules = NO_RULES,
) -> LedgerMetadata:
    """The metadata with other bookies in place of failed ones of the last fragment, from the entry
    after `lac` on: a new fragment, or the same one changed if nothing of it was confirmed.

    As in Apache's EnsembleUtils: too few candidates replace as many as they can. A bookie of the
    failed one's rack is preferred, as long as write quorums span the racks that they should. Raises
    NotEnoughBookies if there is none.
    """
    last = max(metadata.ensembles)
    before = metadata.ensembles[last]
    quorums = Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    wanting = [place for place, bookie_id in enumerate(before) if bookie_id in failed]
    alive = {*candidates, *before}.difference(failed)
    usable = rules.usable(alive, len(before), metadata.custom_metadata)
    spare = [each for each in usable if each not in before and each in candidates]
    healthy = [each for each in spare if each not in rules.quarantined]
    for pool in (healthy, spare) if len(healthy) < len(spare) else (spare,):
        order = rules.in_order(pool, metadata.ledger_id)
        for places in _largest_first(wanting, len(order)):
            after = _replaced(before, places, order, rules, quorums)
            if after is not None:
                changed = {**metadata.ensembles, max(lac + 1, last): after}
                return replace(metadata, ensembles=changed)
    if not wanting:
        return replace(metadata, ensembles={**metadata.ensembles, max(lac + 1, last): before})
    raise NotEnoughBookies(
        f"ledger {metadata.ledger_id}: no other writable bookie can replace "
        f"{', '.join(before[place] for place in wanting)}{_asked(rules, quorums)}"
        f"{_located(rules, spare)}; start more bookies"
    )


def with_places_replaced(
    metadata: LedgerMetadata,
    first: int,
    places: Sequence[int],
    candidates: Collection[str],
    rules: PlacementRules,
) -> tuple[str, ...] | None:
    """The ensemble of the fragment from entry `first` on with other bookies at these places, as
    near to the rules as there are bookies for it; None if there are too few.
    """
    before = metadata.ensembles[first]
    quorums = Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    usable = rules.usable({*candidates, *before}, len(before), metadata.custom_metadata)
    spare = [each for each in candidates if each in usable and each not in before]
    if len(spare) < len(places):
        return None
    return _replaced(before, places, rules.in_order(spare, metadata.ledger_id), rules, quorums)


def _largest_first(wanting: Sequence[int], spare: int) -> Iterator[tuple[int, ...]]:
    """Places to fill: all of them, then fewer."""
    for count in range(min(len(wanting), spare), 0, -1):
        yield from combinations(wanting, count)


def _replaced(
    before: Sequence[str],
    places: Sequence[int],
    order: Sequence[str],
    rules: PlacementRules,
    quorums: Quorums,
) -> tuple[str, ...] | None:
    """The ensemble with other bookies at these places; None if no rule can be kept."""
    free: Ensemble = [None if place in places else each for place, each in enumerate(before)]
    orders: dict[int, list[str]] = {}
    for place in places:
        rack, region = rules.rack(before[place]), rules.region(before[place])
        orders[place] = sorted(
            order, key=lambda each: (rules.rack(each) != rack, rules.region(each) != region)
        )
    for demand in _demands(rules, quorums, ()):
        found = fill(free, orders, rules, quorums, demand)
        if found is not None:
            return tuple(found)
    return None


def _demands(rules: PlacementRules, quorums: Quorums, order: Sequence[str]) -> Iterator[Demand]:
    """What to ask for, the strictest first; `order` has the bookies of a new ensemble."""
    options = rules.options
    racks = _racks(rules, quorums)
    least = racks if options.enforce_racks else 1
    regions = options.min_regions if options.by_region and options.regions else 0
    shares: list[dict[str, int] | None] = [None]
    kept = [regions]
    if regions and not order and not options.enforce_regions_in_replace:
        kept.append(0)
    if options.by_region and order:
        available = Counter(rules.region(each) for each in order)
        shares.insert(0, equal_shares(available, quorums.ensemble, list(available)))
    for each in kept:
        for share in shares:
            for count in range(racks, least - 1, -1):
                yield Demand(count, each, share)


def _racks(rules: PlacementRules, quorums: Quorums) -> int:
    """In how many racks a write quorum should be."""
    options = rules.options
    if not options.by_rack and not options.by_region:
        return 1
    return max(1, min(quorums.write, options.min_racks))


def _asked(rules: PlacementRules, quorums: Quorums) -> str:
    """What an error says of enforced rules."""
    options = rules.options
    asked: list[str] = []
    if options.enforce_racks and (racks := _racks(rules, quorums)) > 1:
        asked.append(f"{racks} racks in each write quorum")
    if options.by_region and options.regions and options.min_regions > 1:
        asked.append(f"{options.min_regions} regions in each ack quorum of {quorums.ack}")
    return f" with {' and '.join(asked)}" if asked else ""


def _located(rules: PlacementRules, bookies: Sequence[str]) -> str:
    """Where these bookies are, for an error."""
    if not bookies or not (rules.racks or rules.groups):
        return ""
    named = [f"{each} in {rules.rack(each)}" for each in bookies[:_NAMED_MAX]]
    more = [f"{len(bookies) - _NAMED_MAX} more"] if len(bookies) > _NAMED_MAX else []
    return f" ({', '.join(named + more)})"


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> list[int]:
    """Indexes of the entry's bookies: consecutive ones from entry mod E."""
    return [(entry_id + n) % ensemble_size for n in range(write_quorum)]


def ensemble_of(ensembles: Mapping[int, Sequence[str]], entry_id: int) -> Sequence[str]:
    """The ensemble of the entry's fragment."""
    first = max(start for start in ensembles if start <= entry_id)
    return ensembles[first]


def fragment_end(ensembles: Mapping[int, Sequence[str]], entry_id: int) -> int | None:
    """First entry id of the next fragment, None in the last one."""
    return min((start for start in ensembles if start > entry_id), default=None)


def covers_every_ack_quorum(
    answered: set[int], ensemble_size: int, write_quorum: int, ack_quorum: int
) -> bool:
    """Whether every possible ack quorum has a bookie that responded.

    (E - AQ) + 1 responses are always enough; fewer may be, if spread well (BK-23).
    """
    needed = write_quorum - ack_quorum + 1
    return all(
        sum(index in answered for index in write_set(start, ensemble_size, write_quorum)) >= needed
        for start in range(ensemble_size)
    )
