"""`/admin/v2/clusters` (Apache's `ClustersBase`)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin.rest import RestError, at, no_content, ok, parameter, read_body, route
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import (
    BadName,
    JsonObject,
    ResourceExists,
    ResourceMissing,
    check_name,
)

CLUSTER_DEFAULTS: JsonObject = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
"""Fields that Apache's response always has."""


def routes(namespaces: Namespaces) -> list[Route]:
    """All routes of the family."""
    clusters = namespaces.clusters

    async def list_all(_request: Request) -> Response:
        return ok(await clusters.names())

    async def get(request: Request) -> Response:
        record = await clusters.get(parameter(request, "cluster"))
        if record is None:
            raise RestError(404, "Cluster does not exist")
        return ok({**record, **{k: v for k, v in CLUSTER_DEFAULTS.items() if k not in record}})

    async def create(request: Request) -> Response:
        name = parameter(request, "cluster")
        record = await read_body(request, dict[str, object])
        if record is None:
            raise RestError(412, "ClusterData is null")
        try:
            await clusters.create(check_name(name), record)
        except BadName:
            raise RestError(412, "Cluster name is not valid") from None
        except ResourceExists:
            raise RestError(409, "Cluster already exists") from None
        return Response(status_code=200)

    async def update(request: Request) -> Response:
        record = await read_body(request, dict[str, object])
        if record is None:
            raise RestError(412, "ClusterData is null")
        try:
            await clusters.update(parameter(request, "cluster"), lambda old: old | record)
        except ResourceMissing:
            raise RestError(404, "Cluster does not exist") from None
        return Response(status_code=200)

    async def delete(request: Request) -> Response:
        name = parameter(request, "cluster")
        for tenant in await namespaces.tenants.names():
            info = await namespaces.tenants.get(tenant) or {}
            allowed = info.get("allowedClusters")
            if isinstance(allowed, list) and name in allowed:
                raise RestError(412, f"Cluster {name} is still allowed for tenant {tenant}")
        try:
            await clusters.delete(name)
        except ResourceMissing:
            raise RestError(404, "Cluster does not exist") from None
        return no_content()

    base = "/admin/v2/clusters"
    return [
        route("GET", base, list_all),
        *at(base + "/{cluster}", get=get, put=create, post=update, delete=delete),
    ]
