"""Policies of namespaces that are one field of their record: GET, POST and DELETE (spec OP-03).

Paths, field names and answers are Apache's (`NamespacesBase`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin.namespace_routes import require_namespace
from geminga_broker.admin.rest import (
    RestError,
    bad_body,
    namespace_of,
    no_content,
    ok_or_empty,
    read_body,
    route,
)
from geminga_broker.resources import JsonObject
from geminga_broker.service import BrokerService

EMPTY_BODY = "The request entity cannot be empty."


def _any(value: object) -> None:
    del value


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy at `path` that stands under `field` as a value of `kind`.

    `check` raises RestError for values that Apache refuses. One with `of_cluster` stands there
    under the cluster's name.
    """

    path: str
    field: str
    kind: type
    check: Callable[[object], None] = _any
    of_cluster: bool = False


def _not_negative(reason: str) -> Callable[[object], None]:
    def check(value: object) -> None:
        if isinstance(value, int) and value < 0:
            raise RestError(412, reason)

    return check


class PublishRate(msgspec.Struct):
    """`publishMaxMessageRate` of a cluster."""

    messages: int = msgspec.field(default=-1, name="publishThrottlingRateInMsg")
    bytes: int = msgspec.field(default=-1, name="publishThrottlingRateInByte")


class DispatchRate(msgspec.Struct):
    """`topicDispatchRate` and `subscriptionDispatchRate` of a cluster."""

    messages: int = msgspec.field(default=0, name="dispatchThrottlingRateInMsg")
    bytes: int = msgspec.field(default=0, name="dispatchThrottlingRateInByte")
    relative: bool = msgspec.field(default=False, name="relativeToPublishRate")
    period_s: int = msgspec.field(default=0, name="ratePeriodInSecond")


POLICIES = (
    Policy("deduplication", "deduplicationEnabled", bool),
    Policy(
        "messageTTL",
        "message_ttl_in_seconds",
        int,
        _not_negative("Invalid value for message TTL, message TTL must >= 0"),
    ),
    Policy(
        "subscriptionExpirationTime",
        "subscription_expiration_time_minutes",
        int,
        _not_negative("Invalid value for subscription expiration time"),
    ),
    Policy("publishRate", "publishMaxMessageRate", PublishRate, of_cluster=True),
    Policy("dispatchRate", "topicDispatchRate", DispatchRate, of_cluster=True),
    Policy("subscriptionDispatchRate", "subscriptionDispatchRate", DispatchRate, of_cluster=True),
)


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    return [each for policy in POLICIES for each in _routes_of(service, policy)]


def _routes_of(service: BrokerService, policy: Policy) -> list[Route]:
    cluster = service.config.network.cluster_name

    async def get(request: Request) -> Response:
        namespace = namespace_of(request)
        await require_namespace(service, namespace)
        found = (await service.namespaces.policies(namespace)).get(policy.field)
        if policy.of_cluster:
            found = found.get(cluster) if isinstance(found, dict) else None
        return ok_or_empty(found)

    async def post(request: Request) -> Response:
        value: object = await read_body(request, policy.kind)
        if value is None and not policy.of_cluster:
            raise bad_body(EMPTY_BODY)
        policy.check(value)
        return await change(request, msgspec.to_builtins(value))

    async def delete(request: Request) -> Response:
        return await change(request, None)

    async def change(request: Request, value: object) -> Response:
        namespace = namespace_of(request)
        await require_namespace(service, namespace)
        await service.namespaces.tenants.update(
            namespace, lambda old: _changed(old, policy, cluster, value)
        )
        await service.policies_changed(namespace)
        return no_content()

    path = f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{policy.path}"
    return [route("GET", path, get), route("POST", path, post), route("DELETE", path, delete)]


def _changed(old: JsonObject, policy: Policy, cluster: str, value: object) -> JsonObject:
    """The record with the policy set, or (None) without it."""
    record = dict(old)
    if policy.of_cluster:
        known = record.get(policy.field)
        clusters = dict(known) if isinstance(known, dict) else {}
        clusters.pop(cluster, None)
        if value is not None:
            clusters[cluster] = value
        record[policy.field] = clusters
    elif value is None:
        record.pop(policy.field, None)
    else:
        record[policy.field] = value
    return record
