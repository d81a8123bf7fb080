"""Rounds of moves: from whom, which bundles, to whom."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from geminga_broker.loadbalance._tests.samples import bundle, load_of, report, stats
from geminga_broker.loadbalance.candidates import Rules
from geminga_broker.loadbalance.isolation import IsolationPolicies, NamespaceIsolationData
from geminga_broker.loadbalance.placement import ModularPlacement
from geminga_broker.loadbalance.reports import LocalBrokerData
from geminga_broker.loadbalance.settings import (
    AVERAGE_SHEDDER,
    OVERLOAD_SHEDDER,
    THRESHOLD_SHEDDER,
    UNIFORM_SHEDDER,
    LoadBalanceConfig,
)
from geminga_broker.loadbalance.shedding import BROKERS_LOOKED_AT_MAX, Move, Shedding

A, B, C = "a:1", "b:1", "c:1"
OVERLOAD = LoadBalanceConfig(shedding_strategy=OVERLOAD_SHEDDER)
THRESHOLD = LoadBalanceConfig()


def shedding(
    reports: dict[str, LocalBrokerData],
    rules: Rules | None = None,
    config: LoadBalanceConfig = OVERLOAD,
) -> Shedding:
    return Shedding(ModularPlacement(load_of(reports), config, rules, random.Random(5)))


def plan(planned: Shedding, active: tuple[str, ...] = (A, B, C), now_s: float = 0) -> list[Move]:
    return planned.plan(active, now_s, 10**12)


def broker(
    name: str, cpu: float, shares: tuple[float, ...] = (1.0,), *, topics: int = 2
) -> LocalBrokerData:
    """A broker with bundles in namespaces of their own; 100 MB in these shares, as its use."""
    whole = sum(shares)
    return report(
        {
            bundle(f"{name}/{at}"): stats(1000 * share, 100 * share / whole, topics=topics)
            for at, share in enumerate(shares)
        },
        cpu=cpu,
    )


def of(name: str, at: int) -> str:
    return bundle(f"{name}/{at}")


def test_biggest_bundles_until_enough_is_gone() -> None:
    planned = shedding(
        {A: broker("a", 100, (10, 40, 20, 30)), B: broker("b", 10, (0.5,)), C: broker("c", 20)}
    )
    # 20% are to go: the biggest has 40.
    assert plan(planned) == [Move(of("a", 1), A, B)]


def test_destinations_are_used_in_turn() -> None:
    planned = shedding({A: broker("a", 100, (5,) * 20), B: broker("b", 10), C: broker("c", 10)})
    moves = plan(planned)
    assert [move.source for move in moves] == [A] * 4
    assert sorted(move.destination for move in moves) == [B, B, C, C]


def test_none_with_one_broker_and_none_while_it_is_off() -> None:
    reports = {A: broker("a", 100, (50, 50)), B: broker("b", 10)}
    assert plan(shedding(reports), (A, B))
    assert not plan(shedding(reports), (A,))
    assert not plan(shedding(reports, config=replace(OVERLOAD, shedding=False)), (A, B))
    assert not plan(shedding(reports, config=replace(OVERLOAD, enabled=False)), (A, B))


def test_never_the_only_bundle() -> None:
    assert not plan(shedding({A: broker("a", 100), B: broker("b", 10), C: broker("c", 10)}))
    # More than one of the two would have to go, and there is room for both: one stays.
    planned = shedding(
        {A: broker("a", 99, (1, 1)), B: broker("b", 1), C: broker("c", 1)},
        config=replace(OVERLOAD, overloaded_percent=52),
    )
    assert len(plan(planned)) == 1


def test_bundle_that_was_moved_is_left_alone_for_the_grace_period() -> None:
    here = broker("a", 100, (40, 35, 25))
    planned = shedding({A: here, B: broker("b", 10), C: broker("c", 10, (0.5,))})
    assert plan(planned) == [Move(of("a", 0), A, C)]
    load = planned._placement.load
    load.report(C, broker("c", 50), 60)
    load.report(A, here, 60)  # it came back, and overloads again
    assert [move.bundle for move in plan(planned, now_s=61)] == [of("a", 1)]
    load.report(A, here, 1700)
    assert [move.bundle for move in plan(planned, now_s=1700)] == [of("a", 2)]
    load.report(A, here, 1801)
    assert [move.bundle for move in plan(planned, now_s=1801)] == [of("a", 0)]


def test_failed_move_may_be_tried_again() -> None:
    planned = shedding({A: broker("a", 100, (40, 35, 25)), B: broker("b", 10), C: broker("c", 20)})
    (move,) = plan(planned)
    assert not plan(planned, now_s=1)
    planned.failed(move)
    assert plan(planned, now_s=2) == [move]


def test_hot_bundle_is_not_moved_the_others_are() -> None:
    """It would overload any broker: Apache's would move it on, each grace period."""
    planned = shedding(
        {
            A: broker("a", 100, (90, 2, 2, 2, 2, 2), topics=1),
            B: broker("b", 10),
            C: broker("c", 10),
        }
    )
    moves = plan(planned)
    assert [move.bundle for move in moves] == [of("a", at) for at in range(1, 6)]
    alone = shedding({A: broker("a", 100, (95, 5)), B: broker("b", 84), C: broker("c", 84)})
    assert not plan(alone)


