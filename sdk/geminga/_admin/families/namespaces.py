"""Namespaces and their bundles."""

# Bodies of declarations are docstrings.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from geminga._admin import declared as rest

if TYPE_CHECKING:
    from geminga._admin.model.base import Names
    from geminga._admin.model.cluster import AuthAction, TopicHashPositions
    from geminga._admin.model.policies import BundlesData, NewNamespace, Policies
    from geminga._admin.model.topics import (
        GrantTopicPermission,
        RevokeTopicPermission,
        SplitAlgorithm,
        TopicMode,
    )

_NAMESPACE = "/admin/v2/namespaces/{namespace}"
_BUNDLE = f"{_NAMESPACE}/{{bundle}}"
_PERMISSION = f"{_NAMESPACE}/permissions/{{role}}"
_PROPERTY = f"{_NAMESPACE}/property/{{key}}"


class Namespaces(rest.Family):
    """Namespaces (`tenant/namespace`): what they have, who may use them, their properties."""

    @rest.get("/admin/v2/namespaces/{tenant}")
    async def list(self, tenant: str) -> Names:
        """The namespaces of a tenant."""

    @rest.get(f"{_NAMESPACE}/topics")
    async def list_topics(
        self,
        namespace: str,
        *,
        mode: TopicMode = "PERSISTENT",
        include_system_topic: bool = False,
    ) -> Names:
        """The topics of a namespace; each partition is one."""

    @rest.get(_NAMESPACE)
    async def get_policies(self, namespace: str) -> Policies:
        """All that is set for a namespace."""

    @rest.put(_NAMESPACE, body="policies")
    async def create(self, namespace: str, policies: NewNamespace | None = None) -> None:
        """Create a namespace in an existing tenant."""

    @rest.delete(_NAMESPACE)
    async def delete(self, namespace: str, *, force: bool = False) -> None:
        """Delete a namespace without topics; with `force` also its topics, if the broker allows
        it.
        """

    @rest.put(f"{_NAMESPACE}/unload")
    async def unload(self, namespace: str) -> None:
        """Close all topics, so that other brokers can take them. Clients reconnect."""

    @rest.post(f"{_NAMESPACE}/clearBacklog")
    async def clear_backlog(self, namespace: str) -> None:
        """Acknowledge all messages for all subscriptions."""

    @rest.post(f"{_NAMESPACE}/clearBacklog/{{subscription}}")
    async def clear_backlog_of(self, namespace: str, subscription: str) -> None:
        """Acknowledge all messages for the subscriptions of that name."""

    @rest.post(f"{_NAMESPACE}/unsubscribe/{{subscription}}")
    async def unsubscribe(self, namespace: str, subscription: str) -> None:
        """Delete the subscriptions of that name."""

    @rest.get(f"{_NAMESPACE}/permissions")
    async def permissions(self, namespace: str) -> dict[str, Names]:
        """What roles may do in the namespace."""

    @rest.post(_PERMISSION, body="actions")
    async def grant_permission(
        self, namespace: str, role: str, actions: Sequence[AuthAction]
    ) -> None:
        """Replace what a role may do."""

    @rest.delete(_PERMISSION)
    async def revoke_permissions(self, namespace: str, role: str) -> None:
        """Take all permissions from a role."""

    @rest.get(f"{_NAMESPACE}/permissions/subscription")
    async def subscription_permissions(self, namespace: str) -> dict[str, Names]:
        """The roles that may use a subscription by name; all may use the others."""

    @rest.post(f"{_NAMESPACE}/permissions/subscription/{{subscription}}", body="roles")
    async def grant_subscription_permission(
        self, namespace: str, subscription: str, roles: Sequence[str]
    ) -> None:
        """Replace the roles that may use a subscription."""

    @rest.delete(f"{_NAMESPACE}/permissions/{{subscription}}/{{role}}")
    async def revoke_subscription_permission(
        self, namespace: str, subscription: str, role: str
    ) -> None:
        """Take a role from those that may use a subscription."""

    @rest.post("/admin/v2/namespaces/grantPermissionsOnTopics", body="permissions")
    async def grant_permissions_on_topics(
        self, permissions: Sequence[GrantTopicPermission]
    ) -> None:
        """Allow roles to use topics, of any namespaces."""

    @rest.post("/admin/v2/namespaces/revokePermissionsOnTopics", body="permissions")
    async def revoke_permissions_on_topics(
        self, permissions: Sequence[RevokeTopicPermission]
    ) -> None:
        """Take all permissions on topics from roles."""

    @rest.get(f"{_NAMESPACE}/properties")
    async def get_properties(self, namespace: str) -> dict[str, str]:
        """All properties."""

    @rest.put(f"{_NAMESPACE}/properties", body="properties")
    async def set_properties(self, namespace: str, properties: Mapping[str, str]) -> None:
        """Add properties to those that are there."""

    @rest.delete(f"{_NAMESPACE}/properties")
    async def clear_properties(self, namespace: str) -> None:
        """Remove all properties."""

    @rest.get(_PROPERTY)
    async def get_property(self, namespace: str, key: str) -> str | None:
        """The value of a property; None if it isn't set."""

    @rest.put(f"{_PROPERTY}/{{value}}")
    async def set_property(self, namespace: str, key: str, value: str) -> None:
        """Set a property."""

    @rest.delete(_PROPERTY)
    async def remove_property(self, namespace: str, key: str) -> str | None:
        """Remove a property; returns its value."""

    @rest.get("/admin/v2/namespaces/{cluster}/antiAffinity/{group}")
    async def anti_affinity_namespaces(
        self, cluster: str, group: str, *, tenant: str | None = None
    ) -> Names:
        """The tenant's namespaces of an anti-affinity group. Brokers refuse a call without one."""

    @rest.post(f"{_NAMESPACE}/migration", body="migrated")
    async def update_migration(self, namespace: str, migrated: bool) -> None:
        """Whether the namespace's clients are sent to the other cluster (`Clusters`)."""


