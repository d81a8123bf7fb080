"""Offloading a topic on request (spec OP-04; `PersistentTopicsBase.internalTriggerOffload`). There
is no offloader: each request ends with the error of Apache's broker without one.
"""

from __future__ import annotations

from weakref import WeakSet

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import OffloadStatus
from geminga_broker.admin.topics.routes import require_topic
from geminga_broker.admin.topics.subscriptions import ResetCursorData
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic

NO_OFFLOADER = (
    "org.apache.bookkeeper.mledger.ManagedLedgerException: [NullLedgerOffloader] does not support "
    "offload"
)
_NOWHERE = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchSize": 0, "batchIndex": -1}


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""
    asked: WeakSet[PersistentTopic] = WeakSet()

    async def topic_of(request: Request) -> PersistentTopic:
        topic = await require_topic(service, rest.topic_of(request, domain))
        if not isinstance(topic, PersistentTopic):
            raise rest.RestError(405, "Offload on a non-persistent topic is not allowed")
        return topic

    async def status(request: Request) -> Response:
        failed = await topic_of(request) in asked
        told = ("ERROR", NO_OFFLOADER) if failed else ("NOT_RUN", "")
        return rest.ok(
            {"status": told[0], "lastError": told[1], "firstUnoffloadedMessage": _NOWHERE},
            OffloadStatus,
        )

    async def offload(request: Request) -> Response:
        if await rest.read_body(request, ResetCursorData) is None:
            raise rest.RestError(400, "messageId is null")
        asked.add(await topic_of(request))
        return rest.no_content()

    path = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}/offload"
    return rest.at(path, get=status, put=offload)