def test_destination_would_be_overloaded_itself() -> None:
    planned = shedding({A: broker("a", 100, (40, 60)), B: broker("b", 50), C: broker("c", 44)})
    assert plan(planned) == [Move(of("a", 0), A, C)]  # 84; the larger one would make 104
    full = shedding({A: broker("a", 90, (30, 60)), B: broker("b", 80), C: broker("c", 80)})
    assert not plan(full)


def test_lesser_evil_if_nothing_fits() -> None:
    config = replace(THRESHOLD, unload_mb_min=1)
    planned = shedding(
        {A: broker("a", 95, (48, 47)), B: broker("b", 10), C: broker("c", 10)}, config=config
    )
    # The limit is 48.3: 57 is beyond it, but better than 95.
    (move,) = plan(planned)
    assert (move.bundle, move.source) == (of("a", 1), A)
    hot = shedding(
        {A: broker("a", 95, (60, 35)), B: broker("b", 30), C: broker("c", 30)}, config=config
    )
    # 61.7: 65 is beyond, and the hot one would only change places.
    assert [move.bundle for move in plan(hot)] == [of("a", 1)]


def test_policies_are_respected() -> None:
    rules = Rules(
        IsolationPolicies({"p": NamespaceIsolationData(namespaces=["a/0"], primary=["a", "c"])})
    )
    reports = {A: broker("a", 100, (60, 20, 20)), B: broker("b", 10), C: broker("c", 20)}
    assert plan(shedding(reports, rules)) == [Move(of("a", 0), A, C)]
    only = Rules(
        IsolationPolicies({"p": NamespaceIsolationData(namespaces=["a/0"], primary=["a"])})
    )
    # It may be nowhere else; the others may be anywhere but on its broker.
    assert plan(shedding(reports, only))[0].bundle == of("a", 1)


def test_anti_affinity_is_respected() -> None:
    groups = {"a/0": "g", "b/0": "g", "c/0": "g"}
    reports = {A: broker("a", 100, (60, 40)), B: broker("b", 10), C: broker("c", 20)}
    assert [move.bundle for move in plan(shedding(reports, Rules(groups=groups)))] == [of("a", 1)]
    groups.pop("c/0")
    assert plan(shedding(reports, Rules(groups=groups))) == [Move(of("a", 0), A, C)]


def test_chosen_destination_is_remembered_for_lookups() -> None:
    planned = shedding({A: broker("a", 100, (40, 60)), B: broker("b", 50), C: broker("c", 44)})
    (move,) = plan(planned)
    load = planned._placement.load
    assert load.preallocations == {move.bundle: move.destination}
    assert planned._placement.choose(move.bundle, (A, B, C), 1) == C


