"""Decisions of auto-recovery on a ledger's metadata (pure; spec BK-26)."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from geminga_bookie.client.api import LedgerMetadata, LedgerState
from geminga_bookie.client.placement import change_ensemble
from geminga_bookie.client.placement_rules import PlacementRules
from geminga_bookie.client.quorum import Quorums
from geminga_bookie.errors import NotEnoughBookies


class Fragment(NamedTuple):
    """The entries from `first` to before `end`, and their bookies. No writer adds to it."""

    first: int
    end: int
    ensemble: Sequence[str]


class Lack(NamedTuple):
    """A bookie that lacks entries of a fragment."""

    fragment: Fragment
    place: int
    missing: Sequence[tuple[int, int]] | None
    """Runs of entries, as first and end; None for all that belong to that place."""

    @property
    def bookie_id(self) -> str:
        """The bookie in the metadata."""
        return self.fragment.ensemble[self.place]


def quorums_of(metadata: LedgerMetadata) -> Quorums:
    """Its sizes."""
    return Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)


def closed_fragments(metadata: LedgerMetadata) -> list[Fragment]:
    """All fragments with entries but the last one of a ledger that isn't closed."""
    starts = sorted(metadata.ensembles)
    ends = starts[1:]
    if metadata.state is LedgerState.CLOSED:
        ends.append(metadata.last_entry_id + 1)
    return [
        Fragment(first, end, metadata.ensembles[first])
        for first, end in zip(starts, ends, strict=False)
        if first < end
    ]


def open_ensemble(metadata: LedgerMetadata) -> Sequence[str]:
    """The bookies that a writer may write to; empty if the ledger is closed."""
    if metadata.state is LedgerState.CLOSED:
        return ()
    return metadata.ensembles[max(metadata.ensembles)]


def share(metadata: LedgerMetadata, fragment: Fragment, place: int) -> Iterator[tuple[int, int]]:
    """Runs of the fragment's entries that the bookie at that place must have."""
    if metadata.ensemble_size == metadata.write_quorum:
        return iter([(fragment.first, fragment.end)])
    return quorums_of(metadata).runs(place, fragment.first, fragment.end)


def holders(metadata: LedgerMetadata) -> set[str]:
    """Bookies that must have an entry, or may get one from the writer."""
    found = set(open_ensemble(metadata))
    for fragment in closed_fragments(metadata):
        for place, bookie_id in enumerate(fragment.ensemble):
            if next(share(metadata, fragment, place), None) is not None:
                found.add(bookie_id)
    return found


def needs_recovery(metadata: LedgerMetadata, registered: Container[str]) -> bool:
    """Whether a bookie is lost that a writer may write to: with too many of them lost, nobody could
    find the ledger's end any more.
    """
    return any(bookie_id not in registered for bookie_id in open_ensemble(metadata))


def choose_target(
    metadata: LedgerMetadata,
    lack: Lack,
    chosen: Mapping[int, str],
    writable: Collection[str],
    rules: PlacementRules,
    turn: int,
) -> str | None:
    """A bookie to take the place, as an ensemble change of the ledger's writer would choose it;
    another one for each `turn`. `chosen` has those of other places. None if there is none.
    """
    first, _, before = lack.fragment
    ensemble = tuple(chosen.get(place, bookie_id) for place, bookie_id in enumerate(before))
    spare = [bookie_id for bookie_id in writable if bookie_id not in before]
    asking = replace(metadata, ledger_id=metadata.ledger_id + turn, ensembles={first: ensemble})
    try:
        changed = change_ensemble(asking, {lack.bookie_id}, first - 1, spare, rules)
    except NotEnoughBookies:
        return None
    return changed.ensembles[first][lack.place]


def with_targets(
    metadata: LedgerMetadata, fragment: Fragment, targets: Mapping[int, str]
) -> LedgerMetadata | None:
    """The metadata with other bookies at these places of the fragment; None if it isn't what the
    entries were copied for any more.
    """
    if fragment not in closed_fragments(metadata):
        return None
    after = [targets.get(place, each) for place, each in enumerate(fragment.ensemble)]
    if len(set(after)) < len(after):
        return None
    return replace(metadata, ensembles={**metadata.ensembles, fragment.first: tuple(after)})
