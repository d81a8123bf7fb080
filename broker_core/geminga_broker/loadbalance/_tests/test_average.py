"""Brokers in pairs: the most used one sheds to the least used one."""

from __future__ import annotations

import random
from dataclasses import replace

from geminga_broker.loadbalance._tests.samples import bundle, load_of, report, stats
from geminga_broker.loadbalance.average import AverageShedder
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.reports import LocalBrokerData
from geminga_broker.loadbalance.settings import LoadBalanceConfig

CONFIG = LoadBalanceConfig()
A, B, C, D = "a:1", "b:1", "c:1", "d:1"


def broker(cpu: float, rate: float, mb: float = 0, bundles: int = 20) -> LocalBrokerData:
    return report(
        {bundle(f"t/{int(cpu)}", at): stats(rate / bundles, mb / bundles) for at in range(bundles)},
        cpu=cpu,
    )


def shedder() -> AverageShedder:
    return AverageShedder(random.Random(1))


def rounds(
    strategy: AverageShedder, load: LoadData, count: int, config: LoadBalanceConfig = CONFIG
) -> list[list[tuple[str, str | None, int]]]:
    return [
        [
            (shed.source, shed.destination, len(shed.bundles))
            for shed in strategy.find(load, config, 0)
        ]
        for _ in range(count)
    ]


def test_large_difference_sheds_in_the_second_round() -> None:
    load = load_of({A: broker(90, 1e5), B: broker(40, 1e4)})
    # (100 000 - 10 000) / 5 = 18 000 in bundles of 5000.
    assert rounds(shedder(), load, 4) == [[], [(A, B, 3)], [], [(A, B, 3)]]


def test_small_difference_sheds_in_the_eighth_round() -> None:
    load = load_of({A: broker(60, 1e5), B: broker(40, 1e4)})
    found = rounds(shedder(), load, 16)
    assert [at + 1 for at, each in enumerate(found) if each] == [8, 16]


def test_difference_below_both_thresholds_never_sheds() -> None:
    load = load_of({A: broker(54, 1e5), B: broker(40, 1e4)})
    assert not any(rounds(shedder(), load, 20))


def test_difference_that_vanishes_is_counted_anew() -> None:
    strategy = shedder()
    load = load_of({A: broker(90, 1e5), B: broker(40, 1e4)})
    assert rounds(strategy, load, 1) == [[]]
    load.report(A, broker(45, 1e5), 1)
    assert rounds(strategy, load, 1) == [[]]
    load.report(A, broker(90, 1e5), 2)
    assert rounds(strategy, load, 2) == [[], [(A, B, 3)]]


def test_pairs_from_both_ends() -> None:
    load = load_of({A: broker(90, 1e5), B: broker(80, 9e4), C: broker(10, 0), D: broker(20, 1e4)})
    assert rounds(shedder(), load, 2)[1] == [(A, C, 4), (B, D, 3)]
    three = load_of({A: broker(90, 1e5), B: broker(50, 9e4), C: broker(10, 0)})
    assert rounds(shedder(), three, 2)[1] == [(A, C, 4)]


def test_bytes_count_if_messages_are_few() -> None:
    load = load_of({A: broker(90, 1000, mb=100), B: broker(40, 0)})
    assert rounds(shedder(), load, 2)[1] == [(A, B, 4)]
    more = replace(CONFIG, unload_bytes_min=30 << 20)
    assert rounds(shedder(), load, 2, more)[1] == []


def test_sole_bundle_stays() -> None:
    load = load_of({A: broker(90, 1e5, bundles=1), B: broker(40, 0)})
    assert not any(rounds(shedder(), load, 4, replace(CONFIG, unload_share_max=1)))


def test_placement_follows_the_shedding() -> None:
    strategy = shedder()
    load = load_of({A: broker(90, 1e5), B: broker(40, 1e4), C: broker(50, 1e4)})
    strategy.find(load, CONFIG, 0)
    (shed,) = strategy.find(load, CONFIG, 0)
    going = shed.bundles[0][0]
    assert {strategy.select([A, B, C], going, load, CONFIG) for _ in range(20)} == {B}
    assert strategy.select([A], going, load, CONFIG) == A  # B went
    other = {strategy.select([A, B, C], bundle("t/x"), load, CONFIG) for _ in range(50)}
    assert other == {A, B, C}
    assert strategy.select([], going, load, CONFIG) is None


def test_counts_of_a_broker_that_went_are_forgotten() -> None:
    strategy = shedder()
    load = load_of({A: broker(90, 1e5), B: broker(40, 1e4)})
    strategy.find(load, CONFIG, 0)
    strategy.brokers_changed(set())
    assert rounds(strategy, load, 1) == [[]]
    assert rounds(strategy, load, 1) == [[(A, B, 3)]]
