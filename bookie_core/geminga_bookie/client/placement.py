"""Placement of entries on bookies (pure; spec BK-20; Apache's RoundRobinDistributionSchedule)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from geminga_bookie.errors import NotEnoughBookies


def choose_ensemble(bookies: Sequence[str], ensemble_size: int, ledger_id: int) -> list[str]:
    """Neighbours in the sorted list; the start depends on the id. Raises NotEnoughBookies."""
    if len(bookies) < ensemble_size:
        raise NotEnoughBookies(
            f"ledger {ledger_id} needs {ensemble_size} bookies, {len(bookies)} are writable"
        )
    ordered = sorted(bookies)
    return [ordered[(ledger_id + n) % len(ordered)] for n in range(ensemble_size)]


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
