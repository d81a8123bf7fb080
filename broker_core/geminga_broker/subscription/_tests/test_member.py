"""One member's permits and its limit of unacknowledged messages (BR-32)."""

from __future__ import annotations

import pytest

from geminga_broker.subscription.state import Member


def blocked(limit: int = 10, permits: int = 100) -> Member:
    """A member that has as many unacknowledged messages as it may."""
    member = Member("m")
    member.set_limit(limit)
    member.grant(permits)
    member.take(1, limit)
    member.unacked = limit
    member.set_limit(limit)
    assert member.blocked
    return member


def test_permits_of_a_blocked_member_are_held_back() -> None:
    member = blocked()
    member.grant(7)
    assert (member.permits, member.held) == (90, 7)
    assert not member.ready


def test_permits_that_were_held_back_count_once() -> None:
    member = blocked()
    member.grant(7)
    member.unblock()
    assert (member.permits, member.held) == (97, 0)
    member.blocked = True
    member.unblock()
    assert member.permits == 97
    assert member.given == member.sent + member.permits + member.held


@pytest.mark.parametrize(("limit", "goes_on_at"), [(10, 5), (9, 4), (1, 0)])
def test_a_blocked_member_goes_on_at_half_of_its_limit(limit: int, goes_on_at: int) -> None:
    """Not before: it would be blocked again by the next message, and again freed by the next."""
    member = blocked(limit)
    while member.unacked - 1 > goes_on_at:
        assert not member.release(1)
        assert member.blocked
    assert member.release(1)
    assert member.ready
    assert member.unacked == goes_on_at
