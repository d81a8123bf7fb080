"""Properties of namespaces: names and texts that the broker only keeps (spec OP-03)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.namespaces.changing import change_policies, policies_of
from geminga_broker.cluster.records import JsonObject
from geminga_broker.service import BrokerService

FIELD = "properties"


def properties_in(record: JsonObject) -> dict[str, str]:
    """The properties of a namespace's record."""
    found = record.get(FIELD)
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def get(request: Request) -> Response:
        return rest.ok(
            properties_in(await policies_of(service, rest.namespace_of(request))), dict[str, str]
        )

    async def put(request: Request) -> Response:
        given = await rest.required_body(request, dict[str, str])
        return await add(request, rest.without_nulls(given) or {})

    async def delete(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        await change_policies(service, namespace, lambda old: old | {FIELD: {}})
        return rest.no_content()

    async def get_one(request: Request) -> Response:
        found = properties_in(await policies_of(service, rest.namespace_of(request)))
        return _shown(found.get(rest.parameter(request, "key")))

    async def put_one(request: Request) -> Response:
        return await add(
            request, {rest.parameter(request, "key"): rest.parameter(request, "value")}
        )

    async def delete_one(request: Request) -> Response:
        key, before = rest.parameter(request, "key"), dict[str, str]()

        def change(old: JsonObject) -> JsonObject:
            before.clear()
            before.update(properties_in(old))
            return old | {FIELD: {k: v for k, v in before.items() if k != key}}

        await change_policies(service, rest.namespace_of(request), change)
        return _shown(before.get(key))

    async def add(request: Request, given: dict[str, str]) -> Response:
        """Those that are there stay."""

        def change(old: JsonObject) -> JsonObject:
            return old | {FIELD: rest.properties_of(properties_in(old) | given)}

        await change_policies(service, rest.namespace_of(request), change)
        return rest.no_content()

    one = "/admin/v2/namespaces/{tenant}/{namespace}"
    return [
        *rest.at(one + "/properties", get=get, put=put, delete=delete),
        *rest.at(one + "/property/{key}", get=get_one, delete=delete_one),
        rest.route("PUT", one + "/property/{key}/{value}", put_one),
    ]


def _shown(value: str | None) -> Response:
    """The text itself, as Apache's server writes it."""
    return Response() if value is None else rest.text_as_json(value)
