"""Whose a call is: topics and bundles of other brokers are redirected to their owners (spec CL-05;
Apache's PulsarWebResource: validateTopicOwnership, validateNamespaceBundleOwnership).

Who asks for a bundle without an owner makes one: as with a lookup, the leader says who, and a
redirect by the leader is authoritative, so that it doesn't lead in a circle.
"""

from __future__ import annotations

from starlette.requests import Request

from geminga_broker.admin import rest
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.namespaces import Bundles
from geminga_broker.cluster.records import ResourceMissing
from geminga_broker.errors import BrokerError
from geminga_broker.ownership.bundle import BundleId, range_text
from geminga_broker.ownership.finder import Located
from geminga_broker.service import BrokerService
from geminga_protocol.topic_name import TopicName

AUTHORITATIVE = "authoritative"


async def require_topic_owner(service: BrokerService, request: Request, name: TopicName) -> None:
    """Raises Redirect unless this broker owns the topic's bundle, or does from now on; RestError
    412 if nobody can own it. A topic of a missing namespace is left to the handler.
    """
    try:
        bundle = await service.namespaces.bundle_of(name)
    except ResourceMissing:
        return
    if service.ownership.holds(bundle):
        return
    try:
        authoritative = rest.flag(request, AUTHORITATIVE)
        found = await service.finder.find(
            bundle, authoritative=authoritative, non_persistent=not name.is_persistent
        )
    except BrokerError:
        raise rest.RestError(412, f"Can't find owner for topic {name}") from None
    if found is None:
        raise rest.RestError(412, f"Failed to find ownership for topic:{name}")
    _require_here(service, request, bundle, found)


async def require_bundle_owner(
    service: BrokerService, request: Request, bundle: BundleId, *, read_only: bool
) -> None:
    """The same for a bundle; `read_only` makes no owner: without one the answer is 412."""
    if service.ownership.holds(bundle):
        return
    try:
        authoritative = rest.flag(request, AUTHORITATIVE)
        found = await service.finder.find(bundle, authoritative=authoritative, read_only=read_only)
    except BrokerError:
        text = f"ServiceUnit bundle is actived. ServiceUnit {bundle}"
        raise rest.RestError(412, text) from None
    if found is None:
        raise rest.RestError(412, f"Failed to find ownership for ServiceUnit:{bundle}")
    _require_here(service, request, bundle, found)


def _require_here(
    service: BrokerService, request: Request, bundle: BundleId, found: Located
) -> None:
    if service.ownership.holds(bundle):
        return
    if found.addresses.broker_id == service.addresses.broker_id:
        # It was ours a moment ago: to send the client to ourselves would be a circle.
        raise rest.RestError(503, f"Bundle {bundle} is changing its owner")
    # Whom the leader sends to decides without asking again.
    final = found.authoritative if found.redirect else service.election.is_leader
    raise redirect(request, found.addresses, authoritative=final)


def redirect(
    request: Request, addresses: Addresses, *, authoritative: bool | None = None
) -> rest.Redirect:
    """To the same path and query at another broker; by https if the request came by it, never
    without: the client would send its credentials there for all to read. Raises RestError 412 if
    the broker has no such web service.
    """
    plain, secure = addresses.web_url, addresses.web_url_tls
    base = secure if request.scope["scheme"] == "https" else plain or secure
    if not base:
        raise rest.RestError(412, "Redirected broker's service url is not configured.")
    query = request.scope["query_string"].decode("latin-1")
    parts = [part for part in query.split("&") if part]
    if authoritative is not None:
        parts = [part for part in parts if part.partition("=")[0] != AUTHORITATIVE]
        parts.append(f"{AUTHORITATIVE}={str(authoritative).lower()}")
    # The path as it was sent: names keep their escapes.
    location = base + str(request.scope["path"])
    return rest.Redirect(f"{location}?{'&'.join(parts)}" if parts else location)


async def bundle_named(service: BrokerService, namespace: str, text: str) -> BundleId:
    """An existing bundle by its range. Raises RestError 404 (no such namespace), 412."""
    return checked_bundle(namespace, await bundles_of(service, namespace), text)


async def bundles_of(service: BrokerService, namespace: str) -> Bundles:
    """The bundles of a namespace, also of one that is being deleted. Raises RestError 404."""
    if not await service.namespaces.tenants.exists(namespace):
        raise rest.RestError(404, "Namespace does not exist")
    try:
        return await service.namespaces.bundles(namespace)
    except ResourceMissing:
        raise rest.RestError(404, "Namespace does not exist") from None


def checked_bundle(namespace: str, bundles: Bundles, text: str) -> BundleId:
    """The bundle of that range, which may be written in any way that Java's `Long.decode` reads.
    Raises RestError 412 with Apache's texts.
    """
    low_text, underscore, high_text = text.partition("_")
    if not underscore:
        raise rest.RestError(412, f"Invalid bundle range: {text}")
    try:
        low, high = int(low_text, 0), int(high_text, 0)
    except ValueError:
        raise rest.RestError(412, f"Invalid bundle range: {text}") from None
    asked = f"{namespace}/{low:#010x}_{high:#010x}"
    lows = bundles.boundaries[:-1]
    if low not in lows:
        raise rest.RestError(412, f"Cannot find bundle {asked} in the bundles list")
    expected = bundles.boundaries[lows.index(low) + 1]
    found = BundleId(namespace, range_text(low, expected))
    if high != expected:
        text = f"Invalid upper boundary for bundle {asked}. Expected upper boundary of {found}"
        raise rest.RestError(412, text)
    return found
