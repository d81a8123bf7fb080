"""Series of a topic, its subscriptions, consumers and producers (spec OP-05; Apache's
TopicStats).
"""

from __future__ import annotations

from geminga_broker.compaction.outcome import Outcome, Status
from geminga_broker.metrics.exposition import Exposition, labels
from geminga_broker.metrics.log_meter import Window
from geminga_broker.metrics.series import (
    CONSUMER_SERIES,
    PRODUCER_SERIES,
    SUBSCRIPTION_SERIES,
    TOPIC_SERIES,
    Table,
)
from geminga_broker.metrics.settings import MetricsConfig
from geminga_broker.metrics.storage import LATENCIES, Histograms, add_evictions
from geminga_broker.metrics.totals import QUOTA_TYPES
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import ConsumerStats, PublisherStats, SubscriptionStats, TopicStats
from geminga_broker.topic.topic import Topic
from geminga_protocol.topic_name import TopicName

Pairs = list[tuple[str, str]]


def topic_labels(name: TopicName, *, split: bool) -> Pairs:
    """`topic`; if split the partitioned topic and `partition`, which is -1 without partitions."""
    if not split:
        return [("topic", str(name))]
    if not name.is_partition:
        return [("topic", str(name)), ("partition", "-1")]
    return [("topic", str(name.partitioned_base)), ("partition", str(name.partition_index))]


class TopicPage:
    """Adds topics to a page."""

    def __init__(self, text: Exposition, histograms: Histograms, config: MetricsConfig) -> None:
        self._text = text
        self._config = config
        self._histograms = histograms
        self._topics = Table(text, TopicStats, TOPIC_SERIES)
        self._subscriptions = Table(text, SubscriptionStats, SUBSCRIPTION_SERIES)
        self._consumers = Table(text, ConsumerStats, CONSUMER_SERIES)
        self._producers = Table(text, PublisherStats, PRODUCER_SERIES)

    def add(
        self, where: Pairs, name: TopicName, topic: Topic, stats: TopicStats, window: Window
    ) -> None:
        """All series of a topic; `where` has the labels before its own, `window` is that of its
        log.
        """
        text = self._text
        pairs = [*where, *topic_labels(name, split=self._config.split_partitions)]
        of_topic = labels(pairs)
        consumers = backlog = 0
        copies = topic.log.meter.copies if isinstance(topic, PersistentTopic) else 1
        for key, subscription in stats.subscriptions.items():
            consumers += len(subscription.consumers)
            backlog += subscription.msg_backlog
            self._add_subscription([*pairs, ("subscription", key)], key, topic, subscription)
        for metric, value in (
            ("pulsar_producers_count", len(stats.publishers)),
            ("pulsar_subscriptions_count", len(stats.subscriptions)),
            ("pulsar_consumers_count", consumers),
            ("pulsar_msg_backlog", backlog),
            ("pulsar_storage_size", stats.storage_size * copies),
        ):
            text.rows(metric).append(f"{metric}{of_topic} {value}")
        self._topics.add(stats, of_topic)
        if self._config.producers:
            for producer in stats.publishers:
                named = ("producer_name", producer.producer_name)
                one = labels([*pairs, named, ("producer_id", str(producer.producer_id))])
                self._producers.add(producer, one)
        if isinstance(topic, PersistentTopic):
            self._histograms.add(window, of_topic)
            metric = "pulsar_storage_backlog_quota_exceeded_evictions_total"
            counts = {kind: topic.evictions[quota] for quota, kind in QUOTA_TYPES}
            add_evictions(text, metric, pairs, counts)
            _compaction(text, of_topic, topic.compaction.outcome)

    def _add_subscription(
        self, pairs: Pairs, key: str, topic: Topic, stats: SubscriptionStats
    ) -> None:
        where = labels(pairs)
        self._subscriptions.add(stats, where)
        metric = "pulsar_subscription_consumers_count"
        self._text.rows(metric).append(f"{metric}{where} {len(stats.consumers)}")
        if self._config.consumers:
            consumers = list(topic.subscriptions[key].consumers)
            for consumer, found in zip(consumers, stats.consumers, strict=True):
                named = ("consumer_name", found.consumer_name)
                one = labels([*pairs, named, ("consumer_id", str(consumer.request.consumer_id))])
                self._consumers.add(found, one)


def _compaction(text: Exposition, of_topic: str, outcome: Outcome) -> None:
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
        text.add(f"pulsar_compaction_{name}", of_topic, value)
    for end, count in zip(LATENCIES, outcome.write_latency, strict=True):
        text.add(f"pulsar_compaction_latency_{end}", of_topic, count)
    text.add("pulsar_compaction_latency_count", of_topic, sum(outcome.write_latency))
    text.add("pulsar_compaction_latency_sum", of_topic, outcome.write_us)
