"""Grants on namespaces, topics, subscriptions (PX-22; `NamespacesBase`, `PersistentTopicsBase`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import Actions
from geminga_broker.admin.guard import require
from geminga_broker.authz import granting
from geminga_broker.authz.needs import Need, Place, Scope
from geminga_broker.cluster.records import JsonObject, ResourceMissing
from geminga_broker.service import BrokerService
from geminga_protocol.topic_name import TopicName

TENANT_ADMIN = Need(Scope.TENANT_ADMIN)
SubscriptionMode = Literal["None", "Prefix"]


class _Grant(msgspec.Struct):
    """Apache's `GrantTopicPermissionOptions`."""

    topic: str
    role: str
    actions: list[str]


class _Revocation(msgspec.Struct):
    """Apache's `RevokeTopicPermissionOptions`."""

    topic: str
    role: str


def _require_whole(wanted: Sequence[msgspec.Struct | None]) -> None:
    """Raises RestError 400 for an incomplete grant."""
    for each in wanted:
        if each is None or None in msgspec.structs.astuple(each):
            raise rest.RestError(
                400, "Each grant needs a topic, a role and, to be granted, actions"
            )


async def _policies(service: BrokerService, namespace: str) -> JsonObject:
    try:
        return await service.namespaces.policies(namespace)
    except ResourceMissing:
        raise rest.RestError(404, "Namespace does not exist") from None


async def _change(
    service: BrokerService, namespace: str, change: Callable[[JsonObject], JsonObject]
) -> Response:
    """Store changed grants, and close producers and consumers that lost their right."""
    try:
        await service.namespaces.tenants.update(namespace, change)
    except ResourceMissing:
        raise rest.RestError(404, "Namespace does not exist") from None
    await service.permissions_changed(namespace.partition("/")[0], namespace)
    return rest.no_content()


async def _actions(request: Request) -> list[str]:
    actions = await rest.read_body(request, list[str])
    if actions is None:
        raise rest.RestError(400, "Actions should not be null")
    return _checked([action for action in actions if action])


def _checked(actions: Sequence[str]) -> list[str]:
    try:
        return granting.checked_actions(actions)
    except granting.UnknownAction as error:
        raise rest.bad_body(str(error)) from None


def routes(service: BrokerService) -> list[Route]:
    """Grants on namespaces and their subscriptions."""
    base = "/admin/v2/namespaces/{tenant}/{namespace}/permissions"

    async def get(request: Request) -> Response:
        return rest.ok(
            granting.namespace_grants(await _policies(service, rest.namespace_of(request))),
            Actions,
        )

    async def grant(request: Request) -> Response:
        actions, role = await _actions(request), rest.parameter(request, "role")
        return await _change(
            service,
            rest.namespace_of(request),
            lambda old: granting.grant_on_namespace(old, role, actions),
        )

    async def revoke(request: Request) -> Response:
        role = rest.parameter(request, "role")
        return await _change(
            service, rest.namespace_of(request), lambda old: granting.revoke_on_namespace(old, role)
        )

    return [
        rest.route("GET", base, get),
        *_routes_of_many(service),
        *_subscription_mode_routes(service),
        *_subscription_routes(service, base),
        *rest.at(base + "/{role}", post=grant, delete=revoke),
    ]


def _subscription_routes(service: BrokerService, base: str) -> list[Route]:
    async def get(request: Request) -> Response:
        return rest.ok(
            granting.subscription_roles(await _policies(service, rest.namespace_of(request))),
            dict[str, list[str]],
        )

    async def grant(request: Request) -> Response:
        roles, name = (
            await rest.read_body(request, list[str]),
            rest.subscription_of(request),
        )
        if roles is None:
            raise rest.bad_body("the body must be a list of roles")
        return await _change(
            service,
            rest.namespace_of(request),
            lambda old: granting.grant_subscription(old, name, roles),
        )

    async def revoke(request: Request) -> Response:
        name, role = rest.subscription_of(request), rest.parameter(request, "role")
        try:
            return await _change(
                service,
                rest.namespace_of(request),
                lambda old: granting.revoke_subscription(old, name, role),
            )
        except KeyError:
            raise rest.RestError(404, f"Subscription {name} has no granted roles") from None

    return [
        rest.route("GET", base + "/subscription", get),
        rest.route("POST", base + "/subscription/{subscription}", grant),
        rest.route("DELETE", base + "/{subscription}/{role}", revoke),
    ]


