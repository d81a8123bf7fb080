"""Pages of a topic and of a subscription."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

from geminga_broker.console.actions import OF_SUBSCRIPTIONS, OF_TOPICS
from geminga_broker.console.answers import (
    Finding,
    Internals,
    Partitions,
    Schema,
    Subscription,
    Topic,
)
from geminga_broker.console.calls import CallFailed, Json, TopicPath
from geminga_broker.console.cluster_pages import set_policies
from geminga_broker.console.listing import page_number, page_of
from geminga_broker.console.site import Section, Visit

SUBSCRIPTIONS_SHOWN = 20
PARTITIONS_SHOWN = 50
CONSUMERS_SHOWN = 100
LEDGERS_SHOWN = 50
FINDINGS_SHOWN = 10


class SubscriptionRow(NamedTuple):
    """A subscription of a topic's page, and why it gets nothing."""

    name: str
    state: Subscription
    why: Section[list[Finding]]


async def partitions_of(visit: Visit, topic: TopicPath) -> int:
    """The number of partitions; 0 for a topic without. Raises CallFailed."""
    found = await visit.rest.get(f"{topic.rest}/partitions", Partitions)
    return found.partitions


async def statistics(visit: Visit, topic: TopicPath, partitions: int) -> Topic:
    """Of a topic, or the sum of its partitions. Raises CallFailed."""
    if not partitions:
        return await visit.rest.get(f"{topic.rest}/stats", Topic)
    return await visit.rest.get(f"{topic.rest}/partitioned-stats", Topic)


async def _topic(visit: Visit) -> Response:
    topic = visit.topic
    partitions = await partitions_of(visit, topic)
    stats = await statistics(visit, topic, partitions)
    number = page_number(visit.query("page"))
    page = page_of(sorted(stats.subscriptions), visit.query("q"), number, SUBSCRIPTIONS_SHOWN)
    rows = [
        SubscriptionRow(name, stats.subscriptions[name], await _why(visit, topic, name))
        for name in page.items
    ]
    parts = [
        (
            f"{topic.topic}-partition-{index}",
            stats.partitions.get(f"{topic.name}-partition-{index}"),
        )
        for index in range(partitions)
    ]
    at = page_number(visit.query("part"))
    pages = max(1, -(-len(parts) // PARTITIONS_SHOWN))
    first = (min(at, pages) - 1) * PARTITIONS_SHOWN
    return visit.page(
        "topic.html",
        topic=topic,
        stats=stats,
        partitions=partitions,
        parts_shown=parts[first : first + PARTITIONS_SHOWN],
        part_page=min(at, pages),
        part_pages=pages,
        page=page,
        rows=rows,
        publishers=stats.publishers[:CONSUMERS_SHOWN],
        internals=await _internals(visit, topic, partitions),
        schema=await schema_of(visit, topic),
        policies=await _policies(visit, topic),
        actions=[each for each in OF_TOPICS if each.fits(topic, partitions)],
    )


async def _why(visit: Visit, topic: TopicPath, name: str) -> Section[list[Finding]]:
    """The first findings, the worst first."""
    found = await visit.section(list[Finding], f"{topic.subscription(name)}/why")
    return Section(None if found.value is None else found.value[:FINDINGS_SHOWN], found.error)


async def _internals(visit: Visit, topic: TopicPath, partitions: int) -> Section[Internals]:
    if partitions or topic.domain != "persistent":
        return Section(None)
    found = await visit.section(Internals, f"{topic.rest}/internalStats")
    if found.value is not None:
        found.value.ledgers = found.value.ledgers[-LEDGERS_SHOWN:]
    return found


async def schema_of(visit: Visit, topic: TopicPath, version: int | None = None) -> Schema | None:
    """The topic's schema; None without one, or if it can't be read."""
    path = "/".join(["/admin/v2/schemas", *topic.path.split("/")[1:], "schema"])
    try:
        return await visit.rest.get(path if version is None else f"{path}/{version}", Schema)
    except CallFailed:
        return None


_POLICIES = (
    "retention", "messageTTL", "maxProducers", "maxConsumers", "maxUnackedMessagesOnConsumer",
    "maxUnackedMessagesOnSubscription", "publishRate", "dispatchRate", "subscriptionDispatchRate",
    "deduplicationEnabled", "compactionThreshold", "backlogQuotaMap", "inactiveTopicPolicies",
    "delayedDelivery", "persistence", "maxMessageSize", "maxSubscriptionsPerTopic",
)  # fmt: skip


async def _policies(visit: Visit, topic: TopicPath) -> Section[Mapping[str, object]]:
    """The policies that are set for the topic itself."""
    found: dict[str, object] = {}
    for name in _POLICIES:
        try:
            found[name] = await visit.rest.get(f"{topic.rest}/{name}", object)
        except CallFailed as error:
            if error.status not in (404, 405, 412):
                return Section(None, error.reason)
    return Section(set_policies(found))


async def _subscription(visit: Visit) -> Response:
    topic, name = visit.topic, visit.parameter("subscription")
    partitions = await partitions_of(visit, topic)
    stats = await statistics(visit, topic, partitions)
    if name not in stats.subscriptions:
        raise CallFailed(404, f"Topic {topic.name} has no subscription {name}")
    state = stats.subscriptions[name]
    cursors: Section[Json] = Section(None)
    if topic.domain == "persistent" and not partitions:
        cursors = await visit.section(Json, f"{topic.rest}/internalStats")
    by_name = (cursors.value or {}).get("cursors")
    cursor = by_name.get(name) if isinstance(by_name, dict) else None
    return visit.page(
        "subscription.html",
        topic=topic,
        name=name,
        state=state,
        partitions=partitions,
        cursor=cursor if isinstance(cursor, dict) else {},
        consumers=state.consumers[:CONSUMERS_SHOWN],
        why=await _why(visit, topic, name),
        actions=[each for each in OF_SUBSCRIPTIONS if each.fits(topic, partitions)],
    )


_TOPIC = "/topics/{domain}/{tenant}/{namespace}/{topic}"

VIEWS = (
    (f"GET {_TOPIC}", _topic),
    (f"GET {_TOPIC}/subscriptions/{{subscription}}", _subscription),
)
