"""`/admin/v2/brokers`, `/lookup/v2` (`BrokersBase`, `TopicLookup`) of a cluster of one broker."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from geminga_broker.admin.owners import redirect
from geminga_broker.admin.rest import RestError, flag, ok, parameter, route, topic_of
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.lookup import NoSuchListener
from geminga_broker.health import check_health
from geminga_broker.service import BrokerService

PULSAR_VERSION = "4.0.7"
"""The version of Pulsar whose protocol and API this broker implements; clients compare it."""


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def health(_request: Request) -> Response:
        await check_health(service)
        return PlainTextResponse("ok")

    async def ready(_request: Request) -> Response:
        return PlainTextResponse("ok")

    async def version(_request: Request) -> Response:
        return PlainTextResponse(PULSAR_VERSION)

    async def leader(_request: Request) -> Response:
        return ok(
            {
                "serviceUrl": service.addresses.web_url,
                "brokerId": service.addresses.broker_id,
            }
        )

    async def active(request: Request) -> Response:
        cluster = parameter(request, "cluster")
        if cluster != service.config.network.cluster_name:
            raise RestError(404, f"Cluster {cluster} is not this broker's")
        return ok([service.addresses.broker_id])

    async def runtime_configuration(_request: Request) -> Response:
        return ok(service.config.values())

    base = "/admin/v2/brokers"
    return [
        route("GET", base + "/health", health),
        route("GET", base + "/ready", ready),
        route("GET", base + "/version", version),
        route("GET", base + "/leaderBroker", leader),
        route("GET", base + "/configuration/runtime", runtime_configuration),
        route("GET", base + "/{cluster}", active),
        route("GET", base, lambda _request: _all_brokers(service)),
        *_lookup_routes(service),
    ]


async def _all_brokers(service: BrokerService) -> Response:
    return ok([service.addresses.broker_id])


def _lookup_data(addresses: Addresses) -> dict[str, str]:
    """As Apache's LookupData: without missing addresses, but with the always empty name."""
    found = {
        "brokerUrl": addresses.broker_url,
        "brokerUrlTls": addresses.broker_url_tls,
        "httpUrl": addresses.web_url,
        "httpUrlTls": addresses.web_url_tls,
        "nativeUrl": addresses.broker_url,
    }
    return {name: url for name, url in found.items() if url} | {"brokerUrlSsl": ""}


def _lookup_routes(service: BrokerService) -> list[Route]:
    async def lookup(request: Request) -> Response:
        topic = topic_of(request, parameter(request, "domain"))
        if not await service.namespaces.exists(topic.namespace):
            raise RestError(404, "Namespace not found")
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
        return ok(_lookup_data(found.addresses))

    async def bundle(request: Request) -> Response:
        topic = topic_of(request, parameter(request, "domain"))
        if not await service.namespaces.exists(topic.namespace):
            raise RestError(404, "Namespace not found")
        bundles = await service.namespaces.bundles(topic.namespace)
        return PlainTextResponse(bundles.of_topic(str(topic)))

    path = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
    return [route("GET", path, lookup), route("GET", path + "/bundle", bundle)]
