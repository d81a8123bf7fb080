"""Authentication and authorization before every handler (spec PX-22, OP-03).

Routes are wrapped when the application is created, with the rules of `authz.routes`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import cast

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.http.audit import Audit, Handler
from geminga_broker.admin.http.methods import Methods, unknown
from geminga_broker.authz.authorizer import Caller, place_of
from geminga_broker.authz.grants import SubscriptionRefused
from geminga_broker.authz.needs import Need, Place, Scope
from geminga_broker.authz.refusals import refusal
from geminga_broker.authz.routes import need_of
from geminga_broker.service import BrokerService
from geminga_broker.web.settings import TLS_PEER_CERTIFICATE
from geminga_runtime.auth.api import AuthenticationFailed, HttpRequest, Identity, Peer
from geminga_runtime.logs import shown

_log = logging.getLogger(__name__)

ORIGINAL_PRINCIPAL = "x-original-principal"
ONCE = ("authorization", ORIGINAL_PRINCIPAL, "x-pulsar-auth-method-name")
"""Headers that must be unique: of two, a proxy may have checked the other one."""
SINGLE = ("tenant", "namespace")
"""Parts of a path that are a part of a record's path each; handlers check the names of others."""
_WITHOUT_DOMAIN = ("/admin/v2/schemas/", "/admin/v3/transactions/")
_DOMAINS = ("persistent", "non-persistent")


class InvalidRoles(rest.RestError):
    """A proxy names no valid original principal, or another client names one."""


def guard(service: BrokerService, routes: list[Route]) -> list[Route]:
    """The same routes, each guarded by its rule, and told in the log."""
    audit = Audit(rest.status_of)
    return [_guarded(service, route, audit) for route in routes]


def _guarded(service: BrokerService, route: Route, audit: Audit) -> Route:
    methods = sorted((route.methods or set()) - {"HEAD"})
    needs = {method: need_of(method, route.path) for method in methods}
    handler = cast(Handler, route.endpoint)
    if service.authenticator is not None:
        handler = partial(_admit, service, needs, handler)
    single = [name for name in SINGLE if f"{{{name}}}" in route.path]
    if single:
        handler = partial(_of_single_names, single, handler)
    return Route(route.path, partial(audit.told, route.path, handler), methods=methods)


async def _of_single_names(names: list[str], handler: Handler, request: Request) -> Response:
    """Before anything else is done with them: two names at once (`tenant%2Fnamespace`) would be the
    path of another kind of record, with other rights.
    """
    for name in names:
        if "/" in rest.parameter(request, name):
            raise rest.RestError(412, f"{name.capitalize()} name is not valid")
    return await handler(request)


async def _admit(
    service: BrokerService, needs: dict[str, Need], handler: Handler, request: Request
) -> Response:
    need = needs["GET" if request.method == "HEAD" else request.method]
    if need.scope is not Scope.PUBLIC or _is_guarded_metrics(service, request):
        try:
            _, caller = await identify(service, request, headers_of(request))
        except InvalidRoles as error:
            # As in Apache, the status is that of a missing right.
            status, _ = refusal(need, _place(need.scope, request), None, None)
            raise rest.RestError(status, error.reason) from None
        request.state.caller = caller
        await _check(service, need, _place(need.scope, request), caller)
    return await handler(request)


async def require(service: BrokerService, request: Request, need: Need, place: Place) -> None:
    """Authorize a call with a resource in its body. Raises RestError."""
    caller = getattr(request.state, "caller", None)
    if service.authenticator is not None:
        await _check(service, need, place, cast(Caller, caller))


