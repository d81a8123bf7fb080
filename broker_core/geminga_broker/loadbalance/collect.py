"""The load of each bundle, summed over its loaded topics (spec CL-07; Apache's
PulsarStats.updateStats).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import trio

from geminga_broker.loadbalance.model import NamespaceBundleStats
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_protocol.keys import bundle_hash
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import Turns

LOOKS_PER_UNIT = 8
"""Topics and consumers, of some microseconds each, that are one unit of `Turns`."""


class _Ranges(NamedTuple):
    """The owned bundles of a namespace, in the order of their lowest hashes."""

    lows: list[int]
    ends: list[int]
    names: list[str]

    def of(self, topic: str) -> str | None:
        """The name of the topic's bundle, if it is owned."""
        at = bundle_hash(topic)
        index = bisect_right(self.lows, at) - 1
        return self.names[index] if index >= 0 and at < self.ends[index] else None


def _by_namespace(owned: Iterable[BundleId]) -> dict[str, _Ranges]:
    found: dict[str, _Ranges] = {}
    for (low, end), bundle in sorted((bundle.bounds, bundle) for bundle in owned):
        ranges = found.setdefault(bundle.namespace, _Ranges([], [], []))
        ranges.lows.append(low)
        ranges.ends.append(end)
        ranges.names.append(str(bundle))
    return found


class BundleStatsCollector:
    """Sums up what the topics count anyway, in one pass that other tasks run between."""

    def __init__(
        self, topics: Callable[[], Mapping[str, Topic]], owned: Callable[[], Iterable[BundleId]]
    ) -> None:
        """`topics`: the loaded ones by name; `owned`: the bundles that this broker owns."""
        self._topics = topics
        self._owned = owned

    def owned(self) -> set[str]:
        """The names of the owned bundles."""
        return set(map(str, self._owned()))

    async def collect(self) -> dict[str, NamespaceBundleStats]:
        """The load of the owned bundles by name: also of those without a loaded topic, which
        Apache's broker leaves out, so that the leader sees who has them.
        """
        owned = list(self._owned())
        found = {str(bundle): NamespaceBundleStats() for bundle in owned}
        namespaces = _by_namespace(owned)
        turns = Turns()
        looks = 0
        for name, topic in list(self._topics().items()):
            ranges = namespaces.get(TopicName.parse(name).namespace)
            # A topic whose bundle was given up meanwhile is another broker's.
            if ranges is not None and (bundle := ranges.of(name)) is not None:
                looks += add_topic(found[bundle], topic)
            looks += 1
            if looks >= LOOKS_PER_UNIT:
                await turns.spend(looks // LOOKS_PER_UNIT)
                looks = 0
        return found


def add_topic(stats: NamespaceBundleStats, topic: Topic) -> int:
    """Add a topic's load; returns the number of its subscriptions and consumers."""
    now_s = trio.current_time()
    rate, throughput = topic.rates.per_second(now_s)
    stats.msg_rate_in += rate
    stats.msg_throughput_in += throughput
    stats.topics += 1
    stats.producer_count += len(topic.producers)
    looks = 0
    for subscription in topic.subscriptions.values():
        consumers = subscription.consumers
        stats.consumer_count += len(consumers)
        looks += 1 + len(consumers)
        for consumer in consumers:
            rate, throughput = consumer.rates.per_second(now_s)
            stats.msg_rate_out += rate
            stats.msg_throughput_out += throughput
    if isinstance(topic, PersistentTopic) and isinstance(topic.log, TopicLog):
        stats.cache_size += topic.log.context.cache.size_bytes
    return looks
