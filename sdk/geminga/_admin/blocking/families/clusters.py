"""`geminga._admin.families/clusters` of the blocking face.

Made by tools/faces.py: don't edit.
"""

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


class Clusters(rest.BlockingFamily):
    """The clusters that are known to each other."""

    @rest.get("/admin/v2/clusters")
    def list(self) -> Names:
        """The names of all clusters."""

    @rest.get(_CLUSTER)
    def get(self, cluster: str) -> ClusterData:
        """How a cluster is reached."""

    @rest.put(_CLUSTER, body="data")
    def create(self, cluster: str, data: ClusterData) -> None:
        """Make a cluster known."""

    @rest.post(_CLUSTER, body="data")
    def update(self, cluster: str, data: ClusterData) -> None:
        """Replace how a cluster is reached."""

    @rest.delete(_CLUSTER)
    def delete(self, cluster: str) -> None:
        """Forget a cluster that no tenant uses."""

    @rest.get(f"{_CLUSTER}/peers")
    def get_peers(self, cluster: str) -> Names | None:
        """The clusters that take over for one another."""

    @rest.post(f"{_CLUSTER}/peers", body="peers")
    def update_peers(self, cluster: str, peers: Sequence[str]) -> None:
        """Replace the peers of a cluster."""

    @rest.get(f"{_CLUSTER}/migrate")
    def get_migration(self, cluster: str) -> ClusterPolicies:
        """Whether a cluster was moved, and whereto."""

    @rest.post(f"{_CLUSTER}/migrate", body="url")
    def update_migration(self, cluster: str, url: ClusterUrl, *, migrated: bool) -> None:
        """Send the clients of a cluster to another one, or no longer."""

    @rest.get(_DOMAINS)
    def list_failure_domains(self, cluster: str) -> dict[str, FailureDomain]:
        """The failure domains by their names."""

    @rest.get(_DOMAIN)
    def get_failure_domain(self, cluster: str, domain: str) -> FailureDomain:
        """The brokers of a failure domain."""

    @rest.post(_DOMAIN, body="brokers")
    def set_failure_domain(self, cluster: str, domain: str, brokers: FailureDomain) -> None:
        """Create a failure domain, or replace its brokers."""

    @rest.delete(_DOMAIN)
    def delete_failure_domain(self, cluster: str, domain: str) -> None:
        """Delete a failure domain."""


class IsolationPolicies(rest.BlockingFamily):
    """Which brokers of a cluster serve which namespaces."""

    @rest.get(_POLICIES)
    def list(self, cluster: str) -> dict[str, NamespaceIsolationData]:
        """All policies by their names."""

    @rest.get(_POLICY)
    def get(self, cluster: str, policy: str) -> NamespaceIsolationData:
        """One policy."""

    @rest.post(_POLICY, body="data")
    def set(self, cluster: str, policy: str, data: NamespaceIsolationData) -> None:
        """Create or replace a policy. Bundles that it moves are unloaded (`unload_scope`)."""

    @rest.delete(_POLICY)
    def delete(self, cluster: str, policy: str) -> None:
        """Delete a policy."""

    @rest.get(f"{_POLICIES}/brokers")
    def brokers(self, cluster: str) -> BrokerIsolations:
        """All brokers with the policies that name them."""

    @rest.get(f"{_POLICIES}/brokers/{{broker}}")
    def broker(self, cluster: str, broker: str) -> BrokerNamespaceIsolationData:
        """The policies that name a broker."""
