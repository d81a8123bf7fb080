"""Manual compaction (spec BR-50, OP-04; `PersistentTopicsBase.internalTriggerCompaction`)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin.answers import ProcessStatus
from geminga_broker.admin.rest import RestError, at, no_content, ok, topic_of
from geminga_broker.admin.topics.routes import require_topic, require_writable_namespace
from geminga_broker.compaction.topic_compaction import CompactionRunning
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.topic_name import TopicName


async def _require(service: BrokerService, name: TopicName) -> PersistentTopic:
    topic = await require_topic(service, name)
    if not isinstance(topic, PersistentTopic):
        raise RestError(405, "Compaction of a non-persistent topic is not allowed")
    return topic


async def trigger(service: BrokerService, name: TopicName) -> None:
    """Compact a topic. Raises RestError 404, and 409 while it is being compacted."""
    await require_writable_namespace(service, name)
    try:
        (await _require(service, name)).compaction.trigger()
    except CompactionRunning as error:
        raise RestError(409, str(error)) from None


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""

    async def compact(request: Request) -> Response:
        await trigger(service, topic_of(request, domain))
        return no_content()

    async def status(request: Request) -> Response:
        topic = await _require(service, topic_of(request, domain))
        outcome = topic.compaction.outcome
        return ok({"status": outcome.status.value, "lastError": outcome.last_error}, ProcessStatus)

    path = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}/compaction"
    return at(path, put=compact, get=status)
