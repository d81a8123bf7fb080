"""Which series are written for a topic and a subscription, and from which field of their
statistics.

Names and labels are those of Apache Pulsar 4.0's Prometheus endpoint; fields are those of its
`/stats` answer.
"""

from __future__ import annotations

TOPIC_SERIES: tuple[tuple[str, str], ...] = (
    ("pulsar_rate_in", "msgRateIn"),
    ("pulsar_rate_out", "msgRateOut"),
    ("pulsar_throughput_in", "msgThroughputIn"),
    ("pulsar_throughput_out", "msgThroughputOut"),
    ("pulsar_in_bytes_total", "bytesInCounter"),
    ("pulsar_in_messages_total", "msgInCounter"),
    ("pulsar_average_msg_size", "averageMsgSize"),
    ("pulsar_storage_size", "storageSize"),
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

SUBSCRIPTION_SERIES: tuple[tuple[str, str], ...] = (
    ("pulsar_subscription_back_log", "msgBacklog"),
    ("pulsar_subscription_back_log_no_delayed", "msgBacklogNoDelayed"),
    ("pulsar_subscription_delayed", "msgDelayed"),
    ("pulsar_subscription_in_replay", "msgInReplay"),
    ("pulsar_subscription_unacked_messages", "unackedMessages"),
    ("pulsar_subscription_blocked_on_unacked_messages", "blockedSubscriptionOnUnackedMsgs"),
    ("pulsar_subscription_msg_rate_out", "msgRateOut"),
    ("pulsar_subscription_msg_throughput_out", "msgThroughputOut"),
    ("pulsar_subscription_msg_rate_redeliver", "msgRateRedeliver"),
    ("pulsar_subscription_msg_ack_rate", "messageAckRate"),
    ("pulsar_subscription_msg_rate_expired", "msgRateExpired"),
    ("pulsar_subscription_total_msg_expired", "totalMsgExpired"),
    ("pulsar_subscription_last_expire_timestamp", "lastExpireTimestamp"),
    ("pulsar_subscription_last_acked_timestamp", "lastAckedTimestamp"),
    ("pulsar_subscription_last_consumed_flow_timestamp", "lastConsumedFlowTimestamp"),
    ("pulsar_subscription_last_consumed_timestamp", "lastConsumedTimestamp"),
    ("pulsar_subscription_last_mark_delete_advanced_timestamp", "lastMarkDeleteAdvancedTimestamp"),
    ("pulsar_out_bytes_total", "bytesOutCounter"),
    ("pulsar_out_messages_total", "msgOutCounter"),
)
"""(metric, field) of series labelled cluster, namespace, topic, subscription."""

CONSUMER_SERIES: tuple[tuple[str, str], ...] = (
    ("pulsar_consumer_msg_rate_redeliver", "msgRateRedeliver"),
    ("pulsar_consumer_unacked_messages", "unackedMessages"),
    ("pulsar_consumer_blocked_on_unacked_messages", "blockedConsumerOnUnackedMsgs"),
    ("pulsar_consumer_msg_rate_out", "msgRateOut"),
    ("pulsar_consumer_msg_throughput_out", "msgThroughputOut"),
    ("pulsar_consumer_available_permits", "availablePermits"),
    ("pulsar_out_bytes_total", "bytesOutCounter"),
    ("pulsar_out_messages_total", "msgOutCounter"),
)
"""(metric, field) of series with consumer_name and consumer_id; off unless configured."""

NAMESPACE_SUMS: tuple[tuple[str, str], ...] = (
    ("pulsar_broker_rate_in", "msgRateIn"),
    ("pulsar_broker_rate_out", "msgRateOut"),
    ("pulsar_broker_throughput_in", "msgThroughputIn"),
    ("pulsar_broker_throughput_out", "msgThroughputOut"),
    ("pulsar_broker_storage_size", "storageSize"),
    ("pulsar_broker_storage_logical_size", "storageSize"),
)
"""(metric, field) of sums over all topics of the broker, labelled cluster only."""
