"""Racks, regions, groups, weights and quarantine decide who gets a ledger (BK-25)."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_bookie.client.api import DigestType, LedgerMetadata, LedgerState
from geminga_bookie.client.placement import change_ensemble, choose_ensemble
from geminga_bookie.client.placement_rules import (
    POLICY_KEY,
    Isolation,
    PlacementOptions,
    PlacementRules,
    isolation_of,
    isolation_policy,
)
from geminga_bookie.errors import NotEnoughBookies
from geminga_protocol._tests.cost import cpu_s

A = ["a1", "a2", "a3"]
B = ["b1", "b2"]
RACKS = {**dict.fromkeys(A, "/a"), **dict.fromkeys(B, "/b")}


def rules(
    options: PlacementOptions | None = None,
    racks: dict[str, str] | None = None,
    quarantined: tuple[str, ...] = (),
) -> PlacementRules:
    return PlacementRules(
        options or PlacementOptions(), RACKS if racks is None else racks, quarantined=quarantined
    )


def choose(
    known: PlacementRules, *sizes: int, ledger_id: int = 1, bookies: list[str] | None = None
) -> list[str]:
    return choose_ensemble(
        [*A, *B] if bookies is None else bookies,
        sizes[0],
        ledger_id,
        write_quorum=sizes[1],
        ack_quorum=sizes[2],
        rules=known,
    )


def change(known: PlacementRules, ensemble: list[str], failed: set[str], *sizes: int) -> list[str]:
    metadata = LedgerMetadata(
        1, *sizes, LedgerState.OPEN, -1, 0, DigestType.CRC32C, b"", {0: ensemble}, {}, 0
    )
    everybody = sorted({*known.racks, *A, *B})
    return list(change_ensemble(metadata, failed, -1, everybody, known).ensembles[0])


def spans(ensemble: list[str], write: int, racks: dict[str, str], count: int) -> bool:
    doubled = [racks[each] for each in ensemble * 2]
    return all(len(set(doubled[n : n + write])) >= count for n in range(len(ensemble)))


def test_too_few_regions_are_found_without_a_search() -> None:
    """Each new ledger asks again while a region is away, and the broker's loop waits meanwhile."""
    everybody = [*A, *B, *(f"c{n}" for n in range(85))]
    racks = {each: f"/region{n % 3}/rack{n % 18}" for n, each in enumerate(everybody)}
    options = PlacementOptions(
        by_rack=False, by_region=True, min_racks=5, regions=frozenset("abc"), min_regions=3
    )
    ensemble = everybody[:5]

    def ask() -> None:
        with pytest.raises(NotEnoughBookies):
            choose(rules(options, racks), 5, 5, 4, bookies=everybody)
        with pytest.raises(NotEnoughBookies):
            change(rules(options, racks), ensemble, set(ensemble), 5, 5, 4)

    assert cpu_s(ask, 0.1) < 0.1
    assert len(choose(rules(options, racks), 5, 5, 5, bookies=everybody)) == 5


def test_each_write_quorum_has_two_racks() -> None:
    for ledger_id in range(200):
        assert spans(choose(rules(), 4, 2, 2, ledger_id=ledger_id), 2, RACKS, 2)
        assert spans(choose(rules(), 3, 3, 2, ledger_id=ledger_id), 3, RACKS, 2)


def test_ledgers_are_spread_within_racks() -> None:
    found = Counter(each for n in range(900) for each in choose(rules(), 2, 2, 2, ledger_id=n))
    assert max(found[each] for each in A) < 1.3 * min(found[each] for each in A)
    assert max(found[each] for each in B) < 1.3 * min(found[each] for each in B)


def test_too_few_racks_loosen_the_rule_or_refuse() -> None:
    """Three write quorums of two bookies can't all have both racks."""
    assert len(set(choose(rules(), 3, 2, 2))) == 3
    enforced = rules(PlacementOptions(enforce_racks=True))
    with pytest.raises(NotEnoughBookies, match=r"2 racks in each write quorum.*a1 in /a"):
        choose(enforced, 3, 2, 2)
    with pytest.raises(NotEnoughBookies, match=r"needs 2 bookies.*2 are writable"):
        choose(enforced, 2, 2, 2, bookies=["a1", "a2"])
    off = rules(PlacementOptions(by_rack=False, min_racks=2, enforce_racks=True))
    assert choose(off, 2, 2, 2, bookies=["a1", "a2"])


