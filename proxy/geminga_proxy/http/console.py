"""The broker's console behind a proxy that authenticates (spec OP-06): its login form is shown to
everyone, its other pages to those whose cookie has credentials that the proxy accepts. Pure.

Programs that send an Authorization header, and all other paths, are not concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlencode

from geminga_proxy.http.client_side import RequestHead
from geminga_proxy.http.headers import Header, Origin
from geminga_proxy.trust import HttpCredentials
from geminga_runtime.auth import console_login

PROTECTION: Sequence[Header] = (
    (b"content-security-policy", b"default-src 'none'; base-uri 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Of the proxy's own answers in place of pages: they load nothing, aren't framed or kept."""
NOBODY = HttpCredentials(replaces=True)
"""Of requests that nobody has authenticated: neither the proxy's credentials nor the client's."""


def _path(request: RequestHead) -> str:
    return request.target.partition(b"?")[0].decode("latin-1")


def is_open(request: RequestHead) -> bool:
    """Whether it is passed on without credentials: the login form and its looks, by their exact
    paths, so that a broker can't take them for others.
    """
    path = _path(request)
    is_plain = all(char.isalnum() or char in "/-_." for char in path) and path.isascii()
    if not is_plain or ".." in path:
        return False
    return console_login.is_open(request.method.decode("ascii", "replace"), path)


def protection(request: RequestHead) -> Sequence[Header]:
    """Headers for an answer of the proxy's own; none for what is no page of the console."""
    return PROTECTION if console_login.is_console(_path(request)) else ()


def to_login(request: RequestHead) -> bytes | None:
    """Where a browser without credentials is sent; None for what is no page of the console."""
    path = _path(request)
    if request.method not in (b"GET", b"HEAD") or not console_login.is_console(path):
        return None
    return f"{console_login.LOGIN}?{urlencode({'next': path})}".encode("ascii")


def credential(request: RequestHead) -> str | None:
    """The Authorization header that a page's cookie stands for."""
    if not console_login.is_console(_path(request)):
        return None
    return console_login.credential_in(request.value(b"cookie").decode("latin-1").replace(",", ";"))


def origin_of(request: RequestHead, origin: Origin) -> Origin:
    """With the host that the browser knows, unless the proxy is configured with one: the console
    compares it with the page that a form came from. Brokers of Apache have no such path.
    """
    if origin.host or not console_login.is_console(_path(request)):
        return origin
    return replace(origin, host=request.value(b"host").decode("latin-1"))
