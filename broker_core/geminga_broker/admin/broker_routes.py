"""`/admin/v2/brokers`, `/lookup/v2` (Apache's `BrokersBase`, `TopicLookup`)."""

from __future__ import annotations

from typing import Literal, cast

import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from geminga_broker.admin.answers import (
    BrokerInfo,
    InternalConfiguration,
    LookupData,
    OwnershipStatus,
)
from geminga_broker.admin.isolation_policies import isolation_policies
from geminga_broker.admin.owners import redirect
from geminga_broker.admin.rest import (
    RestError,
    flag,
    no_content,
    ok,
    parameter,
    route,
    text_as_json,
    topic_of,
)
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.lookup import NoSuchListener
from geminga_broker.cluster.records import is_name
from geminga_broker.config import ClusterBrokerConfig
from geminga_broker.dynamic_config import KEYS, NotDynamic
from geminga_broker.health import check_health
from geminga_broker.loadbalance.isolation import IsolationPolicies, host_of
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.unloading import UnloadRunning
from geminga_broker.service import BrokerService
from geminga_runtime.settings import ConfigError

PULSAR_VERSION = "4.0.7"
"""The version of Pulsar whose protocol and API this broker implements; clients compare it."""

_BASE = "/admin/v2/brokers"
_TOPIC_VERSIONS = ("V1", "V2")
"""Of the heartbeat's topic; here it has a name of version 2 for both."""


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def version(_request: Request) -> Response:
        return PlainTextResponse(PULSAR_VERSION)

    async def leader(_request: Request) -> Response:
        found = await service.election.leader()
        if found is None:
            raise RestError(404, "Couldn't find leader broker")
        return ok({"serviceUrl": found.service_url, "brokerId": found.broker_id}, BrokerInfo)

    async def all_brokers(_request: Request) -> Response:
        return ok(await service.brokers.ids(), list[str])

    async def active(request: Request) -> Response:
        await _require_own_cluster(service, request, parameter(request, "cluster"))
        return ok(await service.brokers.ids(), list[str])

    async def owned(request: Request) -> Response:
        await _require_broker(service, request, parameter(request, "broker"))
        await _require_own_cluster(service, request, parameter(request, "cluster"))
        policies = await isolation_policies(service, service.config.network.cluster_name)
        return ok(
            {
                str(bundle): _ownership_status(service, policies, bundle)
                for bundle in service.ownership.owned()
            },
            dict[str, OwnershipStatus],
        )

    return [
        *_health_routes(service),
        route("GET", _BASE + "/version", version),
        route("GET", _BASE + "/leaderBroker", leader),
        *_configuration_routes(service),
        *_upkeep_routes(service),
        route("GET", _BASE + "/{cluster}/{broker}/ownedNamespaces", owned),
        route("GET", _BASE + "/{cluster}", active),
        route("GET", _BASE, all_brokers),
        *_lookup_routes(service),
    ]


async def _require_broker(service: BrokerService, request: Request, broker_id: str) -> None:
    """Raises Redirect to that broker if it isn't this one, RestError 404 if there is none."""
    clean = broker_id.removeprefix("http://").removeprefix("https://")
    own = service.addresses
    if (
        clean == own.broker_id
        or f"http://{clean}" == own.web_url
        or f"https://{clean}" == (own.web_url_tls)
    ):
        return
    record = await service.brokers.record(clean) if "/" not in clean else None
    if record is None:
        raise RestError(404, f"Broker id '{broker_id}' not found in available brokers.")
    raise redirect(request, record.addresses)


async def _require_own_cluster(service: BrokerService, request: Request, cluster: str) -> None:
    """Raises Redirect to another cluster, RestError 404 for an unknown one. As in Apache, any name
    will do without authorization.
    """
    if cluster == service.config.network.cluster_name or not service.authorizer.enabled:
        return
    record = await service.namespaces.clusters.get(cluster) if is_name(cluster) else None
    if record is None:
        raise RestError(404, f"Cluster does not exist: cluster={cluster}")
    plain, secure = record.get("serviceUrl"), record.get("serviceUrlTls")
    raise redirect(
        request,
        Addresses(
            "",
            plain if isinstance(plain, str) else "",
            "",
            secure if isinstance(secure, str) else "",
        ),
    )


def _ownership_status(
    service: BrokerService, policies: IsolationPolicies, bundle: BundleId
) -> OwnershipStatus:
    policy = policies.of(bundle.namespace)
    host = host_of(service.addresses.broker_id)
    assignment: Literal["primary", "secondary", "shared"] = "shared"
    if policy is not None and policy.is_primary(host):
        assignment = "primary"
    elif policy is not None and policy.is_secondary(host):
        assignment = "secondary"
    return {
        "broker_assignment": assignment,
        "is_controlled": policy is not None,
        "is_active": service.ownership.holds(bundle),
    }


def _health_routes(service: BrokerService) -> list[Route]:
    async def health(request: Request) -> Response:
        asked = request.query_params.get("topicVersion")
        if asked is not None and asked not in _TOPIC_VERSIONS:
            raise RestError(404, f"topicVersion: none of {', '.join(_TOPIC_VERSIONS)}")
        if broker_id := request.query_params.get("brokerId", "").strip():
            await _require_broker(service, request, broker_id)
        if service.stop_requested.is_set() or not service.lookup.is_open:
            return Response(status_code=503)
        await check_health(service)
        return text_as_json("ok")

    async def ready(_request: Request) -> Response:
        is_open = service.lookup.is_open
        return text_as_json("ok") if is_open else Response(status_code=500)

    return [route("GET", _BASE + "/health", health), route("GET", _BASE + "/ready", ready)]


