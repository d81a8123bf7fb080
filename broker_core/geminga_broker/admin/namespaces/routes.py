"""`/admin/v2/namespaces` (`NamespacesBase`): create, list, delete, policies, bundles, unload."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import jackson, rest
from geminga_broker.admin.calls import Calls
from geminga_broker.admin.namespaces.changing import in_class_order
from geminga_broker.admin.namespaces.checks import check_policies
from geminga_broker.admin.namespaces.clusters import check_new
from geminga_broker.admin.namespaces.deletion import delete_namespace
from geminga_broker.admin.namespaces.told import Policies
from geminga_broker.admin.policy_values import namespace_policies
from geminga_broker.admin.topics.routes import listed, topic_names
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import (
    BadName,
    JsonObject,
    ResourceExists,
    ResourceMissing,
    is_name,
)
from geminga_broker.service import BrokerService

BUNDLES_MAX = 1 << 16


async def require_namespace(namespaces: Namespaces, namespace: str) -> None:
    """Raises RestError 404 with the namespace API's text."""
    if not await namespaces.exists(namespace):
        raise rest.RestError(404, "Namespace does not exist")


def _bundle_count(service: BrokerService, policies: JsonObject) -> int:
    bundles = policies.get("bundles")
    count = bundles.get("numBundles") if isinstance(bundles, dict) else None
    if count is None or count == 0:
        return service.config.topics.namespace_bundles
    if not isinstance(count, int) or not 0 < count <= BUNDLES_MAX:
        text = "Invalid number of bundles: number of bundles has to be in the range of (0, 2^32)."
        raise rest.RestError(412, text)
    return count


async def _clusters(service: BrokerService, namespace: str, policies: JsonObject) -> list[str]:
    given = policies.get("replication_clusters")
    if isinstance(given, list) and given:
        wanted = list(dict.fromkeys(str(name) for name in given))
        await check_new(service, namespace, wanted)
        return wanted
    return [service.config.network.cluster_name]


async def create_namespace(service: BrokerService, namespace: str, policies: JsonObject) -> None:
    """Raises RestError as Apache answers."""
    tenant = namespace.partition("/")[0]
    if not await service.namespaces.tenants.exists(tenant):
        raise rest.RestError(404, "Tenant does not exist")
    made = ("bundles", "replication_clusters", "deleted")
    extra = {k: v for k, v in policies.items() if k not in made}
    await check_policies(service, namespace, extra)
    await _check_room(service, tenant)
    try:
        await service.namespaces.create(
            namespace,
            bundles=_bundle_count(service, policies),
            clusters=await _clusters(service, namespace, policies),
            policies=extra,
        )
    except BadName:
        raise rest.RestError(412, "Namespace name is not valid") from None
    except ResourceMissing:
        raise rest.RestError(404, "Tenant does not exist") from None
    except ResourceExists:
        raise rest.RestError(409, "Namespace already exists") from None


async def _check_room(service: BrokerService, tenant: str) -> None:
    limit = service.config.topics.namespaces_per_tenant_max
    if limit and len(await service.namespaces.list(tenant)) >= limit:
        text = f"Exceed the maximum number of namespace in tenant :{tenant}"
        raise rest.RestError(412, text)


async def _policies_given(request: Request) -> JsonObject:
    given = await rest.read_body(request, dict[str, object])
    try:
        return namespace_policies(given or {})
    except jackson.Unbindable as error:
        raise rest.bad_body(str(error)) from None


def routes(service: BrokerService, calls: Calls) -> list[Route]:
    """All routes of the family."""
    namespaces = service.namespaces

    async def list_of_tenant(request: Request) -> Response:
        tenant = rest.parameter(request, "tenant")
        if not await namespaces.tenants.exists(tenant):
            raise rest.RestError(404, "Tenant not found")
        return rest.ok(await namespaces.list(tenant), list[str])

    async def list_of_cluster(request: Request) -> Response:
        """Namespaces of version 1, whose names have a cluster's in them: there are none."""
        cluster = rest.parameter(request, "cluster")
        if not (is_name(cluster) and await namespaces.clusters.exists(cluster)):
            raise rest.RestError(404, "Cluster does not exist")
        return rest.ok([], list[str])

    async def get(request: Request) -> Response:
        try:
            record = await namespaces.policies(rest.namespace_of(request))
        except ResourceMissing:
            raise rest.RestError(404, "Namespace does not exist") from None
        # As Apache's broker tells it, since this was once never absent.
        shown = {"is_allow_auto_update_schema": service.config.schemas.allow_auto_update}
        return rest.ok(in_class_order(shown | record), Policies)

    async def create(request: Request) -> Response:
        await create_namespace(service, rest.namespace_of(request), await _policies_given(request))
        return rest.no_content()

    async def delete(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        await delete_namespace(service, calls, namespace, force=rest.flag(request, "force"))
        return rest.no_content()

    async def topics(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        await require_namespace(service.namespaces, namespace)
        mode = request.query_params.get("mode", "PERSISTENT").upper()
        domains = {"ALL": ("persistent", "non-persistent"), "NON_PERSISTENT": ("non-persistent",)}
        names: list[str] = []
        if mode not in ("PERSISTENT", *domains):
            raise rest.RestError(404, f"mode: none of PERSISTENT, {', '.join(domains)}")
        for domain in domains.get(mode, ("persistent",)):
            names += await topic_names(service, calls, namespace, domain)
        return rest.ok(listed(request, names), list[str])

    base = "/admin/v2/namespaces"
    one = base + "/{tenant}/{namespace}"
    return [
        rest.route("GET", base + "/{tenant}", list_of_tenant),
        # The Java client asks here.
        rest.route("GET", "/admin/namespaces/{tenant}/{cluster}", list_of_cluster),
        *rest.at(one, get=get, put=create, delete=delete),
        rest.route("GET", one + "/topics", topics),
    ]
