"""Blue-green migration (PIP-188): sending all clients of a cluster, or of a namespace, to another
cluster (spec OP-03; Apache's `ClustersBase`, `NamespacesBase`). It is not built: to begin one is
refused, since its clients would stay. That none runs can be said and asked.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import Migration
from geminga_broker.admin.clusters import NO_CLUSTER
from geminga_broker.admin.failure_domains import MIGRATION
from geminga_broker.admin.namespaces.changing import policies_of
from geminga_broker.cluster.records import (
    JsonObject,
    ResourceExists,
    ResourceMissing,
    is_name,
)
from geminga_broker.service import BrokerService

NOT_BUILT = "The migration of clients to another cluster is not implemented"


class ClusterUrl(Struct, rename="camel", omit_defaults=True):
    """Where the other cluster is."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None

    @property
    def is_empty(self) -> bool:
        """As Apache's: web services without brokers."""
        has_web = self.service_url is not None and self.service_url_tls is not None
        has_broker = self.broker_service_url is not None or self.broker_service_url_tls is not None
        return has_web and not has_broker


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    namespaces = service.namespaces
    clusters = namespaces.clusters

    async def get(request: Request) -> Response:
        name = rest.parameter(request, "cluster")
        record = await clusters.get(f"{name}/{MIGRATION}") if is_name(name) else None
        if record is None:
            raise rest.RestError(404, NO_CLUSTER)
        return rest.ok(record, Migration)

    async def post(request: Request) -> Response:
        name = rest.parameter(request, "cluster")
        url = await rest.required_body(request, ClusterUrl)
        if rest.flag(request, "migrated"):
            if url.is_empty:
                raise rest.RestError(400, "Cluster url must not be empty")
            raise rest.RestError(501, NOT_BUILT)
        if not (is_name(name) and await clusters.exists(name)):
            raise rest.RestError(404, NO_CLUSTER)
        # As Jackson writes it: what a getter says counts as a member.
        told = msgspec.to_builtins(url) | {"empty": url.is_empty}
        record: JsonObject = {"migrated": False, "migratedClusterUrl": told}
        while True:
            try:
                await clusters.update(f"{name}/{MIGRATION}", lambda old: old | record)
            except ResourceMissing:
                try:
                    await clusters.create(f"{name}/{MIGRATION}", record)
                except ResourceExists:
                    continue
            return Response()

    async def of_namespace(request: Request) -> Response:
        migrated = await rest.required_body(request, bool)
        namespace = rest.namespace_of(request)
        await policies_of(service, namespace)
        if migrated:
            raise rest.RestError(501, NOT_BUILT)
        await namespaces.change_local_policies(namespace, lambda old: old | {"migrated": False})
        return rest.no_content()

    return [
        *rest.at("/admin/v2/clusters/{cluster}/migrate", get=get, post=post),
        rest.route("POST", "/admin/v2/namespaces/{tenant}/{namespace}/migration", of_namespace),
    ]
