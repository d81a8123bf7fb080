"""What the leader knows: incremental, and the same as if it were counted anew."""

from __future__ import annotations

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from geminga_broker.loadbalance._tests.samples import MB, bundle, load_of, report, stats
from geminga_broker.loadbalance.load_data import PENDING_S, SETTLE_S, LoadData
from geminga_broker.loadbalance.model import BundleData, Weights
from geminga_broker.loadbalance.names import namespace_of
from geminga_broker.loadbalance.reports import LocalBrokerData

A, B = "a:8080", "b:8080"
X, Y = bundle("t/n", 0), bundle("t/n", 1)
WEIGHTS = Weights()


def test_each_report_is_a_sample_of_its_bundles() -> None:
    load = load_of({A: report({X: stats(10)})})
    load.report(A, report({X: stats(20), Y: stats(30)}), 5)
    assert load.bundles[X].long_term_data.rate == 15
    assert load.bundles[X].short_term_data.num_samples == 2
    assert load.brokers[A].averages.long_term_msg_rate_in == 7.5 + 15
    assert load.brokers[A].by_namespace == {"t/n": 2}


def test_same_report_is_taken_once() -> None:
    load = load_of({A: report({X: stats(10)}, at=1)})
    load.report(A, report({X: stats(20)}, at=1), 5)
    assert load.bundles[X].short_term_data.num_samples == 1
    load.report(A, report({X: stats(20)}, at=2), 5)
    assert load.bundles[X].short_term_data.num_samples == 2


def test_sample_that_is_no_number_is_not_taken() -> None:
    load = load_of({A: report({X: stats(10)})})
    bad = stats(10)
    bad.msg_rate_in = float("nan")
    load.report(A, report({X: bad}), 5)
    assert load.bundles[X].short_term_data.num_samples == 1
    assert load.brokers[A].averages.long_term_msg_rate_in == 5


def test_what_the_store_knows_comes_first() -> None:
    load = LoadData()
    assert load.unknown([X, Y]) == [X, Y]
    learned = BundleData()
    for _ in range(9):
        learned.update(stats(100))
    load.learn(X, learned)
    load.report(A, report({X: stats(0)}), 0)
    assert load.bundles[X].long_term_data.rate == pytest.approx(90)
    assert load.unknown([X, Y]) == [Y]
    load.learn(X, BundleData())
    assert load.bundles[X].long_term_data.rate == pytest.approx(90)


def test_what_was_learned_and_not_used_is_forgotten() -> None:
    load = LoadData()
    load.learn(X, BundleData())
    load.expire(0)
    assert not load.bundles


def test_bundles_of_nobody_are_forgotten() -> None:
    load = load_of({A: report({X: stats(10)})})
    load.report(A, report({Y: stats(10)}), 5)
    assert set(load.bundles) == {Y}
    load.gone(A)
    assert not load.bundles
    assert load.holder(Y) is None


def test_bundle_that_another_broker_has_is_kept() -> None:
    load = load_of({A: report({X: stats(10)}), B: report()})
    load.report(B, report({X: stats(10)}), 5)
    load.report(A, report(), 6)
    assert load.holder(X) == B
    assert load.bundles[X].short_term_data.num_samples == 2


def test_choice_counts_until_it_is_reported() -> None:
    load = load_of({A: report(), B: report()})
    load.preallocate(X, A, 0)
    assert load.brokers[A].long_term_rate() == 100  # assumed
    assert load.brokers[A].by_namespace == {"t/n": 1}
    assert load.preallocations == {X: A}
    load.report(A, report({X: stats(7)}), 1)
    assert load.brokers[A].long_term_rate() == 7
    assert load.brokers[A].by_namespace == {"t/n": 1}
    assert not load.preallocations
    assert not load.brokers[A].preallocated


def test_choice_stays_while_the_report_may_be_older() -> None:
    load = load_of({A: report()})
    load.preallocate(X, A, 10)
    load.report(A, report(), 10 + SETTLE_S - 1)
    assert load.preallocations == {X: A}
    load.report(A, report(), 10 + SETTLE_S)
    assert not load.preallocations
    assert not load.bundles
    assert load.brokers[A].long_term_rate() == 0


