"""Which broker answers a call of a bundle's path: one table (spec CL-10, CL-11; Apache's
NamespacesBase, validateNamespaceBundleOwnership).

The bundle in the path is checked, and found, before the handler is called.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import NamedTuple, cast
from urllib.parse import quote

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.owners import (
    bundle_named,
    bundles_of,
    redirect,
    require_bundle_owner,
)
from geminga_broker.admin.peers import REDIRECTS, PeerUnreachable
from geminga_broker.loadbalance.model import bundle_data_path, decode_bundle_data
from geminga_broker.ownership.bundle import NAMES_A_TURN, BundleId
from geminga_broker.ownership.records import OwnerRecord
from geminga_broker.service import BrokerService

_log = logging.getLogger(__name__)


class BundleRule(NamedTuple):
    """Its owner answers; others redirect to it."""

    acquires: bool = False
    """A bundle without an owner gets one; otherwise that is an error, or..."""
    done_if_unowned: bool = False
    """...there is nothing to do: 204."""
    no_namespace: str = "Namespace does not exist"
    may_be_chosen: bool = False
    """LARGEST or HOT may stand in place of a range."""
    moves: bool = False
    """Its next owner may be named, see `_prepare_move`."""


_NAMESPACES = "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}"
_NOT_FOUND = "Namespace not found"

BUNDLES: dict[str, BundleRule] = {
    f"DELETE {_NAMESPACES}": BundleRule(),
    f"PUT {_NAMESPACES}/unload": BundleRule(
        done_if_unowned=True, no_namespace=_NOT_FOUND, moves=True
    ),
    f"PUT {_NAMESPACES}/split": BundleRule(
        acquires=True, no_namespace=_NOT_FOUND, may_be_chosen=True
    ),
    f"GET {_NAMESPACES}/topicHashPositions": BundleRule(),
    f"POST {_NAMESPACES}/clearBacklog": BundleRule(),
    f"POST {_NAMESPACES}/clearBacklog/{{subscription}}": BundleRule(),
    f"POST {_NAMESPACES}/unsubscribe/{{subscription}}": BundleRule(),
    "GET /admin/v2/non-persistent/{tenant}/{namespace}/{bundle}": BundleRule(done_if_unowned=True),
}
"""By method and path."""

OF_ANY_BROKER = frozenset(
    f"{method} /admin/v2/resource-quotas/{{tenant}}/{{namespace}}/{{bundle}}"
    for method in ("GET", "POST", "DELETE")
)
"""Routes with a bundle whose record any broker reads or writes."""


def bundle_in(request: Request) -> BundleId:
    """The bundle of a path in the table."""
    return cast(BundleId, request.state.bundle)


def at_bundle_owner(service: BrokerService, rule: BundleRule, route: Route) -> Route:
    """The same route, answered by the bundle's owner."""
    handler = cast(rest.Handler, route.endpoint)
    endpoint = partial(_at_owner, service, rule, handler)
    return Route(route.path, endpoint, methods=sorted((route.methods or set()) - {"HEAD"}))


async def _at_owner(
    service: BrokerService, rule: BundleRule, handler: rest.Handler, request: Request
) -> Response:
    namespace = rest.namespace_of(request)
    if not await service.namespaces.tenants.exists(namespace):
        raise rest.RestError(404, rule.no_namespace)
    if rule.moves:
        await _require_active(service, destination_of(request))
    text = rest.parameter(request, "bundle")
    choose = _CHOICES.get(text) if rule.may_be_chosen else None
    if choose is None:
        bundle = await bundle_named(service, namespace, text)
    elif (chosen := await choose(service, namespace)) is not None:
        bundle = chosen
    else:
        raise rest.RestError(404, f"Bundle range {text} not found")
    owner = await service.ownership.owner(bundle) if rule.done_if_unowned else None
    if rule.moves:
        await _prepare_move(service, request, bundle, owner)
    if rule.done_if_unowned and owner is None:
        return rest.no_content()
    await require_bundle_owner(service, request, bundle, read_only=not rule.acquires)
    request.state.bundle = bundle
    return await handler(request)


