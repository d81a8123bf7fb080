"""Which broker answers a call of a bundle's path: one table (spec CL-10, CL-11; Apache's
NamespacesBase, validateNamespaceBundleOwnership).

The bundle in the path is checked, and found, before the handler is called.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.owners import bundle_named, require_bundle_owner
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.service import BrokerService


class BundleRule(NamedTuple):
    """Its owner answers; others redirect to it."""

    acquires: bool = False
    """A bundle without an owner gets one; otherwise that is an error, or..."""
    done_if_unowned: bool = False
    """...there is nothing to do: 204."""
    no_namespace: str = "Namespace does not exist"


_NAMESPACES = "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}"
_NOT_FOUND = "Namespace not found"

BUNDLES: dict[str, BundleRule] = {
    f"DELETE {_NAMESPACES}": BundleRule(),
    f"PUT {_NAMESPACES}/unload": BundleRule(done_if_unowned=True, no_namespace=_NOT_FOUND),
    f"GET {_NAMESPACES}/topicHashPositions": BundleRule(),
    f"POST {_NAMESPACES}/clearBacklog": BundleRule(),
    f"POST {_NAMESPACES}/clearBacklog/{{subscription}}": BundleRule(),
    f"POST {_NAMESPACES}/unsubscribe/{{subscription}}": BundleRule(),
    "GET /admin/v2/non-persistent/{tenant}/{namespace}/{bundle}": BundleRule(done_if_unowned=True),
}
"""By method and path."""

OF_ANY_BROKER = frozenset(
    f"{method} /admin/v2/resource-quotas/{{tenant}}/{{namespace}}/{{bundle}}"
    for method in ("GET", "POST", "DELETE")
)
"""Routes with a bundle whose record any broker reads or writes."""


def bundle_in(request: Request) -> BundleId:
    """The bundle of a path in the table."""
    return cast(BundleId, request.state.bundle)


def at_bundle_owner(service: BrokerService, rule: BundleRule, route: Route) -> Route:
    """The same route, answered by the bundle's owner."""
    handler = cast(rest.Handler, route.endpoint)
    endpoint = partial(_at_owner, service, rule, handler)
    return Route(route.path, endpoint, methods=sorted((route.methods or set()) - {"HEAD"}))


async def _at_owner(
    service: BrokerService, rule: BundleRule, handler: rest.Handler, request: Request
) -> Response:
    namespace = rest.namespace_of(request)
    if not await service.namespaces.tenants.exists(namespace):
        raise rest.RestError(404, rule.no_namespace)
    bundle = await bundle_named(service, namespace, rest.parameter(request, "bundle"))
    if rule.done_if_unowned and await service.ownership.owner(bundle) is None:
        return rest.no_content()
    await require_bundle_owner(service, request, bundle, read_only=not rule.acquires)
    request.state.bundle = bundle
    return await handler(request)
