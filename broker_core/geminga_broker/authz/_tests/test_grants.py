"""Grants in policies, against a second form of the rules (spec PX-22)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.authz import granting
from geminga_broker.authz.grants import (
    SubscriptionRefused,
    check_subscription,
    namespace_allows,
    topic_allows,
)
from geminga_broker.authz.needs import ACTIONS
from geminga_broker.cluster.records import JsonObject
from geminga_protocol.topic_name import TopicName

WHOLE = TopicName.parse("persistent://t/n/p")
NAMES = [str(WHOLE), str(WHOLE.partition(0)), str(WHOLE.partition(1)), "non-persistent://t/n/p"]
PATTERNS = ["ann", "an", "a*", "*n", "*", "bob", "ann*", "*ann", "a*n"]

grants = st.dictionaries(st.sampled_from(PATTERNS), st.lists(st.sampled_from(ACTIONS)))


def matches(pattern: str, role: str) -> bool:
    if pattern.endswith("*"):
        return role.startswith(pattern[:-1])
    return pattern.startswith("*") and role.endswith(pattern[1:])


def expected(given_: dict[str, list[str]], role: str, action: str, *, wildcards: bool) -> bool:
    return any(
        action in actions and (pattern == role or (wildcards and matches(pattern, role)))
        for pattern, actions in given_.items()
    )


@given(
    grants,
    st.dictionaries(st.sampled_from(NAMES), grants),
    st.sampled_from(["ann", "an", "bob", "x"]),
    st.sampled_from(ACTIONS),
    st.booleans(),
)
@pytest.mark.slow
def test_grants(
    namespace: dict[str, list[str]],
    topics: dict[str, dict[str, list[str]]],
    role: str,
    action: str,
    wildcards: bool,
) -> None:
    policies: JsonObject = {
        "auth_policies": {"namespace_auth": namespace, "destination_auth": topics}
    }
    by_namespace = expected(namespace, role, action, wildcards=wildcards)
    assert namespace_allows(policies, role, action, wildcards=wildcards) == by_namespace
    for name in NAMES:
        topic = TopicName.parse(name)
        own = expected(topics.get(name, {}), role, action, wildcards=wildcards)
        whole = topic.is_partition and expected(
            topics.get(str(WHOLE), {}), role, action, wildcards=False
        )
        allowed = topic_allows(policies, topic, role, action, wildcards=wildcards)
        assert allowed == (by_namespace or own or whole)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["grant", "revoke", "forget"]),
        st.sampled_from(NAMES),
        st.sampled_from(["ann", "bob"]),
        st.lists(st.sampled_from(ACTIONS), unique=True),
    ),
    max_size=12,
)


@given(STEPS)
def test_changes_of_grants(steps: list[tuple[str, str, str, list[str]]]) -> None:
    policies: JsonObject = {"kept": 1}
    model: dict[tuple[str, str], list[str]] = {}
    for what, topic, role, actions in steps:
        if what == "grant":
            policies = granting.grant_on_topic(policies, topic, role, actions)
            model[topic, role] = actions
        elif what == "revoke":
            policies = granting.revoke_on_topics(policies, [topic], role)
            model.pop((topic, role), None)
        else:
            policies = granting.forget_topics(policies, {topic})
            model = {key: value for key, value in model.items() if key[0] != topic}
        for name in NAMES:
            known = {role: value for (one, role), value in model.items() if one == name}
            assert granting.topic_grants(policies, name) == known
            assert (name in granting.topics_of(policies)) == bool(known)
    assert policies["kept"] == 1


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"auth_policies": None},
        {"auth_policies": {"namespace_auth": []}},
        {"auth_policies": {"namespace_auth": {"ann": "produce"}}},
    ],
)
def test_policies_that_cannot_be_read_grant_nothing(broken: JsonObject) -> None:
    assert not topic_allows(broken, WHOLE, "ann", "produce", wildcards=True)
    assert check_subscription(broken, str(WHOLE), "ann", "s")


def test_subscriptions_of_roles() -> None:
    policies: JsonObject = {"subscription_auth_mode": "None"}
    policies = granting.grant_subscription(policies, "s", ["ann"])
    assert check_subscription(policies, str(WHOLE), "ann", "s")
    assert not check_subscription(policies, str(WHOLE), "bob", "s")
    freed = granting.revoke_subscription(policies, "s", "ann")
    assert check_subscription(freed, str(WHOLE), "bob", "s")
    with pytest.raises(SubscriptionRefused):
        check_subscription(policies | {"subscription_auth_mode": "Prefix"}, "t", "ann", "s")
