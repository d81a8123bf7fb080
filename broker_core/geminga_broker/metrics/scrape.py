"""One scrape: every series of the broker, from the topics' statistics (spec OP-05)."""

from __future__ import annotations

from collections import defaultdict
from heapq import merge
from time import perf_counter

from geminga_broker.cluster.catalog import is_system_topic
from geminga_broker.metrics.broker import add_broker
from geminga_broker.metrics.exposition import Exposition
from geminga_broker.metrics.load_balance import samples
from geminga_broker.metrics.log_meter import Window
from geminga_broker.metrics.pace import Pace
from geminga_broker.metrics.storage import (
    Cursors,
    Histograms,
    add_managed_ledgers,
    cache_figures,
)
from geminga_broker.metrics.topics import Figures, TopicPage
from geminga_broker.metrics.totals import Totals
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import made_in_turns
from geminga_broker.topic.topic import Topic
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import TURN_UNITS
from geminga_runtime.metrics.labels import labels
from geminga_runtime.metrics.process_figures import process_figures

SORTED_NAMES = 512
"""Topics' names that are sorted in one go."""

_NO_LOG = Window()


async def scrape(service: BrokerService, *, version: str) -> Exposition:
    """The page for `/metrics`. Costs nothing between scrapes. Made in turns of the loop, so that
    neither many topics block it nor a large one: the values of each subscription and producer are
    of its own turn.
    """
    text = Exposition()
    pace = Pace()
    cluster = [("cluster", service.config.network.cluster_name)]
    text.add("pulsar_version_info", labels([*cluster, ("version", version), ("commit", "")]), 1)
    await _Scrape(service, text, pace).topics(cluster)
    await pace.spend(TURN_UNITS)
    await add_broker(text, service, pace)
    await pace.spend(TURN_UNITS)
    for sample in samples(service.load_manager):
        text.add(sample.name, labels([*cluster, *sample.labels]), sample.value)
    add_process(text, cluster)
    await pace.spend(TURN_UNITS)
    return text


class _Scrape:
    """The topics of one scrape."""

    def __init__(self, service: BrokerService, text: Exposition, pace: Pace) -> None:
        self._service = service
        self._text = text
        self._pace = pace
        self._config = service.config.metrics
        self._copies = service.config.log.write_quorum
        self._histograms = Histograms(text)
        self._cursors = Cursors(text, self._copies, pace)
        self._page = TopicPage(text, self._histograms, self._config, pace)
        self._namespaces: defaultdict[str, Totals] = defaultdict(Totals)
        self._labels: dict[str, str] = {}
        """Of their topics."""

    async def topics(self, cluster: list[tuple[str, str]]) -> None:
        """Series of topics, or of namespaces without topic level, and the broker's sums."""
        text, config = self._text, self._config
        loaded = self._service.topics.loaded
        for key in merge(*await self._sorted(list(loaded))):
            if (topic := loaded.get(key)) is not None:
                await self._add(cluster, TopicName.parse(key), topic)
            await self._pace.spend()
        every = Totals()
        for namespace, totals in sorted(self._namespaces.items()):
            pairs = [*cluster, ("namespace", namespace)]
            # Apache's managed ledgers have the domain behind it.
            of_logs = [*cluster, ("namespace", f"{namespace}/persistent")]
            every.add(totals)
            if config.topics:
                text.add("pulsar_topics_count", labels(pairs), totals.topics)
            else:
                totals.add_namespace_to(text, self._histograms, pairs)
            if config.managed_ledgers and totals.logs:
                add_managed_ledgers(text, of_logs, totals, self._copies)
            await self._pace.spend()
        every.add_broker_to(text, cluster)
        for name, value in cache_figures(self._service.log_cache, every.logs):
            text.add(f"pulsar_ml_{name}", labels(cluster), value)

    async def _sorted(self, names: list[str]) -> list[list[str]]:
        """Runs of them, sorted: to sort many at once would be a long turn. They are taken away."""
        runs: list[list[str]] = []
        while names:
            await self._pace.spend(TURN_UNITS)
            runs.append(sorted(names[-SORTED_NAMES:]))
            del names[-SORTED_NAMES:]
        return runs

    async def _add(self, cluster: list[tuple[str, str]], name: TopicName, topic: Topic) -> None:
        stats, consumer_ids = await made_in_turns(topic.stats_steps(), self._pace.spend)
        window = _NO_LOG
        namespace = name.namespace
        if isinstance(topic, PersistentTopic):
            window = topic.log.meter.window(perf_counter(), self._config.period_s)
            if self._config.cursors:
                of_logs = labels([*cluster, ("namespace", f"{namespace}/persistent")])
                await self._cursors.add(of_logs, topic.log)
        totals = self._namespaces[namespace]
        totals.add_topic(topic, stats, window, system=is_system_topic(name))
        if self._config.topics:
            where = self._labels.get(namespace)
            if where is None:
                where = labels([*cluster, ("namespace", namespace)])
                self._labels[namespace] = where
            await self._page.add(where, name, topic, Figures(stats, consumer_ids, window))


def add_process(text: Exposition, cluster: list[tuple[str, str]]) -> None:
    """`process_*` and `python_gc_*`."""
    for figure in process_figures():
        where = labels([*cluster, *figure.labels.items()])
        text.add(figure.name, where, figure.value, figure.kind)
