"""Sums over the topics of a namespace, and of the broker (spec OP-05; Apache's
AggregatedNamespaceStats, AggregatedBrokerStats).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import cast

from geminga_broker.log.reserved_cursors import RESERVED_CURSORS
from geminga_broker.metrics.exposition import Exposition
from geminga_broker.metrics.log_meter import Window
from geminga_broker.metrics.series import BROKER_SERIES, NAMESPACE_SERIES, reader
from geminga_broker.metrics.storage import Histograms, add_evictions
from geminga_broker.policies.quota import QuotaType
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import TopicStats
from geminga_broker.topic.topic import Topic
from geminga_runtime.metrics.labels import labels

QUOTA_TYPES = ((QuotaType.SIZE, "size"), (QuotaType.AGE, "time"))
Pairs = Sequence[tuple[str, str]]

_read = reader(TopicStats, NAMESPACE_SERIES)
_PLACES = {field: place for place, (_metric, field) in enumerate(NAMESPACE_SERIES)}


class Totals:
    """Sums over some topics."""

    def __init__(self) -> None:
        self.window = Window()
        """Of their logs."""
        self.evictions = {name: 0 for _kind, name in QUOTA_TYPES}
        self.logs = 0
        """Of persistent topics."""
        self.topics = self.subscriptions = self.producers = self.consumers = 0
        self.backlog = self.delayed = self.in_replay = 0
        self.ack_rate = 0.0
        self.internal_bytes_out = 0
        """To the broker's own cursors."""
        self.system_bytes_in = 0
        """Into the broker's own topics."""
        self.stored_bytes = 0
        """On all bookies."""
        self._fields: list[float] = [0] * len(NAMESPACE_SERIES)

    def value(self, field: str) -> float:
        """The sum of a field of the topics' statistics, one of NAMESPACE_SERIES."""
        return self._fields[_PLACES[field]]

    def add_topic(self, topic: Topic, stats: TopicStats, window: Window, *, system: bool) -> None:
        """Count one topic; `window` is that of its log."""
        self.topics += 1
        self.subscriptions += len(stats.subscriptions)
        self.producers += len(stats.publishers)
        for name, subscription in stats.subscriptions.items():
            self.consumers += len(subscription.consumers)
            self.backlog += subscription.msg_backlog
            self.delayed += subscription.msg_delayed
            self.in_replay += subscription.msg_in_replay
            self.ack_rate += subscription.message_ack_rate
            if name in RESERVED_CURSORS:
                self.internal_bytes_out += subscription.bytes_out_counter
        if system:
            self.system_bytes_in += stats.bytes_in_counter
        values = cast(Sequence[float], _read(stats))
        self._fields = list(map(add, self._fields, values))
        if isinstance(topic, PersistentTopic):
            self.logs += 1
            self.stored_bytes += stats.storage_size * topic.log.meter.copies
            self.window.add(window)
            if any(topic.evictions.values()):
                for kind, name in QUOTA_TYPES:
                    self.evictions[name] += topic.evictions[kind]

    def add(self, other: Totals) -> None:
        """Add another namespace's."""
        self.window.add(other.window)
        for name, count in other.evictions.items():
            self.evictions[name] += count
        self.logs += other.logs
        self.stored_bytes += other.stored_bytes
        self.topics += other.topics
        self.subscriptions += other.subscriptions
        self.producers += other.producers
        self.consumers += other.consumers
        self.backlog += other.backlog
        self.internal_bytes_out += other.internal_bytes_out
        self.system_bytes_in += other.system_bytes_in
        self._fields = [a + b for a, b in zip(self._fields, other._fields, strict=True)]

    def add_namespace_to(self, text: Exposition, histograms: Histograms, pairs: Pairs) -> None:
        """The series of a namespace without topic level."""
        where = labels(pairs)
        for metric, field in NAMESPACE_SERIES:
            text.add(metric, where, self.value(field))
        for metric, value in (
            ("pulsar_topics_count", self.topics),
            ("pulsar_subscriptions_count", self.subscriptions),
            ("pulsar_producers_count", self.producers),
            ("pulsar_consumers_count", self.consumers),
            ("pulsar_consumer_msg_ack_rate", self.ack_rate),
            ("pulsar_subscription_delayed", self.delayed),
            ("pulsar_subscription_in_replay", self.in_replay),
            ("pulsar_storage_size", self.stored_bytes),
        ):
            text.add(metric, where, value)
        text.add("pulsar_msg_backlog", labels([*pairs, ("remote_cluster", "local")]), self.backlog)
        metric = "pulsar_storage_backlog_quota_exceeded_evictions_total"
        add_evictions(text, metric, pairs, self.evictions)
        histograms.add(self.window, where)

    def add_broker_to(self, text: Exposition, pairs: Pairs) -> None:
        """The sums over all of a broker's topics."""
        where = labels(pairs)
        for metric, field in BROKER_SERIES:
            text.add(metric, where, self.value(field))
        for name, value in (
            ("topics_count", self.topics),
            ("subscriptions_count", self.subscriptions),
            ("producers_count", self.producers),
            ("consumers_count", self.consumers),
            ("msg_backlog", self.backlog),
            ("storage_size", self.stored_bytes),
            ("storage_write_rate", self.window.write_rate),
            ("storage_read_rate", self.window.read_rate),
            ("storage_read_cache_misses_rate", self.window.miss_rate),
        ):
            text.add(f"pulsar_broker_{name}", where, value)
        metric = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
        add_evictions(text, metric, pairs, self.evictions)
        for metric, label, own, every in (
            ("out_bytes_total", "system_subscription", self.internal_bytes_out, "bytesOutCounter"),
            ("in_bytes_total", "system_topic", self.system_bytes_in, "bytesInCounter"),
        ):
            users = int(self.value(every)) - own
            for said, value in (("false", users), ("true", own)):
                text.add(f"pulsar_broker_{metric}", labels([*pairs, (label, said)]), value)