async def _largest(service: BrokerService, namespace: str) -> BundleId | None:
    """The bundle with most stored topics; None without topics."""
    bundles = await bundles_of(service, namespace)
    names = await service.catalog.persistent(namespace)
    counts: Counter[str] = Counter()
    for at in range(0, len(names), NAMES_A_TURN):
        counts.update(map(bundles.of_topic, names[at : at + NAMES_A_TURN]))
        await trio.lowlevel.checkpoint()
    return BundleId(namespace, counts.most_common(1)[0][0]) if counts else None


async def _hottest(service: BrokerService, namespace: str) -> BundleId | None:
    """The bundle with most bytes a second, by the load manager's averages; None if it knows of no
    topics.
    """
    found: tuple[float, BundleId] | None = None
    for name in (await bundles_of(service, namespace)).names():
        bundle = BundleId(namespace, name)
        node = await service.store.get(bundle_data_path(str(bundle)))
        try:
            data = None if node is None else decode_bundle_data(node.value)
        except ValueError:
            continue
        if data is not None and data.topics > 0:
            throughput = data.long_term_data.throughput
            if found is None or throughput > found[0]:
                found = throughput, bundle
    return None if found is None else found[1]


_CHOICES = {"LARGEST": _largest, "HOT": _hottest}

DESTINATION = "destinationBroker"
LEADER_TOLD_S = 5.0
"""How long the leader may take: without it the bundle may go elsewhere, with its clients."""


def destination_of(request: Request) -> str:
    """The id of the broker that a bundle is unloaded for; empty for any."""
    text = request.query_params.get(DESTINATION, "").strip()
    return text.removeprefix("http://").removeprefix("https://")


async def _require_active(service: BrokerService, destination: str) -> None:
    if destination and not await service.brokers.is_active(destination):
        text = "Not allowed unload namespace bundle to inactive destination broker"
        raise rest.RestError(409, text)


async def _tell_leader(service: BrokerService, bundle: BundleId, destination: str) -> None:
    """Have the leader remember where the bundle goes: it answers the lookups that come before the
    next owner has it. Apache's does as ours: it remembers that, and then sends the call on to here.
    """
    leader = None if service.election.is_leader else await service.election.leader()
    if leader is None:
        return
    path = f"/admin/v2/namespaces/{bundle.namespace}/{bundle.range}/unload"
    try:
        answer = await service.peers.call(
            leader.broker_id,
            "PUT",
            f"{path}?{DESTINATION}={quote(destination)}",
            timeout_s=LEADER_TOLD_S,
            follow=False,
        )
    except PeerUnreachable as error:
        told = str(error)
    else:
        if answer.status in REDIRECTS or answer.status == 204:
            return
        told = answer.reason
    _log.warning("bundle=%s may not go to broker %s: %s", bundle, destination, told)


async def _prepare_move(
    service: BrokerService, request: Request, bundle: BundleId, owner: OwnerRecord | None
) -> None:
    """Before a bundle with a named next owner is unloaded. Raises RestError, Redirect.

    Our brokers hand it over themselves. For Apache's the leader remembers where it goes, as in
    Apache, and sends the call on without the name: otherwise the owner would send it back.
    """
    destination = destination_of(request)
    if not destination:
        return
    if service.election.is_leader and owner is not None:
        service.load_manager.prefer(bundle, destination)
    if owner is None:
        return
    if service.ownership.holds(bundle):
        await _tell_leader(service, bundle, destination)
        return
    record = await service.brokers.record(owner.addresses.broker_id)
    if record is not None and (record.broker_version_string or "").startswith("Geminga"):
        return
    if service.election.is_leader:
        query = request.scope["query_string"].decode("latin-1")
        kept = [part for part in query.split("&") if part.partition("=")[0] != DESTINATION]
        request.scope["query_string"] = "&".join(kept).encode("latin-1")
        return
    leader = await service.election.leader()
    found = None if leader is None else await service.brokers.record(leader.broker_id)
    if found is None:
        raise rest.RestError(412, "The current leader is empty.")
    raise redirect(request, found.addresses, authoritative=False)
