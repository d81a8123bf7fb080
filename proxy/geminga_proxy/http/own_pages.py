"""Pages that the proxy answers itself: its state, metrics and statistics (spec PX-06, PX-07)."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from geminga_proxy.http.client_side import RequestHead
from geminga_proxy.http.errors import HttpError
from geminga_proxy.http.web import Web
from geminga_proxy.metrics import METRICS_TYPE
from geminga_proxy.service import ProxyService
from geminga_runtime.auth.api import Identity
from geminga_runtime.logs import shown

_log = logging.getLogger(__name__)

JSON = b"application/json"
NO_CONTENT = 204
STATS = b"proxy-stats"
_NUMBER = re.compile(rb"[+-]?[0-9]{1,9}")

Identify = Callable[[RequestHead], Awaitable[Identity | None]]


class Page(NamedTuple):
    """An answer."""

    status: int
    body: bytes = b""
    kind: bytes = JSON


async def own_page(request: RequestHead, web: Web, identify: Identify) -> Page | None:
    """None for a request that is not for the proxy. Raises HttpError."""
    path = request.target.partition(b"?")[0]
    if path == b"/status.html":
        return _status(web.config.web.status_file)
    if path in (b"/metrics", b"/metrics/"):
        if web.config.web.authenticate_metrics:
            await identify(request)
        text = web.service.metrics.text(web.service.authenticator, web.requests)
        return Page(200, text.encode(), METRICS_TYPE)
    first, *rest = path.removeprefix(b"/").split(b"/")
    if first == STATS:
        identity = await identify(request)
        if not web.config.web.has_stats:
            raise HttpError(404, "Not found")
        names = [part for part in rest if part]
        _check_route(request.method, names)
        _check_super_user(web, identity, path)
        return _stats(names, web.service)
    return None


def _status(file: str) -> Page:
    """Tell load balancers whether to send clients here (Apache's VipStatus)."""
    if file and not Path(file).exists():
        raise HttpError(404, "The status file is not there")
    return Page(200, b"OK", b"text/plain")


def _check_super_user(web: Web, identity: Identity | None, path: bytes) -> None:
    """Raises HttpError 401, as Apache's, for a role that is not named in superUserRoles."""
    settings = web.config.web
    role = identity.role if identity else ""
    if settings.needs_super_user and role not in settings.super_users:
        asked = shown(path.decode("latin-1"))
        _log.warning("role %s is not in superUserRoles: %s refused", shown(role), asked)
        raise HttpError(401, "Client is not authorized to perform operation")


def _check_route(method: bytes, names: list[bytes]) -> None:
    """Raises HttpError 404, 405: before rights are asked for, as Apache's."""
    match names:
        case [b"connections" | b"topics" | b"logging"]:
            _check(method, b"GET", b"HEAD")
        case [b"logging", level] if _NUMBER.fullmatch(level):
            _check(method, b"POST")
        case _:
            raise HttpError(404, "Not found")


def _stats(names: list[bytes], service: ProxyService) -> Page:
    """Apache's class ProxyStats. Raises HttpError 412."""
    match names:
        case [b"connections"]:
            return Page(200, msgspec.json.encode(service.traffic.connections()))
        case [b"topics"]:
            if service.log_level < 2:
                raise HttpError(412, "Proxy doesn't have logging level 2")
            return Page(200, msgspec.json.encode(service.traffic.topics()))
        case [_]:
            return Page(200, b"%d" % service.log_level)
        case [*_, level]:
            if not 0 <= int(level) <= 2:
                raise HttpError(412, "Proxy log level can be only [0-2]")
            service.log_level = int(level)
            _log.warning("proxyLogLevel is %d until the proxy starts anew", service.log_level)
    return Page(NO_CONTENT)


def _check(method: bytes, *allowed: bytes) -> None:
    """Raises HttpError 405."""
    if method not in allowed:
        raise HttpError(405, "Method not allowed", ((b"allow", b", ".join(allowed)),))
