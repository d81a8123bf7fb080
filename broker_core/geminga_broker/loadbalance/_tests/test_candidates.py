"""Each filter of brokers by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.loadbalance import candidates
from geminga_broker.loadbalance._tests.samples import bundle, load_of, report, stats
from geminga_broker.loadbalance.candidates import Rules, parse_version
from geminga_broker.loadbalance.isolation import (
    AutoFailoverPolicyData,
    IsolationPolicies,
    NamespaceIsolationData,
)
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.settings import MODULAR, SIMPLE

A, B, C, D = "a:1", "b:1", "c:1", "d:1"
X = bundle("t/n")


def test_brokers_that_serve_this_kind_of_topics() -> None:
    load = load_of({A: report(persistent=False), B: report(non_persistent=False), C: report()})
    registered = [A, B, C, D]  # D has no report yet
    assert candidates.allowed(X, registered, load, Rules()) == [B, C]
    load.has_non_persistent(X)
    assert candidates.allowed(X, registered, load, Rules()) == [A, C]
    assert candidates.allowed(bundle("t/m"), registered, load, Rules()) == [B, C]


def test_isolation_counts_brokers_that_serve_this_kind_of_topics() -> None:
    rules = Rules(
        IsolationPolicies({"p": NamespaceIsolationData(namespaces=["t/n"], primary=["a", "b"])})
    )
    load = load_of({A: report(persistent=False), B: report(), C: report()})
    assert candidates.allowed(X, [A, B, C], load, rules) == [B]
    assert candidates.allowed(bundle("t/m"), [A, B, C], load, rules) == [C]


def test_the_log_says_why_nobody_may_have_a_bundle() -> None:
    policy = NamespaceIsolationData(
        namespaces=["t/n"], primary=["x.*"], secondary=["y"], auto_failover_policy=None
    )
    rules = Rules(IsolationPolicies({"alone": policy}))
    load = load_of({A: report(), B: report(persistent=False)})

    def why(of: str) -> str:
        assert candidates.allowed(of, [A, B], load, rules) == []
        return candidates.why_nobody(of, [A, B], load, rules)

    told = why(X)
    assert "isolation policy alone" in told
    assert "['x.*'], which none of 1 brokers has" in told
    policy.auto_failover_policy = AutoFailoverPolicyData(parameters={"min_limit": "1"})
    rules = Rules(IsolationPolicies({"alone": policy}))
    assert "['x.*', 'y'], which" in why(X)
    rules = Rules(IsolationPolicies({"all": NamespaceIsolationData(["t/n"], ["a", "b"])}))
    assert "no policy covers this namespace" in why(bundle("t/m"))
    load = load_of({A: report(persistent=False)})
    assert why(X) == "none of 2 registered brokers reports that it serves persistent topics"
    load = load_of({A: report(non_persistent=False)})
    load.has_non_persistent(X)
    assert "serves non-persistent topics" in why(X)


def test_brokers_with_many_topics_are_left_out() -> None:
    load = load_of({A: report(topics=5), B: report(topics=6), C: report(topics=4)})
    assert candidates.below_topics([A, B, C], load, 5) == [A, C]
    assert candidates.below_topics([A, B, C], load, 3) == [A, B, C]
    load.report(D, report({X: stats(topics=2)}), 0)
    load.preallocate(X, C, 0)
    assert candidates.below_topics([A, B, C], load, 5) == [A]


def test_even_spread_of_a_namespace() -> None:
    ours = [bundle("t/n", number) for number in range(4)]
    others = {bundle("t/m", number): stats() for number in range(9)}
    load = load_of(
        {
            A: report({ours[0]: stats(), ours[1]: stats()}),
            B: report({ours[2]: stats(), **others}),
            C: report({ours[3]: stats()}),
        }
    )
    new = bundle("t/n", 9)
    assert candidates.least_of_namespace(new, [A, B, C], load) == [B, C]
    load.preallocate(bundle("t/n", 8), B, 0)
    assert candidates.least_of_namespace(new, [A, B, C], load) == [C]
    assert candidates.least_of_namespace(new, [A], load) == [A]
    assert candidates.least_of_namespace(new, [], load) == []
    assert candidates.least_of_namespace(bundle("t/new"), [A, B, C], load) == [A, B, C]


def holding(**namespaces: list[str]) -> LoadData:
    """Brokers a, b, ... with a bundle of each of these namespaces."""
    return load_of(
        {
            f"{name}:1": report({bundle(namespace): stats() for namespace in held})
            for name, held in namespaces.items()
        }
    )


GROUPS = {"t/n1": "G", "t/n2": "g ", "t/n3": "G", "t/other": "h"}


def test_anti_affinity_spreads_the_namespaces_of_a_group() -> None:
    load = holding(a=["t/n1", "t/n2"], b=["t/n1", "t/other"], c=["t/other"], d=["t/n2"])
    rules = Rules(groups=GROUPS)
    assert candidates.apart(bundle("t/n3"), [A, B, C, D], load, rules) == [C]
    assert candidates.apart(bundle("t/n3"), [A, B, D], load, rules) == [B, D]
    assert candidates.apart(bundle("t/other"), [A, B, C, D], load, rules) == [A, D]
    assert candidates.apart(bundle("t/free"), [A, B], load, rules) == [A, B]
    assert candidates.apart(bundle("t/n3"), [], load, rules) == []


def test_anti_affinity_prefers_the_domain_with_the_fewest() -> None:
    """The example in Apache's LoadManagerShared: domains with 3, 3 and 4 namespaces."""
    many = {"t/1", "t/2", "t/3", "t/4", "t/5", "t/new"}
    load = holding(
        b1=["t/1", "t/2"],
        b2=["t/3"],
        b3=["t/1", "t/2"],
        b4=["t/3"],
        b5=["t/1", "t/2"],
        b6=["t/3", "t/4"],
    )
    domains = {f"b{number}:1": f"d{(number + 1) // 2}" for number in range(1, 7)}
    rules = Rules(groups=dict.fromkeys(many, "g"), domains=domains)
    brokers = [f"b{number}:1" for number in range(1, 7)]
    assert candidates.apart(bundle("t/new"), brokers, load, rules) == ["b2:1", "b4:1"]
    without = Rules(groups=dict.fromkeys(many, "g"))
    assert candidates.apart(bundle("t/new"), brokers, load, without) == ["b2:1", "b4:1"]
    # A broker in no domain is in the default one.
    load.report("b7:1", report(), 0)
    assert candidates.apart(bundle("t/new"), [*brokers, "b7:1"], load, rules) == ["b7:1"]


