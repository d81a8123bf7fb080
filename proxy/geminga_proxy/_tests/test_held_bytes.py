"""The bounds on what clients' requests hold (spec PX-07)."""

from __future__ import annotations

import pytest

from geminga_proxy import trust
from geminga_proxy.addresses import Address
from geminga_proxy.bounds import SMALL_BYTES, HeldBytes, RequestBudget, Unfinished
from geminga_proxy.trust import Targets

LARGE = SMALL_BYTES + 1


def test_bytes_are_taken_up_to_the_bound_and_given_back() -> None:
    held = HeldBytes(100)
    assert held.take(60)
    assert not held.take(41)
    assert held.bytes == 60, "what was refused isn't counted"
    assert held.take(40)
    held.give(60)
    assert held.bytes == 40
    assert held.take(60)


def test_an_unfinished_frame_counts_as_long_as_it_is_large() -> None:
    held = HeldBytes(2 * LARGE)
    one, two, three = (Unfinished(held) for _ in range(3))
    assert one.becomes(SMALL_BYTES, 1.0)
    assert (held.bytes, one.since_s) == (0, None)
    assert one.becomes(LARGE, 2.0)
    assert two.becomes(LARGE, 3.0)
    assert not three.becomes(LARGE, 4.0)
    assert one.becomes(LARGE, 5.0)
    assert (held.bytes, one.since_s) == (2 * LARGE, 2.0)
    assert one.becomes(0, 6.0)
    assert (held.bytes, one.since_s) == (LARGE, None)
    assert three.becomes(LARGE, 7.0)
    for each in (two, three):
        each.becomes(0, 8.0)
    assert held.bytes == 0


def test_requests_are_bounded_by_number_and_bytes() -> None:
    budget = RequestBudget(2, HeldBytes(100))
    assert budget.take("lookup", 0)
    assert not budget.take("schema", 101)
    assert (budget.waiting, budget.is_full) == (1, False)
    assert budget.take("schema", 100)
    assert budget.is_full
    budget.give(100)
    assert (budget.waiting, budget.held.bytes) == (1, 0)
    assert budget.passed_on == {"lookup": 1, "schema": 1}


def test_the_brokers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was named longest ago is forgotten."""
    monkeypatch.setattr(trust, "LEARNED_MAX", 2)
    targets = Targets([], "", "", "")
    a, b, c = (Address(name, 6650) for name in "abc")
    for address in (a, b, a, c):
        targets.learn(address)
    assert [targets.allows(each) for each in (a, b, c)] == [True, False, True]
