"""The grants in the policies of a namespace. Pure (Apache's `PulsarAuthorizationProvider`)."""

from __future__ import annotations

from collections.abc import Mapping

from geminga_broker.cluster.records import JsonObject
from geminga_protocol.topic_name import TopicName

PREFIX_MODE = "Prefix"


class SubscriptionRefused(Exception):
    """The role may not use this subscription's name; the text is for the client."""


def _auth_policies(policies: JsonObject) -> Mapping[str, object]:
    found = policies.get("auth_policies")
    return found if isinstance(found, dict) else {}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _contains(actions: object, action: str) -> bool:
    return isinstance(actions, list) and action in actions


def namespace_allows(policies: JsonObject, role: str, action: str, *, wildcards: bool) -> bool:
    """Whether the role has the action on the whole namespace."""
    return _granted(
        _mapping(_auth_policies(policies).get("namespace_auth")), role, action, wildcards
    )


def topic_allows(
    policies: JsonObject, topic: TopicName, role: str, action: str, *, wildcards: bool
) -> bool:
    """Whether the role has the action by the namespace, the topic or its partitioned topic."""
    if namespace_allows(policies, role, action, wildcards=wildcards):
        return True
    by_topic = _mapping(_auth_policies(policies).get("destination_auth"))
    if _granted(_mapping(by_topic.get(str(topic))), role, action, wildcards):
        return True
    if not topic.is_partition:
        return False
    whole = _mapping(by_topic.get(str(topic.partitioned_base)))
    return _contains(whole.get(role), action)


def check_subscription(policies: JsonObject, topic: str, role: str, subscription: str) -> bool:
    """Whether the subscription's own rules allow the role. Raises SubscriptionRefused if names must
    begin with the role and this one doesn't.
    """
    roles = _mapping(_auth_policies(policies).get("subscription_auth_roles")).get(subscription)
    if isinstance(roles, list) and roles and role not in roles:
        return False
    if policies.get("subscription_auth_mode") == PREFIX_MODE and not subscription.startswith(role):
        raise SubscriptionRefused(
            "Failed to create consumer - The subscription name needs to be prefixed by the "
            f"authentication role, like {role}-xxxx for topic: {topic}"
        )
    return True


def _granted(grants: Mapping[str, object], role: str, action: str, wildcards: bool) -> bool:
    if _contains(grants.get(role), action):
        return True
    return wildcards and any(
        _matches(pattern, role) and _contains(actions, action)
        for pattern, actions in grants.items()
    )


def _matches(pattern: str, role: str) -> bool:
    """Whether the role matches; `*` at the beginning or the end matches anything."""
    if pattern.endswith("*"):
        return role.startswith(pattern[:-1])
    return pattern.startswith("*") and role.endswith(pattern[1:])