class Bundles(rest.Family):
    """The parts of namespaces that brokers own, `0x00000000_0x40000000`."""

    @rest.get(f"{_NAMESPACE}/bundles")
    async def list(self, namespace: str) -> BundlesData:
        """The bundles of a namespace."""

    @rest.put(f"{_BUNDLE}/unload")
    async def unload(
        self, namespace: str, bundle: str, *, destination_broker: str | None = None
    ) -> None:
        """Close a bundle's topics, so that another broker can take them, or the one named."""

    @rest.put(f"{_BUNDLE}/split", body="boundaries", query={"algorithm": "splitAlgorithmName"})
    async def split(
        self,
        namespace: str,
        bundle: str,
        *,
        unload: bool = False,
        algorithm: SplitAlgorithm | None = None,
        boundaries: Sequence[int] | None = None,
    ) -> None:
        """Split a bundle, or "LARGEST", in two or at `boundaries` (specified_positions_divide)."""

    @rest.delete(_BUNDLE)
    async def delete(self, namespace: str, bundle: str, *, force: bool = False) -> None:
        """Delete a bundle without topics."""

    @rest.post(f"{_BUNDLE}/clearBacklog")
    async def clear_backlog(self, namespace: str, bundle: str) -> None:
        """Acknowledge all messages of a bundle's topics for all subscriptions."""

    @rest.post(f"{_BUNDLE}/clearBacklog/{{subscription}}")
    async def clear_backlog_of(self, namespace: str, bundle: str, subscription: str) -> None:
        """Acknowledge all messages for the subscriptions of that name."""

    @rest.post(f"{_BUNDLE}/unsubscribe/{{subscription}}")
    async def unsubscribe(self, namespace: str, bundle: str, subscription: str) -> None:
        """Delete the subscriptions of that name on a bundle's topics."""

    @rest.get(f"{_BUNDLE}/topicHashPositions")
    async def topic_hash_positions(
        self, namespace: str, bundle: str, *, topics: str | None = None
    ) -> TopicHashPositions:
        """The hashes of a bundle's topics, or of those named, between commas."""
