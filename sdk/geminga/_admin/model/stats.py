"""Statistics of topics, their producers, subscriptions and consumers.

Rates are messages or bytes a second, over the last minute or so; counters begin when the broker
loads the topic. Times are in ms since 1970, 0 for never.
"""

from __future__ import annotations

from msgspec import field

from geminga._admin.model.base import Model


class PublisherStats(Model):
    """A producer."""

    access_mode: str | None = None
    producer_id: int = 0
    producer_name: str | None = None
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    average_msg_size: float = 0.0
    chunked_message_rate: float = 0.0
    supports_partial_producer: bool = False
    address: str | None = None
    connected_since: str | None = None
    client_version: str | None = None
    metadata: dict[str, str] | None = None
    msg_drop_rate: float = 0.0
    """Of non-persistent topics."""


class DrainingHash(Model):
    """A hash of Key_Shared keys that waits for its former consumer (PIP-379)."""

    hash: int = 0
    unack_msgs: int = 0
    blocked_attempts: int = 0


class ConsumerStats(Model):
    """A consumer."""

    app_id: str | None = None
    consumer_name: str | None = None
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    msg_rate_redeliver: float = 0.0
    message_ack_rate: float = 0.0
    chunked_message_rate: float = 0.0
    available_permits: int = 0
    unacked_messages: int = 0
    avg_messages_per_entry: int = 0
    blocked_consumer_on_unacked_msgs: bool = False
    draining_hashes_count: int = 0
    draining_hashes_cleared_total: int = 0
    draining_hashes_unacked_messages: int = 0
    draining_hashes: list[DrainingHash] | None = None
    address: str | None = None
    connected_since: str | None = None
    client_version: str | None = None
    last_acked_timestamp: int = 0
    last_consumed_timestamp: int = 0
    last_consumed_flow_timestamp: int = 0
    key_hash_range_arrays: list[list[int]] | None = None
    metadata: dict[str, str] | None = None


class SubscriptionStats(Model):
    """A subscription."""

    type: str | None = None
    active_consumer_name: str | None = None
    consumers: list[ConsumerStats] = field(default_factory=list)
    msg_backlog: int = 0
    """Messages, or entries if the backlog isn't precise."""
    msg_backlog_no_delayed: int = 0
    backlog_size: int = 0
    """Bytes; -1 if they were not asked for."""
    earliest_msg_publish_time_in_backlog: int = 0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    msg_rate_redeliver: float = 0.0
    message_ack_rate: float = 0.0
    chunked_message_rate: float = 0.0
    blocked_subscription_on_unacked_msgs: bool = False
    msg_delayed: int = 0
    msg_in_replay: int = 0
    unacked_messages: int = 0
    msg_rate_expired: float = 0.0
    total_msg_expired: int = 0
    last_expire_timestamp: int = 0
    last_consumed_flow_timestamp: int = 0
    last_consumed_timestamp: int = 0
    last_acked_timestamp: int = 0
    last_mark_delete_advanced_timestamp: int = 0
    is_durable: bool = True
    is_replicated: bool = False
    allow_out_of_order_delivery: bool = False
    key_shared_mode: str | None = None
    draining_hashes_count: int = 0
    draining_hashes_cleared_total: int = 0
    draining_hashes_unacked_messages: int = 0
    non_contiguous_deleted_messages_ranges: int = 0
    non_contiguous_deleted_messages_ranges_serialized_size: int = 0
    delayed_message_index_size_in_bytes: int = 0
    subscription_properties: dict[str, str] | None = None
    filter_processed_msg_count: int = 0
    filter_accepted_msg_count: int = 0
    filter_rejected_msg_count: int = 0
    filter_rescheduled_msg_count: int = 0
    dispatch_throttled_msg_events_by_subscription_limit: int = 0
    dispatch_throttled_bytes_events_by_subscription_limit: int = 0
    dispatch_throttled_msg_events_by_topic_limit: int = 0
    dispatch_throttled_bytes_events_by_topic_limit: int = 0
    dispatch_throttled_msg_events_by_broker_limit: int = 0
    dispatch_throttled_bytes_events_by_broker_limit: int = 0
    msg_drop_rate: float = 0.0
    """Of non-persistent topics."""


class ReplicatorStats(Model):
    """A replicator to another cluster."""

    connected: bool = False
    replication_backlog: int = 0
    replication_delay_in_seconds: int = 0
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    msg_rate_expired: float = 0.0
    msg_out_count: int = 0
    msg_expired_count: int = 0
    inbound_connection: str | None = None
    inbound_connected_since: str | None = None
    outbound_connection: str | None = None
    outbound_connected_since: str | None = None


class CompactionStats(Model):
    """The last compaction."""

    last_compaction_removed_event_count: int = 0
    last_compaction_succeed_timestamp: int = 0
    last_compaction_failed_timestamp: int = 0
    last_compaction_duration_time_in_mills: int = 0


