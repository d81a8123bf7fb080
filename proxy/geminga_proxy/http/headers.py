"""Which headers are passed on, and which the proxy adds (spec PX-06; RFC 9110, 7.6; Jetty's
ProxyServlet, the base of Apache's AdminProxyHandler). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from geminga_proxy.addresses import Address, BadAddress, parse_url
from geminga_proxy.http.client_side import RequestHead
from geminga_proxy.trust import HttpCredentials
from geminga_runtime.logs import shown

Header = tuple[bytes, bytes]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
FORWARDED_FOR = b"x-forwarded-for"
PROXY_ONLY = frozenset({b"x-original-principal", b"host", b"content-length", b"forwarded",
                        b"x-real-ip", b"x-proxied-https", b"proxy-auth-cert",
                        b"proxy-ssl-id"})  # fmt: skip
"""Headers that clients may not set, beside `X-Forwarded-…`: brokers that trust their proxy (Jetty's
ForwardedRequestCustomizer) would take the client's value for the proxy's.
"""

VIA = b"1.1 geminga-proxy"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE = frozenset({b"GET", b"HEAD"})


@dataclass(frozen=True, slots=True)
class Origin:
    """How a request reached the proxy."""

    address: str
    """The client's IP address."""
    scheme: str
    server: str
    """The proxy's name."""
    host: str = ""
    """The proxy's configured host and port, or empty."""
    trusts_forwarded_for: bool = False
    """Whether the peer is another proxy, whose `X-Forwarded-For` is trusted."""


def is_websocket(request: RequestHead) -> bool:
    """Whether the client asks to upgrade to WebSocket (RFC 6455, 4.1)."""
    wants = {token.lower() for token in _tokens(request.value(b"connection"))}
    protocols = {token.lower() for token in _tokens(request.value(b"upgrade"))}
    return (
        request.method == b"GET"
        and request.version == b"1.1"
        and not request.has_body
        and b"upgrade" in wants
        and protocols == {b"websocket"}
    )


def end_to_end(headers: Iterable[Header]) -> list[Header]:
    """All headers but those for one connection: HOP_BY_HOP, and those that Connection names."""
    given = list(headers)
    named = {
        token.lower() for name, value in given if name == b"connection" for token in _tokens(value)
    }
    drop = HOP_BY_HOP | named
    return [(name, value) for name, value in given if name not in drop]


def has_authorization(request: RequestHead) -> bool:
    """Whether the request has an Authorization header that Connection doesn't name."""
    return any(name == b"authorization" and value for name, value in end_to_end(request.headers))


def to_broker(
    request: RequestHead, origin: Origin, credentials: HttpCredentials, *, upgrade: bool
) -> list[Header]:
    """A request's headers for the broker, without Host."""
    given = end_to_end(request.headers)
    kept = [
        (name, value)
        for name, value in given
        if name not in PROXY_ONLY and not name.startswith(b"x-forwarded-")
    ]
    if credentials.replaces:
        hidden = (b"authorization", b"x-pulsar-auth-method-name")
        kept = [(name, value) for name, value in kept if name not in hidden]
    came_for = [origin.address.encode("ascii", "replace")]
    if origin.trusts_forwarded_for:
        came_for = [value for name, value in given if name == FORWARDED_FOR] + came_for
    kept += [
        (FORWARDED_FOR, b", ".join(came_for)),
        (b"x-forwarded-proto", origin.scheme.encode()),
        (b"x-forwarded-server", origin.server.encode("ascii", "replace")),
        (b"via", VIA),
    ]
    if origin.host:
        # Not the client's Host: brokers may build redirects from this header.
        kept.append((b"x-forwarded-host", origin.host.encode("ascii", "replace")))
    if credentials.authorization is not None:
        kept.append((b"authorization", credentials.authorization.encode("latin-1")))
    if credentials.role is not None:
        kept.append((b"x-original-principal", credentials.role.encode()))
    if request.has_body and request.length is None:
        kept.append((b"transfer-encoding", b"chunked"))
    elif request.length is not None:
        kept.append((b"content-length", str(request.length).encode()))
    if upgrade:
        kept += [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]
    return kept


def to_client(headers: Iterable[Header], *, location: bytes | None = None) -> list[Header]:
    """A response's headers for the client; `location` replaces its Location."""
    given = list(headers)
    kept = end_to_end(given)
    if any(name == b"transfer-encoding" for name, _ in given):
        # With chunks, a length is meaningless (RFC 9112, 6.3).
        kept = [(name, value) for name, value in kept if name != b"content-length"]
    if location is not None:
        kept = [(name, location if name == b"location" else value) for name, value in kept]
    return [*kept, (b"via", VIA)]


@dataclass(frozen=True, slots=True)
class Follow:
    """Send the request to that broker; the client doesn't see the redirect."""

    address: Address
    target: bytes


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Pass the redirect to the client, with a Location at the proxy."""

    location: bytes


@dataclass(frozen=True, slots=True)
class RefuseRedirect:
    """The redirect does not lead to a known broker: it is neither followed nor passed on."""

    location: str


@dataclass(frozen=True, slots=True)
class RedirectRules:
    """Where redirects may lead."""

    scheme: str
    """The scheme of requests to brokers."""
    is_broker: Callable[[Address], bool]
    own_host: str = ""
    """The proxy's name in URLs."""


def plan_redirect(
    request: RequestHead,
    status: int,
    location: bytes,
    rules: RedirectRules,
    *,
    can_repeat: bool,
) -> Follow | Rewrite | RefuseRedirect | None:
    """Decide on a broker's redirect; None to pass it on unchanged.

    Brokers redirect to one another, by addresses that the proxy's clients can't reach. An address
    that is not a known broker's gets no credentials, neither the proxy's nor the client's: a broker
    may have built it from the client's request.
    """
    if status not in REDIRECTS or not location:
        return None
    refused = RefuseRedirect(shown(location.decode("latin-1")))
    if location.startswith(b"/") and not location.startswith((b"//", b"/\\")):
        return None
    try:
        text = location.decode("ascii")
        parts = urlsplit(text, rules.scheme)
        address = parse_url(parts.geturl())
    except (UnicodeDecodeError, ValueError, BadAddress):
        return refused
    path = "/" + parts.path.lstrip("/\\") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return refused
    is_broker = rules.is_broker(address)
    if not is_broker and address.host != rules.own_host:
        return refused
    keeps_method = status in (307, 308) or request.method in _SAFE
    if is_broker and keeps_method and can_repeat and parts.scheme == rules.scheme:
        return Follow(address, path.encode("ascii"))
    return Rewrite(path.encode("ascii"))


def _tokens(value: bytes) -> list[bytes]:
    return [token.strip() for token in value.split(b",") if token.strip()]
