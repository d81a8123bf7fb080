"""Which headers go on to the other side, and what is said beside them (spec PX-06; RFC 9110, 7.6;
Jetty's ProxyServlet, on which Apache's AdminProxyHandler stands). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from geminga_proxy.addresses import Address, BadAddress, parse_url
from geminga_proxy.http.client_side import RequestHead

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
OURS = frozenset({b"x-original-principal", b"x-forwarded-host", b"x-forwarded-proto",
                  b"x-forwarded-server", b"host", b"content-length"})  # fmt: skip
"""What a client says of these doesn't go on: the proxy says it."""

VIA = b"1.1 geminga-proxy"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE = frozenset({b"GET", b"HEAD"})


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the broker is told of who asks."""

    replaces: bool = False
    """Whether the client's Authorization stays here."""
    authorization: str | None = None
    """The proxy's own, in its place."""
    role: str | None = None
    """In whose name the proxy asks."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request came in."""

    address: str
    """The client's, without port."""
    scheme: str
    server: str
    """The proxy's name."""


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
    """Without those that are for one connection only, among them those that Connection names."""
    given = list(headers)
    named = {
        token.lower() for name, value in given if name == b"connection" for token in _tokens(value)
    }
    drop = HOP_BY_HOP | named
    return [(name, value) for name, value in given if name not in drop]


def has_authorization(request: RequestHead) -> bool:
    """Whether the client proves itself by a header that goes on: not one that Connection names."""
    return any(name == b"authorization" and value for name, value in end_to_end(request.headers))


def to_broker(
    request: RequestHead, origin: Origin, credentials: Credentials, *, upgrade: bool
) -> list[Header]:
    """A request's headers for the broker, but for Host, which names it."""
    kept = [(name, value) for name, value in end_to_end(request.headers) if name not in OURS]
    if credentials.replaces:
        hidden = (b"authorization", b"x-pulsar-auth-method-name")
        kept = [(name, value) for name, value in kept if name not in hidden]
    came_for = b", ".join(value for name, value in kept if name == b"x-forwarded-for")
    kept = [(name, value) for name, value in kept if name != b"x-forwarded-for"]
    address = origin.address.encode("ascii", "replace")
    kept += [
        (b"x-forwarded-for", came_for + b", " + address if came_for else address),
        (b"x-forwarded-proto", origin.scheme.encode()),
        (b"x-forwarded-server", origin.server.encode("ascii", "replace")),
        (b"via", VIA),
    ]
    if host := request.value(b"host"):
        kept.append((b"x-forwarded-host", host))
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
    """An answer's headers for the client, its Location replaced if another one is given."""
    given = list(headers)
    kept = end_to_end(given)
    if any(name == b"transfer-encoding" for name, _ in given):
        # A length beside chunks means nothing (RFC 9112, 6.3).
        kept = [(name, value) for name, value in kept if name != b"content-length"]
    if location is not None:
        kept = [(name, location if name == b"location" else value) for name, value in kept]
    return [*kept, (b"via", VIA)]


@dataclass(frozen=True, slots=True)
class Follow:
    """Ask that broker instead; the client hears nothing of it."""

    address: Address
    target: bytes


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Tell the client, with a place that leads back to the proxy."""

    location: bytes


def plan_redirect(
    request: RequestHead, status: int, location: bytes, *, scheme: str, can_repeat: bool
) -> Follow | Rewrite | None:
    """What to do about a broker's redirect; None: pass it on as it is.

    Brokers name one another, by addresses that clients of a proxy can't reach.
    """
    if status not in REDIRECTS or not location:
        return None
    try:
        text = location.decode("ascii")
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https"):
            return None
        address = parse_url(text)
    except (UnicodeDecodeError, ValueError, BadAddress):
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    keeps_method = status in (307, 308) or request.method in _SAFE
    if keeps_method and can_repeat and parts.scheme == scheme:
        return Follow(address, path.encode("ascii"))
    return Rewrite(path.encode("ascii"))


def _tokens(value: bytes) -> list[bytes]:
    return [token.strip() for token in value.split(b",") if token.strip()]
