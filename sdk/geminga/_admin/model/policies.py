"""Policies of namespaces and topics (Apache's org.apache.pulsar.common.policies.data)."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from geminga._admin.model.base import Model

BacklogQuotaType = Literal["destination_storage", "message_age"]
"""By size, or by the age of the oldest message."""
BacklogQuotaPolicy = Literal[
    "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
]
"""What happens at the limit: producers wait, producers fail, or the oldest messages go."""
SchemaCompatibilityStrategy = Literal[
    "UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL",
    "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
]  # fmt: skip
SchemaAutoUpdateCompatibilityStrategy = Literal[
    "AutoUpdateDisabled", "Backward", "Forward", "Full", "AlwaysCompatible", "BackwardTransitive",
    "ForwardTransitive", "FullTransitive",
]  # fmt: skip
SubscriptionType = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]
SubscriptionAuthMode = Literal["None", "Prefix"]
InactiveTopicDeleteMode = Literal[
    "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"
]


class RetentionPolicies(Model):
    """How long acknowledged messages are kept: -1 for ever, 0 not at all. Both bounds hold."""

    retention_time_in_minutes: int
    retention_size_in_mb: int


class PersistencePolicies(Model):
    """Copies of each entry, and how often cursors are written."""

    bookkeeper_ensemble: int
    bookkeeper_write_quorum: int
    bookkeeper_ack_quorum: int
    managed_ledger_max_mark_delete_rate: float = 0.0
    """Writes of a cursor's position a second; 0 is no bound. A negative one is the broker's own;
    with that, Apache's 4.0 can't load the topics.
    """
    managed_ledger_storage_class_name: str | None = None


class BacklogQuota(Model):
    """A bound on what subscriptions leave unacknowledged; -1 is none."""

    policy: BacklogQuotaPolicy
    limit_size: int = -1
    """Bytes."""
    limit_time: int = -1
    """Seconds."""


class DispatchRate(Model):
    """A bound on messages to consumers; -1 is none."""

    dispatch_throttling_rate_in_msg: int = -1
    dispatch_throttling_rate_in_byte: int = -1
    relative_to_publish_rate: bool = False
    rate_period_in_second: int = 1


class PublishRate(Model):
    """A bound on messages of producers, a second; -1 is none."""

    publish_throttling_rate_in_msg: int = -1
    publish_throttling_rate_in_byte: int = -1


class SubscribeRate(Model):
    """How often one consumer may subscribe in a period; -1 is no bound."""

    subscribe_throttling_rate_per_consumer: int = -1
    rate_period_in_second: int = 30


class DelayedDeliveryPolicies(Model):
    """Whether, and how exactly, messages can be delivered later."""

    active: bool
    tick_time: int = 1000
    """Milliseconds."""
    max_delivery_delay_in_millis: int = 0
    """0 is no bound."""


class InactiveTopicPolicies(Model):
    """When topics that nobody uses are deleted."""

    inactive_topic_delete_mode: InactiveTopicDeleteMode | None = None
    max_inactive_duration_seconds: int = 0
    delete_while_inactive: bool = False


class AutoTopicCreationOverride(Model):
    """Whether clients create topics by using them."""

    allow_auto_topic_creation: bool
    topic_type: Literal["partitioned", "non-partitioned"] | None = None
    default_num_partitions: int | None = None


class AutoSubscriptionCreationOverride(Model):
    """Whether consumers create subscriptions by subscribing."""

    allow_auto_subscription_creation: bool


class EntryFilters(Model):
    """Filters that choose what consumers get; names between commas."""

    entry_filter_names: str | None = None


class BookieAffinityGroupData(Model):
    """The groups of bookies that ledgers are put on; names between commas."""

    bookkeeper_affinity_group_primary: str | None = None
    bookkeeper_affinity_group_secondary: str | None = None


class OffloadPolicies(Model):
    """When, and whereto, old ledgers are moved out of BookKeeper."""

    offloaders_directory: str | None = None
    managed_ledger_offload_driver: str | None = None
    managed_ledger_offload_max_threads: int | None = None
    managed_ledger_offload_read_threads: int | None = None
    managed_ledger_offload_prefetch_rounds: int | None = None
    managed_ledger_offload_threshold_in_bytes: int | None = None
    managed_ledger_offload_threshold_in_seconds: int | None = None
    managed_ledger_offload_deletion_lag_in_millis: int | None = None
    managed_ledger_offloaded_read_priority: (
        Literal["BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST"] | None
    ) = None
    managed_ledger_extra_configurations: dict[str, str] | None = None
    managed_ledger_offload_region: str | None = None
    managed_ledger_offload_bucket: str | None = None
    managed_ledger_offload_service_endpoint: str | None = None
    managed_ledger_offload_max_block_size_in_bytes: int | None = None
    managed_ledger_offload_read_buffer_size_in_bytes: int | None = None
    s3_managed_ledger_offload_region: str | None = None
    s3_managed_ledger_offload_bucket: str | None = None
    s3_managed_ledger_offload_service_endpoint: str | None = None
    s3_managed_ledger_offload_max_block_size_in_bytes: int | None = None
    s3_managed_ledger_offload_read_buffer_size_in_bytes: int | None = None
    s3_managed_ledger_offload_credential_id: str | None = None
    s3_managed_ledger_offload_credential_secret: str | None = None
    s3_managed_ledger_offload_role: str | None = None
    s3_managed_ledger_offload_role_session_name: str | None = None
    gcs_managed_ledger_offload_region: str | None = None
    gcs_managed_ledger_offload_bucket: str | None = None
    gcs_managed_ledger_offload_max_block_size_in_bytes: int | None = None
    gcs_managed_ledger_offload_read_buffer_size_in_bytes: int | None = None
    gcs_managed_ledger_offload_service_account_key_file: str | None = None
    file_system_profile_path: str | None = None
    file_system_uri: str | None = None


class BundlesData(Model):
    """A namespace's bundles: hash ranges between neighbouring boundaries."""

    boundaries: list[str] = field(default_factory=list)
    num_bundles: int = 0


