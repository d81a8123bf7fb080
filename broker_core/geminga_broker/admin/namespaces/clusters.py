"""The clusters of a namespace: where it may be, and where its messages are copied to (spec OP-03;
Apache's `NamespacesBase`). Copies to other clusters are not made here, so they are refused.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.namespaces.changing import change_policies, policies_of
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import is_name
from geminga_broker.service import BrokerService

ALLOWED = "allowed_clusters"
REPLICATION = "replication_clusters"
NO_REPLICATION = (
    "Geo-replication is not implemented: this broker keeps the messages of its own cluster "
    "only, which is [{}]"
)


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def get_allowed(request: Request) -> Response:
        record = await policies_of(service, rest.namespace_of(request))
        return rest.ok(names_in(record.get(ALLOWED)), list[str])

    async def set_allowed(request: Request) -> Response:
        wanted = await _clusters_given(request)
        if wanted is None:
            raise rest.bad_body(rest.EMPTY_BODY)
        await _check_allowed(service, rest.namespace_of(request), wanted)
        return await changed(request, ALLOWED, wanted)

    async def get_replication(request: Request) -> Response:
        record = await policies_of(service, rest.namespace_of(request))
        return rest.ok(names_in(record.get(REPLICATION)), list[str])

    async def set_replication(request: Request) -> Response:
        wanted = await _clusters_given(request)
        if not wanted:
            raise rest.RestError(412, "ClusterIds should not be null or empty")
        await _check_replication(service, rest.namespace_of(request), wanted)
        return await changed(request, REPLICATION, wanted)

    async def changed(request: Request, field: str, names: list[str]) -> Response:
        namespace = rest.namespace_of(request)
        await change_policies(service, namespace, lambda old: old | {field: names})
        return Response()

    one = "/admin/v2/namespaces/{tenant}/{namespace}"
    return [
        *rest.at(one + "/allowedClusters", get=get_allowed, post=set_allowed),
        *rest.at(one + "/replication", get=get_replication, post=set_replication),
    ]


async def check_new(service: BrokerService, namespace: str, wanted: list[str]) -> None:
    """Raises RestError for replication clusters that a new namespace can't have."""
    for name in wanted:
        await _check_tenant(service.namespaces, namespace, name)
    check_own(service, wanted)


def check_own(service: BrokerService, wanted: list[str]) -> None:
    """Raises RestError 501 for replication to other clusters, of a namespace or topic."""
    own = service.config.network.cluster_name
    if wanted != [own]:
        raise rest.RestError(501, NO_REPLICATION.format(own))


async def _clusters_given(request: Request) -> list[str] | None:
    """The names of the body, each once."""
    given = await rest.read_body(request, list[str])
    for name in given or ():
        if not isinstance(name, str):
            raise rest.bad_body("the name of a cluster is null")
    return None if given is None else list(dict.fromkeys(given))


def names_in(stored: object) -> list[str]:
    """The names of a record's member."""
    return [str(name) for name in stored] if isinstance(stored, list) else []


async def _check_allowed(service: BrokerService, namespace: str, wanted: list[str]) -> None:
    await check_members(service, namespace, wanted)
    record = await policies_of(service, namespace)
    for name in names_in(record.get(REPLICATION)):
        if name not in wanted:
            raise rest.RestError(
                400,
                f"Allowed clusters do not contain the replication cluster {name}. Please remove "
                "the replication cluster if the cluster is not allowed for this namespace",
            )


async def check_members(service: BrokerService, namespace: str, wanted: list[str]) -> None:
    """Raises RestError for allowed clusters that the tenant may not be in, or that aren't there."""
    namespaces = service.namespaces
    for name in wanted:
        await _check_tenant(namespaces, namespace, name)
    if "global" in wanted:
        raise rest.RestError(412, "Cannot specify global in the list of allowed clusters")
    for name in wanted:
        await _check_cluster(namespaces, name, wanted)


async def _check_replication(service: BrokerService, namespace: str, wanted: list[str]) -> None:
    namespaces = service.namespaces
    if "global" in wanted:
        raise rest.RestError(412, "Cannot specify global in the list of replication clusters")
    for name in wanted:
        await _check_cluster(namespaces, name, wanted)
        allowed = names_in((await policies_of(service, namespace)).get(ALLOWED))
        if not allowed:
            await _check_tenant(namespaces, namespace, name)
        elif name not in allowed:
            raise rest.RestError(403, _NOT_ALLOWED.format(name, "namespace", namespace))
    check_own(service, wanted)


_NOT_ALLOWED = "Cluster [{}] is not in the list of allowed clusters list for {} [{}]"


async def _check_tenant(namespaces: Namespaces, namespace: str, cluster: str) -> None:
    """Raises RestError unless the tenant may be in the cluster."""
    tenant = namespace.partition("/")[0]
    record = await namespaces.tenants.get(tenant)
    if record is None:
        raise rest.RestError(404, "Tenant does not exist")
    if cluster not in names_in(record.get("allowedClusters")):
        raise rest.RestError(403, _NOT_ALLOWED.format(cluster, "tenant", tenant))


async def _check_cluster(namespaces: Namespaces, name: str, among: Collection[str]) -> None:
    """Raises RestError 403 for an unknown cluster, 409 if its peers stand in the list too."""
    record = await namespaces.clusters.get(name) if is_name(name) and name != "global" else None
    if record is None:
        raise rest.RestError(403, f"Invalid cluster id: {name}")
    both = [peer for peer in names_in(record.get("peerClusterNames")) if peer in among]
    if both:
        raise rest.RestError(
            409,
            f"{name}'s peer-clusters [{', '.join(both)}] can't be part of replication-clusters "
            f"[{', '.join(among)}]",
        )
