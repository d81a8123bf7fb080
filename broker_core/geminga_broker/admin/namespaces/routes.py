"""`/admin/v2/namespaces` (`NamespacesBase`): create, list, delete, policies, bundles, unload."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import jackson, rest
from geminga_broker.admin.policy_values import namespace_policies
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import BadName, JsonObject, ResourceExists, ResourceMissing
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


def _clusters(service: BrokerService, policies: JsonObject) -> list[str]:
    given = policies.get("replication_clusters")
    if isinstance(given, list) and given:
        return [str(name) for name in given]
    return [service.config.network.cluster_name]


async def create_namespace(service: BrokerService, namespace: str, policies: JsonObject) -> None:
    """Raises RestError as Apache answers."""
    tenant = namespace.partition("/")[0]
    if not await service.namespaces.tenants.exists(tenant):
        raise rest.RestError(404, "Tenant does not exist")
    extra = {k: v for k, v in policies.items() if k not in ("bundles", "replication_clusters")}
    try:
        await service.namespaces.create(
            namespace,
            bundles=_bundle_count(service, policies),
            clusters=_clusters(service, policies),
            policies=extra,
        )
    except BadName:
        raise rest.RestError(412, "Namespace name is not valid") from None
    except ResourceMissing:
        raise rest.RestError(404, "Tenant does not exist") from None
    except ResourceExists:
        raise rest.RestError(409, "Namespace already exists") from None


async def delete_namespace(service: BrokerService, namespace: str) -> None:
    """Raises RestError as Apache answers."""
    if not await service.namespaces.exists(namespace):
        raise rest.RestError(404, f"Namespace {namespace} does not exist.")
    names = await service.topics.names(namespace)
    partitioned = [
        name
        for domain in ("persistent", "non-persistent")
        for name in await service.catalog.partitioned(namespace, domain)
    ]
    if names or partitioned:
        raise rest.RestError(409, "Cannot delete non empty namespace")
    try:
        await service.namespaces.delete(namespace)
    except ResourceMissing:
        raise rest.RestError(404, f"Namespace {namespace} does not exist.") from None
    await service.schemas.delete_namespace(namespace)


async def delete_by_force(service: BrokerService, namespace: str) -> None:
    """Delete a namespace with all topics, without automatic creation meanwhile. After a failure
    topics may be created again. Raises RestError as Apache.
    """
    if not service.config.topics.force_delete_namespaces:
        raise rest.RestError(405, "Broker doesn't allow forced deletion of namespaces")
    if not await service.namespaces.exists(namespace):
        raise rest.RestError(404, f"Namespace {namespace} does not exist.")
    # Only in memory: a crash must not leave a namespace in which no topic can be made.
    with service.catalog.without_auto_creation(namespace):
        await service.topics.delete_all(namespace)
        await delete_namespace(service, namespace)


async def _policies_given(request: Request) -> JsonObject:
    given = await rest.read_body(request, dict[str, object])
    try:
        return namespace_policies(given or {})
    except jackson.Unbindable as error:
        raise rest.bad_body(str(error)) from None


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    namespaces = service.namespaces

    async def list_of_tenant(request: Request) -> Response:
        tenant = rest.parameter(request, "tenant")
        if not await namespaces.tenants.exists(tenant):
            raise rest.RestError(404, "Tenant not found")
        return rest.ok(await namespaces.list(tenant))

    async def get(request: Request) -> Response:
        try:
            return rest.ok(await namespaces.policies(rest.namespace_of(request)))
        except ResourceMissing:
            raise rest.RestError(404, "Namespace does not exist") from None

    async def create(request: Request) -> Response:
        await create_namespace(service, rest.namespace_of(request), await _policies_given(request))
        return rest.no_content()

    async def delete(request: Request) -> Response:
        deletes = delete_by_force if rest.flag(request, "force") else delete_namespace
        await deletes(service, rest.namespace_of(request))
        return rest.no_content()

    async def topics(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        await require_namespace(service.namespaces, namespace)
        mode = request.query_params.get("mode", "PERSISTENT").upper()
        names = await service.topics.names(namespace)
        if mode != "ALL":
            scheme = "non-persistent://" if mode == "NON_PERSISTENT" else "persistent://"
            names = [name for name in names if name.startswith(scheme)]
        return rest.ok(names)

    async def bundles(request: Request) -> Response:
        try:
            return rest.ok((await namespaces.bundles(rest.namespace_of(request))).to_json())
        except ResourceMissing:
            raise rest.RestError(404, "Namespace does not exist") from None

    async def unload(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        await require_namespace(service.namespaces, namespace)
        await service.topics.unload_namespace(namespace)
        return rest.no_content()

    base = "/admin/v2/namespaces"
    one = base + "/{tenant}/{namespace}"
    return [
        rest.route("GET", base + "/{tenant}", list_of_tenant),
        *rest.at(one, get=get, put=create, delete=delete),
        rest.route("GET", one + "/topics", topics),
        rest.route("GET", one + "/bundles", bundles),
        rest.route("PUT", one + "/unload", unload),
    ]