def test_enforced_racks_leave_out_who_has_none() -> None:
    enforced = rules(PlacementOptions(enforce_racks=True))
    for ledger_id in range(20):
        found = choose(enforced, 2, 2, 2, ledger_id=ledger_id, bookies=["a1", "x", "b1"])
        assert set(found) == {"a1", "b1"}


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
def test_as_many_racks_as_there_can_be(
    sites: list[int], size: int, write: int, least: int, enforce: bool
) -> None:
    """Against all ensembles there are."""
    bookies = [f"n{n}" for n in range(len(sites))]
    racks = {each: f"/{site}" for each, site in zip(bookies, sites, strict=True)}
    write = min(write, size)
    known = rules(PlacementOptions(min_racks=least, enforce_racks=enforce), racks)
    wanted = min(write, least)
    possible = [list(each) for each in permutations(bookies, size)]
    reached = max(
        (count for each in possible for count in range(1, wanted + 1)
         if spans(each, write, racks, count)),
        default=0,
    )  # fmt: skip
    if not possible or (enforce and reached < wanted):
        with pytest.raises(NotEnoughBookies):
            choose(known, size, write, write, bookies=bookies)
        return
    found = choose(known, size, write, write, bookies=bookies)
    assert len(set(found)) == size
    assert spans(found, write, racks, reached)


def test_the_failed_bookies_rack_comes_first() -> None:
    assert set(change(rules(), ["a1", "b1"], {"a1"}, 2, 2, 2)) in ({"a2", "b1"}, {"a3", "b1"})
    assert change(rules(), ["a1", "b1"], {"b1"}, 2, 2, 2) == ["a1", "b2"]


def test_a_replacement_mends_what_one_rack_had() -> None:
    for ledger in (["a1", "a2"], ["a2", "a1"]):
        found = change(rules(), ledger, {"a1"}, 2, 2, 2)
        assert spans(found, 2, RACKS, 2)


def test_two_that_failed_are_replaced_together() -> None:
    """The first one alone would take the only bookie that suits the second."""
    racks = {"a1": "/a", "b1": "/b", "c1": "/c", "a2": "/a", "c2": "/c"}
    enforced = rules(PlacementOptions(min_racks=3, enforce_racks=True), racks)
    found = change(enforced, ["a1", "b1", "c1"], {"a1", "c1"}, 3, 3, 2)
    assert found == ["a2", "b1", "c2"]


def test_an_enforced_rule_replaces_those_it_can() -> None:
    racks = {"a1": "/a", "b1": "/b", "a2": "/a"}
    enforced = rules(PlacementOptions(enforce_racks=True), racks)
    assert change(enforced, ["a1", "b1"], {"a1", "b1"}, 2, 2, 2) == ["a2", "b1"]
    with pytest.raises(NotEnoughBookies, match="can replace b1 with 2 racks"):
        change(enforced, ["a1", "b1"], {"b1"}, 2, 2, 2)


def test_quarantine_is_the_last_choice() -> None:
    known = rules(racks={}, quarantined=("a1",))
    for ledger_id in range(20):
        assert "a1" not in choose(known, 4, 2, 2, ledger_id=ledger_id)
    assert "a1" in choose(known, 5, 2, 2)
    assert "b1" in change(rules(racks={}, quarantined=("a1",)), ["a2", "a3", "b2"], {"b2"}, 3, 3, 2)
    crowded = change(
        rules(racks={}, quarantined=("a1",)), ["a2", "a3", "b1"], {"b1", "b2"}, 3, 3, 2
    )
    assert crowded == ["a2", "a3", "a1"]


def test_racks_are_given_up_before_quarantine_is() -> None:
    """As in Apache's client, which asks for bookies without those first."""
    known = rules(quarantined=("b1", "b2"))
    assert set(choose(known, 2, 2, 2)) < set(A)


REGIONS = {
    "e1": "/east/1",
    "e2": "/east/2",
    "e3": "/east/2",
    "w1": "/west/1",
    "w2": "/west/1",
    "n1": "/north/1",
}


def regional(options: PlacementOptions | None = None) -> PlacementRules:
    return rules(options or PlacementOptions(by_region=True), dict(REGIONS))


def in_two_regions(enforce: bool = True) -> PlacementRules:
    return regional(
        PlacementOptions(
            by_region=True,
            regions=frozenset({"east", "west"}),
            enforce_regions_in_replace=enforce,
        )
    )


def test_regions_have_equal_shares() -> None:
    for ledger_id in range(50):
        found = choose(regional(), 3, 3, 2, ledger_id=ledger_id, bookies=sorted(REGIONS))
        assert len({REGIONS[each].split("/")[1] for each in found}) == 3
        two = ["e1", "e2", "e3", "w1", "w2"]
        found = choose(regional(), 4, 4, 3, ledger_id=ledger_id, bookies=two)
        assert Counter(each[0] for each in found) == {"e": 2, "w": 2}
        assert "e1" in found, "racks count within a region"


