"""Series of a topic, its subscriptions, consumers and producers (spec OP-05; Apache's
TopicStats).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from geminga_broker.compaction.outcome import Outcome, Status
from geminga_broker.metrics.exposition import Exposition, Table
from geminga_broker.metrics.log_meter import Window
from geminga_broker.metrics.pace import Pace
from geminga_broker.metrics.series import (
    CONSUMER_SERIES,
    PRODUCER_SERIES,
    SUBSCRIPTION_SERIES,
    TOPIC_SERIES,
    StatsTable,
)
from geminga_broker.metrics.settings import MetricsConfig
from geminga_broker.metrics.storage import LATENCIES, Histograms
from geminga_broker.metrics.totals import QUOTA_TYPES
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import ConsumerStats, PublisherStats, SubscriptionStats, TopicStats
from geminga_broker.topic.topic import Topic
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import TURN_UNITS
from geminga_runtime.metrics.labels import with_label

_NONE: Sequence[int] = (0,) * len(QUOTA_TYPES)
CONSUMERS_A_UNIT = 4
"""Consumers whose lines are a unit of a turn's work."""


class Figures(NamedTuple):
    """What a topic's series are made of."""

    stats: TopicStats
    consumer_ids: Sequence[Sequence[int]]
    """Of each subscription, in the order of the statistics; producers' places follow."""
    window: Window
    """Of its log."""


def with_topic(where: str, name: TopicName, *, split: bool) -> str:
    """`topic` behind other labels; if split the partitioned topic and `partition`, which is -1
    without partitions.
    """
    if not split:
        return with_label(where, "topic", str(name))
    base = name.partitioned_base if name.is_partition else name
    return with_label(with_label(where, "topic", str(base)), "partition", str(name.partition_index))


class TopicPage:
    """Adds topics to a page."""

    def __init__(
        self, text: Exposition, histograms: Histograms, config: MetricsConfig, pace: Pace
    ) -> None:
        self._text = text
        self._pace = pace
        self._config = config
        self._histograms = histograms
        self._topics = StatsTable(text, TopicStats, TOPIC_SERIES)
        self._subscriptions = StatsTable(text, SubscriptionStats, SUBSCRIPTION_SERIES)
        self._consumers = StatsTable(text, ConsumerStats, CONSUMER_SERIES)
        self._producers = StatsTable(text, PublisherStats, PRODUCER_SERIES)

    async def add(self, where: str, name: TopicName, topic: Topic, figures: Figures) -> None:
        """All series of a topic; `where` has the labels before its own. Others may run meanwhile,
        so that nothing is asked of the topic's subscriptions and producers now.
        """
        stats = figures.stats
        # What few parts cost is counted with their statistics.
        again = int(len(stats.subscriptions) + len(stats.publishers) > TURN_UNITS)
        of_topic = with_topic(where, name, split=self._config.split_partitions)
        consumers = backlog = 0
        copies = topic.log.meter.copies if isinstance(topic, PersistentTopic) else 1
        for (key, subscription), ids in zip(
            stats.subscriptions.items(), figures.consumer_ids, strict=False
        ):
            consumers += len(subscription.consumers)
            backlog += subscription.msg_backlog
            one = with_label(of_topic, "subscription", key)
            await self._add_subscription(one, subscription, ids)
            await self._pace.spend(again)
        producers, subscriptions = len(stats.publishers), len(stats.subscriptions)
        size = stats.storage_size * copies
        self._counts.add(of_topic, (producers, subscriptions, consumers, backlog, size))
        self._topics.add(stats, of_topic)
        if self._config.producers:
            for producer in stats.publishers:
                one = with_label(of_topic, "producer_name", producer.producer_name)
                one = with_label(one, "producer_id", str(producer.producer_id))
                self._producers.add(producer, one)
                await self._pace.spend(again)
        if isinstance(topic, PersistentTopic):
            self._histograms.add(figures.window, of_topic)
            evictions = topic.evictions
            counts = _NONE
            if any(evictions.values()):
                counts = tuple([evictions[quota] for quota, _kind in QUOTA_TYPES])
            self._evictions.add(of_topic, counts)
            _compaction(self._text, of_topic, topic.compaction.outcome)

    # Metrics that come once there is such a thing.

    @cached_property
    def _counts(self) -> Table:
        names = ("producers_count", "subscriptions_count", "consumers_count", "msg_backlog")
        return Table(self._text, [f"pulsar_{name}" for name in (*names, "storage_size")])

    @cached_property
    def _subscription_counts(self) -> Table:
        return Table(self._text, ["pulsar_subscription_consumers_count"])

    @cached_property
    def _evictions(self) -> Table:
        metric = "pulsar_storage_backlog_quota_exceeded_evictions_total"
        return Table(self._text, [metric], ("quota_type", [kind for _quota, kind in QUOTA_TYPES]))

    async def _add_subscription(
        self, where: str, stats: SubscriptionStats, ids: Sequence[int]
    ) -> None:
        self._subscriptions.add(stats, where)
        self._subscription_counts.add(where, (len(stats.consumers),))
        if self._config.consumers and stats.consumers:
            self._subscriptions.end()  # some metrics are both's
            for number, (consumer_id, found) in enumerate(zip(ids, stats.consumers, strict=True)):
                one = with_label(where, "consumer_name", found.consumer_name)
                one = with_label(one, "consumer_id", str(consumer_id))
                self._consumers.add(found, one)
                await self._pace.spend(number % CONSUMERS_A_UNIT // (CONSUMERS_A_UNIT - 1))
            self._consumers.end()


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
