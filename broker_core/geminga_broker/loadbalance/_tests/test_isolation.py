"""Which brokers serve a namespace, by isolation policies."""

from __future__ import annotations

import json
import time

import pytest

from geminga_broker.loadbalance.isolation import (
    AutoFailoverPolicyData,
    IsolationPolicies,
    NamespaceIsolationData,
    decode_policies,
    encode_policies,
    host_of,
    is_expression,
    matches_any,
)

BROKERS = ["p1:8080", "p2:8080", "s1:8080", "s2:8080", "x1:8080"]


def policies(min_limit: str = "1") -> IsolationPolicies:
    return IsolationPolicies(
        {
            "first": NamespaceIsolationData(
                namespaces=["t/iso.*"],
                primary=["p[0-9]"],
                secondary=["s.*"],
                auto_failover_policy=AutoFailoverPolicyData(
                    parameters={"min_limit": min_limit, "usage_threshold": "100"}
                ),
            )
        }
    )


@pytest.mark.parametrize(
    ("min_limit", "registered", "allowed"),
    [
        ("1", BROKERS, ["p1:8080", "p2:8080"]),
        ("1", ["p1:8080", "s1:8080"], ["p1:8080"]),
        ("2", ["p1:8080", "s1:8080"], ["p1:8080", "s1:8080"]),
        ("2", ["s1:8080", "p1:8080", "x1:8080"], ["s1:8080", "p1:8080"]),
        ("1", ["s1:8080", "x1:8080"], ["s1:8080"]),
        ("1", ["x1:8080"], []),
        ("0", ["s1:8080"], []),
        ("many", ["s1:8080"], []),
    ],
)
def test_primary_then_secondary(min_limit: str, registered: list[str], allowed: list[str]) -> None:
    assert policies(min_limit).allowed("t/isolated", registered) == allowed


def test_namespace_without_a_policy_gets_brokers_that_are_primary_for_nobody() -> None:
    assert policies().allowed("t/other", BROKERS) == ["s1:8080", "s2:8080", "x1:8080"]
    assert policies().allowed("t/other", ["p1:8080"]) == []
    assert IsolationPolicies().allowed("t/other", BROKERS) == BROKERS


def test_whole_names_must_match() -> None:
    assert policies().of("t/iso") is not None
    assert policies().of("at/iso") is None
    assert policies().allowed("t/iso", ["p10:8080", "ap1:8080"]) == []


def test_first_policy_counts() -> None:
    both = IsolationPolicies(
        {
            "a": NamespaceIsolationData(namespaces=["t/n"], primary=["a"]),
            "b": NamespaceIsolationData(namespaces=["t/.*"], primary=["b"]),
        }
    )
    assert both.allowed("t/n", ["a:1", "b:1"]) == ["a:1"]
    assert both.allowed("t/m", ["a:1", "b:1"]) == ["b:1"]


def test_no_expression_holds_up_the_broker() -> None:
    """By backtracking each of these would take years; other processes' time does not count."""
    name = "t/" + "a" * 200
    for expression in ("t/(a+)+b", "t/(a|a)*b", "t/(.*a){20}b"):
        began = time.thread_time()
        assert not matches_any([expression], name)
        assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    "expression", ["(", "[a", "a{99999999999999999999}", "x" * 5000, "(?!x).*", "(a{999}){999}"]
)
def test_malformed_expression_matches_nothing(expression: str) -> None:
    assert not matches_any([expression], "x" * 5000)
    assert matches_any([expression, "a.*"], "abc")


def test_what_is_wrong_with_an_expression_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert not is_expression("public/(told")
    assert not is_expression("t" * 5000)
    parenthesis, length = [each.getMessage() for each in caplog.records]
    assert parenthesis.endswith(" public/(told matches nothing: missing ): public/(told")
    assert length.endswith("matches nothing: it is too long")


def test_hosts() -> None:
    assert host_of("broker-1.example.com:8080") == "broker-1.example.com"
    assert host_of("[::1]:8080") == "[::1]"


def test_record_has_apaches_names() -> None:
    record = {
        "first": {
            "namespaces": ["t/.*"],
            "primary": ["p.*"],
            "secondary": ["s.*"],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": "1", "usage_threshold": "80"},
            },
            "unload_scope": "changed",
        }
    }
    found = decode_policies(json.dumps(record).encode())
    assert found.policies["first"].fails_over(0)
    assert not found.policies["first"].fails_over(1)
    assert json.loads(encode_policies(found.policies)) == record
    with pytest.raises(ValueError, match="Expected"):
        decode_policies(b"[]")


def test_policy_without_failover_stays_with_its_primary_brokers() -> None:
    found = decode_policies(b'{"a": {"namespaces": ["t/n"], "primary": ["a"], "secondary": ["b"]}}')
    assert found.allowed("t/n", ["b:1"]) == []
