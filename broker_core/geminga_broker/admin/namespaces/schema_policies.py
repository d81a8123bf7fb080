"""Schema policies (spec BR-51, BR-60; Apache's `Namespaces` and `PersistentTopics`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.namespaces.routes import require_namespace
from geminga_broker.admin.topics.policies import change_topic, topic_record
from geminga_broker.schema.model import Strategy
from geminga_broker.schema.policies import AUTO_UPDATE_STRATEGIES
from geminga_broker.service import BrokerService

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_STRATEGIES = tuple(Strategy.__members__)


def _one_of(names: Collection[str]) -> type[str]:
    return cast(type[str], Literal[tuple(names)])


_STRATEGY = _one_of(_STRATEGIES)
"""The kind of a strategy's name."""


def routes(service: BrokerService) -> list[Route]:
    """Routes of namespaces."""
    found: list[Route] = []
    for path, field, kind in (
        ("schemaCompatibilityStrategy", "schema_compatibility_strategy", _STRATEGY),
        (
            "schemaAutoUpdateCompatibilityStrategy",
            "schema_auto_update_compatibility_strategy",
            _one_of(AUTO_UPDATE_STRATEGIES),
        ),
    ):
        found.append(rest.route("GET", f"{_NAMESPACE}/{path}", _getter(service, field, path, kind)))
        found.append(rest.route("PUT", f"{_NAMESPACE}/{path}", _name_setter(service, field, kind)))
    for path, field in (
        ("isAllowAutoUpdateSchema", "is_allow_auto_update_schema"),
        ("schemaValidationEnforced", "schema_validation_enforced"),
    ):
        found.append(rest.route("GET", f"{_NAMESPACE}/{path}", _getter(service, field, path, bool)))
        found.append(rest.route("POST", f"{_NAMESPACE}/{path}", _flag_setter(service, field)))
    return found


def _getter(service: BrokerService, field: str, path: str, kind: object) -> rest.Handler:
    broker = service.config.schemas
    unset: dict[str, object] = {
        "schemaCompatibilityStrategy": Strategy.UNDEFINED.name,
        "isAllowAutoUpdateSchema": broker.allow_auto_update,
        "schemaValidationEnforced": False,
    }

    async def get(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        await require_namespace(service.namespaces, namespace)
        found = (await service.namespaces.policies(namespace)).get(field)
        if field == "schema_validation_enforced" and rest.flag(request, "applied"):
            found = broker.validation_enforced or found
        found = unset.get(path) if found is None else found
        return rest.no_content() if found is None else rest.ok(found, kind)

    return get


def _name_setter(service: BrokerService, field: str, kind: type[str]) -> rest.Handler:
    async def put(request: Request) -> Response:
        return await _change(service, request, field, await rest.read_body(request, kind))

    return put


def _flag_setter(service: BrokerService, field: str) -> rest.Handler:
    async def post(request: Request) -> Response:
        value = await rest.required_body(request, bool)
        return await _change(service, request, field, value)

    return post


async def _change(
    service: BrokerService, request: Request, field: str, value: str | bool | None
) -> Response:
    namespace = rest.namespace_of(request)
    await require_namespace(service.namespaces, namespace)
    await service.namespaces.tenants.update(namespace, lambda old: old | {field: value})
    return rest.no_content()


def topic_routes(service: BrokerService, domain: str) -> list[Route]:
    """Routes of topics of one domain."""
    base = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    strategy_field, enforced_field = "schemaCompatibilityStrategy", "schemaValidationEnforced"

    async def get_strategy(request: Request) -> Response:
        found = (await topic_record(service, request, domain)).get(strategy_field)
        if found is None and rest.flag(request, "applied"):
            found = (await service.schemas.policies(rest.topic_of(request, domain))).strategy.name
        return Response() if found is None else rest.ok(found, _STRATEGY)

    async def put_strategy(request: Request) -> Response:
        name = await rest.read_body(request, _STRATEGY)
        value = None if name == Strategy.UNDEFINED.name else name

        return await change_topic(
            service, request, domain, lambda old: {**old, strategy_field: value}
        )

    async def delete_strategy(request: Request) -> Response:
        return await change_topic(
            service, request, domain, lambda old: {**old, strategy_field: None}
        )

    async def get_enforced(request: Request) -> Response:
        found = (await topic_record(service, request, domain)).get(enforced_field)
        if found is None and rest.flag(request, "applied"):
            found = (await service.schemas.policies(rest.topic_of(request, domain))).enforced
        return rest.ok(bool(found), bool)

    async def post_enforced(request: Request) -> Response:
        value = await rest.required_body(request, bool)
        return await change_topic(
            service, request, domain, lambda old: {**old, enforced_field: value}
        )

    return [
        *rest.at(
            f"{base}/{strategy_field}", get=get_strategy, put=put_strategy, delete=delete_strategy
        ),
        *rest.at(f"{base}/{enforced_field}", get=get_enforced, post=post_enforced),
    ]
