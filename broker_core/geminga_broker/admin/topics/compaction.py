"""Manual compaction (spec BR-50, OP-04; `PersistentTopicsBase.internalTriggerCompaction`)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin.rest import RestError, at, no_content, ok, topic_of
from geminga_broker.admin.topics.routes import require_topic, require_writable_namespace
from geminga_broker.compaction.topic_compaction import CompactionRunning
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.topic_name import TopicName

DOMAIN = "persistent"


async def _require(service: BrokerService, name: TopicName) -> PersistentTopic:
    topic = await require_topic(service, name)
    assert isinstance(topic, PersistentTopic), "the routes are of persistent topics"
    return topic


async def trigger(service: BrokerService, name: TopicName) -> None:
    """Compact a topic. Raises RestError 404, and 409 while it is being compacted."""
    await require_writable_namespace(service, name)
    try:
        (await _require(service, name)).compaction.trigger()
    except CompactionRunning as error:
        raise RestError(409, str(error)) from None


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def compact(request: Request) -> Response:
        await trigger(service, topic_of(request, DOMAIN))
        return no_content()

    async def status(request: Request) -> Response:
        topic = await _require(service, topic_of(request, DOMAIN))
        outcome = topic.compaction.outcome
        return ok({"status": outcome.status.value, "lastError": outcome.last_error})

    path = f"/admin/v2/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic}}/compaction"
    return at(path, put=compact, get=status)
