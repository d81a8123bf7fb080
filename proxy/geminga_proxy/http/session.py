"""One client's HTTP connection: each request is authenticated, then passed on (spec PX-06)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
import trio

from geminga_proxy.addresses import Address
from geminga_proxy.config import ProxyConfig
from geminga_proxy.http import console
from geminga_proxy.http.client_side import ClientSide, Event, Gone, RequestHead
from geminga_proxy.http.errors import BadRequest, ExchangeBroken, HttpError
from geminga_proxy.http.exchange import Exchange, Outbound, RequestBody
from geminga_proxy.http.headers import (
    Header,
    Origin,
    has_authorization,
    is_websocket,
    to_broker,
)
from geminga_proxy.http.own_pages import JSON, NO_CONTENT, own_page
from geminga_proxy.http.web import Web
from geminga_proxy.http.wire import Wire
from geminga_proxy.relay import Tunnel, relay
from geminga_proxy.trust import HttpCredentials
from geminga_runtime.auth.api import AuthenticationFailed, HttpRequest, Identity, Peer
from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)
_access = logging.getLogger("geminga_proxy.access")

HEAD_S = 30.0
"""Time for a request's head from its first byte on."""
BODY_S = 30.0
"""Time for a body, beside a second for each `BODY_BYTES_PER_S`."""
BODY_BYTES_PER_S = 1024
IDLE_S = 60.0
"""Time without a request after which a connection is closed."""
WEBSOCKET_PATIENCE_S = 60.0
"""Time for a side of a WebSocket to take more bytes, and to end after the other side."""
LAST_ANSWER_S = 1.0
BEFORE_ANSWER_S = 0.1
"""Time for an unwanted body before the response; if it isn't whole, the connection ends."""
STASH_BYTES_MAX = 64 * 1024
WEBSOCKETS = b"/ws/"
METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH")
"""Not TRACE: a broker would answer it with the proxy's own credentials."""
NOT_PASSED_ON = frozenset({b"metrics", b"proxy-stats", b"status.html"})
"""The proxy has its own; those of brokers need no authentication."""
_DOTS = (b".", b"..")


