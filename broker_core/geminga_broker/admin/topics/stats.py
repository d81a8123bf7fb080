"""Statistics of topics, partitions and subscriptions over REST (spec OP-04)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import Partitioned
from geminga_broker.admin.calls import Call, Calls
from geminga_broker.admin.http.shared_answers import SharedAnswers
from geminga_broker.admin.rest import RestError, flag, ok, route, topic_of
from geminga_broker.admin.topics.routes import partitioned_json, require_topic
from geminga_broker.admin.topics.stats_options import stats_options, stats_steps
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import (
    InternalStats,
    LedgerInfo,
    TopicStats,
    as_json,
    encoded,
    json_in_turns,
)
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import TURN_UNITS, Turns

Json = dict[str, object]


class PartitionedStats(TopicStats, rename="camel"):
    """The sum of a topic's partitions, and each of them by its name if asked for."""

    metadata: Partitioned | None = None
    partitions: dict[str, TopicStats] = {}


class PartitionedInternalStats(TypedDict):
    """The logs of a topic's partitions, by their names."""

    metadata: Partitioned
    partitions: dict[str, InternalStats]


NOT_SUMMED = frozenset(
    {
        "averageMsgSize",
        "backlogQuotaLimitSize",
        "backlogQuotaLimitTime",
        "oldestBacklogMessageAgeSeconds",
        "lastOffloadLedgerId",
        "lastExpireTimestamp",
        "lastConsumedFlowTimestamp",
        "lastConsumedTimestamp",
        "lastAckedTimestamp",
        "lastMarkDeleteAdvancedTimestamp",
        "avgMessagesPerEntry",
    }
)
"""Fields that are merged by the largest value instead of the sum."""

EARLIEST = frozenset({"earliestMsgPublishTimeInBacklogs", "earliestMsgPublishTimeInBacklog"})
"""Fields that are merged by the smallest value but 0."""

OF_A_TOPIC_ONLY = ("ownerBroker", "deduplicationStatus")


def merged(parts: list[Json]) -> Json:
    """Several objects as one: numbers added, flags or-ed, objects merged, lists joined."""
    result: Json = {}
    for part in parts:
        for key, value in part.items():
            result[key] = _merge(key, result[key], value) if key in result else value
    return result


def _merge(key: str, left: object, right: object) -> object:
    if isinstance(left, bool) and isinstance(right, bool):
        return left or right
    if isinstance(left, int | float) and isinstance(right, int | float):
        if key in EARLIEST:
            return min(left, right) if left and right else max(left, right)
        return max(left, right) if key in NOT_SUMMED else left + right
    if isinstance(left, dict) and isinstance(right, dict):
        return merged([cast(Json, left), cast(Json, right)])
    if isinstance(left, list) and isinstance(right, list):
        return left + right
    return left


async def _internal_stats(service: BrokerService, name: TopicName) -> Json:
    text = None if name.is_persistent else "Topic not found"
    topic = await require_topic(service, name, text)
    found = topic.internal_stats()
    if isinstance(topic, PersistentTopic):
        found.compacted_ledger = await topic.compaction.ledger_info()
        found.schema_ledgers = [
            LedgerInfo(each.ledger_id, each.last_entry_id + 1, each.length)
            for each in await service.schemas.registry.storage.ledgers_of(name.schema_name)
        ]
    return as_json(found)


async def _metadata(service: BrokerService, name: TopicName) -> tuple[int, Partitioned]:
    """The number of partitions, and Apache's metadata. Raises RestError 404."""
    count, properties = await service.catalog.metadata(name)
    if not count:
        raise RestError(404, f"Partitioned Topic {name} not found")
    return count, partitioned_json(count, properties)


async def _partitions(
    calls: Calls, name: TopicName, count: int, path: str, query: str = ""
) -> Mapping[str, Json]:
    """What the partitions answer that exist and can be asked, by full name."""
    answers = await calls.on_partitions(name, count, Call("GET", path, query=query))
    return {
        str(name.partition(index)): answer.json(Json)
        for index, answer in enumerate(answers)
        if not answer.is_error
    }


def _summary(parts: Mapping[str, Json]) -> Json:
    total = merged([dict(part) for part in parts.values()])
    for key in OF_A_TOPIC_ONLY:
        total.pop(key, None)
    total["oldestBacklogMessageAgeSeconds"] = max(
        [0, *(cast(int, part.get("oldestBacklogMessageAgeSeconds", 0)) for part in parts.values())]
    )
    return total


def routes(service: BrokerService, calls: Calls, domains: Iterable[str]) -> list[Route]:
    """All routes of the family for these domains; one long answer is made at a time."""
    answers = SharedAnswers[bytes]()
    return [route for domain in domains for route in _routes(service, calls, domain, answers)]


def _routes(
    service: BrokerService, calls: Calls, domain: str, answers: SharedAnswers[bytes]
) -> list[Route]:
    async def stats(request: Request) -> Response:
        name = topic_of(request, domain)
        # Of a loaded one no record is asked for: it changes nothing.
        topic = service.topics.loaded_now(name) or await require_topic(service, name)
        options = stats_options(request)

        async def body() -> bytes:
            steps = await stats_steps(topic, options)
            found = await json_in_turns(steps, Turns(), encoded)
            return msgspec.json.encode({**found, "ownerBroker": service.addresses.broker_id})

        is_large = len(topic.subscriptions) + len(topic.producers) >= TURN_UNITS
        answer = await answers.of((topic, options), body) if is_large else await body()
        return rest.encoded(answer, TopicStats)

    async def internal_stats(request: Request) -> Response:
        return ok(await _internal_stats(service, topic_of(request, domain)), InternalStats)

    async def partitioned_stats(request: Request) -> Response:
        name = topic_of(request, domain)
        count, metadata = await _metadata(service, name)
        parts = await _partitions(calls, name, count, "/stats", stats_options(request).query)
        answer = _summary(parts)
        answer["metadata"] = metadata
        answer["partitions"] = parts if flag(request, "perPartition", default=True) else {}
        return ok(answer, PartitionedStats)

    async def partitioned_internal_stats(request: Request) -> Response:
        name = topic_of(request, domain)
        count, metadata = await _metadata(service, name)
        parts = await _partitions(calls, name, count, "/internalStats")
        return ok({"metadata": metadata, "partitions": parts}, PartitionedInternalStats)

    one = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    return [
        route("GET", one + "/stats", stats),
        route("GET", one + "/internalStats", internal_stats),
        route("GET", one + "/partitioned-stats", partitioned_stats),
        route("GET", one + "/partitioned-internalStats", partitioned_internal_stats),
    ]
