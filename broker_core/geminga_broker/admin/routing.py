"""Brings each call to the brokers that it concerns, before its handler (spec CL-05).

Routes are wrapped when the application is created, by the tables of `topic_rules` and
`bundle_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import joins, rest
from geminga_broker.admin.bundle_rules import BUNDLES, at_bundle_owner
from geminga_broker.admin.calls import Call, Calls
from geminga_broker.admin.owners import AUTHORITATIVE, require_topic_owner
from geminga_broker.admin.topic_rules import Where, is_of_topic, place_of
from geminga_broker.errors import BrokerError
from geminga_broker.service import BrokerService
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName

TopicOf = Callable[[Request], TopicName]


def brought_to_owners(service: BrokerService, calls: Calls, routes: list[Route]) -> list[Route]:
    """The same routes; those of topics and bundles are answered by the brokers that the tables
    name."""
    return [_brought(service, calls, route) for route in routes]


def _brought(service: BrokerService, calls: Calls, route: Route) -> Route:
    for method in route.methods or ():
        if (rule := BUNDLES.get(f"{method} {route.path}")) is not None:
            return at_bundle_owner(service, rule, route)
    if not is_of_topic(route.path):
        return route
    domain = route.path.removeprefix("/admin/v2/").partition("/")[0]
    domain = "persistent" if domain == "schemas" else domain
    (method,) = (route.methods or set()) - {"HEAD"}
    where = place_of(method, route.path) or Where.OWNER
    handler = cast(rest.Handler, route.endpoint)
    topic_of = partial(rest.topic_of, domain=domain)
    if where is Where.ANYWHERE or (where is Where.OWNER_IF_IN_MEMORY and domain == "persistent"):
        return route
    if where is Where.PARTITIONS:
        path = route.path.partition("{topic}")[2]
        each = joins.of(method, path)
        endpoint = partial(_on_partitions, service, calls, topic_of, handler, path, each)
    elif where is Where.POLICIES:
        endpoint = partial(_at_owner_of_first, service, topic_of, handler)
    elif where is Where.OWNER_IF_IN_MEMORY:
        endpoint = partial(_at_owner_if_single, service, topic_of, handler)
    else:
        endpoint = partial(_at_owner, service, topic_of, handler)
    return Route(route.path, endpoint, methods=[method])


async def _at_owner(
    service: BrokerService, topic_of: TopicOf, handler: rest.Handler, request: Request
) -> Response:
    await require_topic_owner(service, request, topic_of(request))
    return await handler(request)


async def _at_owner_if_single(
    service: BrokerService, topic_of: TopicOf, handler: rest.Handler, request: Request
) -> Response:
    name = topic_of(request)
    if not await service.catalog.partitions(name):
        await require_topic_owner(service, request, name)
    return await handler(request)


async def _at_owner_of_first(
    service: BrokerService, topic_of: TopicOf, handler: rest.Handler, request: Request
) -> Response:
    name = topic_of(request)
    if not name.is_partition and await service.catalog.partitions(name):
        name = name.partition(0)
    await require_topic_owner(service, request, name)
    return await handler(request)


async def _on_partitions(
    service: BrokerService,
    calls: Calls,
    topic_of: TopicOf,
    handler: rest.Handler,
    path: str,
    each: joins.Each,
    request: Request,
) -> Response:
    name = topic_of(request)
    count = await _partitions(service, name, create=each.creates)
    if not count:
        await require_topic_owner(service, request, name)
        return await handler(request)
    parameters = {
        key: str(value)
        for key, value in request.path_params.items()
        if key not in ("tenant", "namespace", "topic")
    }
    query = request.scope["query_string"].decode("latin-1")
    kept = [part for part in query.split("&") if part.partition("=")[0] != AUTHORITATIVE]
    body = await rest.raw_body(request)
    call = Call(request.method, path, parameters, "&".join(kept), body)
    answers = await calls.on_partitions(name, count, call)
    return each.join(answers, joins.Asked(name, request))


async def _partitions(service: BrokerService, name: TopicName, *, create: bool) -> int:
    if name.is_partition:
        return 0
    if not create or not await service.namespaces.exists(name.namespace):
        return await service.catalog.partitions(name)
    try:
        return await service.topics.partition_count(name, create=True)
    except BrokerError as error:
        if error.code != ServerError.TopicNotFound:
            raise
        return 0
