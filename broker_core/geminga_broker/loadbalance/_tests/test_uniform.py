"""What is taken off the broker with the most messages, or the most bytes."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from geminga_broker.loadbalance._tests.samples import bundle, load_of, report, stats
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.uniform import UniformShedder

A, B, C = "a:1", "b:1", "c:1"
CONFIG = LoadBalanceConfig()


def names(load: LoadData, config: LoadBalanceConfig = CONFIG) -> list[int]:
    """Numbers of the bundles that are to go, in their order."""
    sheds = UniformShedder().find(load, config, 0)
    assert len(sheds) <= 1
    return [int(name.split("/0x")[1][:2], 16) for shed in sheds for name, _ in shed.bundles]


def test_a_fifth_of_the_difference_in_bundles_that_fit() -> None:
    load = load_of(
        {
            A: report({bundle("t/n", at): stats(rate) for at, rate in enumerate((9e4, 6e3, 5e3))}),
            B: report({bundle("t/m"): stats(1000)}),
        }
    )
    # (101 000 - 1000) / 5 = 20 000: the largest doesn't fit, the others do.
    assert names(load) == [1, 2]
    (shed,) = UniformShedder().find(load, CONFIG, 0)
    assert (shed.source, shed.wanted, shed.limit) == (A, inf, None)


def test_bundle_may_exceed_what_is_left_by_a_thousand() -> None:
    load = load_of(
        {
            A: report({bundle("t/n", at): stats(rate) for at, rate in enumerate((20_500, 30_000))}),
            B: report(),
        }
    )
    # 50 500 / 5 = 10 099 (nothing counts as 1): neither fits.
    assert names(load) == []
    more = replace(CONFIG, unload_share_max=0.4)
    assert names(load, more) == [0]  # 20 199, and 1000 more


@pytest.mark.parametrize(("least", "moves"), [(70_000, False), (67_000, False), (66_000, True)])
def test_difference_of_rates_must_be_large(least: float, moves: bool) -> None:
    load = load_of(
        {
            A: report({bundle("t/n", at): stats(1000) for at in range(100)}),
            B: report({bundle("t/m"): stats(least)}),
            C: report({bundle("t/o"): stats(90_000)}),
        }
    )
    assert bool(names(load)) is moves
    assert bool(names(load, replace(CONFIG, rate_difference_percent=40))) is (least < 100_000 / 1.4)
    assert not names(load, replace(CONFIG, rate_difference_percent=0))


def test_few_messages_are_left_alone() -> None:
    load = load_of({A: report({bundle("t/n", at): stats(100) for at in range(40)}), B: report()})
    assert names(load) == []
    assert names(load, replace(CONFIG, unload_messages_min=700))


def test_throughput_counts_if_rates_are_alike() -> None:
    load = load_of(
        {
            A: report({bundle("t/n", at): stats(10, 10) for at in range(10)}),
            B: report({bundle("t/m", at): stats(10, 1) for at in range(10)}),
        }
    )
    # (100 - 10) MB / 5 = 18 MB: one of 10 fits, the next one doesn't.
    assert names(load) == [0]
    assert names(load, replace(CONFIG, throughput_difference=10)) == []
    assert names(load, replace(CONFIG, throughput_difference=0)) == []
    assert names(load, replace(CONFIG, unload_bytes_min=20 << 20)) == []


def test_number_of_bundles_is_bounded() -> None:
    load = load_of({A: report({bundle("t/n", at): stats(1000) for at in range(100)}), B: report()})
    assert len(names(load)) == 20  # 99 999 / 5, and the last one within the thousand
    assert len(names(load, replace(CONFIG, unload_bundles_max=3))) == 3
    assert names(load, replace(CONFIG, unload_bundles_max=0)) == []


def test_sole_bundle_stays_and_nothing_of_nobody() -> None:
    load = load_of({A: report({bundle("t/n"): stats(1e6)}), B: report()})
    assert names(load, replace(CONFIG, unload_share_max=1)) == []
    assert names(LoadData()) == []


def test_bundles_without_messages_and_those_just_moved_stay() -> None:
    load = load_of(
        {A: report({bundle("t/n", at): stats(1000 * at) for at in range(9)}), B: report()}
    )
    load.moved(bundle("t/n", 6), A, B, 0, 0)
    found = names(load, replace(CONFIG, unload_share_max=1))
    assert 0 not in found
    assert 6 not in found


def test_moves_under_way_are_counted() -> None:
    load = load_of({A: report({bundle("t/n", at): stats(1000) for at in range(100)}), B: report()})
    for at in range(40):
        load.moved(bundle("t/n", at), A, B, 0, 0)
    # 60 000 and 40 000: no more than half above it.
    assert names(load) == []
