"""What `/stats` and `/internalStats` show: structs whose JSON names equal Apache's (spec BR-50).

Rates are per second, throughputs bytes per second, ages and times milliseconds unless named.
"""

from __future__ import annotations

from msgspec import Struct, field


class PublisherStats(Struct, rename="camel"):
    """A producer (PublisherStatsImpl)."""

    producer_id: int = 0
    producer_name: str = ""
    access_mode: str = "Shared"
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    average_msg_size: float = 0.0
    chunked_message_rate: float = 0.0
    supports_partial_producer: bool = False
    address: str = ""
    connected_since: str = ""
    client_version: str = ""
    metadata: dict[str, str] = {}


class ConsumerStats(Struct, rename="camel"):
    """A consumer (ConsumerStatsImpl); `type` and `msg_backlog` are for CONSUMER_STATS."""

    consumer_name: str = ""
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
    address: str = ""
    connected_since: str = ""
    client_version: str = ""
    last_acked_timestamp: int = 0
    last_consumed_timestamp: int = 0
    last_consumed_flow_timestamp: int = 0
    key_hash_ranges: list[str] | None = None
    draining_hashes_count: int = 0
    metadata: dict[str, str] = {}
    type: str = ""
    msg_backlog: int = 0
    msg_rate_expired: float = 0.0


class SubscriptionStats(Struct, rename="camel"):
    """A subscription (SubscriptionStatsImpl, NonPersistentSubscriptionStatsImpl)."""

    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    msg_rate_redeliver: float = 0.0
    message_ack_rate: float = 0.0
    chunked_message_rate: float = 0.0
    msg_backlog: int = 0
    backlog_size: int = -1
    earliest_msg_publish_time_in_backlog: int = 0
    msg_backlog_no_delayed: int = 0
    blocked_subscription_on_unacked_msgs: bool = False
    msg_delayed: int = 0
    unacked_messages: int = 0
    type: str | None = None
    active_consumer_name: str | None = None
    msg_rate_expired: float = 0.0
    total_msg_expired: int = 0
    last_expire_timestamp: int = 0
    last_consumed_flow_timestamp: int = 0
    last_consumed_timestamp: int = 0
    last_acked_timestamp: int = 0
    last_mark_delete_advanced_timestamp: int = 0
    consumers: list[ConsumerStats] = []
    is_durable: bool = True
    is_replicated: bool = False
    allow_out_of_order_delivery: bool = False
    key_shared_mode: str | None = None
    non_contiguous_deleted_messages_ranges: int = 0
    subscription_properties: dict[str, str] = {}
    msg_drop_rate: float = 0.0


class TopicStats(Struct, rename="camel"):
    """A topic (TopicStatsImpl, NonPersistentTopicStatsImpl)."""

    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_in_counter: int = 0
    msg_in_counter: int = 0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    average_msg_size: float = 0.0
    msg_chunk_published: bool = False
    storage_size: int = 0
    backlog_size: int = 0
    publish_rate_limited_times: int = 0
    earliest_msg_publish_time_in_backlogs: int = 0
    offloaded_storage_size: int = 0
    waiting_publishers: int = 0
    publishers: list[PublisherStats] = []
    subscriptions: dict[str, SubscriptionStats] = {}
    deduplication_status: str = "Disabled"
    topic_epoch: int | None = None
    non_contiguous_deleted_messages_ranges: int = 0
    owner_broker: str = ""
    topic_creation_time_stamp: int = 0
    last_publish_time_stamp: int = 0
    msg_drop_rate: float = 0.0


class LedgerInfo(Struct, rename="camel"):
    """A ledger of the topic (PersistentTopicInternalStats.LedgerInfo)."""

    ledger_id: int = 0
    entries: int = 0
    size: int = 0
    offloaded: bool = False
    metadata: str | None = None
    under_replicated: bool = False


class CursorStats(Struct, rename="camel"):
    """A cursor (ManagedLedgerInternalStats.CursorStats)."""

    mark_delete_position: str = ""
    read_position: str = ""
    waiting_read_op: bool = False
    pending_read_ops: int = 0
    messages_consumed_counter: int = 0
    cursor_ledger: int = -1
    cursor_ledger_last_entry: int = -1
    individually_deleted_messages: str = ""
    last_ledger_switch_timestamp: str = ""
    state: str = "Open"
    active: bool = False
    number_of_entries_since_first_not_acked_message: int = 0
    total_non_contiguous_deleted_messages_range: int = 0
    subscription_have_pending_read: bool = False
    subscription_have_pending_replay_read: bool = False
    properties: dict[str, int] = {}


class InternalStats(Struct, rename="camel"):
    """A topic's log (PersistentTopicInternalStats)."""

    entries_added_counter: int = 0
    number_of_entries: int = 0
    total_size: int = 0
    current_ledger_entries: int = 0
    current_ledger_size: int = 0
    last_ledger_created_timestamp: str = ""
    last_ledger_creation_failure_timestamp: str | None = None
    waiting_cursors_count: int = 0
    pending_add_entries_count: int = 0
    last_confirmed_entry: str = ""
    state: str = ""
    ledgers: list[LedgerInfo] = field(default_factory=list)
    cursors: dict[str, CursorStats] = {}
    schema_ledgers: list[LedgerInfo] = field(default_factory=list)