def test_choice_that_no_report_settles_ends() -> None:
    load = load_of({A: report()})
    load.preallocate(X, A, 10)
    load.expire(10 + PENDING_S - 1)
    assert load.preallocations == {X: A}
    load.expire(10 + PENDING_S)
    assert not load.preallocations
    assert load.brokers[A].by_namespace == {}


def test_choice_of_a_dead_broker_is_open_again() -> None:
    load = load_of({A: report(), B: report()})
    load.preallocate(X, A, 0)
    load.preallocate(Y, B, 0)
    assert load.keep_only({B}) == [A]
    assert load.preallocations == {Y: B}
    assert set(load.bundles) == {Y}


def test_later_choice_replaces_the_first() -> None:
    load = load_of({A: report(), B: report()})
    load.preallocate(X, A, 0)
    load.preallocate(X, B, 0)
    assert load.brokers[A].long_term_rate() == 0
    assert load.brokers[A].by_namespace == {}
    assert load.brokers[B].long_term_rate() == 100
    load.preallocate(X, "unknown:1", 0)
    assert not load.preallocations


def test_choice_of_the_broker_that_has_it_counts_once() -> None:
    load = load_of({A: report({X: stats(10)})})
    load.preallocate(X, A, 0)
    assert load.brokers[A].long_term_rate() == 10
    assert load.brokers[A].by_namespace == {"t/n": 1}
    load.unallocate(X)
    assert load.brokers[A].by_namespace == {"t/n": 1}


def test_move_counts_until_both_report_it() -> None:
    here = report({X: stats(40, 30), Y: stats(10, 10)}, cpu=80)
    load = load_of({A: here, B: report(cpu=10)})
    load.moved(X, A, B, 0.6, 0)
    assert load.recently_unloaded(X)
    assert load.brokers[A].expected_usage(WEIGHTS) == pytest.approx(0.2)
    assert load.brokers[B].expected_usage(WEIGHTS) == pytest.approx(0.7)
    assert load.brokers[A].expected_throughput == pytest.approx(10 * MB)
    assert load.brokers[B].expected_throughput == pytest.approx(30 * MB)
    assert load.brokers[B].expected_rate == pytest.approx(40)
    load.report(A, here, 1)  # sampled before
    assert load.brokers[A].expected_usage(WEIGHTS) == pytest.approx(0.2)
    load.report(A, report({Y: stats(10, 10)}, cpu=20), 2)
    load.report(B, report({X: stats(40, 30)}, cpu=65), 2)
    assert load.brokers[A].expected_usage(WEIGHTS) == pytest.approx(0.2)
    assert load.brokers[B].expected_usage(WEIGHTS) == pytest.approx(0.65)
    assert load.brokers[A].pending_usage == 0


def test_move_that_was_not_done_is_not_counted_for_long() -> None:
    here = report({X: stats(40, 30), Y: stats(10, 10)}, cpu=80)
    load = load_of({A: here, B: report(cpu=10)})
    load.moved(X, A, B, 0.6, 0)
    load.report(A, here, SETTLE_S)
    assert load.brokers[A].expected_usage(WEIGHTS) == pytest.approx(0.8)
    load.expire(PENDING_S)
    assert load.brokers[B].expected_usage(WEIGHTS) == pytest.approx(0.1)


def test_move_that_failed_may_be_tried_again() -> None:
    load = load_of({A: report({X: stats(40, 30), Y: stats()}, cpu=80), B: report(cpu=10)})
    load.preallocate(X, B, 0)
    load.moved(X, A, B, 0.6, 0)
    load.not_moved(X, A, B)
    assert not load.recently_unloaded(X)
    assert not load.preallocations
    assert load.brokers[A].expected_usage(WEIGHTS) == pytest.approx(0.8)
    assert load.brokers[B].expected_usage(WEIGHTS) == pytest.approx(0.1)


def test_grace_ends_in_the_order_of_moves() -> None:
    load = load_of({A: report({X: stats(), Y: stats()}), B: report()})
    load.moved(X, A, B, 0, 1)
    load.moved(Y, A, B, 0, 2)
    load.moved(X, B, A, 0, 3)
    load.end_grace(2.5)
    assert load.recently_unloaded(X)
    assert not load.recently_unloaded(Y)


