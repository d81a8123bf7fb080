"""Which brokers may have a bundle, and how bundles are split, judged by Apache's classes with drawn
loads.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from compat_tests.apache.balancing import CASES, Question, agree, ask, drawn_load, load_json
from geminga_broker.loadbalance import candidates, settings
from geminga_broker.loadbalance._tests.samples import MB, bundle, load_of, report, stats
from geminga_broker.loadbalance.candidates import Rules
from geminga_broker.loadbalance.isolation import (
    AutoFailoverPolicyData,
    IsolationPolicies,
    NamespaceIsolationData,
)
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.split_points import TopicLoad, split_points
from geminga_broker.loadbalance.splitting import find_splits

pytestmark = pytest.mark.java

CONFIG = LoadBalanceConfig()


def test_filters() -> None:
    chance = random.Random("filters")
    package = "org.apache.pulsar.broker.loadbalance.impl"
    questions: list[Question] = []
    ours: list[object] = []
    for _ in range(CASES):
        load = drawn_load(chance)
        brokers = sorted(load.brokers)
        topics_max = chance.choice((0, 10, 1000))
        new = bundle(f"t/n{chance.randint(0, 3)}", 250)
        common = {"ask": "filter", "brokers": brokers, "load": load_json(load)}
        later = candidates.latest(brokers, load)
        for extra, left in (
            (
                {"filter": "topics", "settings": {"loadBalancerBrokerMaxTopics": topics_max}},
                candidates.below_topics(brokers, load, topics_max),
            ),
            (
                {"filter": "even", "bundle": new},
                candidates.least_of_namespace(new, brokers, load),
            ),
            (
                {"filter": f"{package}.BrokerLoadManagerClassFilter"},
                candidates.same_manager(brokers, load, settings.MODULAR),
            ),
            (
                {
                    "filter": f"{package}.BrokerVersionFilter",
                    "settings": {"preferLaterVersions": "true"},
                },
                "none" if later is None else later,
            ),
        ):
            questions.append(common | extra)
            ours.append(left)
    agree(ours, ask(questions))


def test_isolation_policies() -> None:
    chance = random.Random("isolation")
    questions, ours = [], []
    expressions = ("b[0-2]", "b1", "b.*", "b3|b4", "x", "b[5-9]")
    for _ in range(CASES):
        load = drawn_load(chance)
        policies = {}
        for namespace in chance.sample(("t/n0", "t/n1", "t/n[12]x?"), chance.randint(0, 2)):
            parameters = {"min_limit": str(chance.randint(0, 3)), "usage_threshold": "100"}
            policies[namespace] = NamespaceIsolationData(
                [namespace],
                chance.sample(expressions, chance.randint(1, 2)),
                chance.sample(expressions, chance.randint(0, 2)),
                AutoFailoverPolicyData(parameters=parameters),
            )
        if len(policies) == 2 and "t/n[12]x?" in policies:
            policies.pop("t/n1", None)  # which of several policies counts is chance in Apache
        new = bundle(f"t/n{chance.randint(0, 3)}", 250)
        non_persistent = chance.random() < 0.4
        brokers = sorted(load.brokers)
        questions.append(
            {
                "ask": "policies",
                "policies": msgspec.to_builtins(policies),
                "bundle": new,
                "brokers": brokers,
                "load": load_json(load),
                "non_persistent": non_persistent,
            }
        )
        rules = Rules(IsolationPolicies(policies))
        if non_persistent:
            load.has_non_persistent(new)
        found = candidates.allowed(new, brokers, load, rules)
        if rules.isolation.of(new.rpartition("/")[0]) is not None:
            # With a policy Apache's doesn't ask which kinds of topics a broker serves: ours gives
            # none to a broker that would refuse it, and takes such a primary broker for missing.
            kinds = {
                each: broker.report.non_persistent_topics_enabled
                if non_persistent
                else broker.report.persistent_topics_enabled
                for each, broker in load.brokers.items()
            }
            assert all(kinds[each] for each in found)
            everything = load_of({each: report() for each in brokers})
            found = candidates.allowed(new, brokers, everything, rules)
        ours.append(found)
    agree(ours, ask(questions))


def test_anti_affinity() -> None:
    chance = random.Random("apart")
    questions, ours = [], []
    for _ in range(CASES):
        brokers = [f"b{at}:1" for at in range(chance.randint(1, 7))]
        namespaces = [f"t/{at}" for at in range(4)]
        held = {each: chance.sample(namespaces, chance.randint(0, 3)) for each in brokers}
        load = load_of(
            {each: report({bundle(one): stats() for one in held[each]}) for each in brokers}
        )
        domains = {each: chance.choice("xy") for each in brokers if chance.random() < 0.8}
        if chance.random() < 0.3:
            domains = {}
        rules = Rules(groups=dict.fromkeys(namespaces, "g"), domains=domains)
        owner = chance.choice(brokers)
        questions.append(
            {
                "ask": "apart",
                "counts": {each: len(held[each]) for each in brokers if held[each]},
                "domains": domains,
                "brokers": brokers,
                "owner": owner,
            }
        )
        new = bundle("t/0")
        ours.append(
            {
                "brokers": candidates.apart(new, brokers, load, rules),
                "leaves": candidates.may_leave(new, owner, brokers, load, rules),
            }
        )
    agree(ours, ask(questions))


def test_bundles_that_are_split() -> None:
    chance = random.Random("splits")
    questions, ours = [], []
    for _ in range(CASES):
        load = drawn_load(chance)
        counts = {f"t/n{at}": chance.choice((4, 126, 127, 128)) for at in range(3)}
        questions.append({"ask": "splits", "load": load_json(load), "counts": counts})
        ours.append(find_splits(load, CONFIG, counts.__getitem__))
    theirs = ask(questions)
    for mine, other in zip(ours, theirs, strict=True):
        assert isinstance(other, dict)
        # If not all may be split, which of them is chance.
        assert len(mine) == len(other)
        if len(mine) < 2:
            continue
        assert {name.rpartition("/")[0] for name in mine} == {
            name.rpartition("/")[0] for name in other
        }
    assert sum(map(len, ours)) > CASES


def test_split_points() -> None:
    chance = random.Random("points")
    questions, ours = [], []
    for _ in range(4 * CASES):
        low = chance.randrange(0, 1 << 31)
        high = low + chance.choice((100, 1 << 20, 1 << 30))
        # Of topics with the same hash Apache's counts the load of the last one for each, and cuts
        # between them; ours, which can't part them, doesn't. Between neighbours Apache's cuts at
        # the lower one, so that both stay together.
        topics = [
            TopicLoad(
                each,
                chance.choice((0.0, chance.uniform(0, 60))),
                chance.choice((0.0, chance.uniform(0, 3 * MB))),
            )
            for each in chance.sample(range(low, high, 2), chance.randint(0, 12))
        ]
        algorithm = chance.choice(settings.SPLIT_ALGORITHMS)
        given = [chance.randrange(low - 5, high + 5) for _ in range(chance.randint(1, 4))]
        questions.append(
            {
                "ask": "points",
                "algorithm": algorithm,
                "low": low,
                "high": high,
                "topics": [[topic.hash, topic.rate, topic.throughput] for topic in topics],
                "given": given,
                "rate": 100,
                "mb": 5,
                "difference": 10,
            }
        )
        ours.append(
            split_points(
                algorithm,
                low,
                high,
                topics,
                given=given,
                rate_max=100,
                throughput_max=5 * MB,
                difference=0.1,
            )
        )
    theirs = ask(questions)
    for question, mine, other in zip(questions, ours, theirs, strict=True):
        assert isinstance(other, list)
        # Those at the ends, or double, make no bundle: Apache's are refused later.
        low, high = question["low"], question["high"]
        assert isinstance(low, int)
        assert isinstance(high, int)
        assert mine == sorted({point for point in other if low < point < high}), question
