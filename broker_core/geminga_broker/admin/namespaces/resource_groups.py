"""Resource groups, and which one a namespace belongs to (spec OP-03; Apache's
`ResourceGroupsBase`).

Their rates would hold for all brokers together. Apache's brokers enforce them only where they are
given a transport for their figures (`resourceUsageTransportClassName`), which isn't offered here:
groups are kept, and limit nothing.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.namespaces.changing import (
    NO_POLICIES,
    change_policies,
    policies_of,
    without,
)
from geminga_broker.cluster.records import (
    JsonObject,
    ResourceExists,
    ResourceMissing,
    is_name,
)
from geminga_broker.service import BrokerService

FIELD = "resource_group_name"
NO_GROUP = "ResourceGroup does not exist"
_INT_MAX = (1 << 31) - 1


class ResourceGroup(Struct, rename="camel"):
    """Messages and bytes each second; -1 is no bound."""

    publish_rate_in_msgs: int | None = None
    publish_rate_in_bytes: int | None = None
    dispatch_rate_in_msgs: int | None = None
    dispatch_rate_in_bytes: int | None = None


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    groups = service.namespaces.resource_groups

    async def list_all(_request: Request) -> Response:
        return rest.ok(await groups.names(), list[str])

    async def get(request: Request) -> Response:
        name = rest.parameter(request, "resourcegroup")
        record = await groups.get(name) if is_name(name) else None
        if record is None:
            raise rest.RestError(404, NO_GROUP)
        return rest.ok(record, ResourceGroup)

    async def put(request: Request) -> Response:
        """Make a group, or change the rates that are given."""
        name = rest.parameter(request, "resourcegroup")
        given = _checked(await rest.required_body(request, ResourceGroup))
        if not is_name(name):
            raise rest.RestError(412, "ResourceGroup name is not valid")
        while True:
            try:
                await groups.update(name, lambda old: _merged(old, given))
            except ResourceMissing:
                try:
                    await groups.create(name, _merged({}, given))
                except ResourceExists:
                    continue
            return rest.no_content()

    async def delete(request: Request) -> Response:
        name = rest.parameter(request, "resourcegroup")
        if not is_name(name):
            raise rest.RestError(404, NO_GROUP)
        if await _is_used(service, name):
            raise rest.RestError(412, "ResourceGroup is in use")
        try:
            await groups.delete(name)
        except ResourceMissing:
            raise rest.RestError(404, NO_GROUP) from None
        return rest.no_content()

    base = "/admin/v2/resourcegroups"
    return [
        rest.route("GET", base, list_all),
        *rest.at(base + "/{resourcegroup}", get=get, put=put, delete=delete),
        *_namespace_routes(service),
    ]


def _namespace_routes(service: BrokerService) -> list[Route]:
    async def get(request: Request) -> Response:
        found = (await policies_of(service, rest.namespace_of(request))).get(FIELD)
        # The text itself, as Apache's server writes it.
        return rest.text_as_json(found) if isinstance(found, str) else Response()

    async def post(request: Request) -> Response:
        name = rest.parameter(request, "resourcegroup")
        await require_group(service, name)
        namespace = rest.namespace_of(request)
        await change_policies(service, namespace, lambda old: old | {FIELD: name}, NO_POLICIES)
        return rest.no_content()

    async def delete(request: Request) -> Response:
        namespace = rest.namespace_of(request)
        await change_policies(service, namespace, lambda old: without(old, FIELD), NO_POLICIES)
        return rest.no_content()

    path = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"
    return [
        *rest.at(path, get=get, delete=delete),
        rest.route("POST", path + "/{resourcegroup}", post),
    ]


async def require_group(service: BrokerService, name: str) -> None:
    """Raises RestError 412."""
    if not (is_name(name) and await service.namespaces.resource_groups.exists(name)):
        raise rest.RestError(412, NO_GROUP)


def _checked(group: ResourceGroup) -> JsonObject:
    """The rates that are given. Raises for numbers beyond Java's types."""
    found: JsonObject = msgspec.to_builtins(group)
    for name, value in found.items():
        if name.endswith("InMsgs") and isinstance(value, int) and abs(value) > _INT_MAX:
            raise rest.bad_body(f"{name}: number {value} is out of range")
    return {name: value for name, value in found.items() if value is not None}


def _merged(old: JsonObject, given: JsonObject) -> JsonObject:
    """What isn't known is kept; a rate that was never given is no bound."""
    unset = dict.fromkeys(ResourceGroup.__struct_encode_fields__, -1)
    return unset | old | given


async def _is_used(service: BrokerService, name: str) -> bool:
    """Whether any namespace belongs to it; reads all of them, as Apache's broker does."""
    namespaces = service.namespaces
    for tenant in await namespaces.tenants.names():
        for namespace in await namespaces.list(tenant):
            record = await namespaces.tenants.get(namespace)
            if record is not None and record.get(FIELD) == name:
                return True
    return False
