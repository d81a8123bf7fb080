"""One scrape: every series of the broker, from the topics' statistics (spec OP-05)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, cast

from geminga_broker.compaction.outcome import Outcome, Status
from geminga_broker.metrics.exposition import Exposition, labels
from geminga_broker.metrics.load_balance import samples
from geminga_broker.policies.quota import QuotaType
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import as_json
from geminga_protocol.topic_name import TopicName
from geminga_runtime.auth.service import Authenticator
from geminga_runtime.background import Turns

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Json = Mapping[str, object]


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


async def scrape(service: BrokerService, *, version: str, consumer_level: bool = False) -> str:
    """The text for `/metrics`. Costs nothing between scrapes. Created in turns of the loop, so that
    many topics don't block it: each topic's values are of its own turn.
    """
    cluster = service.config.network.cluster_name
    text = Exposition()
    text.add(
        "pulsar_version_info",
        labels([("cluster", cluster), ("version", version), ("commit", "")]),
        1,
    )
    totals: defaultdict[str, float] = defaultdict(float)
    namespaces: Counter[str] = Counter()
    turns = Turns()
    for name, topic in sorted(service.topics.loaded.items()):
        stats = as_json(topic.stats())
        await turns.spend(1 + len(topic.subscriptions))
        namespace = TopicName.parse(name).namespace
        namespaces[namespace] += 1
        _topic(text, [("cluster", cluster), ("namespace", namespace), ("topic", name)], stats,
               consumer_level)  # fmt: skip
        if isinstance(topic, PersistentTopic):
            where = [("cluster", cluster), ("namespace", namespace), ("topic", name)]
            _evictions(text, where, topic)
            _compaction(text, labels(where), topic.compaction.outcome)
        for metric, field in NAMESPACE_SUMS:
            value = stats.get(field)
            if isinstance(value, int | float):
                totals[metric] += value
    for namespace, count in sorted(namespaces.items()):
        of_namespace = labels([("cluster", cluster), ("namespace", namespace)])
        text.add("pulsar_topics_count", of_namespace, count)
    of_cluster = labels([("cluster", cluster)])
    text.add("pulsar_broker_topics_count", of_cluster, len(service.topics.loaded))
    for metric, _field in NAMESPACE_SUMS:
        text.add(metric, of_cluster, totals[metric])
    text.add("pulsar_active_connections", of_cluster, len(service.connections.sessions))
    for sample in samples(service.load_manager):
        text.add(sample.name, labels([("cluster", cluster), *sample.labels]), sample.value)
    _authentication(text, cluster, service.authenticator)
    return text.render() + process_metrics()


def _authentication(text: Exposition, cluster: str, authenticator: Authenticator | None) -> None:
    """Successful and failed authentications, by provider and method."""
    if authenticator is None:
        return
    for (provider, method), count in sorted(authenticator.successes.items()):
        pairs = [("cluster", cluster), ("provider_name", provider), ("auth_method", method)]
        text.add("pulsar_authentication_success_total", labels(pairs), count, "counter")
    for (provider, method, reason), count in sorted(authenticator.failures.items()):
        pairs = [("cluster", cluster), ("provider_name", provider), ("auth_method", method)]
        where = labels([*pairs, ("reason", reason)])
        text.add("pulsar_authentication_failures_total", where, count, "counter")
        if reason == "expired_token":
            text.add("pulsar_expired_token_total", labels(pairs[:1]), count, "counter")


def _evictions(text: Exposition, where: list[tuple[str, str]], topic: PersistentTopic) -> None:
    """Evictions from the backlog, by the exceeded kind of quota."""
    for kind, name in ((QuotaType.SIZE, "size"), (QuotaType.AGE, "time")):
        text.add(
            "pulsar_storage_backlog_quota_exceeded_evictions_total",
            labels([*where, ("quota_type", name)]),
            topic.evictions[kind],
        )


def _compaction(text: Exposition, topic_labels: str, outcome: Outcome) -> None:
    """Metrics of a topic that was compacted since it was loaded."""
    if outcome.status is Status.NOT_RUN:
        return
    read, written = outcome.throughput
    for name, value in (
        ("removed_event_count", outcome.removed_total),
        ("succeed_count", outcome.successes),
        ("failed_count", outcome.failures),
        ("duration_time_in_mills", outcome.stats.last_compaction_duration_time_in_mills),
        ("read_throughput", read),
        ("write_throughput", written),
        ("compacted_entries_count", outcome.written_entries),
        ("compacted_entries_size", outcome.written_bytes),
    ):
        text.add(f"pulsar_compaction_{name}", topic_labels, value)


def _topic(
    text: Exposition, where: list[tuple[str, str]], stats: Json, consumer_level: bool
) -> None:
    topic_labels = labels(where)
    subscriptions = cast(Mapping[str, Json], stats.get("subscriptions", {}))
    publishers = cast(list[Json], stats.get("publishers", []))
    text.add("pulsar_producers_count", topic_labels, len(publishers))
    text.add("pulsar_subscriptions_count", topic_labels, len(subscriptions))
    consumers = 0
    backlog = 0
    for name, subscription in subscriptions.items():
        of_subscription = [*where, ("subscription", name)]
        listed = cast(list[Json], subscription.get("consumers", []))
        consumers += len(listed)
        backlog += cast(int, subscription.get("msgBacklog", 0))
        sub_labels = labels(of_subscription)
        text.add_fields(SUBSCRIPTION_SERIES, sub_labels, subscription)
        text.add("pulsar_subscription_consumers_count", sub_labels, len(listed))
        if consumer_level:
            for index, consumer in enumerate(listed):
                named = ("consumer_name", str(consumer.get("consumerName", "")))
                one = labels([*of_subscription, named, ("consumer_id", str(index))])
                text.add_fields(CONSUMER_SERIES, one, consumer)
    text.add("pulsar_consumers_count", topic_labels, consumers)
    text.add("pulsar_msg_backlog", topic_labels, backlog)
    text.add_fields(TOPIC_SERIES, topic_labels, stats)


@cache
def _process_registry() -> CollectorRegistry:
    """Memory, CPU, files and garbage collection of this process, as usual in Python servers."""
    from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def process_metrics() -> str:
    """`process_*` and `python_gc_*`; the library is imported at the first scrape."""
    from prometheus_client import generate_latest

    return generate_latest(_process_registry()).decode()
