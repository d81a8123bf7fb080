"""Anti-affinity groups: namespaces whose topics should not share a failure domain, or a broker
(spec CL-08, OP-03; Apache's `NamespacesBase`). They stand in the cluster's local policies.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import BARE_TEXT
from geminga_broker.admin.namespaces.routes import require_namespace
from geminga_broker.cluster.records import JsonObject, is_name
from geminga_broker.limits import is_longer
from geminga_broker.service import BrokerService

FIELD = "namespaceAntiAffinityGroup"
GROUP_BYTES_MAX = 2048


async def _group_of(service: BrokerService, namespace: str) -> str | None:
    record = await service.namespaces.local_policies.get(namespace)
    found = record.get(FIELD) if record else None
    return found if isinstance(found, str) else None


async def _members(service: BrokerService, request: Request, tenant: str | None) -> Response:
    """Those of a tenant in a group."""
    namespaces = service.namespaces
    cluster = rest.parameter(request, "cluster")
    wanted = rest.parameter(request, "group").lower()
    if tenant is None:
        raise rest.RestError(400, "Tenant should not be null")
    if not (is_name(cluster) and await namespaces.clusters.exists(cluster)):
        raise rest.RestError(412, f"Cluster {cluster} does not exist.")
    if not is_name(tenant):
        return rest.ok([], list[str])
    names = await namespaces.list(tenant)
    groups = {name: await _group_of(service, name) for name in names}
    return rest.ok([name for name in names if (groups[name] or "").lower() == wanted], list[str])


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    namespaces = service.namespaces

    async def get(request: Request) -> Response:
        group = await _group_of(service, rest.namespace_of(request))
        # The text itself, as Apache's server writes it; its clients read that.
        return rest.no_content() if group is None else rest.text_as_json(group)

    async def post(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        group = (await rest.raw_body(request, BARE_TEXT)).decode("utf-8", "replace")
        if not group.strip():
            raise rest.RestError(412, "antiAffinityGroup can't be empty")
        if is_longer(group, GROUP_BYTES_MAX):
            raise rest.RestError(412, f"The group is longer than {GROUP_BYTES_MAX} bytes")
        await require_namespace(namespaces, namespace)
        await namespaces.change_local_policies(namespace, lambda old: old | {FIELD: group})
        return rest.no_content()

    async def delete(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        await require_namespace(namespaces, namespace)

        def without(old: JsonObject) -> JsonObject:
            return {name: value for name, value in old.items() if name != FIELD}

        await namespaces.change_local_policies(namespace, without)
        return rest.no_content()

    async def members(request: Request) -> Response:
        return await _members(service, request, request.query_params.get("tenant"))

    async def members_v1(request: Request) -> Response:
        return await _members(service, request, request.query_params.get("property"))

    path = "/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity"
    return [
        *rest.at(path, get=get, post=post, delete=delete),
        rest.route("GET", "/admin/v2/namespaces/{cluster}/antiAffinity/{group}", members),
        # The Java client asks here.
        rest.route("GET", "/admin/namespaces/{cluster}/antiAffinity/{group}", members_v1),
    ]
