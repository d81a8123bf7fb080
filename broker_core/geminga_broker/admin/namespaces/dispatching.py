"""`dispatcherPauseOnAckStatePersistent` of namespaces (spec OP-03, BR-05; PIP-299).

Apache's broker stops sending while a subscription has more acknowledged ranges than it can write
(`managedLedgerMaxUnackedRangesToPersist`). Here all of them are written, whatever their number
(`log/position_info.py`): what the policy asks for always holds, with nothing to wait for.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.namespaces.changing import NO_POLICIES, change_policies, policies_of
from geminga_broker.service import BrokerService

FIELD = "dispatcherPauseOnAckStatePersistentEnabled"


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def get(request: Request) -> Response:
        record = await policies_of(service, rest.namespace_of(request), NO_POLICIES)
        return rest.ok(record.get(FIELD) is True, bool)

    async def post(request: Request) -> Response:
        return await change(request, True)

    async def delete(request: Request) -> Response:
        return await change(request, False)

    async def change(request: Request, value: bool) -> Response:
        namespace = rest.namespace_of(request)
        await change_policies(service, namespace, lambda old: old | {FIELD: value})
        return rest.no_content()

    path = "/admin/v2/namespaces/{tenant}/{namespace}/dispatcherPauseOnAckStatePersistent"
    return rest.at(path, get=get, post=post, delete=delete)
