"""What a caller wants of a topic's statistics (Apache's GetStatsOptions, spec OP-04)."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request

from geminga_broker.admin.rest import flag
from geminga_broker.policies.backlog_quota_manager import published_behind, slowest_cursor
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import StatsSteps
from geminga_broker.topic.topic import Topic
from geminga_protocol.ids import Position

NO_BACKLOG = -1
"""In the place of the time of the oldest message of a backlog."""
NOT_WANTED = -1
"""In the place of a subscription's size."""


class StatsOptions(NamedTuple):
    """Backlogs are counted precisely, whether or not `getPreciseBacklog` asks for it."""

    backlog_sizes: bool
    """Of each subscription; the topic's is always told."""
    earliest_times: bool
    """When the oldest message of each backlog was published: an entry is read for each."""
    publishers: bool
    consumers: bool

    @property
    def query(self) -> str:
        """As a query that asks for the same."""
        return "&".join(
            f"{name}={str(value).lower()}"
            for name, value in (
                ("subscriptionBacklogSize", self.backlog_sizes),
                ("getEarliestTimeInBacklog", self.earliest_times),
                ("excludePublishers", not self.publishers),
                ("excludeConsumers", not self.consumers),
            )
        )


def stats_options(request: Request) -> StatsOptions:
    """By the query; the defaults are Apache's. Raises RestError 404 for a value that is no flag."""
    return StatsOptions(
        flag(request, "subscriptionBacklogSize", default=True),
        flag(request, "getEarliestTimeInBacklog"),
        not flag(request, "excludePublishers"),
        not flag(request, "excludeConsumers"),
    )


async def stats_steps(topic: Topic, options: StatsOptions) -> StatsSteps:
    """The topic's statistics with what is wanted of them. Raises LogError."""
    times = EarliestTimes()
    if options.earliest_times and isinstance(topic, PersistentTopic):
        await times.read(topic)
    return _adjusted(topic.stats_steps(), options, times)


class EarliestTimes:
    """When the oldest messages of backlogs were published, ms; 0 where nothing was asked."""

    def __init__(self) -> None:
        self.of_topic = 0
        """Of the slowest durable subscription; 0, unlike with the others, without a backlog."""
        self.of_subscriptions: dict[str, int] = {}
        self._by_mark: dict[Position, int] = {}

    async def read(self, topic: PersistentTopic) -> None:
        """Read an entry for each place that a subscription has reached. Raises LogError."""
        marks = {name: each.cursor.mark_delete for name, each in topic.subscriptions.items()}
        for name, mark in marks.items():
            self.of_subscriptions[name] = await self._behind(topic, mark)
        if (slowest := slowest_cursor(topic)) is not None:
            self.of_topic = max(0, await self._behind(topic, slowest.mark_delete))

    async def _behind(self, topic: PersistentTopic, mark: Position) -> int:
        if mark not in self._by_mark:
            published_ms = await published_behind(topic.log, mark)
            self._by_mark[mark] = NO_BACKLOG if published_ms is None else published_ms
        return self._by_mark[mark]


def _adjusted(steps: StatsSteps, options: StatsOptions, times: EarliestTimes) -> StatsSteps:
    found = yield from steps
    found.earliest_msg_publish_time_in_backlogs = times.of_topic
    for name, subscription in found.subscriptions.items():
        subscription.earliest_msg_publish_time_in_backlog = times.of_subscriptions.get(name, 0)
        if not options.backlog_sizes:
            subscription.backlog_size = NOT_WANTED
        if not options.consumers:
            subscription.consumers = []
    if not options.publishers:
        found.publishers = []
    return found
