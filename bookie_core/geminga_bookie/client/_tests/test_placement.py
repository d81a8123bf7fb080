"""Placement against the words of the specification."""

from __future__ import annotations

from itertools import combinations

import pytest

from geminga_bookie.client.placement import (
    choose_ensemble,
    covers_every_ack_quorum,
    ensemble_of,
    fragment_end,
    write_set,
)
from geminga_bookie.client.placement_rules import PlacementOptions, PlacementRules
from geminga_bookie.client.quorum import Quorums
from geminga_bookie.client.spread import Demand, fill
from geminga_bookie.errors import NotEnoughBookies


def test_entries_are_striped() -> None:
    assert [write_set(e, 5, 3) for e in (0, 3, 4, 5)] == [
        [0, 1, 2],
        [3, 4, 0],
        [4, 0, 1],
        [0, 1, 2],
    ]


def test_ledgers_begin_at_different_bookies() -> None:
    assert choose_ensemble(["c", "a", "b"], 2, 0) == ["a", "b"]
    assert choose_ensemble(["c", "a", "b"], 2, 2) == ["c", "a"]
    with pytest.raises(NotEnoughBookies):
        choose_ensemble(["a"], 2, 7)


def test_too_large_an_ensemble_takes_no_memory() -> None:
    with pytest.raises(NotEnoughBookies, match="a ledger needs 9223372036854775807 bookies"):
        choose_ensemble(["a"], (1 << 63) - 1, 0)


def test_fragments() -> None:
    ensembles = {0: ("a",), 10: ("b",)}
    assert [ensemble_of(ensembles, e) for e in (0, 9, 10, 99)] == [("a",), ("a",), ("b",), ("b",)]
    assert [fragment_end(ensembles, e) for e in (0, 9, 10)] == [10, 10, None]


def test_coverage_leaves_no_ack_quorum() -> None:
    for size in range(1, 6):
        for write in range(1, size + 1):
            for ack in range(1, write + 1):
                for count in range(size + 1):
                    for answered in combinations(range(size), count):
                        free = set(range(size)) - set(answered)
                        quorum_left = any(
                            len(free & set(write_set(start, size, write))) >= ack
                            for start in range(size)
                        )
                        covered = covers_every_ack_quorum(set(answered), size, write, ack)
                        assert covered != quorum_left
                        assert covered or count < size - ack + 1


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_any_bookies_are_those_that_a_search_finds(size: int, write: int) -> None:
    """Where the racks don't matter none is made."""
    racks = {"a": "/r1", "b": "/r1", "c": "/r2", "e": "/r2"}
    for options in (PlacementOptions(), PlacementOptions(by_rack=False, min_racks=3)):
        rules = PlacementRules(options, racks, quarantined=("b",))
        quorums = Quorums(size, min(size, write), 1)
        for turn in range(12):
            found = choose_ensemble(
                "edcab", size, turn, write_quorum=quorums.write, ack_quorum=1, rules=rules
            )
            order = rules.in_order("acde", turn)
            orders = dict.fromkeys(range(size), order)
            asked = min(quorums.write, 2) if options.by_rack else 1
            assert found == fill([None] * size, orders, rules, quorums, Demand(asked, 0, None))
