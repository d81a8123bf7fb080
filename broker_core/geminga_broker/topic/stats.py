"""Statistics of `/stats` and `/internalStats`: structs with Apache's JSON names (spec OP-04).

Rates are per second, throughputs bytes per second, ages and times milliseconds unless named. Fields
that are None are left out, as by Apache's mapper: see `as_json`. Numbers of features that Geminga
does not have (offload, transactions, throttling) have Apache's values for an unused feature.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from datetime import UTC, datetime
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct, field

from geminga_runtime.background import TURN_UNITS, Turns

JsonObject = dict[str, object]


def iso_time(timestamp_ms: int) -> str:
    """A time in Apache's text form: `2026-01-31T10:20:30.123Z`."""
    seconds, millis = divmod(timestamp_ms, 1000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{millis:03d}Z" if millis else f"{text}Z"


def as_json(stats: Struct) -> JsonObject:
    """The fields by Apache's names, without those that are None."""
    return cast(JsonObject, _without_none(msgspec.to_builtins(stats)))


def _without_none(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


class PublisherStats(Struct, rename="camel"):
    """A producer (PublisherStatsImpl)."""

    access_mode: str = "Shared"
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    average_msg_size: float = 0.0
    chunked_message_rate: float = 0.0
    producer_id: int = 0
    supports_partial_producer: bool = False
    producer_name: str = ""
    address: str = ""
    connected_since: str = ""
    client_version: str = ""
    metadata: dict[str, str] = {}


class DrainingHashStats(Struct, rename="camel"):
    """A Key_Shared hash that waits for its old owner (DrainingHashImpl)."""

    hash: int = 0
    unack_msgs: int = 0
    blocked_attempts: int = 0


class ConsumerStats(Struct, rename="camel"):
    """A consumer (ConsumerStatsImpl)."""

    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    msg_rate_redeliver: float = 0.0
    message_ack_rate: float = 0.0
    chunked_message_rate: float = 0.0
    consumer_name: str = ""
    available_permits: int = 0
    unacked_messages: int = 0
    avg_messages_per_entry: int = 0
    blocked_consumer_on_unacked_msgs: bool = False
    draining_hashes_count: int = 0
    draining_hashes_cleared_total: int = 0
    draining_hashes_unacked_messages: int = 0
    draining_hashes: list[DrainingHashStats] | None = None
    address: str = ""
    connected_since: str = ""
    client_version: str = ""
    last_acked_timestamp: int = 0
    last_consumed_timestamp: int = 0
    last_consumed_flow_timestamp: int = 0
    key_hash_range_arrays: list[tuple[int, int]] | None = None
    metadata: dict[str, str] = {}
    last_acked_time: str = ""
    last_consumed_time: str = ""


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
    msg_in_replay: int = 0
    unacked_messages: int = 0
    type: str = "None"
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
    consumers_after_mark_delete_position: dict[str, str] = {}
    draining_hashes_count: int = 0
    draining_hashes_cleared_total: int = 0
    draining_hashes_unacked_messages: int = 0
    non_contiguous_deleted_messages_ranges: int = 0
    non_contiguous_deleted_messages_ranges_serialized_size: int = 0
    delayed_message_index_size_in_bytes: int = 0
    subscription_properties: dict[str, str] = {}
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
    msg_drop_rate: float | None = None
    durable: bool = True
    replicated: bool = False


class CompactionStats(Struct, rename="camel"):
    """The last compaction (CompactionStatsImpl)."""

    last_compaction_removed_event_count: int = 0
    last_compaction_succeed_timestamp: int = 0
    last_compaction_failed_timestamp: int = 0
    last_compaction_duration_time_in_mills: int = 0


class TopicStats(Struct, rename="camel"):
    """A topic (TopicStatsImpl, NonPersistentTopicStatsImpl)."""

    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_in_counter: int = 0
    msg_in_counter: int = 0
    system_topic_bytes_in_counter: int = 0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    bytes_out_internal_counter: int = 0
    average_msg_size: float = 0.0
    msg_chunk_published: bool = False
    storage_size: int = 0
    backlog_size: int = 0
    backlog_quota_limit_size: int = 0
    backlog_quota_limit_time: int = 0
    oldest_backlog_message_age_seconds: int = 0
    publish_rate_limited_times: int = 0
    earliest_msg_publish_time_in_backlogs: int = 0
    offloaded_storage_size: int = 0
    last_offload_ledger_id: int = 0
    last_offload_success_time_stamp: int = 0
    last_offload_failure_time_stamp: int = 0
    ongoing_txn_count: int = 0
    aborted_txn_count: int = 0
    committed_txn_count: int = 0
    publishers: list[PublisherStats] = []
    waiting_publishers: int = 0
    subscriptions: dict[str, SubscriptionStats] = {}
    replication: dict[str, str] = {}
    deduplication_status: str | None = None
    non_contiguous_deleted_messages_ranges: int = 0
    non_contiguous_deleted_messages_ranges_serialized_size: int = 0
    delayed_message_index_size_in_bytes: int = 0
    compaction: CompactionStats = field(default_factory=CompactionStats)
    owner_broker: str = ""
    msg_drop_rate: float | None = None


StatsSteps: TypeAlias = Generator[Sequence[int], None, TopicStats]
"""Makes statistics in steps that take some ten microseconds each; the topic may change between
them. The step of a subscription yields the ids of its consumers, in the order of their statistics;
that of a producer, which comes later, yields none.
"""


def finished(steps: StatsSteps) -> TopicStats:
    """What the steps make, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast(TopicStats, done.value)


async def made_in_turns(
    steps: StatsSteps, spend: Callable[[], Awaitable[None]]
) -> tuple[TopicStats, list[Sequence[int]]]:
    """What the steps make, and what each of them yields; `spend` counts a step, and may pause."""
    ids: list[Sequence[int]] = []
    while True:
        try:
            ids.append(next(steps))
        except StopIteration as done:
            return cast(TopicStats, done.value), ids
        await spend()


async def json_in_turns(
    steps: StatsSteps, turns: Turns, part: Callable[[Struct], object] = as_json
) -> JsonObject:
    """The same by Apache's names, with pauses; `part` makes what stands for each subscription and
    producer.
    """
    found, _ = await made_in_turns(steps, turns.spend)
    subscriptions, publishers = dict[str, object](), list[object]()
    # What few parts cost is counted by their steps.
    again = int(len(found.subscriptions) + len(found.publishers) > TURN_UNITS)
    for name, subscription in found.subscriptions.items():
        subscriptions[name] = part(subscription)
        await turns.spend(again)
    for publisher in found.publishers:
        publishers.append(part(publisher))
        await turns.spend(again)
    found.subscriptions, found.publishers = {}, []
    stats = as_json(found)
    stats["subscriptions"], stats["publishers"] = subscriptions, publishers
    return stats


def encoded(stats: Struct) -> msgspec.Raw:
    """The JSON of `as_json`."""
    return msgspec.Raw(msgspec.json.encode(as_json(stats)))


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
    individually_deleted_messages: str = "[]"
    last_ledger_switch_timestamp: str = ""
    state: str = "Open"
    active: bool = False
    number_of_entries_since_first_not_acked_message: int = 0
    total_non_contiguous_deleted_messages_range: int = 0
    subscription_have_pending_read: bool = False
    subscription_have_pending_replay_read: bool = False
    properties: dict[str, int] = {}


class InternalStats(Struct, rename="camel"):
    """A topic's log (PersistentTopicInternalStats); a topic without one has no members of None."""

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
    ledgers: list[LedgerInfo] | None = None
    cursors: dict[str, CursorStats] = {}
    schema_ledgers: list[LedgerInfo] | None = None
    compacted_ledger: LedgerInfo | None = None