def _configuration_routes(service: BrokerService) -> list[Route]:
    dynamic = service.dynamic

    async def names(_request: Request) -> Response:
        return ok(KEYS, list[str])

    async def values(_request: Request) -> Response:
        return ok(await dynamic.values(), dict[str, str])

    async def runtime(_request: Request) -> Response:
        return ok(service.config.values(), dict[str, object])

    async def post(request: Request) -> Response:
        try:
            await dynamic.put(parameter(request, "name"), parameter(request, "value"))
        except NotDynamic:
            raise RestError(412, "Can't update non-dynamic configuration") from None
        except ConfigError:
            raise RestError(412, " Invalid dynamic-config value") from None
        return Response(status_code=200)

    async def delete(request: Request) -> Response:
        try:
            await dynamic.remove(parameter(request, "name"))
        except NotDynamic:
            raise RestError(412, "Can't delete non-dynamic configuration") from None
        return Response(status_code=200)

    async def internal(_request: Request) -> Response:
        return ok(_stores(service), InternalConfiguration)

    base = _BASE + "/configuration"
    return [
        route("GET", base, names),
        route("GET", base + "/values", values),
        route("GET", base + "/runtime", runtime),
        route("POST", base + "/{name}/{value}", post),
        route("DELETE", base + "/{name}", delete),
        route("GET", _BASE + "/internal-configuration", internal),
    ]


def _stores(service: BrokerService) -> InternalConfiguration:
    """Apache's `InternalConfigurationData`: where the metadata is; an embedded store has no URL."""
    config = service.config
    own = shared = uri = ""
    if isinstance(config, ClusterBrokerConfig):
        own = config.cluster.metadata_store_url
        shared = config.cluster.configuration_store_url or own
        uri = config.cluster.ledgers_uri or ""
    found: InternalConfiguration = {
        "zookeeperServers": own,
        "configurationStoreServers": shared,
        "metadataStoreUrl": own,
        "configurationMetadataStoreUrl": shared,
        "ledgersRootPath": "/ledgers",
    }
    if uri:
        found["bookkeeperMetadataServiceUri"] = uri
    return found


def _upkeep_routes(service: BrokerService) -> list[Route]:
    async def check_quotas(_request: Request) -> Response:
        await service.maintenance.check_quotas()
        return no_content()

    async def shutdown(request: Request) -> Response:
        text = request.query_params.get("maxConcurrentUnloadPerSec", "0")
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise RestError(404, f"maxConcurrentUnloadPerSec is not a number: {text[:80]}")
        await _unload_all(service, int(text))
        service.stop_requested.set()
        return no_content()

    return [
        route("GET", _BASE + "/backlog-quota-check", check_quotas),
        route("POST", _BASE + "/shutdown", shutdown),
    ]


async def _unload_all(service: BrokerService, per_second: int) -> None:
    """Give up all bundles before the broker stops, so that others serve them meanwhile; so many a
    second, 0 as fast as it can.
    """
    await service.take_no_more()
    if not per_second:
        await service.unloader.unload_all()
        return
    for number, bundle in enumerate(service.ownership.owned()):
        if number:
            await trio.sleep(1 / per_second)
        try:
            await service.unloader.unload(bundle)
        except UnloadRunning:
            continue


def _lookup_data(addresses: Addresses) -> LookupData:
    """As Apache's LookupData: without missing addresses, but with the always empty name."""
    found = {
        "brokerUrl": addresses.broker_url,
        "brokerUrlTls": addresses.broker_url_tls,
        "httpUrl": addresses.web_url,
        "httpUrlTls": addresses.web_url_tls,
        "nativeUrl": addresses.broker_url,
    }
    urls = {name: url for name, url in found.items() if url}
    return cast(LookupData, urls | {"brokerUrlSsl": ""})


def _lookup_routes(service: BrokerService) -> list[Route]:
    async def lookup(request: Request) -> Response:
        topic = topic_of(request, parameter(request, "domain"))
        if not await service.namespaces.exists(topic.namespace):
            raise RestError(404, "Namespace not found")
        if not await service.catalog.is_there_or_made(topic):
            raise RestError(404, f"Topic not found {topic}")
        listener = request.query_params.get("listenerName", "")
        try:
            found = await service.lookup.locate(
                topic,
                listener or request.headers.get("x-pulsar-listenername", ""),
                authoritative=flag(request, "authoritative"),
            )
        except NoSuchListener as error:
            raise RestError(500, str(error)) from None  # Apache's status for it
        if found.redirect:
            raise redirect(request, found.addresses, authoritative=found.authoritative)
        return ok(_lookup_data(found.addresses), LookupData)

    async def bundle(request: Request) -> Response:
        topic = topic_of(request, parameter(request, "domain"))
        if not await service.namespaces.exists(topic.namespace):
            raise RestError(404, "Namespace not found")
        bundles = await service.namespaces.bundles(topic.namespace)
        return text_as_json(bundles.of_topic(str(topic)))

    path = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
    return [route("GET", path, lookup), route("GET", path + "/bundle", bundle)]
