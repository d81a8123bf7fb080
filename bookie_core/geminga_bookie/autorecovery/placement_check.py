"""Whether closed ledgers are where the placement rules want them (spec BK-25, BK-26; Apache's
AuditorPlacementPolicyCheckTask and RackawareEnsemblePlacementPolicy), and which bookies would put
that right. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations, islice

from geminga_bookie.autorecovery.fragments import quorums_of
from geminga_bookie.client.api import LedgerMetadata, LedgerState
from geminga_bookie.client.placement import with_places_replaced, write_set
from geminga_bookie.client.placement_rules import PlacementRules

TRIES_MAX = 64
"""Sets of places that are tried for one fragment, the smallest first."""


def misplaced(metadata: LedgerMetadata, rules: PlacementRules) -> list[int]:
    """First entries of the fragments of a closed ledger that don't keep to the rules: a write
    quorum spans fewer racks than it should, or with enforced racks has a bookie without one.
    """
    if metadata.state is not LedgerState.CLOSED:
        return []
    write = quorums_of(metadata).write
    return [
        first
        for first, ensemble in sorted(metadata.ensembles.items())
        if not _adheres(ensemble, write, rules)
    ]


def _adheres(ensemble: Sequence[str], write: int, rules: PlacementRules) -> bool:
    options = rules.options
    if not options.by_rack:
        return True
    least = min(write, options.min_racks)
    for start in range(len(ensemble)):
        places = write_set(start, len(ensemble), write)
        racks = {rules.rack(ensemble[place]) for place in places}
        if len(racks) < least or (options.enforce_racks and rules.default_rack in racks):
            return False
    return True


def moves(
    metadata: LedgerMetadata, first: int, writable: Collection[str], rules: PlacementRules
) -> dict[int, str] | None:
    """By place: the bookies to put in, as few as may be, so that the fragment keeps to the rules;
    None if there are none.
    """
    before = metadata.ensembles[first]
    write = quorums_of(metadata).write
    places = range(len(before))
    tries = (each for count in places for each in combinations(places, count + 1))
    for wanted in islice(tries, TRIES_MAX):
        after = with_places_replaced(metadata, first, wanted, writable, rules)
        if after is not None and _adheres(after, write, rules):
            return {place: after[place] for place in wanted}
    return None
