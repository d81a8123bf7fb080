"""Ids of producers and consumers on a connection."""

from __future__ import annotations

import pytest

from geminga_broker.authz.needs import Place
from geminga_broker.session.registry import CLOSED_IDS_MAX, Opening, Registry


def begun(registry: Registry[str] | Registry[int], key: int) -> Opening:
    """An opening of which it is settled that the client may."""
    opening = registry.begin(key)
    assert opening is not None
    opening.place = Place()
    return opening


def test_life_of_an_id() -> None:
    registry: Registry[str] = Registry()
    assert not registry.was_closed(1)
    opening = begun(registry, 1)
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
    first = begun(registry, 1)
    assert registry.drop_opening(1)
    assert not registry.drop_opening(1)
    second = begun(registry, 1)
    assert not registry.finish(1, first, "late")
    registry.fail(1, first)
    assert registry.finish(1, second, "new")
    assert registry.get(1) == "new"


def test_an_unchecked_opening_does_not_finish() -> None:
    registry: Registry[str] = Registry()
    opening = registry.begin(1)
    assert opening is not None
    with pytest.raises(AssertionError, match="was not checked"):
        registry.finish(1, opening, "one")


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
        opening = begun(registry, key)
        registry.finish(key, opening, key)
        registry.forget(key)
    assert not registry.was_closed(0)
    assert registry.was_closed(1)
