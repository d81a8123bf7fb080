"""Pages of the cluster: brokers, bookies, tenants, namespaces and lists of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

import trio
from starlette.responses import Response

from geminga_broker.console.answers import Bookies, Load, Space
from geminga_broker.console.calls import CallFailed, Json
from geminga_broker.console.listing import Page, page_number, page_of
from geminga_broker.console.site import Section, Visit, attempt
from geminga_runtime.json_text import BadJson, read_json

DOMAINS = ("persistent", "non-persistent")
PARTITION = "-partition-"
BROKERS_SHOWN = 30
CLUSTERS_SHOWN = 20
BOOKIES_SHOWN = 100


class BrokerRow(NamedTuple):
    """A broker, and what it does."""

    broker_id: str
    load: Section[Load]


class BookieRow(NamedTuple):
    """A bookie, and the room that it has left; None if it doesn't tell."""

    bookie_id: str
    space: Space | None


async def _overview(visit: Visit) -> Response:
    own = visit.site.service.addresses.broker_id
    brokers = await visit.section(list[str], "/admin/v2/brokers")
    names = (brokers.value or [own])[:BROKERS_SHOWN]
    loads: dict[str, Section[Load]] = {}

    async def look(name: str) -> None:
        path = "/admin/v2/broker-stats/load-report"
        loads[name] = await attempt(visit.rest.of_broker(name, own, path, Load))

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(look, name)
    clusters = await visit.section(list[str], "/admin/v2/clusters")
    details = {
        name: await visit.section(Json, f"/admin/v2/clusters/{quote(name, safe='')}")
        for name in (clusters.value or [])[:CLUSTERS_SHOWN]
    }
    leader = await visit.section(Json, "/admin/v2/brokers/leaderBroker")
    return visit.page(
        "overview.html",
        clusters=clusters,
        details=details,
        brokers=brokers,
        rows=[BrokerRow(name, loads[name]) for name in names],
        leader=(leader.value or {}).get("brokerId"),
        bookies=await _bookies(visit),
    )


async def _bookies(visit: Visit) -> Section[list[BookieRow]]:
    found = await visit.section(Bookies, "/admin/v2/bookies/all")
    if found.value is None:
        return Section(None, found.error)
    spaces = (await visit.section(dict[str, Space | None], "/admin/v2/bookies/space")).value or {}
    names = [each.bookie_id for each in found.value.bookies[:BOOKIES_SHOWN]]
    return Section([BookieRow(name, spaces.get(name)) for name in names])


def _page(visit: Visit, items: Sequence[str]) -> Page:
    return page_of(items, visit.query("q"), page_number(visit.query("page")))


async def _tenants(visit: Visit) -> Response:
    page = _page(visit, sorted(await visit.rest.get("/admin/v2/tenants", list[str])))
    rows = {
        name: await visit.section(Json, f"/admin/v2/tenants/{quote(name, safe='')}")
        for name in page.items
    }
    return visit.page("tenants.html", page=page, rows=rows)


async def _tenant(visit: Visit) -> Response:
    tenant = visit.parameter("tenant")
    path = f"/admin/v2/namespaces/{quote(tenant, safe='')}"
    found = sorted(await visit.rest.get(path, list[str]))
    names = [name.partition("/")[2] for name in found]
    return visit.page("tenant.html", tenant=tenant, page=_page(visit, names))


class TopicRow(NamedTuple):
    """A topic of a list, without its namespace."""

    local: str
    partitions: int


async def _namespace(visit: Visit) -> Response:
    tenant, namespace = visit.parameter("tenant"), visit.parameter("namespace")
    encoded = f"{quote(tenant, safe='')}/{quote(namespace, safe='')}"
    domain = visit.query("domain")
    if domain not in DOMAINS:
        domain = DOMAINS[0]
    page, topics = await _topics(visit, f"{domain}/{encoded}", f"{domain}://{tenant}/{namespace}/")
    policies = await visit.section(Json, f"/admin/v2/namespaces/{encoded}")
    bundles = await visit.section(Json, f"/admin/v2/namespaces/{encoded}/bundles")
    return visit.page(
        "namespace.html",
        tenant=tenant,
        namespace=namespace,
        domain=domain,
        domains=DOMAINS,
        page=page,
        topics=topics,
        policies=Section(set_policies(policies.value or {}), policies.error),
        bundles=(bundles.value or {}).get("numBundles", 0),
    )


async def _topics(visit: Visit, path: str, prefix: str) -> tuple[Page, list[TopicRow]]:
    """A page of a namespace's topics. Names are looked through in a thread: the loop must not wait
    for a hundred thousand.
    """
    async with visit.site.listings:
        names = (await visit.rest.call("GET", f"/admin/v2/{path}")).body
        partitioned = (await visit.rest.call("GET", f"/admin/v2/{path}/partitioned")).body

        def look() -> tuple[Page, list[TopicRow]]:
            found = topic_rows(_names(names), _names(partitioned))
            rows = {name.removeprefix(prefix): count for name, count in found.items()}
            page = _page(visit, list(rows))
            return page, [TopicRow(name, rows[name]) for name in page.items]

        return await trio.to_thread.run_sync(look)


def _names(body: bytes) -> list[str]:
    try:
        return read_json(body, list[str])
    except BadJson as error:
        raise CallFailed(500, f"The answer is not understood: {error}") from None


def topic_rows(names: Sequence[str], partitioned: Sequence[str]) -> dict[str, int]:
    """Topics in order, partitions as one row with their topic: the number of those that exist; 0
    for a topic without.
    """
    found = dict.fromkeys(partitioned, 0)
    for name in names:
        base, _, index = name.rpartition(PARTITION)
        if index.isdecimal() and base in found:
            found[base] += 1
        else:
            found.setdefault(name, 0)
    of_partitions = set(partitioned)
    return {
        name: max(count, 1) if name in of_partitions else 0 for name, count in sorted(found.items())
    }


_UNSET: Mapping[str, object] = {
    "deleted": False,
    "encryption_required": False,
    "is_allow_auto_update_schema": True,
    "migrated": False,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscription_auth_mode": "None",
}
"""What a new namespace has."""
_NO_POLICIES = ("bundles", "partitions")


def set_policies(policies: Mapping[str, object]) -> dict[str, object]:
    """The policies that are set: without those that are null, empty, or as in a new namespace."""
    return {
        name: value
        for name, value in sorted(policies.items())
        if name not in _NO_POLICIES and not is_empty(value) and _UNSET.get(name) != value
    }


def is_empty(value: object) -> bool:
    """Whether it is null, or has nothing but empty objects and lists; zero and false are values."""
    if isinstance(value, Mapping):
        return all(is_empty(each) for each in value.values())
    return value is None or value in ("", [])


VIEWS = (
    ("GET ", _overview),
    ("GET /tenants", _tenants),
    ("GET /tenants/{tenant}", _tenant),
    ("GET /namespaces/{tenant}/{namespace}", _namespace),
)