def test_even_spread_yields_to_load() -> None:
    """The broker with the fewest bundles of the namespace has no room: another one gets it."""
    here = {bundle("t/n", at): stats(1000, 25) for at in range(4)}
    elsewhere = {bundle("t/n", at): stats(1, 0.1) for at in range(10, 15)}
    planned = shedding(
        {
            A: report(here, cpu=100),
            B: report({bundle("t/n", 20): stats(1, 0.1)}, cpu=80),
            C: report(elsewhere, cpu=5),
        }
    )
    assert [move.destination for move in plan(planned)] == [C]


def test_uniform_and_average() -> None:
    reports = {
        A: broker("a", 90, (20, 20, 20, 20, 20)),
        B: broker("b", 10, (0.1,)),
        C: broker("c", 50, (50,)),
    }
    uniform = replace(OVERLOAD, shedding_strategy=UNIFORM_SHEDDER)
    assert plan(shedding(reports, config=uniform)) == [Move(of("a", 0), A, B)]
    average = replace(
        OVERLOAD, shedding_strategy=AVERAGE_SHEDDER, placement_strategy=AVERAGE_SHEDDER
    )
    planned = shedding(reports, config=replace(average, unload_share_max=0.45))
    assert not plan(planned)
    assert plan(planned) == [Move(of("a", 0), A, B), Move(of("a", 1), A, B)]


def test_strategy_is_dynamic() -> None:
    reports = {A: broker("a", 70, (40, 60)), B: broker("b", 10), C: broker("c", 10)}
    planned = shedding(reports)
    assert not plan(planned)
    planned._placement.reconfigure(replace(THRESHOLD, unload_mb_min=1))
    assert plan(planned)


def test_brokers_without_reports_and_those_that_went_do_no_harm() -> None:
    planned = shedding({A: broker("a", 100, (40, 60)), B: broker("b", 10), C: broker("c", 10)})
    assert {move.destination for move in plan(planned, (A, B, "new:1"))} == {B}
    planned.brokers_changed([B, C])
    assert not plan(shedding({A: broker("a", 100, (40, 60)), B: broker("b", 1)}), (B, "new:1"))


def test_round_is_bounded() -> None:
    brokers = tuple(f"m{at}:1" for at in range(200))
    reports = {name: broker(name, 10) for name in brokers}
    reports[A] = report({bundle(f"t/{at}"): stats(1, 0.01) for at in range(3000)}, cpu=100)
    planned = shedding(reports, config=replace(OVERLOAD, overloaded_percent=50))
    assert len(plan(planned, (A, *brokers))) == BROKERS_LOOKED_AT_MAX // 201


@pytest.mark.parametrize("count", [3, 10])
def test_balanced_cluster_is_left_alone(count: int) -> None:
    names = tuple(f"m{at}:1" for at in range(count))
    reports = {name: broker(name, 50 + at, (30, 30, 40)) for at, name in enumerate(names)}
    for config in (OVERLOAD, THRESHOLD, replace(THRESHOLD, lower_boundary=True)):
        assert not plan(shedding(reports, config=config), names)


class Counted(list[tuple[str, float, float]]):
    """Traffic of a broker that counts how many of its bundles were looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[tuple[str, float, float]]:
        for each in super().__iter__():
            Counted.looked_at += 1
            yield each


@pytest.mark.parametrize("strategy", [OVERLOAD_SHEDDER, THRESHOLD_SHEDDER])
def test_a_round_looks_at_the_bundles_that_it_moves(strategy: str) -> None:
    """Not at all of them: the leader of many brokers has other things to do in the same loop."""
    bundles = 1000
    reports = {f"over{at}:1": broker(f"o{at}", 95, (1.0,) * bundles) for at in range(5)}
    reports |= {f"under{at}:1": broker(f"u{at}", 10) for at in range(5)}
    config = replace(THRESHOLD, shedding_strategy=strategy, unload_mb_min=0)
    planned = shedding(reports, config=config)
    load = planned._placement.load
    for each in load.brokers.values():
        each.traffic = Counted(each.traffic)
    Counted.looked_at = 0
    moves = planned.plan(list(reports), 0, 10**12)
    assert 0 < Counted.looked_at <= len(moves) + 5 < 5 * bundles / 2
