"""Clusters, their failure domains, and policies that isolate namespaces."""

# Bodies of declarations are docstrings.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from geminga._admin import declared as rest

if TYPE_CHECKING:
    from geminga._admin.model.base import Names
    from geminga._admin.model.cluster import (
        BrokerIsolations,
        BrokerNamespaceIsolationData,
        ClusterData,
        ClusterPolicies,
        ClusterUrl,
        FailureDomain,
        NamespaceIsolationData,
    )

_CLUSTER = "/admin/v2/clusters/{cluster}"
_DOMAINS = f"{_CLUSTER}/failureDomains"
_DOMAIN = f"{_DOMAINS}/{{domain}}"
_POLICIES = f"{_CLUSTER}/namespaceIsolationPolicies"
_POLICY = f"{_POLICIES}/{{policy}}"


class Clusters(rest.Family):
    """The clusters that are known to each other."""

    @rest.get("/admin/v2/clusters")
    async def list(self) -> Names:
        """The names of all clusters."""

    @rest.get(_CLUSTER)
    async def get(self, cluster: str) -> ClusterData:
        """How a cluster is reached."""

    @rest.put(_CLUSTER, body="data")
    async def create(self, cluster: str, data: ClusterData) -> None:
        """Make a cluster known."""

    @rest.post(_CLUSTER, body="data")
    async def update(self, cluster: str, data: ClusterData) -> None:
        """Replace how a cluster is reached."""

    @rest.delete(_CLUSTER)
    async def delete(self, cluster: str) -> None:
        """Forget a cluster that no tenant uses."""

    @rest.get(f"{_CLUSTER}/peers")
    async def get_peers(self, cluster: str) -> Names | None:
        """The clusters that take over for one another."""

    @rest.post(f"{_CLUSTER}/peers", body="peers")
    async def update_peers(self, cluster: str, peers: Sequence[str]) -> None:
        """Replace the peers of a cluster."""

    @rest.get(f"{_CLUSTER}/migrate")
    async def get_migration(self, cluster: str) -> ClusterPolicies:
        """Whether a cluster was moved, and whereto."""

    @rest.post(f"{_CLUSTER}/migrate", body="url")
    async def update_migration(self, cluster: str, url: ClusterUrl, *, migrated: bool) -> None:
        """Send the clients of a cluster to another one, or no longer."""

    @rest.get(_DOMAINS)
    async def list_failure_domains(self, cluster: str) -> dict[str, FailureDomain]:
        """The failure domains by their names."""

    @rest.get(_DOMAIN)
    async def get_failure_domain(self, cluster: str, domain: str) -> FailureDomain:
        """The brokers of a failure domain."""

    @rest.post(_DOMAIN, body="brokers")
    async def set_failure_domain(self, cluster: str, domain: str, brokers: FailureDomain) -> None:
        """Create a failure domain, or replace its brokers."""

    @rest.delete(_DOMAIN)
    async def delete_failure_domain(self, cluster: str, domain: str) -> None:
        """Delete a failure domain."""


class IsolationPolicies(rest.Family):
    """Which brokers of a cluster serve which namespaces."""

    @rest.get(_POLICIES)
    async def list(self, cluster: str) -> dict[str, NamespaceIsolationData]:
        """All policies by their names."""

    @rest.get(_POLICY)
    async def get(self, cluster: str, policy: str) -> NamespaceIsolationData:
        """One policy."""

    @rest.post(_POLICY, body="data")
    async def set(self, cluster: str, policy: str, data: NamespaceIsolationData) -> None:
        """Create or replace a policy. Bundles that it moves are unloaded (`unload_scope`)."""

    @rest.delete(_POLICY)
    async def delete(self, cluster: str, policy: str) -> None:
        """Delete a policy."""

    @rest.get(f"{_POLICIES}/brokers")
    async def brokers(self, cluster: str) -> BrokerIsolations:
        """All brokers with the policies that name them."""

    @rest.get(f"{_POLICIES}/brokers/{{broker}}")
    async def broker(self, cluster: str, broker: str) -> BrokerNamespaceIsolationData:
        """The policies that name a broker."""
