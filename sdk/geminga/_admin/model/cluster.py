"""Clusters, tenants, brokers and bookies, as the admin REST has them."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from geminga._admin.model.base import Model

AuthAction = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]
"""What a role may be allowed to do."""


class TenantInfo(Model):
    """Who administers a tenant, and where its data may be."""

    admin_roles: list[str] = field(default_factory=list)
    allowed_clusters: list[str] = field(default_factory=list)


class ClusterData(Model):
    """How a cluster is reached by others."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    proxy_service_url: str | None = None
    proxy_protocol: Literal["SNI"] | None = None
    authentication_plugin: str | None = None
    authentication_parameters: str | None = None
    peer_cluster_names: list[str] | None = None
    broker_client_tls_enabled: bool = False
    tls_allow_insecure_connection: bool = False
    broker_client_trust_certs_file_path: str | None = None
    broker_client_certificate_file_path: str | None = None
    broker_client_key_file_path: str | None = None
    broker_client_tls_enabled_with_key_store: bool = False
    broker_client_tls_trust_store_type: str | None = None
    broker_client_tls_trust_store: str | None = None
    broker_client_tls_trust_store_password: str | None = None
    broker_client_tls_key_store_type: str | None = None
    broker_client_tls_key_store: str | None = None
    broker_client_tls_key_store_password: str | None = None
    broker_client_ssl_factory_plugin: str | None = None
    broker_client_ssl_factory_plugin_params: str | None = None
    listener_name: str | None = None


class ClusterUrl(Model):
    """Where a cluster was moved to."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None


class ClusterPolicies(Model):
    """Whether a cluster was moved, and whereto."""

    migrated: bool = False
    migrated_cluster_url: ClusterUrl | None = None


class FailureDomain(Model):
    """Brokers that fail together."""

    brokers: list[str] = field(default_factory=list)


class AutoFailoverPolicy(Model, rename=str):
    """When the secondary brokers take over: `min_available` needs the parameters `min_limit` and
    `usage_threshold`.
    """

    policy_type: str = "min_available"
    parameters: dict[str, str] = field(default_factory=dict)


class NamespaceIsolationData(Model, rename=str):
    """Which brokers serve which namespaces; all are regular expressions."""

    namespaces: list[str] = field(default_factory=list)
    primary: list[str] = field(default_factory=list)
    secondary: list[str] = field(default_factory=list)
    auto_failover_policy: AutoFailoverPolicy | None = None
    unload_scope: Literal["all_matching", "none", "changed"] | None = None


class BrokerNamespaceIsolationData(Model):
    """What isolation policies say of a broker."""

    broker_name: str = ""
    policy_name: str | None = None
    is_primary: bool = field(default=False, name="primary")
    namespace_regex: list[str] | None = None


BrokerIsolations = list[BrokerNamespaceIsolationData]
"""Of all brokers."""


class BrokerInfo(Model):
    """The leader of the brokers."""

    service_url: str = ""
    broker_id: str = ""


class NamespaceOwnershipStatus(Model, rename=str):
    """How a broker came to own a bundle."""

    broker_assignment: str = ""
    is_controlled: bool = False
    is_active: bool = False


class InternalConfigurationData(Model):
    """Where a cluster keeps its metadata."""

    metadata_store_url: str | None = None
    configuration_metadata_store_url: str | None = None
    ledgers_root_path: str | None = None
    bookkeeper_metadata_service_uri: str | None = None
    state_storage_service_url: str | None = None


class ProxyConnectionStats(Model):
    """A client's connection through a proxy: its reads and bytes in a second. Addresses are as Java
    writes them.
    """

    request_rate: float = 0.0
    byte_rate: float = 0.0
    client_address: str | None = None
    broker_address: str | None = None


class ProxyTopicStats(Model):
    """Messages and bytes of a topic in a second: in is from producers."""

    msg_rate_in: float = 0.0
    msg_byte_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_byte_out: float = 0.0


class ResourceQuota(Model):
    """The share of a broker that a bundle is expected to need."""

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    bandwidth_in: float = 0.0
    """Bytes/s."""
    bandwidth_out: float = 0.0
    memory: float = 0.0
    """MB."""
    dynamic: bool = True
    """Whether brokers adjust it."""


class ResourceGroup(Model):
    """A bound on all namespaces of a group together; None is no bound."""

    publish_rate_in_msgs: int | None = None
    publish_rate_in_bytes: int | None = None
    dispatch_rate_in_msgs: int | None = None
    dispatch_rate_in_bytes: int | None = None


class BookieId(Model):
    """A registered bookie."""

    bookie_id: str = ""


class BookieSpace(Model):
    """Room on the disks of a bookie; 0 of 0 for one in memory."""

    free_bytes: int = 0
    total_bytes: int = 0


class BookiesClusterInfo(Model):
    """All registered bookies."""

    bookies: list[BookieId] = field(default_factory=list)


class BookieInfo(Model):
    """Where a bookie stands."""

    rack: str = ""
    hostname: str | None = None


class LookupData(Model):
    """The broker that serves a topic."""

    broker_url: str | None = None
    broker_url_tls: str | None = None
    http_url: str | None = None
    http_url_tls: str | None = None
    native_url: str | None = None


class Metrics(Model):
    """Some figures of a broker, and what they are of."""

    metrics: dict[str, float | int | str | None] = field(default_factory=dict)
    dimensions: dict[str, str] = field(default_factory=dict)


class TopicHashPositions(Model):
    """The hashes of a bundle's topics."""

    namespace: str | None = None
    bundle: str | None = None
    topic_hash_positions: dict[str, int] = field(default_factory=dict)
