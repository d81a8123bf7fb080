"""Ids of producers and consumers on a connection."""

from __future__ import annotations

from geminga_broker.session.registry import CLOSED_IDS_MAX, Registry


def test_life_of_an_id() -> None:
    registry: Registry[str] = Registry()
    assert not registry.was_closed(1)
    opening = registry.begin(1)
    assert opening is not None
    assert registry.begin(1) is None
    assert registry.was_closed(1)
    assert registry.finish(1, opening, "one")
    assert registry.begin(1) is None
    assert registry.get(1) == "one"
    assert list(registry) == ["one"]
    assert registry.forget(1) == "one"
    assert registry.forget(1) is None
    assert registry.was_closed(1)
    assert registry.begin(1) is not None


def test_an_opening_that_was_dropped_does_not_finish() -> None:
    registry: Registry[str] = Registry()
    first = registry.begin(1)
    assert first is not None
    assert registry.drop_opening(1)
    assert not registry.drop_opening(1)
    second = registry.begin(1)
    assert second is not None
    assert not registry.finish(1, first, "late")
    registry.fail(1, first)
    assert registry.finish(1, second, "new")
    assert registry.get(1) == "new"


def test_a_failed_opening_frees_the_id() -> None:
    registry: Registry[str] = Registry()
    opening = registry.begin(1)
    assert opening is not None
    registry.fail(1, opening)
    assert len(registry) == 0
    assert not registry.was_closed(1)


def test_closed_ids_are_bounded() -> None:
    registry: Registry[int] = Registry()
    for key in range(CLOSED_IDS_MAX + 1):
        opening = registry.begin(key)
        assert opening is not None
        registry.finish(key, opening, key)
        registry.forget(key)
    assert not registry.was_closed(0)
    assert registry.was_closed(1)
