"""Shares and confirmed entries against the words of the specification, entry by entry."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from geminga_bookie.client.placement import write_set
from geminga_bookie.client.quorum import Acked, Quorums

SIZES = [
    Quorums(ensemble, write, ack)
    for ensemble in range(1, 6)
    for write in range(1, ensemble + 1)
    for ack in range(1, write + 1)
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_shares(sizes: Quorums) -> None:
    for place in range(sizes.ensemble):
        mine = [e for e in range(60) if place in write_set(e, sizes.ensemble, sizes.write)]
        for first in range(12):
            for end in range(first, 24):
                runs = list(sizes.runs(place, first, end))
                assert all(begin < behind for begin, behind in runs) or first == end
                assert all(one[1] < other[0] for one, other in pairwise(runs)), "one add would do"
                found = [e for begin, behind in runs for e in range(begin, behind)]
                assert found == [e for e in mine if first <= e < end]
            assert sizes.next_of(place, first) == min(e for e in mine if e >= first)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_confirmed_is_what_ack_quorums_have(sizes: Quorums) -> None:
    """Runs are acknowledged in any order, cut anywhere."""
    chance = random.Random(str(sizes))
    first = chance.randrange(7)
    has: list[set[int]] = [set() for _ in range(sizes.ensemble)]
    acked = [Acked(sizes, place, first) for place in range(sizes.ensemble)]
    events: list[tuple[int, int, int]] = []
    at = first
    while at < first + 40:
        end = at + chance.randint(1, 9)
        for place in range(sizes.ensemble):
            for begin, behind in sizes.runs(place, at, end):
                cut = chance.randint(begin + 1, behind)
                events += [(place, begin, cut)] + ([(place, cut, behind)] if cut < behind else [])
        at = end
    last, confirmed = at, first
    for index, event in enumerate(events):
        # Not far from the order in which they were sent.
        other = min(len(events) - 1, index + chance.randrange(6))
        events[index], events[other] = events[other], event
    for place, begin, behind in events:
        has[place].update(range(begin, behind))
        moved = acked[place].add(begin, behind)
        assert moved or acked[place].to not in has[place]
        confirmed = sizes.confirmed_end([each.to for each in acked], confirmed)
        expected = first
        while (
            sum(
                all(e in has[place] for e in range(first, expected + 1) if _is_of(sizes, place, e))
                for place in write_set(expected, sizes.ensemble, sizes.write)
            )
            >= sizes.ack
        ):
            expected += 1
            if expected >= last:
                break
        assert min(confirmed, last) == expected
    assert confirmed >= last


def _is_of(sizes: Quorums, place: int, entry_id: int) -> bool:
    return place in write_set(entry_id, sizes.ensemble, sizes.write)
