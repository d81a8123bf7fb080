"""Failure domains of a cluster: brokers that may fail together (spec CL-08, OP-03; Apache's
`ClustersBase`). Each has a record in the configuration store, below `.../failureDomain`.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.isolation_policies import (
    POLICIES,
    check_size,
    require_cluster,
    texts_in,
)
from geminga_broker.cluster.records import (
    JsonObject,
    Records,
    ResourceExists,
    ResourceMissing,
    is_name,
)
from geminga_broker.service import BrokerService
from geminga_runtime.metadata.api import NotEmpty

MIGRATION = "policies"
"""Where the clients of a cluster go, below its record (Apache's `ClusterPolicies`)."""
_DOMAINS = "failureDomain"


class _Domain(msgspec.Struct):
    """Apache's `FailureDomain`."""

    brokers: list[str] | None = None


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    clusters = service.namespaces.clusters
    base = "/admin/v2/clusters/{cluster}/failureDomains"

    async def list_all(request: Request) -> Response:
        cluster = rest.parameter(request, "cluster")
        found: JsonObject = {}
        if is_name(cluster):
            for name in await clusters.names(f"{cluster}/{_DOMAINS}"):
                if (record := await clusters.get(f"{cluster}/{_DOMAINS}/{name}")) is not None:
                    found[name] = record
        return rest.ok(found, dict[str, _Domain])

    async def get(request: Request) -> Response:
        cluster = await require_cluster(service, request)
        domain = _domain(cluster, request)
        record = await clusters.get(f"{cluster}/{_DOMAINS}/{domain}")
        if record is None:
            text = f"Domain {domain} for cluster {cluster} does not exist"
            raise rest.RestError(404, text)
        return rest.ok(record, _Domain)

    async def post(request: Request) -> Response:
        cluster = await require_cluster(service, request)
        domain = _domain(cluster, request)
        data = await rest.read_body(request, _Domain)
        if data is None:
            return rest.no_content()  # as Apache, which stores null then: no domain
        brokers = list(dict.fromkeys(data.brokers or []))
        record: JsonObject = {} if data.brokers is None else {"brokers": brokers}
        check_size(domain, record)
        await _require_of_no_other(clusters, cluster, domain, brokers)
        path = f"{cluster}/{_DOMAINS}/{domain}"
        try:
            await clusters.create(path, record)
        except ResourceExists:
            await clusters.update(path, lambda _old: record)
        return rest.no_content()

    async def delete(request: Request) -> Response:
        cluster = await require_cluster(service, request)
        domain = rest.parameter(request, "domain")
        try:
            await clusters.delete(f"{cluster}/{_DOMAINS}/{_domain(cluster, request)}")
        except (ResourceMissing, rest.RestError):
            text = f"Domain-name {domain} or cluster {cluster} does not exist"
            raise rest.RestError(404, text) from None
        return Response(status_code=200)

    return [
        rest.route("GET", base, list_all),
        *rest.at(base + "/{domain}", get=get, post=post, delete=delete),
    ]


def _domain(cluster: str, request: Request) -> str:
    """The domain of the path. Raises RestError 404 for a name that none can have."""
    domain = rest.parameter(request, "domain")
    if not is_name(domain):
        raise rest.RestError(404, f"Domain {domain[:80]} for cluster {cluster} does not exist")
    return domain


async def _require_of_no_other(
    clusters: Records, cluster: str, domain: str, brokers: list[str]
) -> None:
    """Raises RestError 409 for brokers that belong to another domain."""
    for other in await clusters.names(f"{cluster}/{_DOMAINS}"):
        if other == domain:
            continue
        record = await clusters.get(f"{cluster}/{_DOMAINS}/{other}") or {}
        if both := [broker for broker in texts_in(record, "brokers") if broker in brokers]:
            raise rest.RestError(409, f"[{', '.join(both)}] already exists in {other}")


async def forget_cluster(clusters: Records, name: str) -> None:
    """Remove what stands below the record of a cluster that is deleted. Raises RestError 412 if
    there are isolation policies.
    """
    if await clusters.get(f"{name}/{POLICIES}"):
        raise rest.RestError(412, "Cluster not empty")
    await _delete_if_there(clusters, f"{name}/{MIGRATION}")
    for domain in await clusters.names(f"{name}/{_DOMAINS}"):
        await _delete_if_there(clusters, f"{name}/{_DOMAINS}/{domain}")
    await _delete_if_there(clusters, f"{name}/{_DOMAINS}")
    await _delete_if_there(clusters, f"{name}/{POLICIES}")


async def _delete_if_there(clusters: Records, name: str) -> None:
    try:
        await clusters.delete(name)
    except ResourceMissing:
        pass
    except NotEmpty:
        raise rest.RestError(409, "Concurrent modification") from None
