"""Policies of single topics: GET (of the topic, or `applied=true`: of all levels), POST and DELETE
(spec BR-22, BR-37, BR-60).

Paths, fields and responses are Apache's (`PersistentTopics`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.policy_values import DispatchRate, as_record, in_order
from geminga_broker.admin.topics.policy_table import (
    RETENTION,
    TTL,
    TopicPolicy,
    policies,
    rate_json,
)
from geminga_broker.cluster.records import JsonObject
from geminga_broker.service import BrokerService
from geminga_protocol.topic_name import TopicName

DISABLED = "Topic level policies is disabled, to enable the topic level policy and retry."


async def require_policies(service: BrokerService, request: Request, domain: str) -> TopicName:
    """The requested policies' topic. Raises RestError 404 and, for partitions, 412."""
    name = rest.topic_of(request, domain)
    if not service.config.topics.topic_policies:
        raise rest.RestError(405, DISABLED)
    if not await service.namespaces.exists(name.namespace):
        raise rest.RestError(404, "Namespace not found")
    if name.is_partition:
        raise rest.RestError(412, "Not allowed to set/get topic policy for a partition")
    if not await service.catalog.partitions(name) and not await service.topics.exists(name):
        raise rest.RestError(404, f"Topic {name} not found")
    return name


def _is_global(request: Request) -> bool:
    """Whether the call is about the policies that hold in all clusters."""
    return rest.flag(request, "isGlobal")


async def topic_record(service: BrokerService, request: Request, domain: str) -> JsonObject:
    """The policies set for the request's topic, at the level that it asks for. Raises RestError
    404, 405, 412.
    """
    name = await require_policies(service, request, domain)
    return await service.policies.store.at(name, is_global=_is_global(request))


async def change_topic(
    service: BrokerService,
    request: Request,
    domain: str,
    how: Callable[[JsonObject], JsonObject],
) -> Response:
    """Change the policies of the request's topic and apply them. Raises RestError 404, 405, 412."""
    name = await require_policies(service, request, domain)
    await service.policies.store.update(name, how, is_global=_is_global(request))
    await service.topics.topic_policies_changed(name)
    return rest.no_content()


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""
    found = [each for policy in policies(service) for each in _routes_of(service, domain, policy)]
    found.append(_routes_of(service, domain, RETENTION)[0])
    return [*found, *_ttl_routes(service, domain), *_subscription_routes(service, domain)]


def _path(domain: str, tail: str) -> str:
    return f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}/{tail}"


def _routes_of(service: BrokerService, domain: str, policy: TopicPolicy) -> list[Route]:
    async def get(request: Request) -> Response:
        found = policy.of(await topic_record(service, request, domain))
        if found is None and policy.applied is not None and rest.flag(request, "applied"):
            name = rest.topic_of(request, domain)
            found = policy.applied(await service.policies.resolve(name))
        found = policy.unset if found is None else found
        return Response(status_code=policy.absent) if found is None else rest.ok(found, policy.kind)

    async def post(request: Request) -> Response:
        value: object = await rest.read_body(request, policy.kind)
        if value is None:
            if policy.empty == "refuse":
                raise rest.bad_body(rest.EMPTY_BODY)
            if policy.empty == "keep":
                await require_policies(service, request, domain)
                return rest.no_content()
        else:
            policy.check(value)
        stored = as_record(value)
        return await change_topic(service, request, domain, lambda old: policy.put(old, stored))

    async def delete(request: Request) -> Response:
        return await change_topic(service, request, domain, lambda old: policy.put(old, None))

    path = _path(domain, policy.path)
    return rest.at(path, get=get, post=post, delete=delete)


def _ttl_routes(service: BrokerService, domain: str) -> list[Route]:
    """The value is a parameter of the query."""
    get, _post, delete = _routes_of(service, domain, TTL)

    async def post(request: Request) -> Response:
        text = request.query_params.get("messageTTL")
        try:
            value = None if text is None else int(text)
        except ValueError:
            raise rest.Refused(404) from None
        if value is not None and value < 0:
            raise rest.RestError(412, "Invalid value for message TTL")
        return await change_topic(service, request, domain, lambda old: TTL.put(old, value))

    return [get, rest.route("POST", _path(domain, "messageTTL"), post), delete]


def _subscription_routes(service: BrokerService, domain: str) -> list[Route]:
    """The dispatch rate of one subscription, which need not exist."""
    field = "subscriptionPolicies"

    def of(record: JsonObject, name: str) -> object:
        every = record.get(field)
        own = every.get(name) if isinstance(every, dict) else None
        return in_order(own.get("dispatchRate"), DispatchRate) if isinstance(own, dict) else None

    def put(record: JsonObject, name: str, value: object) -> JsonObject:
        known = record.get(field)
        every = dict(known) if isinstance(known, dict) else {}
        every[name] = {"dispatchRate": value}
        return record | {field: {k: v for k, v in every.items() if v != {"dispatchRate": None}}}

    async def get(request: Request) -> Response:
        record = await topic_record(service, request, domain)
        name = rest.subscription_of(request)
        found = of(record, name)
        if found is None and rest.flag(request, "applied"):
            effective = await service.policies.resolve(rest.topic_of(request, domain))
            found = rate_json(effective.policies.subscription_dispatch_rate)
        return Response() if found is None else rest.ok(found, DispatchRate)

    async def post(request: Request) -> Response:
        value = await rest.read_body(request, DispatchRate)
        name = rest.subscription_of(request)
        if value is None:
            await require_policies(service, request, domain)
            return rest.no_content()
        told = msgspec.to_builtins(value)
        return await change_topic(service, request, domain, lambda old: put(old, name, told))

    async def delete(request: Request) -> Response:
        name = rest.subscription_of(request)
        return await change_topic(service, request, domain, lambda old: put(old, name, None))

    path = _path(domain, "{subscription}/dispatchRate")
    return rest.at(path, get=get, post=post, delete=delete)
