"""Which bundles are split."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_broker.loadbalance._tests.samples import bundle, load_of, report, stats
from geminga_broker.loadbalance.model import BundleData, NamespaceBundleStats
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.splitting import (
    find_splits,
    hottest,
    is_too_large,
    largest,
    still_too_large,
)

A, B = "a:1", "b:1"
CONFIG = LoadBalanceConfig()
X = bundle("t/n", 0)


def averaged(sample: NamespaceBundleStats) -> BundleData:
    data = BundleData()
    data.update(sample)
    return data


@pytest.mark.parametrize(
    ("sample", "large"),
    [
        (stats(topics=1000), False),
        (stats(topics=1001), True),
        (stats(sessions=1000), False),
        (stats(sessions=1001), True),
        (stats(30_000), False),
        (stats(30_001), True),
        (stats(0, 100), False),
        (stats(0, 101), True),
        (stats(1e9, 1e9, topics=1, sessions=10**6), False),
        (stats(1e9, 1e9, topics=0, sessions=10**6), False),
    ],
)
def test_limits(sample: NamespaceBundleStats, large: bool) -> None:
    assert is_too_large(sample, averaged(sample), CONFIG) is large
    load = load_of({A: report({X: sample}), B: report()})
    assert find_splits(load, CONFIG, lambda _: 4) == ({X: A} if large else {})


def test_rates_count_on_long_average() -> None:
    peak = stats(1e6)
    assert not is_too_large(peak, averaged(stats(10)), CONFIG)
    assert is_too_large(stats(10), averaged(peak), CONFIG)
    assert not is_too_large(peak, None, CONFIG)


def test_limits_are_configured() -> None:
    many = stats(sessions=10**6)
    assert not is_too_large(many, averaged(many), replace(CONFIG, bundle_sessions_max=0))
    assert is_too_large(stats(topics=5), None, replace(CONFIG, bundle_topics_max=4))
    heavy = averaged(stats(11, 3))
    assert is_too_large(stats(), heavy, replace(CONFIG, bundle_rate_max=10))
    assert is_too_large(stats(), heavy, replace(CONFIG, bundle_mb_max=2))


def test_number_of_bundles_of_a_namespace_is_bounded() -> None:
    large = {bundle(name, at): stats(topics=2000) for name in ("t/n", "t/m") for at in range(3)}
    load = load_of({A: report(large), B: report()})
    counts = {"t/n": 126, "t/m": 128}
    found = find_splits(load, CONFIG, counts.__getitem__)
    assert list(found) == [bundle("t/n", 0), bundle("t/n", 1)]


def test_only_the_brokers_that_reported() -> None:
    load = load_of(
        {A: report({X: stats(topics=2000)}), B: report({bundle("t/m"): stats(topics=2000)})}
    )
    assert find_splits(load, CONFIG, lambda _: 1) == {X: A, bundle("t/m"): B}
    assert find_splits(load, CONFIG, lambda _: 1, [B, "gone:1"]) == {bundle("t/m"): B}


def test_none_with_one_broker_and_none_while_it_is_off() -> None:
    large = report({X: stats(topics=2000)})
    assert find_splits(load_of({A: large}), CONFIG, lambda _: 1) == {}
    load = load_of({A: large, B: report()})
    assert find_splits(load, replace(CONFIG, split=False), lambda _: 1) == {}
    assert find_splits(load, replace(CONFIG, enabled=False), lambda _: 1) == {}


def test_bundle_that_was_split_is_not_found_again() -> None:
    load = load_of({A: report({X: stats(topics=2000)}), B: report()})
    load.forget_bundle(X)
    assert find_splits(load, CONFIG, lambda _: 1) == {}


def test_largest_and_hottest() -> None:
    assert largest({}) is None
    assert largest({"a": 0, "b": 0}) is None
    assert largest({"a": 1, "b": 3, "c": 3}) == "b"
    assert hottest({}) is None
    idle = BundleData()
    assert hottest({"a": idle}) is None
    data = {"a": averaged(stats(9, 1)), "b": averaged(stats(1, 2)), "c": idle}
    assert hottest(data) == "b"


def test_bundles_that_were_found_are_looked_at_again() -> None:
    """Only those, wherever they are by then, and within the limit of their namespace."""
    large = stats(topics=1001)
    names = [bundle("t/n", at) for at in range(4)]
    load = load_of({A: report({names[0]: large, names[1]: large}), B: report({names[2]: large})})
    found = find_splits(load, CONFIG, lambda _: 4)
    assert found == {names[0]: A, names[1]: A, names[2]: B}
    load.report(A, report({names[1]: stats(topics=7)}), 60)
    load.report(B, report({names[0]: large, names[2]: large, names[3]: large}), 60)
    assert still_too_large(load, CONFIG, lambda _: 4, found) == {names[0]: B, names[2]: B}
    room_for_one = still_too_large(load, CONFIG, lambda _: 127, found)
    assert room_for_one == {names[0]: B}
