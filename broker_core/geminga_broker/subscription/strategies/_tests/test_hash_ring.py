"""Owners of Key_Shared hashes (BR-31), compared with Apache 4.0.7's statistics."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.subscription.strategies.hash_ring import (
    CannotAssign,
    HashRing,
    Selector,
    SplitRanges,
)
from geminga_protocol.keys import KEY_SLOTS


class Member:
    def __init__(self, name: str) -> None:
        self.name = name


COME = ("a", "b", "b", "c", "consumer-1", "d")
GO = (1, 3, 0, 0)
"""Places in the list of those there."""

APACHES_RING = (
    3554078606,
    548493345,
    4211983208,
    1922414309,
    3077820136,
    777564476,
    3708351505,
    2493372230,
    2983341113,
    1823630678,
)
"""CRC32 of keyHashRangeArrays, by consumer in the order of joining, after each join and leave."""

APACHES_SPLIT = (
    265541937,
    1939506724,
    3569738845,
    1326021316,
    2328792827,
    2123644923,
    3411705870,
    3641104097,
    3595444388,
    840158601,
)
"""The same with subscriptionKeySharedUseConsistentHashing=false."""


@pytest.mark.parametrize(
    ("make", "expected"), [(HashRing, APACHES_RING), (SplitRanges, APACHES_SPLIT)]
)
def test_ranges_equal_apaches(make: Callable[[], Selector[Member]], expected: list[int]) -> None:
    selector = make()
    there: list[Member] = []
    found = []

    def note() -> None:
        shown = [[member.name, selector.ranges(member)] for member in there]
        found.append(zlib.crc32(json.dumps(shown).encode()))

    for name in COME:
        there.append(Member(name))
        selector.add(there[-1], ())
        note()
    for place in GO:
        selector.remove(there.pop(place))
        note()
    assert tuple(found) == expected


def test_ranges_as_an_operator_sees_them() -> None:
    ring: HashRing[Member] = HashRing()
    one, two = Member("a"), Member("b")
    ring.add(one, ())
    assert ring.ranges(one) == [(1, KEY_SLOTS - 1)]
    ring.add(two, ())
    assert ring.ranges(one)[:3] == [(79, 403), (638, 1535), (2849, 3615)]
    assert ring.ranges(two)[:3] == [(1, 78), (404, 637), (1536, 2848)]
    split: SplitRanges[Member] = SplitRanges()
    split.add(one, ())
    assert split.ranges(one) == [(0, KEY_SLOTS)]
    split.add(two, ())
    assert (split.ranges(two), split.ranges(one)) == ([(0, 32768)], [(32769, KEY_SLOTS)])


@pytest.mark.parametrize("make", [lambda: HashRing[Member](3), SplitRanges[Member]])
@given(script=st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=25))
def test_only_hashes_in_the_ranges_move(
    make: Callable[[], Selector[Member]], script: list[tuple[bool, int]]
) -> None:
    """`ranges` and `owner` agree, and no other hash moves."""
    selector = make()
    there: list[Member] = []
    slots = [*range(1, KEY_SLOTS, 997), KEY_SLOTS - 1]
    before = {slot: selector.owner(slot) for slot in slots}
    assert set(before.values()) == {None}
    for come, number in script:
        if come or not there:
            member = Member(f"m{number}")
            there.append(member)
            selector.add(member, ())
            moved = selector.ranges(member)
        else:
            member = there.pop(number % len(there))
            moved = selector.ranges(member)
            selector.remove(member)
        after = {slot: selector.owner(slot) for slot in slots}
        for slot in slots:
            within = any(first <= slot <= last for first, last in moved)
            assert within or after[slot] is before[slot]
            if within:
                assert (after[slot] is member) == (member in there)
                assert (after[slot] is None) == (not there)
        before = after


def test_ranges_that_cannot_be_split_are_refused() -> None:
    split: SplitRanges[Member] = SplitRanges()
    split._ends = list(range(1, KEY_SLOTS + 1))
    split._consumers = [Member("x")] * KEY_SLOTS
    with pytest.raises(CannotAssign, match="No more range can assigned"):
        split.add(Member("y"), ())


def test_a_shared_point_belongs_to_the_first_consumer_until_it_leaves() -> None:
    ring: HashRing[Member] = HashRing(1)
    names = iter(range(100_000))
    first = Member("first")
    ring.add(first, ())
    point = ring._points[0]
    second = next(m for n in names if ring._points_of((m := Member(f"s{n}")).name, 0) == [point])
    ring.add(second, ())
    assert (ring.owner(5), ring.ranges(second)) == (first, [])
    ring.remove(first)
    assert (ring.owner(5), ring.ranges(second)) == (second, [(1, KEY_SLOTS - 1)])
