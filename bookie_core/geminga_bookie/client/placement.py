"""Placement of entries on bookies (pure; spec BK-20; Apache's RoundRobinDistributionSchedule)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.errors import NotEnoughBookies


def in_turn(bookies: Collection[str], ledger_id: int) -> list[str]:
    """The bookies in the order in which a ledger prefers them: sorted, from a place on that its id
    gives, so that ledgers are spread over all.
    """
    ordered = sorted(bookies)
    start = ledger_id % len(ordered) if ordered else 0
    return ordered[start:] + ordered[:start]


def choose_ensemble(bookies: Collection[str], ensemble_size: int, ledger_id: int) -> list[str]:
    """The bookies of a new ledger. Raises NotEnoughBookies."""
    if len(bookies) < ensemble_size:
        raise NotEnoughBookies(
            f"ledger {ledger_id} needs {ensemble_size} bookies, {len(bookies)} are writable"
        )
    return in_turn(bookies, ledger_id)[:ensemble_size]


def change_ensemble(
    metadata: LedgerMetadata, failed: Collection[str], lac: int, candidates: Collection[str]
) -> LedgerMetadata:
    """The metadata with other bookies in place of failed ones of the last fragment, from the entry
    after `lac` on: a new fragment, or the same one changed if nothing of it was confirmed.

    As in Apache's EnsembleUtils: too few candidates replace as many as they can. Raises
    NotEnoughBookies if there is none.
    """
    last = max(metadata.ensembles)
    before = metadata.ensembles[last]
    wanting = [bookie_id for bookie_id in before if bookie_id in failed]
    spare = [
        bookie_id
        for bookie_id in in_turn(candidates, metadata.ledger_id)
        if bookie_id not in before and bookie_id not in failed
    ]
    if wanting and not spare:
        raise NotEnoughBookies(
            f"ledger {metadata.ledger_id}: no other writable bookie can replace "
            f"{', '.join(wanting)}; start more bookies"
        )
    instead = dict(zip(wanting, spare, strict=False))
    after = tuple(instead.get(bookie_id, bookie_id) for bookie_id in before)
    return replace(metadata, ensembles={**metadata.ensembles, max(lac + 1, last): after})


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