@given(
    counts=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y", None])), min_size=1),
)
def test_anti_affinity_against_a_plain_count(counts: list[tuple[int, str | None]]) -> None:
    namespaces = [f"t/{number}" for number in range(4)]
    held = {f"b{at}": namespaces[:count] for at, (count, _) in enumerate(counts)}
    load = holding(**held)
    domain = {f"b{at}:1": name or "default" for at, (_, name) in enumerate(counts)}
    given_domains = {f"b{at}:1": name for at, (_, name) in enumerate(counts) if name}
    rules = Rules(groups=dict.fromkeys([*namespaces, "t/new"], "g"), domains=given_domains)
    left = candidates.apart(bundle("t/new"), list(domain), load, rules)
    per_domain = {
        name: sum(len(held[each[:-2]]) for each in domain if domain[each] == name)
        for name in domain.values()
    }
    if not given_domains:
        per_domain = dict.fromkeys(per_domain, 0)
    inside = [each for each in domain if per_domain[domain[each]] == min(per_domain.values())]
    least = min(len(held[each[:-2]]) for each in inside)
    assert left == [each for each in inside if len(held[each[:-2]]) == least]


@pytest.mark.parametrize(
    ("held", "may"),
    [
        ({"a": ["t/n1"], "b": ["t/n2"]}, False),
        ({"a": ["t/n1"], "b": ["t/other"]}, True),
        ({"a": ["t/n1", "t/n2"], "b": ["t/n3"]}, True),
        ({"a": ["t/n1"], "b": ["t/n2", "t/n3"]}, True),
        ({"a": ["t/n1", "t/n2"], "b": ["t/n2", "t/n3"]}, False),
    ],
)
def test_bundle_of_a_group_is_not_shed_to_where_it_came_from(
    held: dict[str, list[str]], may: bool
) -> None:
    load = holding(**held)
    assert candidates.may_leave(bundle("t/n1"), A, [A, B], load, Rules(groups=GROUPS)) is may
    assert candidates.may_leave(bundle("t/n1"), A, [A, B], load, Rules())
    assert candidates.may_leave(bundle("t/n1"), A, [], load, Rules(groups=GROUPS))


def test_brokers_of_another_load_manager_are_left_out() -> None:
    load = load_of({A: report(), B: report(manager=SIMPLE), C: report(manager=None)})
    assert candidates.same_manager([A, B, C], load, MODULAR) == [A, C]
    assert candidates.same_manager([A, B, C], load, SIMPLE) == [B, C]


@pytest.mark.parametrize(
    ("versions", "left"),
    [
        (["4.0.7", "4.1.0", "4.1.0"], ["b:1", "c:1"]),
        (["4.0.7", "4.0.10"], ["b:1"]),
        (["4.1.0-SNAPSHOT", "4.1.0"], ["b:1"]),
        (["4.1.0-candidate-2", "4.1.0-candidate-10"], ["b:1"]),
        (["4.1.0-rc1", "4.1.0-rc"], ["a:1"]),
        (["4.1", "4.0.9"], ["a:1"]),
        (["4.0.7+build5", "4.0.7"], ["a:1", "b:1"]),
        (["Geminga 0.9.0", "Geminga 0.10.0"], ["b:1"]),
        (["Geminga 5.0.0", "4.0.7"], None),
        (["4.0.7", None], None),
        (["4.0.7", ""], None),
        (["4.0.7", "newest"], None),
    ],
)
def test_latest_version(versions: list[str | None], left: list[str] | None) -> None:
    names = [f"{letter}:1" for letter in "abc"][: len(versions)]
    load = load_of(
        {name: report(version=version) for name, version in zip(names, versions, strict=True)}
    )
    assert candidates.latest(names, load) == left


def test_version_of_a_broker_without_a_report_is_unknown() -> None:
    assert candidates.latest([A], LoadData()) is None
    assert parse_version("1") is None
    assert parse_version("1." + "9" * 5000) is None  # too much for int()
