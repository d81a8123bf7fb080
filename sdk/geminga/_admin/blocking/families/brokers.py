"""`geminga._admin.families/brokers` of the blocking face.

Made by tools/faces.py: don't edit.
"""

# Bodies of declarations are docstrings.
# pyright: reportReturnType=false

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga._admin import declared as rest

if TYPE_CHECKING:
    from geminga._admin.model.base import Json, Names
    from geminga._admin.model.cluster import (
        BookieInfo,
        BookiesClusterInfo,
        BookieSpace,
        BrokerInfo,
        InternalConfigurationData,
        Metrics,
        NamespaceOwnershipStatus,
        ProxyConnectionStats,
        ProxyTopicStats,
        ResourceGroup,
        ResourceQuota,
    )

_BROKERS = "/admin/v2/brokers"
_CONFIGURATION = f"{_BROKERS}/configuration"
_RACK = "/admin/v2/bookies/racks-info/{bookie}"
_QUOTA = "/admin/v2/resource-quotas/{namespace}/{bundle}"
_GROUP = "/admin/v2/resourcegroups/{group}"


class Brokers(rest.BlockingFamily):
    """The brokers of the cluster."""

    @rest.get(_BROKERS)
    def list(self) -> Names:
        """The active brokers of the cluster, as `host:port` of their web services."""

    @rest.get(f"{_BROKERS}/{{cluster}}")
    def list_of(self, cluster: str) -> Names:
        """The active brokers of a cluster, as `list`."""

    @rest.get(f"{_BROKERS}/leaderBroker")
    def leader(self) -> BrokerInfo:
        """The broker that spreads the load."""

    @rest.get(f"{_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces")
    def owned_namespaces(self, cluster: str, broker: str) -> dict[str, NamespaceOwnershipStatus]:
        """The bundles that a broker owns, and why."""

    @rest.get(f"{_BROKERS}/version")
    def version(self) -> str:
        """The version of the broker that answers."""

    @rest.get(f"{_BROKERS}/health", query={"topic_version": "topicVersion", "broker": "brokerId"})
    def healthcheck(self, *, topic_version: str | None = None, broker: str | None = None) -> str:
        """Answers "ok" once the broker has written a message and read it again. `broker`
        (`host:port`) names another one to be checked.
        """

    @rest.get(f"{_BROKERS}/ready")
    def ready(self) -> str:
        """Answers "ok" if the broker is ready to serve."""

    @rest.get(f"{_BROKERS}/backlog-quota-check")
    def check_backlog_quotas(self) -> None:
        """Enforce backlog quotas now."""

    @rest.get(_CONFIGURATION)
    def list_dynamic_configuration(self) -> Names:
        """The names of settings that can be changed while brokers run."""

    @rest.get(f"{_CONFIGURATION}/values")
    def get_dynamic_configuration(self) -> dict[str, str]:
        """The settings that were changed so, and their values."""

    @rest.get(f"{_CONFIGURATION}/runtime")
    def get_runtime_configuration(self) -> dict[str, str]:
        """All settings of the broker that answers."""

    @rest.get(f"{_BROKERS}/internal-configuration")
    def get_internal_configuration(self) -> InternalConfigurationData:
        """Where the cluster keeps its metadata."""

    @rest.post(f"{_CONFIGURATION}/{{name}}/{{value}}")
    def update_dynamic_configuration(self, name: str, value: str) -> None:
        """Change a setting of all brokers."""

    @rest.delete(f"{_CONFIGURATION}/{{name}}")
    def delete_dynamic_configuration(self, name: str) -> None:
        """Let the configuration's own value hold again."""

    @rest.post(
        f"{_BROKERS}/shutdown",
        query={
            "max_concurrent_unloads_per_s": "maxConcurrentUnloadPerSec",
            "force": "forcedTerminateTopic",
        },
    )
    def shut_down(self, *, max_concurrent_unloads_per_s: int = 0, force: bool = True) -> None:
        """Unload all bundles of the broker that answers, and end its process. 0 is no bound. One
        of several brokers of a standalone is started again.
        """


