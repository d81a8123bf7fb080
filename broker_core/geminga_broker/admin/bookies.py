"""`/admin/v2/bookies` and the bookie affinity of namespaces (spec BK-25; Apache's `Bookies`,
`NamespacesBase`): where the bookies are, and which of them a namespace's ledgers get.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import answers, rest
from geminga_broker.bookies_config import BookiesConfig
from geminga_broker.cluster.bookie_affinity import GROUPS
from geminga_broker.cluster.records import BadName, JsonObject, ResourceMissing, check_name
from geminga_broker.config import BrokerConfig, ClusterBrokerConfig
from geminga_broker.limits import is_longer
from geminga_broker.service import BrokerService

NAMES_BYTES_MAX = 2048
"""A bookie's id, rack, host name and group; the groups of a namespace, with their commas."""

NO_GROUP = "Bookie 'group' parameters is missing"
NO_RACK = "Bookie rack placement configuration not found: "
BAD_RACK = (
    "Bookie 'rack' parameter is invalid, When `RackawareEnsemblePlacementPolicy` is enabled, the "
    "rack name is not allowed to contain slash (`/`) except for the beginning and end of the rack "
    "name string. When `RegionawareEnsemblePlacementPolicy` is enabled, the rack name can only "
    "contain one slash (`/`) except for the beginning and end of the rack name string."
)


class BookieInfo(msgspec.Struct):
    """Where a bookie is."""

    rack: str | None = None
    hostname: str | None = None


class AffinityGroups(msgspec.Struct):
    """Groups of bookies that commas separate; the secondary ones if the primary have too few."""

    primary: str | None = msgspec.field(default=None, name="bookkeeperAffinityGroupPrimary")
    secondary: str | None = msgspec.field(default=None, name="bookkeeperAffinityGroupSecondary")


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""
    return [*_bookie_routes(service), *_rack_routes(service), *_affinity_routes(service)]


def _rack_routes(service: BrokerService) -> list[Route]:
    racks, placement = service.racks, _placement(service.config)

    async def every_rack(_request: Request) -> Response:
        groups = await racks.groups()
        return rest.ok(
            {
                group: {bookie: _shown(info) for bookie, info in members.items()}
                for group, members in groups.items()
            },
            dict[str, dict[str, BookieInfo]],
        )

    async def get(request: Request) -> Response:
        bookie_id = rest.parameter(request, "bookie")
        try:
            return rest.ok(_shown(await racks.bookie(bookie_id)), BookieInfo)
        except ResourceMissing:
            raise rest.RestError(404, NO_RACK + bookie_id) from None

    async def post(request: Request) -> Response:
        bookie_id = rest.parameter(request, "bookie")
        info = await rest.required_body(request, BookieInfo)
        group = request.query_params.get("group")
        if group is None:
            raise rest.RestError(412, NO_GROUP)
        if not _is_rack(info.rack or "", placement):
            raise rest.RestError(412, BAD_RACK)
        for what in (bookie_id, group, info.rack or "", info.hostname or ""):
            _check_length(what)
        await racks.put(bookie_id, group, _without_nulls(info))
        return rest.no_content()

    async def delete(request: Request) -> Response:
        bookie_id = rest.parameter(request, "bookie")
        try:
            await racks.remove(bookie_id)
        except ResourceMissing:
            raise rest.RestError(404, NO_RACK + bookie_id) from None
        return rest.no_content()

    base = "/admin/v2/bookies"
    return [
        rest.route("GET", base + "/racks-info", every_rack),
        *rest.at(base + "/racks-info/{bookie}", get=get, post=post, delete=delete),
    ]


def _bookie_routes(service: BrokerService) -> list[Route]:
    async def every_bookie(_request: Request) -> Response:
        return rest.ok(
            {"bookies": [{"bookieId": each} for each in await service.bookies()]}, answers.Bookies
        )

    async def space(_request: Request) -> Response:
        """Geminga's own; Apache has no such path."""
        return rest.ok(
            {
                bookie: None
                if found is None
                else {
                    "freeBytes": found.free_bytes,
                    "totalBytes": found.total_bytes,
                    "readOnly": found.read_only,
                }
                for bookie, found in (await service.bookie_space()).items()
            },
            dict[str, answers.Space | None],
        )

    base = "/admin/v2/bookies"
    return [
        rest.route("GET", base + "/all", every_bookie),
        rest.route("GET", base + "/space", space),
    ]


def _affinity_routes(service: BrokerService) -> list[Route]:
    namespaces = service.namespaces

    async def namespace_of(request: Request) -> str:
        """Raises RestError."""
        try:
            for part in ("tenant", "namespace"):
                check_name(rest.parameter(request, part))
        except BadName:
            raise rest.RestError(412, "Namespace name is not valid") from None
        namespace = rest.namespace_of(request)
        if not await namespaces.exists(namespace):
            raise rest.RestError(404, "Namespace not found")
        return namespace

    async def change(request: Request, groups: JsonObject | None) -> Response:
        await namespaces.change_local_policies(
            await namespace_of(request), lambda old: old | {GROUPS: groups}
        )
        return rest.no_content()

    async def get(request: Request) -> Response:
        record = await namespaces.local_policies.get(await namespace_of(request))
        groups = record.get(GROUPS) if record else None
        if not isinstance(groups, dict):
            return rest.no_content()
        return rest.ok(
            {name: value for name, value in groups.items() if value is not None}, AffinityGroups
        )

    async def post(request: Request) -> Response:
        groups = await rest.read_body(request, AffinityGroups)
        if groups is None:
            return await change(request, None)
        for names in (groups.primary, groups.secondary):
            _check_length(names or "")
        return await change(request, _without_nulls(groups))

    async def delete(request: Request) -> Response:
        return await change(request, None)

    path = "/admin/v2/namespaces/{tenant}/{namespace}/persistence/bookieAffinity"
    return rest.at(path, get=get, post=post, delete=delete)


def _placement(config: BrokerConfig) -> BookiesConfig:
    return config.bookies if isinstance(config, ClusterBrokerConfig) else BookiesConfig()


def _is_rack(rack: str, placement: BookiesConfig) -> bool:
    """Within a region, where there are regions; slashes at both ends don't matter."""
    return not placement.by_rack or rack.strip("/").count("/") == int(placement.by_region)


def _check_length(text: str) -> None:
    if is_longer(text, NAMES_BYTES_MAX):
        raise rest.RestError(412, f"{text[:80]!r}... is longer than {NAMES_BYTES_MAX} bytes")


def _shown(info: Mapping[str, object]) -> JsonObject:
    """Rack and host name, as far as they are set."""
    return {name: info[name] for name in ("rack", "hostname") if info.get(name) is not None}


def _without_nulls(body: msgspec.Struct) -> JsonObject:
    found: JsonObject = msgspec.to_builtins(body)
    return {name: value for name, value in found.items() if value is not None}
