"""Decisions on a ledger's metadata."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from geminga_bookie.autorecovery.copying import batches
from geminga_bookie.autorecovery.fragments import (
    Fragment,
    Lack,
    choose_target,
    closed_fragments,
    holders,
    needs_recovery,
    share,
    with_targets,
)
from geminga_bookie.client.api import DigestType, LedgerMetadata, LedgerState
from geminga_bookie.client.placement import write_set
from geminga_bookie.client.placement_rules import POLICY_KEY, PlacementRules, isolation_policy


def ledger(
    state: LedgerState, last: int, *ensembles: tuple[int, str], write: int = 2
) -> LedgerMetadata:
    """A ledger whose bookies are letters."""
    fragments = {first: tuple(bookies) for first, bookies in ensembles}
    size = len(ensembles[0][1])
    return LedgerMetadata(
        1, size, write, 2, state, last, 0, DigestType.CRC32C, b"", fragments, {}, 0
    )


CLOSED, OPEN = LedgerState.CLOSED, LedgerState.OPEN


def test_a_fragment_without_entries_needs_nobody() -> None:
    metadata = ledger(CLOSED, 9, (0, "abc"), (5, "abd"), (10, "abe"))
    assert closed_fragments(metadata) == [
        Fragment(0, 5, ("a", "b", "c")),
        Fragment(5, 10, ("a", "b", "d")),
    ]
    assert holders(metadata) == {*"abcd"}
    assert closed_fragments(ledger(CLOSED, -1, (0, "abc"))) == []


def test_the_last_fragment_of_an_open_ledger_is_its_writers() -> None:
    metadata = ledger(OPEN, -1, (0, "abc"), (5, "abd"))
    assert closed_fragments(metadata) == [Fragment(0, 5, ("a", "b", "c"))]
    assert holders(metadata) == {*"abcd"}
    assert needs_recovery(metadata, {"a", "b", "c"})
    assert not needs_recovery(metadata, {"a", "b", "d"})
    assert not needs_recovery(replace(metadata, state=CLOSED, last_entry_id=7), set())


def test_a_bookie_without_an_entry_of_its_own_is_not_needed() -> None:
    assert holders(ledger(CLOSED, 0, (0, "abcd"))) == {"a", "b"}


def test_other_metadata_than_those_copied_for_are_left() -> None:
    before = ledger(CLOSED, 9, (0, "abc"), (5, "abd"))
    fragment = closed_fragments(before)[0]
    after = with_targets(before, fragment, {1: "x"})
    assert after is not None
    assert after.ensembles == {0: ("a", "x", "c"), 5: ("a", "b", "d")}
    assert with_targets(after, fragment, {2: "y"}) is None, "a place was replaced by another"
    longer = replace(before, ensembles={0: ("a", "b", "c"), 6: ("a", "b", "d")})
    assert with_targets(longer, fragment, {1: "x"}) is None, "it has other entries"
    assert with_targets(before, fragment, {1: "c"}) is None, "twice the same bookie"
    opened = ledger(OPEN, -1, (0, "abc"))
    assert with_targets(opened, Fragment(0, 5, ("a", "b", "c")), {1: "x"}) is None


def test_each_attempt_takes_another_target() -> None:
    metadata = ledger(CLOSED, 4, (0, "abc"), write=3)
    lack = Lack(closed_fragments(metadata)[0], 1, None)
    rules = PlacementRules()
    tried = [choose_target(metadata, lack, {0: "e"}, [*"adef"], rules, turn) for turn in range(3)]
    assert tried == ["f", "d", "f"]
    assert choose_target(metadata, lack, {0: "e"}, ["a", "e"], rules, 0) is None


def test_a_target_obeys_the_ledgers_group() -> None:
    """The bookies that a namespace was given keep its ledgers."""
    owner = {POLICY_KEY: isolation_policy("mine", "")}
    metadata = replace(ledger(CLOSED, 4, (0, "abc"), write=3), custom_metadata=owner)
    lack = Lack(closed_fragments(metadata)[0], 1, None)
    rules = PlacementRules(groups={"mine": frozenset("abcf"), "other": frozenset("de")})
    assert [choose_target(metadata, lack, {}, [*"def"], rules, turn) for turn in range(3)] == [
        "f"
    ] * 3


@given(st.integers(1, 5), st.data(), st.integers(0, 30), st.integers(0, 30), st.integers(1, 7))
def test_shares_are_the_write_sets(
    size: int, data: st.DataObject, first: int, count: int, most: int
) -> None:
    write = data.draw(st.integers(1, size))
    metadata = ledger(CLOSED, first + count - 1, (0, "abcde"[:size]), write=write)
    fragment = Fragment(first, first + count, metadata.ensembles[0])
    for place in range(size):
        wanted = [
            entry_id
            for entry_id in range(first, first + count)
            if place in write_set(entry_id, size, write)
        ]
        runs = list(share(metadata, fragment, place)) if count else []
        assert [each for begin, end in runs for each in range(begin, end)] == wanted
        cut = list(batches(runs, most))
        assert [each for begin, end in cut for each in range(begin, end)] == wanted
        assert all(0 < end - begin <= most for begin, end in cut)
