"""Bookies that fail get no new ledgers for a while (BK-25)."""

from __future__ import annotations

from geminga_bookie.client.health import (
    ANNOUNCED_S,
    FORGIVEN_S,
    SLOW_S,
    BookieHealth,
    HealthOptions,
)
from geminga_bookie.errors import (
    BookieReadOnly,
    BookieUnavailable,
    LedgerFenced,
    NoSuchEntry,
    RequestTimeout,
    TooManyRequests,
)

AWAY = BookieUnavailable("away")


def failed(health: BookieHealth, times: int, now: float) -> bool:
    return sum(health.failed("b", AWAY, now) for _ in range(times)) > 0


def test_the_sixth_error_within_a_minute() -> None:
    health = BookieHealth(HealthOptions(), lambda: 0.5)
    assert not failed(health, 5, 0.0)
    assert not failed(health, 5, 60.0), "another minute"
    assert not health.is_quarantined("b", 60.0)
    assert failed(health, 1, 119.0)
    assert health.quarantined(["a", "b"], 119.0) == {"b"}
    assert not failed(health, 50, 119.0), "it is known already"


def test_it_ends_at_another_time_for_each() -> None:
    for drawn, ends in ((0.0, 1800.0), (0.5, 1890.0), (1.0, 1980.0)):
        health = BookieHealth(HealthOptions(), lambda drawn=drawn: drawn)
        failed(health, 6, 0.0)
        assert health.is_quarantined("b", ends - 1)
        assert not health.is_quarantined("b", ends + 1)
        assert not failed(health, 5, ends + 1), "counting begins anew"


def test_a_share_of_the_clients() -> None:
    for drawn, avoided in ((0.2, True), (0.4, False)):
        health = BookieHealth(HealthOptions(ratio=0.3), lambda drawn=drawn: drawn)
        assert failed(health, 6, 0.0) == avoided
        assert health.is_quarantined("b", 1.0) == avoided


def test_answers_are_no_errors() -> None:
    health = BookieHealth(HealthOptions(errors_max=1), lambda: 0.0)
    for error in (NoSuchEntry(), LedgerFenced(), BookieReadOnly()):
        assert not sum(health.failed("b", error, 0.0) for _ in range(9))
        assert not health.is_slow("b", 0.0)
    assert not health.failed("b", TooManyRequests(), 0.0)
    assert health.failed("b", RequestTimeout(), 0.0)


def test_none_where_it_is_switched_off() -> None:
    health = BookieHealth(HealthOptions(enabled=False), lambda: 0.0)
    assert not failed(health, 100, 0.0)
    assert health.is_slow("b", 0.0)


def test_a_stop_that_was_announced_is_no_error() -> None:
    """The bookie deregisters a little before or after its connections end."""
    health = BookieHealth(HealthOptions(), lambda: 0.0)
    failed(health, 5, 0.0)
    health.left("b", 1.0)
    assert not failed(health, 5, 2.0)
    failed(health, 1, 2.0)
    assert health.is_quarantined("b", 2.0)
    health.left("b", 3.0)
    assert not health.is_quarantined("b", 3.0)
    failed(health, 6, 10.0)
    health.left("b", 10.0 + ANNOUNCED_S)
    assert health.is_quarantined("b", 11.0 + ANNOUNCED_S), "it failed long before it went"


def test_slow_for_a_while() -> None:
    health = BookieHealth(HealthOptions(), lambda: 0.0)
    health.slow("b", 5.0)
    assert health.is_slow("b", 4.0 + SLOW_S)
    assert not health.is_slow("b", 5.0 + SLOW_S)
    assert not health.is_slow("a", 5.0)


def test_errors_of_the_time_in_which_this_process_stood_still() -> None:
    health = BookieHealth(HealthOptions(), lambda: 0.0)
    assert failed(health, 6, 5.0)
    health.slow("a", 5.0)
    health.stood_still(4.0, 9.0)
    assert not health.is_quarantined("b", 9.0), "it failed meanwhile, as far as we know"
    assert not health.is_slow("a", 9.0)
    assert not failed(health, 50, 9.5), "what was under way is late now"
    assert not failed(health, 5, 9.0 + FORGIVEN_S), "counting begins anew"
    assert failed(health, 1, 9.0 + FORGIVEN_S)
    health.stood_still(12.0, 15.0)
    assert health.is_quarantined("b", 15.0), "it failed before"
    assert health.is_slow("b", 15.0)
