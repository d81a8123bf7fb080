"""One scrape: every series of the broker, from the topics' statistics (spec OP-05)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, cast

from geminga_broker.compaction.outcome import Outcome, Status
from geminga_broker.metrics.exposition import Exposition, labels
from geminga_broker.metrics.names import (
    CONSUMER_SERIES,
    NAMESPACE_SUMS,
    SUBSCRIPTION_SERIES,
    TOPIC_SERIES,
)
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


async def scrape(service: BrokerService, *, version: str, consumer_level: bool = False) -> str:
    """The text for `/metrics`. Costs nothing between scrapes. Made in turns, so that many topics
    hold nobody up: what changes meanwhile is told as it is when its topic's turn comes.
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
    """How often a backlog was cut, by the kind of quota that was exceeded."""
    for kind, name in ((QuotaType.SIZE, "size"), (QuotaType.AGE, "time")):
        text.add(
            "pulsar_storage_backlog_quota_exceeded_evictions_total",
            labels([*where, ("quota_type", name)]),
            topic.evictions[kind],
        )


def _compaction(text: Exposition, topic_labels: str, outcome: Outcome) -> None:
    """Of a topic that was compacted since it was loaded."""
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
    """Memory, CPU, files and garbage collection of this process, as every Python server tells."""
    from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def process_metrics() -> str:
    """`process_*` and `python_gc_*`; the library is imported at the first scrape."""
    from prometheus_client import generate_latest

    return generate_latest(_process_registry()).decode()