def _subscription_mode_routes(service: BrokerService) -> list[Route]:
    """Whether names of subscriptions must begin with the role."""
    path = "/admin/v2/namespaces/{tenant}/{namespace}/subscriptionAuthMode"

    async def get(request: Request) -> Response:
        policies = await _policies(service, rest.namespace_of(request))
        return rest.ok(policies.get("subscription_auth_mode") or "None", SubscriptionMode)

    async def post(request: Request) -> Response:
        mode = await rest.read_body(request, cast(type[str], SubscriptionMode)) or "None"
        return await _change(
            service, rest.namespace_of(request), lambda old: old | {"subscription_auth_mode": mode}
        )

    return rest.at(path, get=get, post=post)


def _routes_of_many(service: BrokerService) -> list[Route]:
    """Grants on several topics of one namespace at once."""
    base = "/admin/v2/namespaces"

    async def grant(request: Request) -> Response:
        wanted = await rest.read_body(request, list[_Grant]) or []
        _require_whole(wanted)
        for each in wanted:
            _checked(each.actions)
        namespace = await _namespace_of_all(service, request, [each.topic for each in wanted])

        def change(policies: JsonObject) -> JsonObject:
            for each in wanted:
                topic, actions = str(rest.parsed_topic(each.topic)), _checked(each.actions)
                policies = granting.grant_on_topic(policies, topic, each.role, actions)
            return policies

        return await _change(service, namespace, change)

    async def revoke(request: Request) -> Response:
        wanted = await rest.read_body(request, list[_Revocation]) or []
        _require_whole(wanted)
        namespace = await _namespace_of_all(service, request, [each.topic for each in wanted])
        names = [await _with_partitions(service, rest.parsed_topic(each.topic)) for each in wanted]

        def change(policies: JsonObject) -> JsonObject:
            for each, topics in zip(wanted, names, strict=True):
                policies = granting.revoke_on_topics(policies, topics, each.role)
            return policies

        return await _change(service, namespace, change)

    return [
        rest.route("POST", base + "/grantPermissionsOnTopics", grant),
        rest.route("POST", base + "/revokePermissionsOnTopics", revoke),
    ]


async def _namespace_of_all(service: BrokerService, request: Request, topics: Sequence[str]) -> str:
    """The only namespace of the topics; the caller must administrate its tenant. Raises RestError,
    and BrokerError for a missing topic.
    """
    names = [rest.parsed_topic(topic) for topic in topics]
    namespaces = {name.namespace for name in names}
    if len(namespaces) != 1:
        raise rest.RestError(400, "The namespace should be the same")
    namespace = namespaces.pop()
    await require(service, request, TENANT_ADMIN, Place(names[0].tenant, namespace))
    for name in names:
        await _with_partitions(service, name)
    return namespace


def topic_routes(service: BrokerService, domain: str) -> list[Route]:
    """Grants on single topics; those of a partitioned topic apply to its partitions."""
    base = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}/permissions"

    async def get(request: Request) -> Response:
        topic = rest.topic_of(request, domain)
        policies = await _policies(service, topic.namespace)
        every = dict(granting.namespace_grants(policies))
        for role, actions in granting.topic_grants(policies, str(topic)).items():
            every[role] = sorted({*every.get(role, ()), *actions})
        return rest.ok(every, Actions)

    async def grant(request: Request) -> Response:
        topic, role = rest.topic_of(request, domain), rest.parameter(request, "role")
        actions = await _actions(request)
        await _with_partitions(service, topic)
        return await _change(
            service,
            topic.namespace,
            lambda old: granting.grant_on_topic(old, str(topic), role, actions),
        )

    async def revoke(request: Request) -> Response:
        topic, role = rest.topic_of(request, domain), rest.parameter(request, "role")
        names = await _with_partitions(service, topic)
        return await _change(
            service, topic.namespace, lambda old: granting.revoke_on_topics(old, names, role)
        )

    return [rest.route("GET", base, get), *rest.at(base + "/{role}", post=grant, delete=revoke)]


async def _with_partitions(service: BrokerService, topic: TopicName) -> Sequence[str]:
    """The topic and its partitions. Raises BrokerError if it is missing."""
    count = 0 if topic.is_partition else await service.topics.partition_count(topic, create=False)
    return [*(str(topic.partition(index)) for index in range(count)), str(topic)]
