"""Series of a topic, its subscriptions, consumers and producers (spec OP-05; Apache's
TopicStats).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from geminga_broker.compaction.outcome import Outcome, Status
from geminga_broker.metrics.exposition import Exposition, labels
from geminga_broker.metrics.log_meter import Window
from geminga_broker.metrics.pace import Pace
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
from geminga_runtime.background import TURN_UNITS

Pairs = list[tuple[str, str]]

CONSUMERS_A_UNIT = 4
"""Consumers whose lines are a unit of a turn's work."""


class Figures(NamedTuple):
    """What a topic's series are made of."""

    stats: TopicStats
    consumer_ids: Sequence[Sequence[int]]
    """Of each subscription, in the order of the statistics; producers' places follow."""
    window: Window
    """Of its log."""


def topic_labels(name: TopicName, *, split: bool) -> Pairs:
    """`topic`; if split the partitioned topic and `partition`, which is -1 without partitions."""
    if not split:
        return [("topic", str(name))]
    if not name.is_partition:
        return [("topic", str(name)), ("partition", "-1")]
    return [("topic", str(name.partitioned_base)), ("partition", str(name.partition_index))]


class TopicPage:
    """Adds topics to a page."""

    def __init__(
        self, text: Exposition, histograms: Histograms, config: MetricsConfig, pace: Pace
    ) -> None:
        self._text = text
        self._pace = pace
        self._config = config
        self._histograms = histograms
        self._topics = Table(text, TopicStats, TOPIC_SERIES)
        self._subscriptions = Table(text, SubscriptionStats, SUBSCRIPTION_SERIES)
        self._consumers = Table(text, ConsumerStats, CONSUMER_SERIES)
        self._producers = Table(text, PublisherStats, PRODUCER_SERIES)

    async def add(self, where: Pairs, name: TopicName, topic: Topic, figures: Figures) -> None:
        """All series of a topic; `where` has the labels before its own. Others may run meanwhile,
        so that nothing is asked of the topic's subscriptions and producers now.
        """
        text, stats = self._text, figures.stats
        # What few parts cost is counted with their statistics.
        again = int(len(stats.subscriptions) + len(stats.publishers) > TURN_UNITS)
        pairs = [*where, *topic_labels(name, split=self._config.split_partitions)]
        of_topic = labels(pairs)
        consumers = backlog = 0
        copies = topic.log.meter.copies if isinstance(topic, PersistentTopic) else 1
        for (key, subscription), ids in zip(
            stats.subscriptions.items(), figures.consumer_ids, strict=False
        ):
            consumers += len(subscription.consumers)
            backlog += subscription.msg_backlog
            await self._add_subscription([*pairs, ("subscription", key)], subscription, ids)
            await self._pace.spend(again)
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
                await self._pace.spend(again)
        if isinstance(topic, PersistentTopic):
            self._histograms.add(figures.window, of_topic)
            metric = "pulsar_storage_backlog_quota_exceeded_evictions_total"
            counts = {kind: topic.evictions[quota] for quota, kind in QUOTA_TYPES}
            add_evictions(text, metric, pairs, counts)
            _compaction(text, of_topic, topic.compaction.outcome)

    async def _add_subscription(
        self, pairs: Pairs, stats: SubscriptionStats, ids: Sequence[int]
    ) -> None:
        where = labels(pairs)
        self._subscriptions.add(stats, where)
        metric = "pulsar_subscription_consumers_count"
        self._text.rows(metric).append(f"{metric}{where} {len(stats.consumers)}")
        if self._config.consumers:
            for number, (consumer_id, found) in enumerate(zip(ids, stats.consumers, strict=True)):
                named = ("consumer_name", found.consumer_name)
                one = labels([*pairs, named, ("consumer_id", str(consumer_id))])
                self._consumers.add(found, one)
                await self._pace.spend(number % CONSUMERS_A_UNIT // (CONSUMERS_A_UNIT - 1))


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
