"""Backlog quotas of namespaces and topics; retention must be larger than these (spec BR-23)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import policy_values as values
from geminga_broker.admin import rest
from geminga_broker.admin.answers import Quota
from geminga_broker.admin.namespaces.changing import checked_change
from geminga_broker.admin.namespaces.routes import require_namespace
from geminga_broker.admin.topics.policies import change_topic, topic_record
from geminga_broker.cluster.records import JsonObject
from geminga_broker.policies.levels import default_quota
from geminga_broker.policies.quota import BacklogQuota, QuotaType
from geminga_broker.service import BrokerService

RETENTION_TOO_SMALL = "Retention Quota must exceed configured backlog quota for "
QUOTA_TOO_LARGE = (
    "Backlog Quota exceeds configured retention quota for {}. Please increase retention quota and "
    "retry"
)

Change = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class Level:
    """The records of quotas and retention: of namespaces or of topics."""

    word: str
    quotas: str
    retention: str
    read: Callable[[Request], Awaitable[JsonObject]]
    """Raises RestError for a missing namespace or topic."""
    change: Callable[[Request, Change], Awaitable[Response]]


def routes(service: BrokerService, domains: tuple[str, ...]) -> list[Route]:
    """All routes of the family."""
    one = "/admin/v2/namespaces/{tenant}/{namespace}"
    namespaces = _namespace_level(service)
    found = [*_quota_routes(namespaces, one), *_retention_routes(namespaces, one)]

    async def told(request: Request) -> Response:
        record = await namespaces.read(request)
        return rest.ok(values.quotas_json(record.get(namespaces.quotas)), dict[str, Quota])

    found.append(rest.route("GET", one + "/backlogQuotaMap", told))
    for domain in domains:
        level = _topic_level(service, domain)
        one = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
        found += [*_quota_routes(level, one), *_retention_routes(level, one)]
        found.append(_topic_quotas(service, level, one))
    return found


def _topic_quotas(service: BrokerService, level: Level, one: str) -> Route:
    default = default_quota(service.config.policies).to_json()

    async def told(request: Request) -> Response:
        record = await level.read(request)
        found = values.quotas_json(record.get(level.quotas))
        if not found and rest.flag(request, "applied"):
            namespace = await service.namespaces.policies(rest.namespace_of(request))
            found = values.quotas_json(namespace.get("backlog_quota_map"))
            found = found or {kind.value: default for kind in QuotaType}
        return rest.ok(found, dict[str, Quota])

    return rest.route("GET", one + "/backlogQuotaMap", told)


def _namespace_level(service: BrokerService) -> Level:
    async def read(request: Request) -> JsonObject:
        namespace = rest.namespace_of(request)
        await require_namespace(service.namespaces, namespace)
        return await service.namespaces.policies(namespace)

    async def change(request: Request, how: Change) -> Response:
        namespace = rest.namespace_of(request)
        await service.namespaces.tenants.update(namespace, lambda old: checked_change(old, how))
        await service.topics.namespace_policies_changed(namespace)
        return rest.no_content()

    return Level("namespace", "backlog_quota_map", "retention_policies", read, change)


def _topic_level(service: BrokerService, domain: str) -> Level:
    async def read(request: Request) -> JsonObject:
        return await topic_record(service, request, domain)

    async def change(request: Request, how: Change) -> Response:
        return await change_topic(service, request, domain, how)

    return Level("topic", "backLogQuotaMap", "retentionPolicies", read, change)


def _kind(request: Request) -> QuotaType:
    text = request.query_params.get("backlogQuotaType", QuotaType.SIZE.value)
    try:
        return QuotaType(text)
    except ValueError:
        raise rest.RestError(404, f"No such backlog quota type: {text}") from None


def _quota_routes(level: Level, one: str) -> list[Route]:
    async def post(request: Request) -> Response:
        kind = _kind(request)
        body = await rest.read_body(request, values.QuotaBody)
        if body is None and level.word == "topic":
            return await set_to(request, kind, None)
        quota = values.quota_of(body, rest.namespace_of(request))
        record = await level.read(request)
        checked = quota
        if level.word == "namespace" and kind is not QuotaType.SIZE:
            # As in Apache: a namespace's retention is compared with its quota by size only.
            checked = (
                values.stored_quota(record.get(level.quotas), QuotaType.SIZE) or BacklogQuota()
            )
        if not values.within_retention(checked, record.get(level.retention)):
            raise rest.RestError(412, QUOTA_TOO_LARGE.format(level.word))
        return await set_to(request, kind, quota)

    async def delete(request: Request) -> Response:
        kind = _kind(request)
        await level.read(request)
        return await set_to(request, kind, None)

    async def set_to(request: Request, kind: QuotaType, quota: BacklogQuota | None) -> Response:
        return await level.change(
            request,
            lambda old: old | {level.quotas: values.with_quota(old.get(level.quotas), kind, quota)},
        )

    path = one + "/backlogQuota"
    return rest.at(path, post=post, delete=delete)


def _retention_routes(level: Level, one: str) -> list[Route]:
    """GET for topics is in the routes of other policies, as it can show higher levels."""

    async def get(request: Request) -> Response:
        return rest.ok_or_empty(
            (await level.read(request)).get(level.retention), values.RetentionPolicies
        )

    async def post(request: Request) -> Response:
        record = await level.read(request)
        retention = await rest.read_body(request, values.RetentionPolicies)
        if retention is None:
            if level.word == "topic":
                return rest.no_content()
            return await forget(request)
        values.check_retention(retention)
        told = msgspec.to_builtins(retention)
        _check_quotas(level, record, told)
        return await level.change(request, lambda old: old | {level.retention: told})

    async def delete(request: Request) -> Response:
        await level.read(request)
        return await forget(request)

    async def forget(request: Request) -> Response:
        return await level.change(
            request, lambda old: {k: v for k, v in old.items() if k != level.retention}
        )

    path = one + "/retention"
    found = rest.at(path, post=post, delete=delete)
    return [rest.route("GET", path, get), *found] if level.word == "namespace" else found


def _check_quotas(level: Level, record: JsonObject, retention: object) -> None:
    """Raises RestError 412 for retention that is smaller than a quota."""
    kinds = (QuotaType.SIZE,) if level.word == "namespace" else tuple(QuotaType)
    for kind in kinds:
        quota = values.stored_quota(record.get(level.quotas), kind)
        if quota is not None and not values.within_retention(quota, retention):
            end = "namespace." if level.word == "namespace" else "topic. "
            more = "" if level.word == "namespace" else "Please increase retention quota and retry"
            raise rest.RestError(412, RETENTION_TOO_SMALL + end + more)
