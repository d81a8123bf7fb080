"""Changes of the grants in a namespace's policies. Pure: old policies in, new ones out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from geminga_broker.authz.needs import ACTIONS
from geminga_broker.cluster.records import JsonObject

Actions = dict[str, list[str]]
"""Role -> actions."""


class UnknownAction(ValueError):
    """An action that can't be granted."""


def checked_actions(actions: Sequence[str]) -> list[str]:
    """The actions without repetition. Raises UnknownAction."""
    for action in actions:
        if action not in ACTIONS:
            raise UnknownAction(f"{action!r} is none of {', '.join(ACTIONS)}")
    return sorted(set(actions), key=ACTIONS.index)


def namespace_grants(policies: JsonObject) -> Actions:
    """Actions of roles on the whole namespace."""
    return cast(Actions, _part(policies, "namespace_auth"))


def topic_grants(policies: JsonObject, topic: str) -> Actions:
    """Actions of roles on one topic, by grants on this topic."""
    return cast(dict[str, Actions], _part(policies, "destination_auth")).get(topic, {})


def subscription_roles(policies: JsonObject) -> dict[str, list[str]]:
    """Subscription -> the only roles that may use it."""
    return cast(dict[str, list[str]], _part(policies, "subscription_auth_roles"))


def grant_on_namespace(policies: JsonObject, role: str, actions: Sequence[str]) -> JsonObject:
    """Set the role's actions on the namespace."""
    grants = namespace_grants(policies) | {role: list(actions)}
    return _with(policies, "namespace_auth", grants)


def revoke_on_namespace(policies: JsonObject, role: str) -> JsonObject:
    """Revoke all of the role's actions on the namespace."""
    grants = {other: list(actions) for other, actions in namespace_grants(policies).items()}
    grants.pop(role, None)
    return _with(policies, "namespace_auth", grants)


def grant_on_topic(
    policies: JsonObject, topic: str, role: str, actions: Sequence[str]
) -> JsonObject:
    """Set the role's actions on the topic and its partitions."""
    every = dict(cast(dict[str, Actions], _part(policies, "destination_auth")))
    every[topic] = every.get(topic, {}) | {role: list(actions)}
    return _with(policies, "destination_auth", every)


def revoke_on_topics(policies: JsonObject, topics: Sequence[str], role: str) -> JsonObject:
    """Revoke all of the role's actions on these topics."""
    every = dict(cast(dict[str, Actions], _part(policies, "destination_auth")))
    for topic in topics:
        if topic in every:
            every[topic] = {k: v for k, v in every[topic].items() if k != role}
            if not every[topic]:
                del every[topic]
    return _with(policies, "destination_auth", every)


def topics_of(policies: JsonObject) -> frozenset[str]:
    """The topics on which themselves there are grants."""
    return frozenset(cast(dict[str, Actions], _part(policies, "destination_auth")))


def forget_topics(policies: JsonObject, topics: Collection[str]) -> JsonObject:
    """Revoke all grants on these topics themselves."""
    every = cast(dict[str, Actions], _part(policies, "destination_auth"))
    left = {topic: actions for topic, actions in every.items() if topic not in topics}
    return _with(policies, "destination_auth", left)


def grant_subscription(policies: JsonObject, subscription: str, roles: Sequence[str]) -> JsonObject:
    """Allow the subscription to these roles only."""
    return _with(
        policies,
        "subscription_auth_roles",
        subscription_roles(policies) | {subscription: sorted(set(roles))},
    )


def revoke_subscription(policies: JsonObject, subscription: str, role: str) -> JsonObject:
    """Revoke the role's right to the subscription. Raises KeyError if nothing is granted."""
    every = subscription_roles(policies)
    left = [other for other in every[subscription] if other != role]
    return _with(policies, "subscription_auth_roles", every | {subscription: left})


def _part(policies: JsonObject, name: str) -> object:
    auth = policies.get("auth_policies")
    found = auth.get(name) if isinstance(auth, dict) else None
    return found if isinstance(found, dict) else {}


def _with(policies: JsonObject, name: str, value: object) -> JsonObject:
    auth = policies.get("auth_policies")
    return policies | {
        "auth_policies": (dict(auth) if isinstance(auth, dict) else {}) | {name: value}
    }
