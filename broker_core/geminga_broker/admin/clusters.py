"""`/admin/v2/clusters` (Apache's `ClustersBase`): clusters and their peers. Which brokers
serve what: `isolation_policies.py`, `failure_domains.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin.failure_domains import forget_cluster
from geminga_broker.admin.rest import (
    RestError,
    at,
    bad_body,
    no_content,
    ok,
    ok_or_empty,
    parameter,
    read_body,
    route,
)
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import (
    JsonObject,
    ResourceExists,
    ResourceMissing,
    is_name,
)
from geminga_broker.service import BrokerService

NO_CLUSTER = "Cluster does not exist"

CLUSTER_DEFAULTS: JsonObject = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
"""Fields of a record that Apache's broker makes of its own cluster."""


class ClusterData(msgspec.Struct, rename="camel", omit_defaults=True):
    """Apache's `ClusterData` in a body."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    proxy_service_url: str | None = None
    authentication_plugin: str | None = None
    authentication_parameters: str | None = None
    proxy_protocol: Literal["SNI"] | None = None
    peer_cluster_names: list[str] | None = None
    broker_client_tls_trust_store_type: str | None = None
    broker_client_tls_trust_store: str | None = None
    broker_client_tls_trust_store_password: str | None = None
    broker_client_tls_key_store_type: str | None = None
    broker_client_tls_key_store: str | None = None
    broker_client_tls_key_store_password: str | None = None
    broker_client_trust_certs_file_path: str | None = None
    broker_client_key_file_path: str | None = None
    broker_client_certificate_file_path: str | None = None
    broker_client_ssl_factory_plugin: str | None = None
    broker_client_ssl_factory_plugin_params: str | None = None
    listener_name: str | None = None
    # In JSON also where they are false.
    broker_client_tls_enabled: bool = False
    tls_allow_insecure_connection: bool = False
    broker_client_tls_enabled_with_key_store: bool = False


_PROXY_URL = (
    "proxy service url, example: pulsar+ssl://ats-proxy.example.com:4443 or "
    "pulsar://ats-proxy.example.com:4080"
)
_URLS = (
    ("service_url", ("http",), "service url, example: http://pulsar.example.com:8080"),
    ("service_url_tls", ("https",), "service tls url, example: https://pulsar.example.com:8443"),
    (
        "broker_service_url",
        ("pulsar",),
        "broker service url, example: pulsar://pulsar.example.com:6650",
    ),
    (
        "broker_service_url_tls",
        ("pulsar+ssl",),
        "broker service tls url, example: pulsar+ssl://pulsar.example.com:6651",
    ),
    (
        "proxy_service_url",
        ("pulsar", "pulsar+ssl"),
        _PROXY_URL,
    ),
)


def _checked(data: ClusterData) -> JsonObject:
    """The record. Raises RestError 400 for addresses that are none."""
    for field, schemes, text in _URLS:
        url = getattr(data, field)
        if url and not _is_url(url, schemes):
            raise RestError(400, f"Illegal {text}")
    flags = {name: value for name, value in CLUSTER_DEFAULTS.items() if value is False}
    found: JsonObject = msgspec.to_builtins(data)
    return found | flags | {name: found[name] for name in flags if name in found}


def _is_url(url: str, schemes: Sequence[str]) -> bool:
    try:
        return urlsplit(url).scheme in schemes and not set(url) & set(" \t\r\n")
    except ValueError:
        return False


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    namespaces = service.namespaces
    clusters = namespaces.clusters

    async def list_all(_request: Request) -> Response:
        return ok([name for name in await clusters.names() if name != "global"], list[str])

    async def get(request: Request) -> Response:
        record = await _record(namespaces, request)
        # Our own cluster's, as a standalone makes it, has its addresses only.
        known = record if "brokerClientTlsEnabled" in record else CLUSTER_DEFAULTS | record
        return ok(known, ClusterData)

    async def create(request: Request) -> Response:
        name = parameter(request, "cluster")
        data = await read_body(request, ClusterData)
        if not is_name(name):
            raise RestError(412, "Cluster name is not valid")
        if data is None:
            raise RestError(400, "cluster data is required")
        try:
            await clusters.create(name, _checked(data))
        except ResourceExists:
            raise RestError(409, "Cluster already exists") from None
        return Response(status_code=200)

    async def update(request: Request) -> Response:
        data = await read_body(request, ClusterData)
        if data is None:
            raise RestError(400, "cluster data is required")
        record = _checked(data)
        await _record(namespaces, request)
        try:
            await clusters.update(parameter(request, "cluster"), lambda _old: record)
        except ResourceMissing:
            raise RestError(404, NO_CLUSTER) from None
        return Response(status_code=200)

    async def delete(request: Request) -> Response:
        name = parameter(request, "cluster")
        await _record(namespaces, request)
        for tenant in await namespaces.tenants.names():
            info = await namespaces.tenants.get(tenant) or {}
            allowed = info.get("allowedClusters")
            if isinstance(allowed, list) and name in allowed:
                raise RestError(412, f"Cluster {name} is still allowed for tenant {tenant}")
        try:
            await forget_cluster(clusters, name)
            await clusters.delete(name)
        except ResourceMissing:
            raise RestError(404, NO_CLUSTER) from None
        return no_content()

    base = "/admin/v2/clusters"
    return [
        route("GET", base, list_all),
        *at(base + "/{cluster}", get=get, put=create, post=update, delete=delete),
        *_peer_routes(namespaces, base + "/{cluster}/peers"),
    ]


async def _record(namespaces: Namespaces, request: Request) -> JsonObject:
    """Raises RestError 404."""
    name = parameter(request, "cluster")
    record = await namespaces.clusters.get(name) if is_name(name) else None
    if record is None:
        raise RestError(404, NO_CLUSTER)
    return record


def _peer_routes(namespaces: Namespaces, path: str) -> list[Route]:
    async def get(request: Request) -> Response:
        return ok_or_empty((await _record(namespaces, request)).get("peerClusterNames"), list[str])

    async def post(request: Request) -> Response:
        name = parameter(request, "cluster")
        await _record(namespaces, request)
        peers = await read_body(request, list[str])
        for peer in peers or ():
            if not isinstance(peer, str):
                raise bad_body("the name of a peer cluster is null")
            if peer.lower() == name.lower():
                raise RestError(412, f"{name} itself can't be part of peer-list")
            if not is_name(peer) or not await namespaces.clusters.exists(peer):
                raise RestError(412, f"Peer cluster {peer} does not exist")
        unique = None if peers is None else list(dict.fromkeys(peers))

        def change(old: JsonObject) -> JsonObject:
            new = old | {"peerClusterNames": unique}
            return {key: value for key, value in new.items() if value is not None}

        try:
            await namespaces.clusters.update(name, change)
        except ResourceMissing:
            raise RestError(404, NO_CLUSTER) from None
        return no_content()

    return at(path, get=get, post=post)
