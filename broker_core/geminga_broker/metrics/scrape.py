"""One scrape: every series of the broker, from the statistics that topics keep anyway (spec
OP-05).
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from geminga_broker.metrics.exposition import Exposition, labels
from geminga_broker.metrics.names import (
    CONSUMER_SERIES,
    NAMESPACE_SUMS,
    SUBSCRIPTION_SERIES,
    TOPIC_SERIES,
)
from geminga_broker.service import BrokerService
from geminga_broker.stats import as_json
from geminga_protocol.topic_name import TopicName

Json = Mapping[str, object]


def scrape(service: BrokerService, *, version: str, consumer_level: bool = False) -> str:
    """The text for `/metrics`. Costs nothing between scrapes."""
    cluster = service.config.network.cluster_name
    text = Exposition()
    text.add(
        "pulsar_version_info",
        labels([("cluster", cluster), ("version", version), ("commit", "")]),
        1,
    )
    _process(text)
    totals: Counter[str] = Counter()
    namespaces: Counter[str] = Counter()
    for name, topic in sorted(service.topics.items()):
        stats = as_json(topic.stats())
        namespace = TopicName.parse(name).namespace
        namespaces[namespace] += 1
        _topic(text, [("cluster", cluster), ("namespace", namespace), ("topic", name)], stats,
               consumer_level)  # fmt: skip
        for metric, field in NAMESPACE_SUMS:
            value = stats.get(field)
            if isinstance(value, int | float):
                totals[metric] += value  # type: ignore[assignment]
    for namespace, count in sorted(namespaces.items()):
        where = labels([("cluster", cluster), ("namespace", namespace)])
        text.add("pulsar_topics_count", where, count)
    where = labels([("cluster", cluster)])
    text.add("pulsar_broker_topics_count", where, len(service.topics))
    for metric, _field in NAMESPACE_SUMS:
        text.add(metric, where, totals[metric])
    text.add("pulsar_active_connections", where, len(service.sessions))
    return text.render()


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


def _process(text: Exposition) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    text.add("process_cpu_seconds_total", "", usage.ru_utime + usage.ru_stime, "counter")
    text.add("process_resident_memory_bytes", "", _resident_bytes(usage.ru_maxrss * 1024))
    text.add("process_open_fds", "", _open_files())


def _resident_bytes(otherwise: int) -> int:
    """Resident memory now where /proc tells it, the peak elsewhere."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return otherwise
    return pages * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return 0