class HttpSession:
    """A client's connection; `secure`: by TLS."""

    def __init__(self, framed: FramedStream, wire: Wire, web: Web, *, secure: bool) -> None:
        self._wire = wire
        self._web = web
        self._service = web.service
        self._client = ClientSide(web.config.web.head_bytes_max)
        self._peer = Peer(wire.name, framed.peer_certificate)
        self._body_waited_s = 0.0
        self._body_bytes = 0
        self._origin = _origin(wire.name, web.config, secure=secure)

    async def run(self) -> None:
        """Serve until the connection ends, from either side. The caller closes the stream."""
        try:
            while (request := await self._next_request()) is not None:
                await self._serve(request)
                if self._client.finish_body():
                    await self._linger()
                if not self._client.can_go_on or self._web.is_draining:
                    return
                self._client.go_on()
        except BadRequest as error:
            _log.warning("address=%s %s", self._wire.name, error)
            await self._refuse(error)
        except ExchangeBroken:
            return

    async def _next_request(self) -> RequestHead | None:
        """None at the end of the connection. Raises BadRequest."""
        scope = trio.CancelScope(deadline=trio.current_time() + IDLE_S)
        with scope:
            while True:
                event = self._client.next_event()
                if isinstance(event, RequestHead):
                    return event
                if isinstance(event, Gone):
                    return None
                if self._client.has_begun():
                    self._client.feed(await self._wire.receive())
                    continue
                # A drain may end the connection only between requests.
                with self._web.idle(scope):
                    self._client.feed(await self._wire.receive())
                if self._client.has_begun():
                    scope.deadline = trio.current_time() + HEAD_S
        if self._client.has_begun():
            raise BadRequest("The request did not come in time", 408)
        return None

    async def _next_event(self) -> Event:
        """The next event of the body. Raises BadRequest, ConnectionLost."""
        while (event := self._client.next_event()) is None:
            self._client.feed(await self._receive_body())
            if self._client.stashed_bytes > STASH_BYTES_MAX:
                raise BadRequest("Too many requests wait for answers")
        return event

    async def _receive_body(self) -> bytes:
        """Raises BadRequest if the client is slower than `BODY_S` and `BODY_BYTES_PER_S` allow,
        ConnectionLost. Time in which the proxy doesn't read isn't counted.
        """
        began_s = trio.current_time()
        left_s = BODY_S + self._body_bytes / BODY_BYTES_PER_S - self._body_waited_s
        if self._client.waits_for_continue:
            left_s = float("inf")  # the client waits for the broker's 100
        with trio.move_on_after(max(0.0, left_s)):
            data = await self._wire.receive()
            if left_s < float("inf"):
                self._body_waited_s += trio.current_time() - began_s
            self._body_bytes += len(data)
            return data
        raise BadRequest("The request's body comes too slowly", 408)

    async def _serve(self, request: RequestHead) -> None:
        """Raises BadRequest, ConnectionLost, ExchangeBroken."""
        status = 0
        self._body_waited_s, self._body_bytes = 0.0, 0
        try:
            status = await self._answer(request)
        except BadRequest:
            raise
        except HttpError as error:
            status = error.status
            if self._client.answered:
                raise ExchangeBroken(str(error)) from error
            headers = (*error.headers, *console.protection(request))
            await self._say(error.status, _reason(error.reason), headers=headers)
        finally:
            self._web.requests += 1
            if self._service.log_level > 0:
                path = request.target.partition(b"?")[0].decode("latin-1")
                method = request.method.decode("ascii", "replace")
                _access.info("%s %s %s %s", self._wire.name, method, path, status or "passed on")

    async def _answer(self, request: RequestHead) -> int:
        """The status; 0 for a request that was passed on."""
        if request.method == b"CONNECT":
            raise BadRequest("This is no forward proxy")
        _check_method(request.method)
        if (page := await own_page(request, self._web, self._identify)) is not None:
            await self._say(page.status, page.body, page.kind)
            return page.status
        if console.is_open(request):
            # The login: what it is given is checked by the broker, and with the next request here.
            await self._pass_on(request, None, console.NOBODY)
            return 0
        try:
            identity = await self._identify(request)
        except HttpError:
            if (location := console.to_login(request)) is None:
                raise
            raise HttpError(303, "Log in", headers=((b"location", location),)) from None
        _check_path(request.target.partition(b"?")[0])
        await self._pass_on(request, identity)
        return 0

    async def _identify(self, request: RequestHead) -> Identity | None:
        """None without authentication. Raises HttpError 401."""
        authenticator = self._service.authenticator
        if authenticator is None:
            return None
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers
        }
        token = _token(request.target)
        if token:
            headers["authorization"] = f"Bearer {token}"
        elif "authorization" not in headers and (kept := console.credential(request)):
            headers["authorization"] = kept
        try:
            return await authenticator.authenticate_http(HttpRequest(headers, self._peer))
        except AuthenticationFailed as error:
            _log.warning("address=%s authentication failed: %s", self._wire.name, error)
            raise HttpError(401, "Authentication required") from None

    async def _pass_on(
        self,
        request: RequestHead,
        identity: Identity | None,
        credentials: HttpCredentials | None = None,
    ) -> None:
        """`credentials` stands for those that the identity has."""
        upgrade = request.target.startswith(WEBSOCKETS) and is_websocket(request)
        shows_none = upgrade or credentials is not None
        credentials = credentials or self._credentials(request, identity, upgrade=upgrade)
        target = request.target
        origin = console.origin_of(request, self._origin)
        headers = to_broker(request, origin, credentials, upgrade=upgrade)
        timeout_s = self._web.config.brokers.http_timeout_ms / 1000
        outbound = Outbound(request, target, headers, timeout_s)
        body = RequestBody(
            self._next_event,
            self._service.kept,
            has_body=request.has_body,
            kept_bytes_max=self._web.config.web.replay_bytes_max,
        )
        upstreams = self._web.without_certificate if shows_none else self._web.upstreams
        exchange = Exchange(self._client, self._wire, upstreams, outbound)
        try:
            if upgrade:
                who = identity.role if identity else self._origin.address
                with self._web.one_more_websocket(who):
                    await self._exchange(exchange, body, identity)
            else:
                await self._exchange(exchange, body, identity)
        finally:
            body.release()
            if exchange.upgraded is not None:
                with trio.CancelScope(shield=True):
                    await exchange.upgraded.wire.aclose()

    async def _exchange(
        self, exchange: Exchange, body: RequestBody, identity: Identity | None
    ) -> None:
        await exchange.run(body)
        if exchange.upgraded is not None:
            await self._tunnel(exchange, identity)

    def _credentials(
        self, request: RequestHead, identity: Identity | None, *, upgrade: bool
    ) -> HttpCredentials:
        """The credentials for the broker. Raises HttpError 403."""
        policy = self._service.brokers.credentials
        has_own = has_authorization(request) or bool(_token(request.target))
        has_own = has_own or console.credential(request) is not None
        if not upgrade:
            return policy.for_request(identity, has_own=has_own)
        shows_certificate = self._web.upstreams.shows_certificate
        found = policy.for_websocket(identity, has_own=has_own, shows_certificate=shows_certificate)
        if found is None:
            raise HttpError(403, "WebSockets through the proxy need a token or a password")
        return found

    async def _tunnel(self, exchange: Exchange, identity: Identity | None) -> None:
        """Relay bytes, until the client's credentials expire."""
        broker = exchange.upgraded
        assert broker is not None
        metrics = self._service.metrics
        metrics.tunnels += 1
        try:
            await broker.wire.send(self._client.take_rest())
            await self._wire.send(broker.take_rest())
            with trio.move_on_at(_ends_at(identity)):
                tunnel = Tunnel(patience_s=WEBSOCKET_PATIENCE_S)
                await relay(self._wire.stream, broker.wire.stream, metrics, tunnel)
        finally:
            metrics.tunnels -= 1

    # ---- the proxy's own responses ----

    async def _say(
        self, status: int, body: bytes, kind: bytes = JSON, headers: Sequence[Header] = ()
    ) -> None:
        given = [*headers]
        if status != NO_CONTENT:
            given += [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        with trio.move_on_after(BEFORE_ANSWER_S):
            await self._skip_body()
        out = self._client.answer(status, given) + self._client.part(body) + self._client.end()
        await self._wire.send(out)
        with trio.move_on_after(LAST_ANSWER_S):
            await self._skip_body()

    async def _skip_body(self) -> None:
        """Read the rest of an unwanted body, if short, so that the client gets the response."""
        skipped = 0
        if self._client.waits_for_continue:
            return
        while self._client.is_body_open and skipped < STASH_BYTES_MAX:
            skipped += len(getattr(await self._next_event(), "data", b""))

    async def _refuse(self, error: BadRequest) -> None:
        """Respond without h11, whose state may not allow it, and end the connection."""
        if self._client.answered:
            return
        body = _reason(error.reason)
        text = _PHRASES.get(error.status, b"Bad Request")
        lines = [
            b"HTTP/1.1 %d %s" % (error.status, text),
            b"Content-Type: " + JSON,
            b"Content-Length: %d" % len(body),
            b"Connection: close",
            b"",
            body,
        ]
        with trio.move_on_after(LAST_ANSWER_S):
            await self._wire.send(b"\r\n".join(lines))
            await self._linger()

    async def _linger(self) -> None:
        # Closing with unread bytes would reset the connection before the client reads.
        with trio.move_on_after(LAST_ANSWER_S):
            await self._wire.end_sending()
            for _ in range(16):
                if not await self._wire.receive():
                    return


def _origin(name: str, config: ProxyConfig, *, secure: bool) -> Origin:
    """How a request reached the proxy: by the configuration, not by the client's headers."""
    listen = config.listen
    host = listen.advertised_address
    port = listen.web_port_tls if secure else listen.web_port
    return Origin(
        address=name.rpartition(":")[0].strip("[]"),
        scheme="https" if secure else "http",
        server=host or listen.bind_address,
        host=str(Address(host, port)) if host and port else host,
        trusts_forwarded_for=config.web.trusts_forwarded_for,
    )


_PHRASES = {
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    505: b"HTTP Version Not Supported",
}


def _ends_at(identity: Identity | None) -> float:
    """When a WebSocket ends: at the expiry of the client's credentials."""
    if identity is None or identity.expires_at_s is None:
        return float("inf")
    return trio.current_time() + max(0.0, identity.expires_at_s - time.time())


def _reason(text: str) -> bytes:
    return msgspec.json.encode({"reason": text})


def _token(target: bytes) -> str:
    """The value of `?token=…`: browsers' WebSockets can't send headers. Raises HttpError 400 for
    two tokens: servers differ in which one they use.
    """
    if not target.startswith(WEBSOCKETS):
        return ""
    query = target.partition(b"?")[2].decode("latin-1")
    found = [value for name, value in parse_qsl(query) if name == "token"]
    if len(found) > 1:
        raise HttpError(400, "Bad request: more than one token")
    return found[0] if found else ""


def _check_method(method: bytes) -> None:
    """Raises HttpError 405. Letters of the other case count as another method (RFC 9110, 9.1)."""
    if method not in METHODS:
        raise HttpError(405, "Method not allowed", ((b"allow", b", ".join(METHODS)),))


def _check_path(path: bytes) -> None:
    """Raises HttpError 400 for a path that servers normalise differently, 404 for a page of
    brokers that is not for clients.

    A broker decodes and normalises a path by its own rules: `/%6detrics/`, `//metrics` and
    `/x/..;/metrics` are one page to Apache's Jetty. So the path is checked in decoded form.
    """
    decoded = unquote_to_bytes(path)
    if any(byte < 0x20 or byte == 0x7F for byte in decoded):
        raise HttpError(400, "Bad request: a control character in the path")
    # To Jetty, a semicolon begins a parameter, which is not part of the name.
    parts = [part.partition(b";")[0] for part in decoded.replace(b"\\", b"/").split(b"/")]
    if any(part in _DOTS for part in parts):
        raise HttpError(400, "Bad request: the path is not normalised")
    first = next((part for part in parts if part), b"")
    if first.lower() in NOT_PASSED_ON:
        raise HttpError(404, "Not found")
