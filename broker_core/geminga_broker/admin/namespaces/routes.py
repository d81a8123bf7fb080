"""`/admin/v2/namespaces` (`NamespacesBase`): create, list, delete, policies, bundles, unload."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import jackson, rest
from geminga_broker.admin.calls import Answer, Call, Calls, each_of, raise_first
from geminga_broker.admin.namespaces.changing import in_class_order
from geminga_broker.admin.namespaces.checks import check_policies
from geminga_broker.admin.namespaces.clusters import check_new
from geminga_broker.admin.namespaces.told import Policies
from geminga_broker.admin.policy_values import namespace_policies
from geminga_broker.admin.topics.partitioned import delete_partitioned
from geminga_broker.admin.topics.routes import listed, topic_names
from geminga_broker.cluster.catalog import without_system
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import (
    BadName,
    JsonObject,
    ResourceExists,
    ResourceInUse,
    ResourceMissing,
    is_name,
)
from geminga_broker.service import BrokerService
from geminga_protocol.topic_name import TopicName

_log = logging.getLogger(__name__)

BUNDLES_MAX = 1 << 16
NOT_EMPTY = "Cannot delete non empty namespace"


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


async def delete_namespace(
    service: BrokerService, calls: Calls, namespace: str, *, force: bool = False
) -> None:
    """Delete an empty namespace, or by `force` one with all its topics, wherever these are.

    No broker makes a topic in it meanwhile: as in Apache its record is marked. If the process is
    killed, the mark stays until the namespace is deleted again; after a failure it is removed.
    Raises RestError as Apache answers.
    """
    if force and not service.config.topics.force_delete_namespaces:
        raise rest.RestError(405, "Broker doesn't allow forced deletion of namespaces")
    if not await service.namespaces.tenants.exists(namespace):
        raise rest.RestError(404, f"Namespace {namespace} does not exist.")
    if not force:
        await _require_empty(service, calls, namespace)
    try:
        async with service.namespaces.being_deleted(namespace):
            if force:
                await _delete_topics(service, calls, namespace, without_system)
            # Once more: until the mark was set, topics could be made.
            await _require_empty(service, calls, namespace)
            await _delete_topics(service, calls, namespace, list)
            await _release_bundles(service, calls, namespace)
            await service.namespaces.delete(namespace)
    except ResourceMissing:
        raise rest.RestError(404, f"Namespace {namespace} does not exist.") from None
    except ResourceInUse:
        raise rest.RestError(409, NOT_EMPTY) from None
    await service.schemas.delete_namespace(namespace)


async def _require_empty(service: BrokerService, calls: Calls, namespace: str) -> None:
    for domain in ("persistent", "non-persistent"):
        if without_system(await service.catalog.partitioned(namespace, domain)) or without_system(
            await topic_names(service, calls, namespace, domain)
        ):
            raise rest.RestError(409, NOT_EMPTY)


async def _delete_topics(
    service: BrokerService,
    calls: Calls,
    namespace: str,
    among: Callable[[list[str]], list[str]],
) -> None:
    """Delete the topics that `among` chooses, despite connected clients. Policies go before the
    system topic that holds them.
    """

    async def delete(text: str) -> Answer:
        return await calls.on_topic(TopicName.parse(text), Call("DELETE", "", query="force=true"))

    for domain in ("persistent", "non-persistent"):
        for text in among(await service.catalog.partitioned(namespace, domain)):
            with suppress(ResourceMissing):
                await delete_partitioned(service, calls, TopicName.parse(text), force=True)
        names = among(await topic_names(service, calls, namespace, domain))
        raise_first(await each_of(delete, names), but=404)


async def _release_bundles(service: BrokerService, calls: Calls, namespace: str) -> None:
    """Bundles of a missing namespace need no owners. One that stays owned does no harm."""
    for answer in await calls.on_bundles(namespace, Call("DELETE", "")):
        if answer.is_error:
            _log.warning("namespace=%s: a bundle keeps its owner: %s", namespace, answer.reason)


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