def test_an_ack_quorum_is_in_two_regions() -> None:
    known = in_two_regions()
    found = choose(known, 3, 3, 2, bookies=sorted(REGIONS))
    assert len({REGIONS[each].split("/")[1] for each in found}) == 3
    with pytest.raises(NotEnoughBookies, match="2 regions in each ack quorum of 2"):
        choose(known, 3, 3, 2, bookies=["e1", "e2", "w1", "w2"])
    assert choose(known, 3, 3, 3, bookies=["e1", "e2", "w1", "w2"])


@pytest.mark.parametrize("enforce", [True, False])
def test_regions_of_a_replacement(enforce: bool) -> None:
    known = in_two_regions(enforce)
    assert change(known, ["e1", "w1"], {"w1"}, 2, 2, 2) == ["e1", "w2"]
    if enforce:
        with pytest.raises(NotEnoughBookies, match="2 regions"):
            change(known, ["e1", "w1"], {"w1", "w2", "n1", *A, *B}, 2, 2, 2)
    else:
        found = change(known, ["e1", "w1"], {"w1", "w2", "n1", *A, *B}, 2, 2, 2)
        assert found[0] == "e1"
        assert found[1] in ("e2", "e3")


def test_a_replacement_leaves_no_region_an_ack_quorum() -> None:
    """Though a bookie of the region of the one that is away is preferred."""
    known, others = in_two_regions(), {*A, *B}
    assert change(known, ["e1", "w1", "e2"], {"e2", *others}, 3, 3, 2) == ["e1", "w1", "n1"]
    assert change(known, ["e1", "w1", "n1"], {"w1", *others}, 3, 3, 2) == ["e1", "w2", "n1"]


def grouped(primary: str, secondary: str = "") -> PlacementRules:
    groups = {"red": frozenset(A), "blue": frozenset({"b1"}), "grey": frozenset({"x"})}
    options = PlacementOptions(isolation=Isolation.of(primary, secondary))
    return PlacementRules(options, {}, groups)


@pytest.mark.parametrize(
    ("known", "size", "usable"),
    [
        (grouped("red"), 3, A),
        (grouped("blue"), 1, ["b1"]),
        (grouped("blue", "red"), 2, [*A, "b1"]),
        (grouped("blue", "red"), 5, [*A, "b1", "b2"]),
        (grouped("blue"), 2, ["b1", "b2"]),
        (grouped("*"), 3, [*A, *B, "x"]),
        (grouped(""), 3, [*A, *B, "x"]),
        (grouped("red, blue"), 4, [*A, "b1"]),
        (PlacementRules(PlacementOptions(isolation=Isolation.of("red", ""))), 1, [*A, *B, "x"]),
    ],
)
def test_isolation_groups(known: PlacementRules, size: int, usable: list[str]) -> None:
    assert known.usable([*A, *B, "x"], size, {}) == sorted(usable)


def test_a_ledgers_own_groups() -> None:
    own = {POLICY_KEY: isolation_policy("blue", "grey")}
    assert isolation_of(own) == Isolation(frozenset({"blue"}), frozenset({"grey"}))
    known = grouped("red")
    assert known.usable([*A, *B, "x"], 2, own) == ["b1", "x"]
    found = choose_ensemble([*A, *B, "x"], 2, 1, custom_metadata=own, rules=known)
    assert set(found) == {"b1", "x"}
    for odd in (b"", b"[]", b"{}", b'{"policyClass": 1, "properties": 1}', b"\xff"):
        assert isolation_of({POLICY_KEY: odd}) in (None, Isolation())


def test_a_replacement_keeps_to_the_groups() -> None:
    known = grouped("red")
    metadata = LedgerMetadata(
        1, 2, 2, 2, LedgerState.OPEN, -1, 0, DigestType.CRC32C, b"", {0: ("a1", "a2")}, {}, 0
    )
    changed = change_ensemble(metadata, {"a1"}, -1, [*A, *B, "x"], known)
    assert changed.ensembles[0] == ("a3", "a2")


def test_more_space_more_ledgers() -> None:
    space = {"a1": 1 << 40, "a2": 1 << 40, "a3": 3 << 40, "b1": 1 << 50}
    known = PlacementRules(PlacementOptions(by_weight=True), {}, {}, space)
    found = Counter(choose(known, 1, 1, 1, ledger_id=n)[0] for n in range(2000))
    assert set(found) == {*A, *B}, "one whose space is not known counts as the least"
    assert 2 < found["a3"] / found["a1"] < 4
    assert 2 < found["b1"] / found["a1"] < 4, "three times the median at most"
    assert 0.7 < found["b2"] / found["a1"] < 1.4
