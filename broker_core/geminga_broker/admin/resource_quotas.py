"""`/admin/v2/resource-quotas`: what the load manager assumes of bundles that it doesn't know yet
(spec CL-07, OP-03; Apache's `ResourceQuotasBase`, `BundlesQuotas`).
"""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.owners import bundle_named
from geminga_broker.loadbalance.model import (
    DEFAULT_QUOTA_PATH,
    ResourceQuota,
    decode_quota,
    encode,
    initial_quota,
    quota_path,
)
from geminga_broker.service import BrokerService
from geminga_runtime.metadata.api import NoNode


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def stored(path: str) -> ResourceQuota | None:
        node = await service.store.get(path)
        with suppress(ValueError):
            return None if node is None else decode_quota(node.value)
        return None

    async def default() -> ResourceQuota:
        return await stored(DEFAULT_QUOTA_PATH) or initial_quota()

    async def change(request: Request, path: str) -> Response:
        quota = await rest.read_body(request, ResourceQuota)
        if quota is None:  # as in Apache: there is none then
            with suppress(NoNode):
                await service.store.delete(path)
            return rest.no_content()
        if not quota.is_storable():
            raise rest.RestError(412, "The resource quota is not valid")
        await service.store.put(path, encode(quota))
        return rest.no_content()

    async def remove(path: str) -> Response:
        try:
            await service.store.delete(path)
        except NoNode:
            raise rest.RestError(404, f"path {path} not found.") from None
        return rest.no_content()

    async def path_of(request: Request) -> str:
        namespace = rest.namespace_of(request)
        bundle = await bundle_named(service, namespace, rest.parameter(request, "bundle"))
        return quota_path(str(bundle))

    async def get_default(_request: Request) -> Response:
        return rest.ok(await default(), ResourceQuota)

    async def post_default(request: Request) -> Response:
        return await change(request, DEFAULT_QUOTA_PATH)

    async def get(request: Request) -> Response:
        return rest.ok(await stored(await path_of(request)) or await default(), ResourceQuota)

    async def post(request: Request) -> Response:
        return await change(request, await path_of(request))

    async def delete(request: Request) -> Response:
        return await remove(await path_of(request))

    base = "/admin/v2/resource-quotas"
    return [
        *rest.at(base, get=get_default, post=post_default),
        *rest.at(base + "/{tenant}/{namespace}/{bundle}", get=get, post=post, delete=delete),
    ]
