"""`geminga._admin.families/topic_policies` of the blocking face.

Made by tools/faces.py: don't edit.
"""

# Bodies of declarations are docstrings.
# pyright: reportReturnType=false

from __future__ import annotations

from geminga._admin import declared as rest
from geminga._admin.blocking.policies import topic_policy, topic_setting
from geminga._admin.model.policies import (
    AutoSubscriptionCreationOverride,
    BacklogQuota,
    BacklogQuotaType,
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
from geminga._admin.policy_paths import PolicyPath

_TOPIC = "/admin/v2/{topic}"
_RATE = f"{_TOPIC}/{{subscription}}/dispatchRate"
_PAUSE = f"{_TOPIC}/dispatcherPauseOnAckStatePersistent"


class TopicPolicies(rest.BlockingFamily):
    """What holds for one topic: each attribute has `get`, `set` and, mostly, `remove`. Changes may
    take a moment until they can be read.
    """

    auto_subscription_creation = topic_policy(
        PolicyPath("autoSubscriptionCreation", AutoSubscriptionCreationOverride)
    )
    compaction_threshold = topic_policy(PolicyPath("compactionThreshold", int))
    """Bytes after which the topic is compacted; 0 never."""
    deduplication = topic_policy(PolicyPath("deduplicationEnabled", bool))
    deduplication_snapshot_interval = topic_policy(PolicyPath("deduplicationSnapshotInterval", int))
    """Seconds."""
    delayed_delivery = topic_policy(PolicyPath("delayedDelivery", DelayedDeliveryPolicies))
    dispatch_rate = topic_policy(PolicyPath("dispatchRate", DispatchRate))
    entry_filters = topic_policy(PolicyPath("entryFilters", EntryFilters))
    inactive_topic_policies = topic_policy(
        PolicyPath("inactiveTopicPolicies", InactiveTopicPolicies)
    )
    max_consumers = topic_policy(PolicyPath("maxConsumers", int))
    max_consumers_per_subscription = topic_policy(PolicyPath("maxConsumersPerSubscription", int))
    max_message_size = topic_policy(PolicyPath("maxMessageSize", int))
    """Bytes."""
    max_producers = topic_policy(PolicyPath("maxProducers", int))
    max_subscriptions = topic_policy(PolicyPath("maxSubscriptionsPerTopic", int))
    max_unacked_messages_on_consumer = topic_policy(PolicyPath("maxUnackedMessagesOnConsumer", int))
    max_unacked_messages_on_subscription = topic_policy(
        PolicyPath("maxUnackedMessagesOnSubscription", int)
    )
    message_ttl = topic_policy(PolicyPath("messageTTL", int, in_query="messageTTL"))
    """Seconds."""
    offload_policies = topic_policy(PolicyPath("offloadPolicies", OffloadPolicies))
    persistence = topic_policy(PolicyPath("persistence", PersistencePolicies))
    publish_rate = topic_policy(PolicyPath("publishRate", PublishRate))
    replication_clusters = topic_policy(PolicyPath("replication", list[str]))
    replicator_dispatch_rate = topic_policy(PolicyPath("replicatorDispatchRate", DispatchRate))
    retention = topic_policy(PolicyPath("retention", RetentionPolicies))
    schema_compatibility_strategy = topic_policy(
        PolicyPath("schemaCompatibilityStrategy", str, verb="PUT")
    )
    """A `SchemaCompatibilityStrategy`."""
    schema_validation_enforced = topic_setting(PolicyPath("schemaValidationEnforced", bool))
    shadow_topics = topic_policy(PolicyPath("shadowTopics", list[str], verb="PUT"))
    """Topics that read this one's messages (PIP-180)."""
    subscribe_rate = topic_policy(PolicyPath("subscribeRate", SubscribeRate))
    subscription_dispatch_rate = topic_policy(PolicyPath("subscriptionDispatchRate", DispatchRate))
    subscription_types_enabled = topic_policy(PolicyPath("subscriptionTypesEnabled", list[str]))

    @rest.get(f"{_TOPIC}/backlogQuotaMap")
    def get_backlog_quotas(
        self, topic: str, *, applied: bool = False, is_global: bool = False
    ) -> dict[BacklogQuotaType, BacklogQuota]:
        """The bounds by size and by age; with `applied` those that hold, by whatever level."""

    @rest.post(f"{_TOPIC}/backlogQuota", body="quota", query={"kind": "backlogQuotaType"})
    def set_backlog_quota(
        self,
        topic: str,
        quota: BacklogQuota,
        *,
        kind: BacklogQuotaType = "destination_storage",
        is_global: bool = False,
    ) -> None:
        """Set the bound by size or by age."""

    @rest.delete(f"{_TOPIC}/backlogQuota", query={"kind": "backlogQuotaType"})
    def remove_backlog_quota(
        self,
        topic: str,
        *,
        kind: BacklogQuotaType = "destination_storage",
        is_global: bool = False,
    ) -> None:
        """Let the namespace's bound hold."""

    @rest.get(_RATE)
    def get_dispatch_rate_of(
        self, topic: str, subscription: str, *, applied: bool = False, is_global: bool = False
    ) -> DispatchRate | None:
        """The bound of one subscription."""

    @rest.post(_RATE, body="rate")
    def set_dispatch_rate_of(
        self, topic: str, subscription: str, rate: DispatchRate, *, is_global: bool = False
    ) -> None:
        """Set the bound of one subscription."""

    @rest.delete(_RATE)
    def remove_dispatch_rate_of(
        self, topic: str, subscription: str, *, is_global: bool = False
    ) -> None:
        """Remove the bound of one subscription."""

    @rest.get(_PAUSE)
    def get_dispatcher_pause_on_ack_state_persistent(
        self, topic: str, *, applied: bool = False, is_global: bool = False
    ) -> bool | None:
        """Whether a subscription waits when what it acknowledged can't be written."""

    @rest.post(_PAUSE)
    def set_dispatcher_pause_on_ack_state_persistent(
        self, topic: str, *, is_global: bool = False
    ) -> None:
        """Let subscriptions wait when what they acknowledged can't be written."""

    @rest.delete(_PAUSE)
    def remove_dispatcher_pause_on_ack_state_persistent(
        self, topic: str, *, is_global: bool = False
    ) -> None:
        """Let the namespace's setting hold."""

    @rest.delete(f"{_TOPIC}/policies")
    def delete_all(self, topic: str) -> None:
        """Remove all policies of the topic."""
