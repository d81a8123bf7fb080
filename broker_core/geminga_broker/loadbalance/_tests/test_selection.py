"""Strategies of placement."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from geminga_broker.loadbalance._tests.samples import bundle, load_of, report, stats
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.selection import (
    LeastMessageRate,
    LeastResourceUsage,
    RoundRobin,
    Selection,
)
from geminga_broker.loadbalance.settings import LoadBalanceConfig

A, B, C = "a:1", "b:1", "c:1"
CONFIG = LoadBalanceConfig()
NEW = bundle("t/new")


def chance() -> random.Random:
    return random.Random(7)


@pytest.mark.parametrize("strategy", [LeastMessageRate, LeastResourceUsage])
def test_nobody_of_nobody(strategy: type[LeastMessageRate | LeastResourceUsage]) -> None:
    assert strategy(chance()).select([], NEW, LoadData(), CONFIG) is None
    assert RoundRobin().select([], NEW, LoadData(), CONFIG) is None


def test_lowest_long_term_rate() -> None:
    load = load_of(
        {
            A: report({bundle("t/n", 0): stats(100)}),
            B: report({bundle("t/n", 1): stats(50)}),
            C: report({bundle("t/n", 2): stats(70)}),
        }
    )
    assert LeastMessageRate(chance()).select([A, B, C], NEW, load, CONFIG) == B
    assert LeastMessageRate(chance()).select([A, C], NEW, load, CONFIG) == C


def test_what_was_chosen_before_counts() -> None:
    load = load_of({A: report({bundle("t/n", 0): stats(100)}), B: report()})
    strategy = LeastMessageRate(chance())
    for number in range(1, 3):
        chosen = strategy.select([A, B], bundle("t/n", number), load, CONFIG)
        assert chosen is not None
        load.preallocate(bundle("t/n", number), chosen, 0)
    # 100 are assumed of an unseen bundle: then both have as much, and one gets the second.
    assert load.brokers[A].long_term_rate() + load.brokers[B].long_term_rate() == 300
    assert B in load.preallocations.values()


def test_overloaded_broker_is_taken_only_if_all_are() -> None:
    load = load_of({A: report(cpu=86), B: report({bundle("t/n"): stats(1e6)}, cpu=85)})
    strategy = LeastMessageRate(chance())
    assert strategy.select([A, B], NEW, load, CONFIG) == B
    load.report(B, report(cpu=90), 0)
    found = {strategy.select([A, B], NEW, load, CONFIG) for _ in range(50)}
    assert found == {A, B}


def test_memory_counts_only_with_a_weight() -> None:
    full = report()
    full.memory.usage, full.memory.limit = 99, 100
    load = load_of({A: full, B: report({bundle("t/n"): stats(10)})})
    strategy = LeastMessageRate(chance())
    assert strategy.select([A, B], NEW, load, CONFIG) == A
    assert strategy.select([A, B], NEW, load, replace(CONFIG, memory_weight=1.0)) == B


def test_ties_are_broken_by_chance() -> None:
    load = load_of({A: report(), B: report(), C: report({bundle("t/n"): stats(1)})})
    strategy = LeastMessageRate(chance())
    found = Counter(strategy.select([A, B, C], NEW, load, CONFIG) for _ in range(200))
    assert set(found) == {A, B}
    assert min(found.values()) > 50


def test_use_well_below_the_average() -> None:
    load = load_of({A: report(cpu=60), B: report(cpu=50), C: report(cpu=25)})
    strategy = LeastResourceUsage(chance())
    assert {strategy.select([A, B, C], NEW, load, CONFIG) for _ in range(20)} == {C}
    near = load_of({A: report(cpu=60), B: report(cpu=50), C: report(cpu=46)})
    strategy = LeastResourceUsage(chance())
    assert len({strategy.select([A, B, C], NEW, near, CONFIG) for _ in range(50)}) == 3


def test_use_is_smoothed_but_not_of_a_broker_that_serves_nothing() -> None:
    one = {bundle("t/n", 0): stats(10)}
    load = load_of({A: report(one, cpu=80), B: report({bundle("t/n", 1): stats(10)}, cpu=40)})
    strategy = LeastResourceUsage(chance())
    assert strategy.select([A, B], NEW, load, CONFIG) == B
    load.report(A, report(one, cpu=0), 1)  # smoothed: 72
    assert strategy.select([A, B], NEW, load, CONFIG) == B
    load.report(A, report(cpu=0), 2)  # restarted: 0
    assert strategy.select([A, B], NEW, load, CONFIG) == A


def test_history_of_a_broker_that_went_is_forgotten() -> None:
    load = load_of(
        {A: report({NEW: stats(10)}, cpu=80), B: report({bundle("t/n"): stats(10)}, cpu=40)}
    )
    strategy = LeastResourceUsage(chance())
    strategy.select([A, B], NEW, load, CONFIG)
    strategy.brokers_changed({B})
    load.report(A, report({NEW: stats(10)}, cpu=0), 1)
    assert strategy.select([A, B], NEW, load, CONFIG) == A


def test_broker_without_a_report_counts_as_full() -> None:
    strategy = LeastResourceUsage(chance())
    load = load_of({A: report(cpu=10)})
    assert {strategy.select([A, B], NEW, load, CONFIG) for _ in range(20)} == {A}


def test_one_after_the_other() -> None:
    strategy: Selection = RoundRobin()
    load = LoadData()
    found = [strategy.select([C, A, B], NEW, load, CONFIG) for _ in range(6)]
    assert found == [A, B, C, A, B, C]
    strategy.brokers_changed({A, B})
    assert strategy.select([A, B], NEW, load, CONFIG) == A
