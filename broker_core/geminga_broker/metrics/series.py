"""Which field of a topic's statistics is which series (spec OP-05; Apache's TopicStats,
NamespaceStatsAggregator). Fields have the names that `/stats` gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import cast

import msgspec

from geminga_broker.metrics.exposition import Exposition, Table
from geminga_broker.topic.stats import ConsumerStats, PublisherStats, SubscriptionStats, TopicStats

Series = tuple[tuple[str, str], ...]

TOPIC_SERIES: Series = (
    ("pulsar_rate_in", "msgRateIn"),
    ("pulsar_rate_out", "msgRateOut"),
    ("pulsar_throughput_in", "msgThroughputIn"),
    ("pulsar_throughput_out", "msgThroughputOut"),
    ("pulsar_in_bytes_total", "bytesInCounter"),
    ("pulsar_in_messages_total", "msgInCounter"),
    ("pulsar_average_msg_size", "averageMsgSize"),
    ("pulsar_storage_logical_size", "storageSize"),
    ("pulsar_storage_backlog_size", "backlogSize"),
    ("pulsar_storage_offloaded_size", "offloadedStorageSize"),
    ("pulsar_storage_backlog_quota_limit", "backlogQuotaLimitSize"),
    ("pulsar_storage_backlog_quota_limit_time", "backlogQuotaLimitTime"),
    ("pulsar_storage_backlog_age_seconds", "oldestBacklogMessageAgeSeconds"),
    ("pulsar_publish_rate_limit_times", "publishRateLimitedTimes"),
    ("pulsar_delayed_message_index_size_bytes", "delayedMessageIndexSizeInBytes"),
)
"""(metric, field) of series labelled cluster, namespace, topic."""

SUBSCRIPTION_SERIES: Series = (
    ("pulsar_subscription_back_log", "msgBacklog"),
    ("pulsar_subscription_back_log_no_delayed", "msgBacklogNoDelayed"),
    ("pulsar_subscription_delayed", "msgDelayed"),
    ("pulsar_subscription_delayed_message_index_size_bytes", "delayedMessageIndexSizeInBytes"),
    ("pulsar_subscription_in_replay", "msgInReplay"),
    ("pulsar_subscription_unacked_messages", "unackedMessages"),
    ("pulsar_subscription_blocked_on_unacked_messages", "blockedSubscriptionOnUnackedMsgs"),
    ("pulsar_subscription_msg_rate_out", "msgRateOut"),
    ("pulsar_subscription_msg_throughput_out", "msgThroughputOut"),
    ("pulsar_subscription_msg_rate_redeliver", "msgRateRedeliver"),
    ("pulsar_subscription_msg_ack_rate", "messageAckRate"),
    ("pulsar_subscription_msg_rate_expired", "msgRateExpired"),
    ("pulsar_subscription_total_msg_expired", "totalMsgExpired"),
    ("pulsar_subscription_msg_drop_rate", "msgDropRate"),
    ("pulsar_subscription_filter_processed_msg_count", "filterProcessedMsgCount"),
    ("pulsar_subscription_filter_accepted_msg_count", "filterAcceptedMsgCount"),
    ("pulsar_subscription_filter_rejected_msg_count", "filterRejectedMsgCount"),
    ("pulsar_subscription_filter_rescheduled_msg_count", "filterRescheduledMsgCount"),
    ("pulsar_subscription_last_expire_timestamp", "lastExpireTimestamp"),
    ("pulsar_subscription_last_acked_timestamp", "lastAckedTimestamp"),
    ("pulsar_subscription_last_consumed_flow_timestamp", "lastConsumedFlowTimestamp"),
    ("pulsar_subscription_last_consumed_timestamp", "lastConsumedTimestamp"),
    ("pulsar_subscription_last_mark_delete_advanced_timestamp", "lastMarkDeleteAdvancedTimestamp"),
    ("pulsar_out_bytes_total", "bytesOutCounter"),
    ("pulsar_out_messages_total", "msgOutCounter"),
)
"""(metric, field) of series labelled cluster, namespace, topic, subscription."""

CONSUMER_SERIES: Series = (
    ("pulsar_consumer_msg_rate_redeliver", "msgRateRedeliver"),
    ("pulsar_consumer_unacked_messages", "unackedMessages"),
    ("pulsar_consumer_blocked_on_unacked_messages", "blockedConsumerOnUnackedMsgs"),
    ("pulsar_consumer_msg_rate_out", "msgRateOut"),
    ("pulsar_consumer_msg_ack_rate", "messageAckRate"),
    ("pulsar_consumer_msg_throughput_out", "msgThroughputOut"),
    ("pulsar_consumer_available_permits", "availablePermits"),
    ("pulsar_out_bytes_total", "bytesOutCounter"),
    ("pulsar_out_messages_total", "msgOutCounter"),
)
"""(metric, field) of series with consumer_name and consumer_id too; off unless configured."""

PRODUCER_SERIES: Series = (
    ("pulsar_producer_msg_rate_in", "msgRateIn"),
    ("pulsar_producer_msg_throughput_in", "msgThroughputIn"),
    ("pulsar_producer_msg_average_Size", "averageMsgSize"),
)
"""(metric, field) of series with producer_name and producer_id; off unless configured. The last
one's capital letter is Apache's.
"""

NAMESPACE_SERIES: Series = (
    ("pulsar_rate_in", "msgRateIn"),
    ("pulsar_rate_out", "msgRateOut"),
    ("pulsar_throughput_in", "msgThroughputIn"),
    ("pulsar_throughput_out", "msgThroughputOut"),
    ("pulsar_in_bytes_total", "bytesInCounter"),
    ("pulsar_in_messages_total", "msgInCounter"),
    ("pulsar_out_bytes_total", "bytesOutCounter"),
    ("pulsar_out_messages_total", "msgOutCounter"),
    ("pulsar_storage_logical_size", "storageSize"),
    ("pulsar_storage_backlog_size", "backlogSize"),
    ("pulsar_storage_offloaded_size", "offloadedStorageSize"),
    ("pulsar_delayed_message_index_size_bytes", "delayedMessageIndexSizeInBytes"),
)
"""(metric, field) of sums over a namespace's topics, without topic level."""

BROKER_SERIES: Series = (
    ("pulsar_broker_rate_in", "msgRateIn"),
    ("pulsar_broker_rate_out", "msgRateOut"),
    ("pulsar_broker_throughput_in", "msgThroughputIn"),
    ("pulsar_broker_throughput_out", "msgThroughputOut"),
    ("pulsar_broker_storage_logical_size", "storageSize"),
)
"""(metric, field) of sums over all topics of the broker, labelled cluster only."""

Stats = TopicStats | SubscriptionStats | ConsumerStats | PublisherStats


def reader(kind: type[Stats], series: Series) -> Callable[[Stats], Sequence[object]]:
    """Reads the series' fields, in their order."""
    attributes = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    names = [attributes[field] for _metric, field in series]
    return cast(Callable[[Stats], Sequence[object]], attrgetter(*names))


class StatsTable:
    """Adds samples of statistics of one kind to a page."""

    def __init__(self, text: Exposition, kind: type[Stats], series: Series) -> None:
        self._read = reader(kind, series)
        self._table = Table(text, [metric for metric, _field in series])
        self.end = self._table.end

    def add(self, stats: Stats, label_text: str) -> None:
        """One sample for each field that has a value."""
        self._table.add(label_text, self._read(stats))
