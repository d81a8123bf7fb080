"""`geminga._admin.families/namespace_policies` of the blocking face.

Made by tools/faces.py: don't edit.
"""

# Bodies of declarations are docstrings.
# pyright: reportReturnType=false

from __future__ import annotations

from geminga._admin import declared as rest
from geminga._admin.blocking.policies import namespace_policy, namespace_setting
from geminga._admin.model.policies import (
    AutoSubscriptionCreationOverride,
    AutoTopicCreationOverride,
    BacklogQuota,
    BacklogQuotaType,
    BookieAffinityGroupData,
    DelayedDeliveryPolicies,
    DispatchRate,
    EntryFilters,
    InactiveTopicPolicies,
    OffloadPolicies,
    PersistencePolicies,
    PublishRate,
    RetentionPolicies,
    SubscribeRate,
)
from geminga._admin.policy_paths import PolicyPath, Removal

_NAMESPACE = "/admin/v2/namespaces/{namespace}"
_PAUSE = f"{_NAMESPACE}/dispatcherPauseOnAckStatePersistent"
_OFFLOAD_REMOVAL = Removal(path="removeOffloadPolicies")
_BY_NULL = Removal("POST", body=b"null")


class NamespacePolicies(rest.BlockingFamily):
    """What holds for all topics of a namespace unless a topic has its own: each attribute has
    `get`, `set` and, mostly, `remove`.
    """

    allowed_clusters = namespace_setting(PolicyPath("allowedClusters", list[str]))
    anti_affinity_group = namespace_policy(PolicyPath("antiAffinity", str, is_plain=True))
    auto_subscription_creation = namespace_policy(
        PolicyPath("autoSubscriptionCreation", AutoSubscriptionCreationOverride)
    )
    auto_topic_creation = namespace_policy(
        PolicyPath("autoTopicCreation", AutoTopicCreationOverride)
    )
    bookie_affinity_group = namespace_policy(
        PolicyPath("persistence/bookieAffinity", BookieAffinityGroupData)
    )
    compaction_threshold = namespace_policy(PolicyPath("compactionThreshold", int, verb="PUT"))
    """Bytes after which a topic is compacted; 0 never."""
    deduplication = namespace_policy(PolicyPath("deduplication", bool))
    deduplication_snapshot_interval = namespace_policy(
        PolicyPath("deduplicationSnapshotInterval", int, removal=_BY_NULL)
    )
    """Seconds."""
    delayed_delivery = namespace_policy(PolicyPath("delayedDelivery", DelayedDeliveryPolicies))
    dispatch_rate = namespace_policy(PolicyPath("dispatchRate", DispatchRate))
    encryption_required = namespace_setting(PolicyPath("encryptionRequired", bool))
    entry_filters = namespace_policy(PolicyPath("entryFilters", EntryFilters))
    inactive_topic_policies = namespace_policy(
        PolicyPath("inactiveTopicPolicies", InactiveTopicPolicies)
    )
    is_allow_auto_update_schema = namespace_setting(PolicyPath("isAllowAutoUpdateSchema", bool))
    max_consumers_per_subscription = namespace_policy(
        PolicyPath("maxConsumersPerSubscription", int)
    )
    max_consumers_per_topic = namespace_policy(PolicyPath("maxConsumersPerTopic", int))
    max_producers_per_topic = namespace_policy(PolicyPath("maxProducersPerTopic", int))
    max_subscriptions_per_topic = namespace_policy(PolicyPath("maxSubscriptionsPerTopic", int))
    max_topics_per_namespace = namespace_policy(PolicyPath("maxTopicsPerNamespace", int))
    max_unacked_messages_per_consumer = namespace_policy(
        PolicyPath("maxUnackedMessagesPerConsumer", int)
    )
    max_unacked_messages_per_subscription = namespace_policy(
        PolicyPath("maxUnackedMessagesPerSubscription", int)
    )
    message_ttl = namespace_policy(PolicyPath("messageTTL", int))
    """Seconds."""
    offload_deletion_lag = namespace_policy(PolicyPath("offloadDeletionLagMs", int, verb="PUT"))
    """Milliseconds."""
    offload_policies = namespace_policy(
        PolicyPath("offloadPolicies", OffloadPolicies, removal=_OFFLOAD_REMOVAL)
    )
    offload_threshold = namespace_setting(PolicyPath("offloadThreshold", int, verb="PUT"))
    """Bytes."""
    offload_threshold_in_seconds = namespace_setting(
        PolicyPath("offloadThresholdInSeconds", int, verb="PUT")
    )
    persistence = namespace_policy(PolicyPath("persistence", PersistencePolicies))
    publish_rate = namespace_policy(PolicyPath("publishRate", PublishRate))
    replication_clusters = namespace_setting(PolicyPath("replication", list[str]))
    replicator_dispatch_rate = namespace_policy(PolicyPath("replicatorDispatchRate", DispatchRate))
    resource_group = namespace_policy(PolicyPath("resourcegroup", str, in_path=True))
    retention = namespace_policy(PolicyPath("retention", RetentionPolicies))
    schema_auto_update_compatibility_strategy = namespace_setting(
        PolicyPath("schemaAutoUpdateCompatibilityStrategy", str, verb="PUT")
    )
    """A `SchemaAutoUpdateCompatibilityStrategy`, superseded by the next one."""
    schema_compatibility_strategy = namespace_setting(
        PolicyPath("schemaCompatibilityStrategy", str, verb="PUT")
    )
    """A `SchemaCompatibilityStrategy`."""
    schema_validation_enforced = namespace_setting(PolicyPath("schemaValidationEnforced", bool))
    subscribe_rate = namespace_policy(PolicyPath("subscribeRate", SubscribeRate))
    subscription_auth_mode = namespace_setting(PolicyPath("subscriptionAuthMode", str))
    """A `SubscriptionAuthMode`."""
    subscription_dispatch_rate = namespace_policy(
        PolicyPath("subscriptionDispatchRate", DispatchRate)
    )
    subscription_expiration_time = namespace_policy(PolicyPath("subscriptionExpirationTime", int))
    """Minutes."""
    subscription_types_enabled = namespace_policy(PolicyPath("subscriptionTypesEnabled", list[str]))

    @rest.get(f"{_NAMESPACE}/backlogQuotaMap")
    def get_backlog_quotas(self, namespace: str) -> dict[BacklogQuotaType, BacklogQuota]:
        """The bounds by size and by age."""

    @rest.post(f"{_NAMESPACE}/backlogQuota", body="quota", query={"kind": "backlogQuotaType"})
    def set_backlog_quota(
        self,
        namespace: str,
        quota: BacklogQuota,
        *,
        kind: BacklogQuotaType = "destination_storage",
    ) -> None:
        """Set the bound by size or by age."""

    @rest.delete(f"{_NAMESPACE}/backlogQuota", query={"kind": "backlogQuotaType"})
    def remove_backlog_quota(
        self, namespace: str, *, kind: BacklogQuotaType = "destination_storage"
    ) -> None:
        """Let the broker's own bound hold."""

    @rest.get(_PAUSE)
    def get_dispatcher_pause_on_ack_state_persistent(self, namespace: str) -> bool:
        """Whether a subscription waits when what it acknowledged can't be written."""

    @rest.post(_PAUSE)
    def set_dispatcher_pause_on_ack_state_persistent(self, namespace: str) -> None:
        """Let subscriptions wait when what they acknowledged can't be written."""

    @rest.delete(_PAUSE)
    def remove_dispatcher_pause_on_ack_state_persistent(self, namespace: str) -> None:
        """Let the broker's own setting hold."""