class BrokerStats(rest.BlockingFamily):
    """What the broker that answers measures."""

    @rest.get("/admin/v2/broker-stats/metrics")
    def metrics(self) -> list[Metrics]:
        """Figures for monitoring."""

    @rest.get("/admin/v2/broker-stats/mbeans")
    def mbeans(self) -> list[Metrics]:
        """Figures of the Java machine, or of what runs instead of one."""

    @rest.get("/admin/v2/broker-stats/bookieops")
    def pending_bookie_operations(self) -> dict[str, dict[str, dict[str, int]]]:
        """Calls to bookies that topics wait for, by namespace and topic."""

    @rest.get("/admin/v2/broker-stats/topics")
    def topics(self) -> Json:
        """Statistics of all topics, by namespace, bundle and kind."""

    @rest.get("/admin/v2/broker-stats/load-report")
    def load_report(self) -> Json:
        """The broker's load as it reports it to the leader."""

    @rest.get("/admin/v2/broker-stats/allocator-stats/{allocator}")
    def allocator_stats(self, allocator: str) -> Json:
        """Memory of an allocator: "default" or "ml-cache"."""


class ProxyStats(rest.BlockingFamily):
    """What a proxy sees of clients. The client's address has to be the proxy's, and its role one of
    the proxy's super users where that has `authorizationEnabled`.
    """

    @rest.get("/proxy-stats/connections")
    def connections(self) -> list[ProxyConnectionStats]:
        """The clients' connections that lead to brokers."""

    @rest.get("/proxy-stats/topics")
    def topics(self) -> dict[str, ProxyTopicStats]:
        """What passes of each topic. Raises PreconditionFailedError while the proxy's log level
        isn't 2.
        """

    @rest.get("/proxy-stats/logging")
    def log_level(self) -> int:
        """What the proxy logs of clients: 0 nothing, 1 commands, 2 messages as well."""

    @rest.post("/proxy-stats/logging/{level}")
    def set_log_level(self, level: int) -> None:
        """Change that until the proxy starts anew."""


class Bookies(rest.BlockingFamily):
    """Bookies, and the racks that they stand in."""

    @rest.get("/admin/v2/bookies/all")
    def list(self) -> BookiesClusterInfo:
        """All registered bookies."""

    @rest.get("/admin/v2/bookies/space")
    def space(self) -> dict[str, BookieSpace | None]:
        """The room on the disks of each bookie that takes entries; None for one that doesn't tell.
        Only Geminga's brokers can tell. Raises NotFoundError on Apache's.
        """

    @rest.get("/admin/v2/bookies/racks-info")
    def racks(self) -> dict[str, dict[str, BookieInfo]]:
        """Racks of bookies, by group and bookie."""

    @rest.get(_RACK)
    def get_rack(self, bookie: str) -> BookieInfo:
        """A bookie's rack; `bookie` is `host:port`."""

    @rest.post(_RACK, body="info")
    def set_rack(self, bookie: str, group: str, info: BookieInfo) -> None:
        """Put a bookie into a rack and a group ("default")."""

    @rest.delete(_RACK)
    def delete_rack(self, bookie: str) -> None:
        """Forget a bookie's rack."""


class ResourceQuotas(rest.BlockingFamily):
    """The shares of brokers that bundles are expected to need."""

    @rest.get("/admin/v2/resource-quotas")
    def get_default(self) -> ResourceQuota:
        """The share of a bundle without one of its own."""

    @rest.post("/admin/v2/resource-quotas", body="quota")
    def set_default(self, quota: ResourceQuota) -> None:
        """Set the share of bundles without one of their own."""

    @rest.get(_QUOTA)
    def get(self, namespace: str, bundle: str) -> ResourceQuota:
        """The share of a bundle, `0x00000000_0x40000000`."""

    @rest.post(_QUOTA, body="quota")
    def set(self, namespace: str, bundle: str, quota: ResourceQuota) -> None:
        """Set the share of a bundle."""

    @rest.delete(_QUOTA)
    def reset(self, namespace: str, bundle: str) -> None:
        """Let the default share hold for a bundle."""


class ResourceGroups(rest.BlockingFamily):
    """Bounds on several namespaces together."""

    @rest.get("/admin/v2/resourcegroups")
    def list(self) -> Names:
        """The names of all groups."""

    @rest.get(_GROUP)
    def get(self, group: str) -> ResourceGroup:
        """A group's bounds."""

    @rest.put(_GROUP, body="bounds")
    def set(self, group: str, bounds: ResourceGroup) -> None:
        """Create a group, or replace its bounds."""

    @rest.delete(_GROUP)
    def delete(self, group: str) -> None:
        """Delete a group."""