class NewNamespace(Model):
    """What a namespace begins with."""

    bundles: BundlesData | None = None
    replication_clusters: list[str] | None = field(default=None, name="replication_clusters")


class AuthPolicies(Model, rename=str):
    """Permissions: actions by role, of the namespace and of single topics."""

    namespace_auth: dict[str, list[str]] = field(default_factory=dict)
    topic_auth: dict[str, dict[str, list[str]]] = field(
        default_factory=dict, name="destination_auth"
    )
    subscription_auth_roles: dict[str, list[str]] = field(default_factory=dict)


class Policies(Model):
    """All that is set for a namespace; None and empty mean that the broker's default holds."""

    auth_policies: AuthPolicies = field(default_factory=AuthPolicies, name="auth_policies")
    replication_clusters: list[str] = field(default_factory=list, name="replication_clusters")
    allowed_clusters: list[str] = field(default_factory=list, name="allowed_clusters")
    bundles: BundlesData | None = None
    backlog_quota_map: dict[str, BacklogQuota] = field(
        default_factory=dict, name="backlog_quota_map"
    )
    topic_dispatch_rate: dict[str, DispatchRate] = field(default_factory=dict)
    subscription_dispatch_rate: dict[str, DispatchRate] = field(default_factory=dict)
    replicator_dispatch_rate: dict[str, DispatchRate] = field(default_factory=dict)
    cluster_subscribe_rate: dict[str, SubscribeRate] = field(default_factory=dict)
    publish_max_message_rate: dict[str, PublishRate] = field(default_factory=dict)
    persistence: PersistencePolicies | None = None
    deduplication_enabled: bool | None = None
    deduplication_snapshot_interval_seconds: int | None = None
    auto_topic_creation_override: AutoTopicCreationOverride | None = None
    auto_subscription_creation_override: AutoSubscriptionCreationOverride | None = None
    message_ttl_in_seconds: int | None = field(default=None, name="message_ttl_in_seconds")
    subscription_expiration_time_minutes: int | None = field(
        default=None, name="subscription_expiration_time_minutes"
    )
    retention_policies: RetentionPolicies | None = field(default=None, name="retention_policies")
    deleted: bool = False
    encryption_required: bool = field(default=False, name="encryption_required")
    delayed_delivery_policies: DelayedDeliveryPolicies | None = field(
        default=None, name="delayed_delivery_policies"
    )
    inactive_topic_policies: InactiveTopicPolicies | None = field(
        default=None, name="inactive_topic_policies"
    )
    subscription_auth_mode: str = field(default="None", name="subscription_auth_mode")
    max_producers_per_topic: int | None = field(default=None, name="max_producers_per_topic")
    max_consumers_per_topic: int | None = field(default=None, name="max_consumers_per_topic")
    max_consumers_per_subscription: int | None = field(
        default=None, name="max_consumers_per_subscription"
    )
    max_unacked_messages_per_consumer: int | None = field(
        default=None, name="max_unacked_messages_per_consumer"
    )
    max_unacked_messages_per_subscription: int | None = field(
        default=None, name="max_unacked_messages_per_subscription"
    )
    max_subscriptions_per_topic: int | None = field(
        default=None, name="max_subscriptions_per_topic"
    )
    max_topics_per_namespace: int | None = field(default=None, name="max_topics_per_namespace")
    compaction_threshold: int | None = field(default=None, name="compaction_threshold")
    offload_policies: OffloadPolicies | None = field(default=None, name="offload_policies")
    schema_compatibility_strategy: str = field(
        default="UNDEFINED", name="schema_compatibility_strategy"
    )
    is_allow_auto_update_schema: bool | None = field(
        default=None, name="is_allow_auto_update_schema"
    )
    schema_validation_enforced: bool = field(default=False, name="schema_validation_enforced")
    subscription_types_enabled: list[str] = field(
        default_factory=list, name="subscription_types_enabled"
    )
    properties: dict[str, str] = field(default_factory=dict)
    resource_group_name: str | None = field(default=None, name="resource_group_name")
    entry_filters: EntryFilters | None = None
    namespace_anti_affinity_group: str | None = None
    migrated: bool = False
    dispatcher_pause_on_ack_state_persistent_enabled: bool | None = None
