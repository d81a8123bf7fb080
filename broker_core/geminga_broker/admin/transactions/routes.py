"""What Apache's broker answers about transactions where they are switched off (spec OP-03; Apache's
`Transactions`, `TransactionsBase`).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.owners import require_topic_owner
from geminga_broker.admin.topics.subscriptions import number_of
from geminga_broker.service import BrokerService

BASE = "/admin/v3/transactions"
SWITCHED_OFF = "This Broker is not configured with transactionCoordinatorEnabled=true."
_TOPIC = "/{tenant}/{namespace}/{topic}"
_ID = "/{most}/{least}"

READ = (
    "/coordinators",
    "/coordinatorStats",
    "/coordinatorInternalStats/{coordinator}",
    "/slowTransactions/{timeout}",
    f"/transactionMetadata{_ID}",
    f"/transactionInBufferStats{_TOPIC}{_ID}",
    f"/transactionInPendingAckStats{_TOPIC}/{{subscription}}{_ID}",
    f"/transactionBufferStats{_TOPIC}",
    f"/pendingAckStats{_TOPIC}/{{subscription}}",
    f"/pendingAckInternalStats{_TOPIC}/{{subscription}}",
    f"/positionStatsInPendingAck{_TOPIC}/{{subscription}}/{{ledger}}/{{entry}}",
)
"""GET: paths that say only that there are no transactions."""

BUFFER = f"/transactionBufferInternalStats{_TOPIC}"
REPLICAS = "/transactionCoordinator/replicas"
ABORT = f"/abortTransaction{_ID}"


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def refuse(request: Request) -> Response:
        for name in ("ledger", "entry"):
            if name in request.path_params:
                number_of(request, name)
        rest.query_number(request, "coordinatorId", 0)
        raise rest.RestError(503, SWITCHED_OFF)

    async def scale(request: Request) -> Response:
        await rest.required_body(request, int)
        return await refuse(request)

    async def buffer(request: Request) -> Response:
        name = rest.topic_of(request, "persistent")
        await require_topic_owner(service, request, name)
        if await service.topics.exists(name):
            text = "Transaction buffer Snapshot for the topic does not exist"
            raise rest.RestError(404, text)
        raise rest.RestError(404, f"Topic not found {name}")

    return [
        *(rest.route("GET", BASE + path, refuse) for path in READ),
        rest.route("GET", BASE + BUFFER, buffer),
        rest.route("POST", BASE + REPLICAS, scale),
        rest.route("POST", BASE + ABORT, refuse),
    ]