def test_grace_ends_with_the_broker() -> None:
    load = load_of({A: report({X: stats()}), B: report(), "c:1": report({Y: stats()})})
    load.moved(X, A, B, 0, 1)
    load.moved(Y, "c:1", A, 0, 1)
    load.report(B, report({X: stats()}), 2)
    load.gone("c:1")  # Y has gone before, though its last report doesn't say so
    assert load.recently_unloaded(Y)
    load.gone(B)
    assert not load.recently_unloaded(X)
    assert load.recently_unloaded(Y)
    load.gone(A)
    assert not load.recently_unloaded(Y)


def test_bundle_that_was_split_is_forgotten() -> None:
    load = load_of({A: report({X: stats(), Y: stats()})})
    load.forget_bundle(X)
    assert set(load.bundles) == {Y}
    assert load.brokers[A].by_namespace == {"t/n": 1}
    assert list(load.brokers[A].report.last_stats) == [Y]


BUNDLES = [bundle(namespace, number) for namespace in ("t/m", "t/n") for number in range(4)]


class Compared(RuleBasedStateMachine):
    """Whatever happens in whatever order, sums and counts are those of the records themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.load = LoadData()
        self.now = 0.0
        self.reports: dict[str, LocalBrokerData] = {}

    @rule(
        broker=st.sampled_from([A, B]),
        bundles=st.dictionaries(st.sampled_from(BUNDLES), st.floats(0, 1e6)),
        past=st.floats(0, 40),
    )
    def reported(self, broker: str, bundles: dict[str, float], past: float) -> None:
        self.now += past
        new = report({each: stats(rate) for each, rate in bundles.items()}, cpu=50)
        self.reports[broker] = new
        self.load.report(broker, new, self.now)

    @rule(broker=st.sampled_from([A, B]), which=st.sampled_from(BUNDLES))
    def chosen(self, broker: str, which: str) -> None:
        self.load.preallocate(which, broker, self.now)

    @rule(which=st.sampled_from(BUNDLES))
    def unloaded(self, which: str) -> None:
        self.load.unallocate(which)

    @rule(which=st.sampled_from(BUNDLES), usage=st.floats(0, 1))
    def moved(self, which: str, usage: float) -> None:
        self.load.moved(which, A, B, usage, self.now)

    @rule(which=st.sampled_from(BUNDLES))
    def not_moved(self, which: str) -> None:
        self.load.not_moved(which, A, B)

    @rule(broker=st.sampled_from([A, B]))
    def died(self, broker: str) -> None:
        self.load.gone(broker)
        self.reports.pop(broker, None)

    @rule(past=st.floats(0, 2 * PENDING_S))
    def expired(self, past: float) -> None:
        self.now += past
        self.load.expire(self.now)

    @invariant()
    def counts_are_those_of_the_records(self) -> None:
        assert set(self.load.brokers) == set(self.reports)
        for broker_id, broker in self.load.brokers.items():
            here = set(broker.report.last_stats)
            counted = here | set(broker.preallocated)
            expected: dict[str, int] = {}
            for each in counted:
                expected[namespace_of(each)] = expected.get(namespace_of(each), 0) + 1
            assert broker.by_namespace == expected
            rate = sum(
                choice.rate for each, choice in broker.preallocated.items() if each not in here
            )
            assert broker.preallocated_rate == pytest.approx(rate, abs=1e-6)
            usage = sum(each.usage for each in broker.decisions.values())
            assert broker.pending_usage == pytest.approx(usage, abs=1e-9)
            chosen = {
                each for each, other in self.load.preallocations.items() if other == broker_id
            }
            assert chosen == set(broker.preallocated)

    @invariant()
    def nothing_is_kept_of_bundles_that_nobody_has(self) -> None:
        held = {each for one in self.reports.values() for each in one.last_stats}
        assert set(self.load.bundles) <= held | set(self.load.preallocations)


TestCompared = Compared.TestCase
TestCompared.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)
