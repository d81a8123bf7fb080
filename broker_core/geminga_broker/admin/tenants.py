"""`/admin/v2/tenants` (Apache's `TenantsBase`)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.cluster.records import (
    BadName,
    JsonObject,
    ResourceExists,
    ResourceInUse,
    ResourceMissing,
)
from geminga_broker.service import BrokerService


class TenantInfo(msgspec.Struct, rename="camel"):
    """A tenant's administrators and allowed clusters."""

    admin_roles: list[str] | None = None
    allowed_clusters: list[str] | None = None


async def _checked(service: BrokerService, request: Request) -> TenantInfo:
    info = await rest.read_body(request, TenantInfo)
    if info is None:
        raise rest.RestError(412, "TenantInfo is null")
    if not info.allowed_clusters:
        raise rest.RestError(412, "Clusters cannot be null")
    if None in info.allowed_clusters or None in (info.admin_roles or ()):
        raise rest.RestError(400, "A role or cluster is null")
    known: Sequence[str] = await service.namespaces.clusters.names()
    if any(not cluster.strip() for cluster in info.allowed_clusters):
        raise rest.RestError(412, "Clusters can not be blank")
    if not set(info.allowed_clusters) <= {*known, "global"}:
        raise rest.RestError(412, "Clusters do not exist")
    return info


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    namespaces = service.namespaces

    async def list_all(_request: Request) -> Response:
        return rest.ok(await namespaces.tenants.names(), list[str])

    async def get(request: Request) -> Response:
        record = await namespaces.tenants.get(rest.parameter(request, "tenant"))
        if record is None:
            raise rest.RestError(404, "Tenant does not exist")
        return rest.ok(record, TenantInfo)

    async def create(request: Request) -> Response:
        name = rest.parameter(request, "tenant")
        info = await _checked(service, request)
        limit = service.config.topics.tenants_max
        if limit and len(await namespaces.tenants.names()) >= limit:
            raise rest.RestError(412, "Exceed the maximum number of tenants")
        try:
            await namespaces.create_tenant(
                name, info.admin_roles or [], info.allowed_clusters or []
            )
        except BadName:
            raise rest.RestError(412, "Tenant name is not valid") from None
        except ResourceExists:
            raise rest.RestError(409, "Tenant already exist") from None
        return rest.no_content()

    async def update(request: Request) -> Response:
        name = rest.parameter(request, "tenant")
        info = await _checked(service, request)
        changes: JsonObject = {
            "adminRoles": info.admin_roles or [],
            "allowedClusters": info.allowed_clusters,
        }
        try:
            await namespaces.tenants.update(name, lambda old: old | changes)
        except ResourceMissing:
            raise rest.RestError(404, f"Tenant {name} not found") from None
        await service.permissions_changed(name)
        return rest.no_content()

    async def delete(request: Request) -> Response:
        name = rest.parameter(request, "tenant")
        if rest.flag(request, "force"):
            raise rest.RestError(405, "Broker doesn't allow forced deletion of tenants")
        try:
            await namespaces.delete_tenant(name)
        except ResourceMissing:
            raise rest.RestError(404, "Tenant doesn't exist") from None
        except ResourceInUse:
            raise rest.RestError(409, "The tenant still has active namespaces") from None
        return rest.no_content()

    base = "/admin/v2/tenants"
    return [
        rest.route("GET", base, list_all),
        *rest.at(base + "/{tenant}", get=get, put=create, post=update, delete=delete),
    ]