class TopicStats(Model):
    """A topic, or one partition."""

    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_in_counter: int = 0
    msg_in_counter: int = 0
    system_topic_bytes_in_counter: int = 0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    average_msg_size: float = 0.0
    msg_chunk_published: bool = False
    storage_size: int = 0
    backlog_size: int = 0
    backlog_quota_limit_size: int = 0
    backlog_quota_limit_time: int = 0
    oldest_backlog_message_age_seconds: int = 0
    oldest_backlog_message_subscription_name: str | None = None
    publish_rate_limited_times: int = 0
    earliest_msg_publish_time_in_backlogs: int = 0
    offloaded_storage_size: int = 0
    last_offload_ledger_id: int = 0
    last_offload_success_time_stamp: int = 0
    last_offload_failure_time_stamp: int = 0
    ongoing_txn_count: int = 0
    aborted_txn_count: int = 0
    committed_txn_count: int = 0
    publishers: list[PublisherStats] = field(default_factory=list)
    waiting_publishers: int = 0
    subscriptions: dict[str, SubscriptionStats] = field(default_factory=dict)
    replication: dict[str, ReplicatorStats] = field(default_factory=dict)
    deduplication_status: str | None = None
    topic_epoch: int | None = None
    non_contiguous_deleted_messages_ranges: int = 0
    non_contiguous_deleted_messages_ranges_serialized_size: int = 0
    delayed_message_index_size_in_bytes: int = 0
    compaction: CompactionStats | None = None
    owner_broker: str | None = None
    msg_drop_rate: float = 0.0
    """Of non-persistent topics."""


class PartitionedTopicMetadata(Model):
    """How many partitions a topic has; 0 if it is not partitioned."""

    partitions: int = 0
    properties: dict[str, str] | None = None
    deleted: bool = False


class PartitionedTopicStats(TopicStats):
    """The sum of a topic's partitions, and each of them by its name if asked for."""

    metadata: PartitionedTopicMetadata | None = None
    partitions: dict[str, TopicStats] = field(default_factory=dict)


class LedgerInfo(Model):
    """A ledger of a topic."""

    ledger_id: int = 0
    entries: int = 0
    size: int = 0
    offloaded: bool = False
    metadata: str | None = None
    under_replicated: bool = False


class CursorStats(Model):
    """A subscription's position; positions are `ledger:entry`."""

    mark_delete_position: str = ""
    read_position: str = ""
    waiting_read_op: bool = False
    pending_read_ops: int = 0
    messages_consumed_counter: int = 0
    cursor_ledger: int = -1
    cursor_ledger_last_entry: int = -1
    individually_deleted_messages: str = ""
    last_ledger_switch_timestamp: str | None = None
    state: str | None = None
    active: bool = False
    number_of_entries_since_first_not_acked_message: int = 0
    total_non_contiguous_deleted_messages_range: int = 0
    subscription_have_pending_read: bool = False
    subscription_have_pending_replay_read: bool = False
    properties: dict[str, int] | None = None


class PersistentTopicInternalStats(Model):
    """The managed ledger of a topic."""

    entries_added_counter: int = 0
    number_of_entries: int = 0
    total_size: int = 0
    current_ledger_entries: int = 0
    current_ledger_size: int = 0
    last_ledger_created_timestamp: str | None = None
    last_ledger_creation_failure_timestamp: str | None = None
    waiting_cursors_count: int = 0
    pending_add_entries_count: int = 0
    last_confirmed_entry: str | None = None
    state: str | None = None
    ledgers: list[LedgerInfo] = field(default_factory=list)
    cursors: dict[str, CursorStats] = field(default_factory=dict)
    schema_ledgers: list[LedgerInfo] = field(default_factory=list)
    compacted_ledger: LedgerInfo | None = None


class PartitionedTopicInternalStats(Model):
    """The managed ledgers of a topic's partitions, by their names."""

    metadata: PartitionedTopicMetadata | None = None
    partitions: dict[str, PersistentTopicInternalStats] = field(default_factory=dict)


class AnalyzeSubscriptionBacklogResult(Model):
    """What a subscription's backlog has; `aborted` if the scan reached the broker's bound."""

    entries: int = 0
    messages: int = 0
    filter_rejected_entries: int = 0
    filter_accepted_entries: int = 0
    filter_rescheduled_entries: int = 0
    filter_rejected_messages: int = 0
    filter_accepted_messages: int = 0
    filter_rescheduled_messages: int = 0
    aborted: bool = False
    first_message_id: str | None = None
    last_message_id: str | None = None


class Finding(Model):
    """A reason why a subscription gets nothing, or that it is fine.

    `code` is for programs. `level` is "fail" (it gets nothing because of this), "warn" (a part of
    it, or soon) or "ok". `topic` is the partition's name on a partitioned topic.
    """

    topic: str = ""
    subscription: str = ""
    code: str = ""
    level: str = ""
    sentence: str = ""
    advice: str = ""


Findings = list[Finding]
"""Findings, the worst first."""


class LongRunningProcessStatus(Model):
    """Of a compaction or an offload: NOT_RUN, RUNNING, SUCCESS or ERROR."""

    status: str = "NOT_RUN"
    last_error: str | None = None


class Position(Model):
    """The place of an entry, or of a message in it; -1 stands for none."""

    ledger_id: int = -1
    entry_id: int = -1
    partition_index: int = -1
    batch_index: int = -1
    batch_size: int = 0


class OffloadProcessStatus(LongRunningProcessStatus):
    """The same, with the first message that stays in BookKeeper."""

    first_unoffloaded_message: Position | None = None