def unknown_to(
    service: BrokerService, methods: Methods
) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The handler of unknown paths, of methods that a path lacks, and of OPTIONS; unauthenticated
    clients get 401, and can't probe for paths.
    """

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = str(request.scope["path"])
        if service.authenticator is not None and path.startswith(_GUARDED):
            try:
                await identify(service, request, headers_of(request))
            except rest.RestError as refused:
                return await rest.on_rest_error(request, refused)
        return unknown(request, methods.of(path))

    return answer


_GUARDED = ("/admin", "/lookup", "/topics")


def _is_guarded_metrics(service: BrokerService, request: Request) -> bool:
    settings = service.authorizer.settings
    return settings.authenticate_metrics and str(request.scope["path"]).startswith("/metrics")


def headers_of(request: HTTPConnection) -> dict[str, str]:
    """The headers, the first of each name. (`dict` would look for each among all.)"""
    found: dict[str, str] = {}
    for name, value in request.headers.raw:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


async def identify(
    service: BrokerService, request: HTTPConnection, headers: Mapping[str, str]
) -> tuple[Identity, Caller]:
    """Authenticate a request by its headers (names in lower case) and its certificate; returns the
    identity and, behind a proxy, the original principal too. Raises RestError 401 (400 for a
    repeated header), InvalidRoles for an invalid original principal.
    """
    assert service.authenticator is not None
    for name in ONCE:
        if len(request.headers.getlist(name)) > 1:
            raise rest.RestError(400, f"More than one header {name}")
    certificate = cast(bytes | None, request.scope.get(TLS_PEER_CERTIFICATE))
    client = request.client
    address = f"{client.host}:{client.port}" if client else ""
    peer = Peer(address, certificate)
    try:
        identity = await service.authenticator.authenticate_http(HttpRequest(headers, peer))
    except AuthenticationFailed as error:
        path = shown(request.scope["path"])
        _log.warning("address=%s %s authentication failed: %s", address, path, error)
        raise rest.RestError(401, "Authentication required") from None
    original = headers.get(ORIGINAL_PRINCIPAL) or None
    authorizer = service.authorizer
    if authorizer.enabled and not authorizer.original_is_valid(identity.role, original, http=True):
        _log.warning(
            "address=%s role=%s original=%r", address, identity.role, shown(original or "")
        )
        raise InvalidRoles(401, "Invalid roles.")
    return identity, Caller(identity.role, original)


async def _check(service: BrokerService, need: Need, place: Place, caller: Caller) -> None:
    """Raises RestError with Apache's text."""
    if need.scope is Scope.BROKER:
        place = place._replace(name=service.addresses.broker_id)
    try:
        allowed = await service.authorizer.allows(caller, need, place)
    except SubscriptionRefused as error:
        raise rest.RestError(401, str(error)) from None
    if not allowed:
        status, reason = refusal(need, place, caller.role, caller.original)
        _log.warning("%s: %s", caller, shown(reason))
        raise rest.RestError(status, reason)


def _place(scope: Scope, request: Request) -> Place:
    """The place in the path."""
    parts = request.path_params
    if "topic" in parts and scope in (Scope.TOPIC, Scope.TOPIC_POLICY):
        topic = rest.topic_of(request, _domain(request))
        subscription = rest.subscription_of(request) if "subscription" in parts else ""
        return place_of(topic, subscription)
    for part in ("tenant", "namespace", "cluster"):
        # Otherwise a handler might split the name at another place than this rule.
        if part in parts and "/" in rest.parameter(request, part):
            raise rest.RestError(412, f"{part.capitalize()} name is not valid")
    tenant = rest.parameter(request, "tenant") if "tenant" in parts else ""
    namespace = rest.namespace_of(request) if "namespace" in parts else ""
    name = rest.parameter(request, "cluster") if "cluster" in parts else ""
    return Place(tenant, namespace, name=name)


def _domain(request: Request) -> str:
    """The domain in a topic's path: a parameter, or a fixed part."""
    if "domain" in request.path_params:
        return rest.parameter(request, "domain")
    if str(request.scope["path"]).startswith(_WITHOUT_DOMAIN):
        return "persistent"
    # The first one: a tenant may be called "persistent" too.
    return next(part for part in str(request.scope["path"]).split("/") if part in _DOMAINS)
