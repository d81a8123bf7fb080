"""A broker for each bundle: all filters together, and what is remembered."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from geminga_broker.loadbalance._tests.samples import bundle, load_of, report, stats
from geminga_broker.loadbalance.candidates import Rules
from geminga_broker.loadbalance.isolation import IsolationPolicies, NamespaceIsolationData
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.placement import ModularPlacement
from geminga_broker.loadbalance.reports import LocalBrokerData
from geminga_broker.loadbalance.settings import (
    AVERAGE_SHEDDER,
    LEAST_RESOURCE_USAGE,
    MODULAR,
    ROUND_ROBIN,
    SIMPLE,
    LoadBalanceConfig,
)
from geminga_broker.loadbalance.strategies.simple import SimpleStrategy

A, B, C = "a:1", "b:1", "c:1"
NEW = bundle("t/new")
CONFIG = LoadBalanceConfig()


def placement(
    reports: dict[str, LocalBrokerData],
    rules: Rules | None = None,
    config: LoadBalanceConfig = CONFIG,
) -> ModularPlacement:
    return ModularPlacement(load_of(reports), config, rules, random.Random(3))


def test_nobody_is_registered() -> None:
    assert placement({}).choose(NEW, [], 0) is None
    assert placement({A: report()}).choose(NEW, [], 0) is None


def test_burst_is_spread() -> None:
    placed = placement(
        {A: report(), B: report(), C: report()}, config=replace(CONFIG, spread_evenly=False)
    )
    found = Counter(placed.choose(bundle("t/n", at), [A, B, C], 0) for at in range(99))
    assert found == {A: 33, B: 33, C: 33}


def test_bundles_of_a_namespace_are_spread() -> None:
    busy = {bundle("t/busy"): stats(1e5)}
    placed = placement({A: report(busy), B: report()})
    first = [placed.choose(bundle("t/n", at), [A, B], 0) for at in range(2)]
    assert sorted(map(str, first)) == [A, B]
    off = placement({A: report(busy), B: report()}, config=replace(CONFIG, spread_evenly=False))
    assert [off.choose(bundle("t/n", at), [A, B], 0) for at in range(2)] == [B, B]
    assert sorted(str(off.choose(bundle("pulsar/system", at), [A, B], 0)) for at in range(2)) == [
        A,
        B,
    ]


def test_choice_is_the_same_until_it_is_forgotten() -> None:
    placed = placement({A: report(), B: report()})
    first = placed.choose(NEW, [A, B], 0)
    assert first is not None
    assert all(placed.choose(NEW, [A, B], 1) == first for _ in range(20))
    placed.load.unallocate(NEW)
    assert {placed.select(NEW, [A, B]) for _ in range(50)} == {A, B}


@pytest.mark.parametrize("manager", [MODULAR, SIMPLE])
def test_choice_that_a_new_policy_forbids_is_made_anew(manager: str) -> None:
    """Apache's manager goes on with it until the broker's report has the bundle."""
    load = load_of({A: report(), B: report()})
    placed: ModularPlacement | SimpleStrategy
    if manager == MODULAR:
        placed = ModularPlacement(load, CONFIG, None, random.Random(3))
    else:
        placed = SimpleStrategy(load, CONFIG, random.Random(3))
    first = placed.choose(NEW, [A, B], 0)
    assert first is not None
    other = B if first == A else A
    wanted = NamespaceIsolationData(["t/.*"], [other.partition(":")[0]])
    placed.rules = Rules(IsolationPolicies({"p": wanted}))
    assert placed.choose(NEW, [A, B], 1) == other
    assert placed.load.preallocations == {NEW: other}
    placed.load.preallocate(NEW, first, 1, is_named=True)
    assert placed.choose(NEW, [A, B], 1) == first, "an operator named it"
    placed.load.preallocate(NEW, other, 1)
    nobody = NamespaceIsolationData(["t/.*"], ["nohost"])
    placed.rules = Rules(IsolationPolicies({"p": nobody}))
    assert placed.choose(NEW, [A, B], 2) is None


def test_choice_of_a_dead_broker_is_made_anew() -> None:
    placed = placement({A: report(), B: report()})
    first = placed.choose(NEW, [A, B], 0)
    other = B if first == A else A
    placed.brokers_changed([other])
    assert placed.choose(NEW, [other], 1) == other
    assert placed.load.preallocations == {NEW: other}
    # Even if nobody has told that it is dead.
    placed = placement({A: report(), B: report()})
    first = placed.choose(NEW, [A, B], 0)
    other = B if first == A else A
    assert placed.choose(NEW, [other], 1) == other


def test_selection_remembers_nothing() -> None:
    placed = placement({A: report()})
    assert placed.select(NEW, [A]) == A
    assert not placed.load.preallocations
    assert not placed.load.bundles


def test_namespaces_of_one_broker() -> None:
    placed = placement({A: report(), B: report()})
    assert placed.choose(bundle("pulsar/z:1"), [A, B], 0) == "z:1"
    assert placed.choose(bundle("pulsar/east/b:1"), [A, B], 0) == B
    assert placed.choose(bundle("sla-monitor/east/a:1"), [A, B], 0) == A
    assert placed.choose(bundle("sla-monitor/east/z:1"), [A, B], 0) in (A, B)


def test_policies_are_never_passed_over() -> None:
    rules = Rules(
        IsolationPolicies({"p": NamespaceIsolationData(namespaces=["t/new"], primary=["a"])})
    )
    placed = placement({A: report(cpu=99, topics=10**6), B: report()}, rules)
    assert placed.choose(NEW, [A, B], 0) == A
    assert placed.choose(bundle("t/other"), [A, B], 0) == B
    assert placed.choose(NEW, [B], 0) is None


def test_kinds_of_topics() -> None:
    placed = placement({A: report(persistent=False), B: report(non_persistent=False)})
    assert placed.choose(NEW, [A, B], 0) == B
    placed.load.has_non_persistent(bundle("t/n"))
    assert placed.choose(bundle("t/n"), [A, B], 0) == A


def test_filters_that_leave_nobody_fall_back_to_the_brokers_that_policies_allow() -> None:
    placed = placement({A: report(manager=SIMPLE), B: report(manager=SIMPLE)})
    assert placed.choose(NEW, [A, B], 0) in (A, B)
    # Versions that can't be compared: the filter is as if it were off.
    mixed = placement(
        {A: report(version="x"), B: report({bundle("t/n"): stats(10)})},
        config=replace(CONFIG, prefer_later_versions=True),
    )
    assert mixed.choose(NEW, [A, B], 0) == A


def test_filters() -> None:
    placed = placement({A: report(version="4.0.6"), B: report({bundle("t/n"): stats(10)})})
    assert placed.select(NEW, [A, B]) == A
    placed.reconfigure(replace(placed.config, prefer_later_versions=True))
    assert placed.select(NEW, [A, B]) == B
    placed = placement({A: report(topics=60_000), B: report({bundle("t/n"): stats(10)})})
    assert placed.select(NEW, [A, B]) == B
    placed = placement({A: report(manager=SIMPLE), B: report({bundle("t/n"): stats(10)})})
    assert placed.select(NEW, [A, B]) == B
    assert placed.config.load_manager == MODULAR


def test_anti_affinity() -> None:
    rules = Rules(groups={"t/one": "g", "t/new": "g"})
    placed = placement({A: report({bundle("t/one"): stats()}), B: report(cpu=50)}, rules)
    placed.load.report(B, report({bundle("t/busy"): stats(1e5)}), 0)
    assert placed.select(NEW, [A, B]) == B
    placed.rules = Rules()
    assert placed.select(NEW, [A, B]) == A


def test_better_broker_than_the_overloaded_ones_that_filters_leave() -> None:
    # The namespace's bundles are spread evenly to A, which is overloaded.
    here = {bundle("t/new", 1): stats(10)}
    placed = placement({A: report(cpu=95), B: report(here, cpu=20)})
    assert placed.choose(NEW, [A, B], 0) == B


def test_room_is_demanded() -> None:
    placed = placement({A: report(cpu=10), B: report({bundle("t/n"): stats(10)}, cpu=5)})
    usages = {A: 0.1, B: 0.05}
    assert placed.pick(NEW, [A, B], usages, 0.1) == A
    assert placed.pick(NEW, [A, B], usages, 0.07) == B
    assert placed.pick(NEW, [A, B], usages, 0.01) is None
    assert placed.pick(NEW, [], usages, 1) is None
    # The group's broker has no room: no other one is taken instead.
    placed.rules = Rules(groups={"t/new": "g", "t/n": "g"})
    assert placed.pick(NEW, [A, B], usages, 0.07) is None


def test_strategies_by_name() -> None:
    reports = {A: report(cpu=80), B: report({bundle("t/n"): stats(1e5)}, cpu=10)}
    assert placement(reports).select(NEW, [A, B]) == A
    placed = placement(reports, config=replace(CONFIG, placement_strategy=LEAST_RESOURCE_USAGE))
    assert placed.select(NEW, [A, B]) == B
    placed.reconfigure(replace(placed.config, placement_strategy=ROUND_ROBIN))
    assert [placed.select(NEW, [A, B]) for _ in range(3)] == [A, B, A]
    placed.reconfigure(replace(placed.config, placement_strategy=AVERAGE_SHEDDER))
    assert {placed.select(NEW, [A, B]) for _ in range(50)} == {A, B}


def test_broker_without_a_report_is_no_candidate() -> None:
    placed = ModularPlacement(LoadData(), LoadBalanceConfig())
    assert placed.choose(NEW, [A], 0) is None
