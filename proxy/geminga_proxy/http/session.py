"""One client's HTTP connection: request after request, each authenticated, then handed on (spec
PX-06).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import msgspec
import trio

from geminga_proxy.addresses import Address
from geminga_proxy.config import ProxyConfig
from geminga_proxy.http.client_side import BodyEnd, ClientSide, Event, Gone, RequestHead
from geminga_proxy.http.errors import BadRequest, ExchangeBroken, HttpError
from geminga_proxy.http.exchange import Exchange, Outbound, RequestBody
from geminga_proxy.http.headers import (
    Credentials,
    Header,
    Origin,
    has_authorization,
    is_websocket,
    to_broker,
)
from geminga_proxy.http.own_pages import METRICS_TYPE, is_up, metrics_text
from geminga_proxy.http.paths import check_method, check_path
from geminga_proxy.http.wire import Wire
from geminga_proxy.relay import relay
from geminga_runtime.auth.api import AuthenticationFailed, HttpRequest, Identity, Peer
from geminga_runtime.stream import FramedStream

if TYPE_CHECKING:
    from geminga_proxy.http.server import Web

_log = logging.getLogger(__name__)
_access = logging.getLogger("geminga.proxy.access")

HEAD_S = 30.0
"""How long a request's head may take from its first byte on."""
BODY_S = 30.0
"""How long a body may be waited for, beside a second for each `BODY_BYTES_PER_S`."""
BODY_BYTES_PER_S = 1024
IDLE_S = 60.0
"""How long a connection may stay without a request."""
LAST_ANSWER_S = 1.0
STASH_BYTES_MAX = 64 * 1024
WEBSOCKETS = b"/ws/"
_JSON = b"application/json"


class HttpSession:
    """A client's connection. `secure` tells whether it came by TLS."""

    def __init__(self, framed: FramedStream, wire: Wire, web: Web, *, secure: bool) -> None:
        self._wire = wire
        self._web = web
        self._service = web.service
        self._client = ClientSide(web.config.web.head_bytes_max)
        certificate = framed.peer_certificate
        self._peer = Peer(wire.name, certificate.der if certificate else None)
        self._body_waited_s = 0.0
        self._body_bytes = 0
        self._origin = _origin(wire.name, web.config, secure=secure)

    async def run(self) -> None:
        """Until the client leaves, or must go. The stream is the caller's to close."""
        try:
            while (request := await self._next_request()) is not None:
                await self._serve(request)
                if not self._client.can_go_on or self._web.is_draining:
                    return
                self._client.go_on()
        except BadRequest as error:
            _log.warning("address=%s %s", self._wire.name, error)
            await self._refuse(error)
        except ExchangeBroken:
            return

    async def _next_request(self) -> RequestHead | None:
        """None when there will be none. Raises BadRequest."""
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
                # Only while nothing has come a drain may end it.
                with self._web.idle(scope):
                    self._client.feed(await self._wire.receive())
                if self._client.has_begun():
                    scope.deadline = trio.current_time() + HEAD_S
        if self._client.has_begun():
            raise BadRequest("The request did not come in time", 408)
        return None

    async def _next_event(self) -> Event:
        """Of the body. Raises BadRequest, ConnectionLost."""
        while (event := self._client.next_event()) is None:
            self._client.feed(await self._receive_body())
            if self._client.stashed_bytes > STASH_BYTES_MAX:
                raise BadRequest("Too many requests wait for answers")
        return event

    async def _receive_body(self) -> bytes:
        """Raises BadRequest for a client that is slower than `BODY_S` and `BODY_BYTES_PER_S` allow,
        ConnectionLost. The time that the proxy doesn't read doesn't count.
        """
        began_s = trio.current_time()
        left_s = BODY_S + self._body_bytes / BODY_BYTES_PER_S - self._body_waited_s
        if self._client.waits_for_continue:
            left_s = float("inf")  # it is the broker's turn
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
            await self._answer(request)
        except BadRequest:
            raise
        except HttpError as error:
            status = error.status
            if self._client.answered:
                raise ExchangeBroken(str(error)) from error
            await self._say(error.status, _reason(error.reason), headers=error.headers)
        finally:
            self._web.requests += 1
            if self._web.config.listen.log_level > 0:
                path = request.target.partition(b"?")[0].decode("latin-1")
                method = request.method.decode("ascii", "replace")
                _access.info("%s %s %s %s", self._wire.name, method, path, status or "passed on")

    async def _answer(self, request: RequestHead) -> None:
        path = request.target.partition(b"?")[0]
        if request.method == b"CONNECT":
            raise BadRequest("This is no forward proxy")
        check_method(request.method)
        if path == b"/status.html":
            await self._status()
        elif path in (b"/metrics", b"/metrics/"):
            if self._web.config.web.authenticate_metrics:
                await self._identify(request)
            text = metrics_text(
                self._service.metrics, self._service.authenticator, self._web.requests
            )
            await self._say(200, text.encode(), METRICS_TYPE)
        else:
            identity = await self._identify(request)
            check_path(path)
            await self._pass_on(request, identity)

    async def _identify(self, request: RequestHead) -> Identity | None:
        """None if everybody is let in. Raises HttpError 401."""
        authenticator = self._service.authenticator
        if authenticator is None:
            return None
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers
        }
        token = _token(request.target)
        if token:
            headers["authorization"] = f"Bearer {token}"
        try:
            return await authenticator.authenticate_http(HttpRequest(headers, self._peer))
        except AuthenticationFailed as error:
            _log.warning("address=%s is not let in: %s", self._wire.name, error)
            raise HttpError(401, "Authentication required") from None

    async def _pass_on(self, request: RequestHead, identity: Identity | None) -> None:
        upgrade = request.target.startswith(WEBSOCKETS) and is_websocket(request)
        credentials = self._credentials(request, identity, upgrade=upgrade)
        target = request.target
        headers = to_broker(request, self._origin, credentials, upgrade=upgrade)
        timeout_s = self._web.config.brokers.http_timeout_ms / 1000
        outbound = Outbound(request, target, headers, timeout_s)
        body = RequestBody(
            self._next_event,
            self._service.kept,
            has_body=request.has_body,
            kept_bytes_max=self._web.config.web.replay_bytes_max,
        )
        upstreams = self._web.nameless if upgrade else self._web.upstreams
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
    ) -> Credentials:
        """What the broker is told. Raises HttpError 403.

        Apache's WebSocket service looks at the role that asks alone, not at the one in whose name
        it asks: so there the client speaks for itself, and the proxy never in its place.
        """
        brings = has_authorization(request) or bool(_token(request.target))
        if upgrade:
            by_certificate = identity is not None and identity.method == "tls"
            if not brings and (by_certificate or self._web.upstreams.shows_certificate):
                raise HttpError(403, "WebSockets through the proxy need a token or a password")
            return Credentials(role=identity.role if identity else None)
        if identity is None:
            return Credentials()
        own = self._service.brokers.credentials
        # A certificate can't be forwarded: the proxy stands in for clients that bring nothing else.
        forwards = self._web.config.client.forward_credentials and brings
        if forwards or not own.method:
            return Credentials(role=identity.role)
        return Credentials(replaces=True, authorization=own.header(), role=identity.role)

    async def _tunnel(self, exchange: Exchange, identity: Identity | None) -> None:
        """From here on bytes only; as long as the client's proof lasts."""
        broker = exchange.upgraded
        assert broker is not None
        metrics = self._service.metrics
        metrics.tunnels += 1
        try:
            await broker.wire.send(self._client.take_rest())
            await self._wire.send(broker.take_rest())
            with trio.move_on_at(_ends_at(identity)):
                await relay(self._wire.stream, broker.wire.stream, metrics)
        finally:
            metrics.tunnels -= 1

    # ---- answers of the proxy's own ----

    async def _status(self) -> None:
        if is_up(self._web.config.web.status_file):
            await self._say(200, b"OK", b"text/plain")
        else:
            raise HttpError(404, "The status file is not there")

    async def _say(
        self, status: int, body: bytes, kind: bytes = _JSON, headers: Sequence[Header] = ()
    ) -> None:
        given = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *headers]
        out = self._client.answer(status, given) + self._client.part(body) + self._client.end()
        await self._wire.send(out)
        with trio.move_on_after(LAST_ANSWER_S):
            await self._skip_body()

    async def _skip_body(self) -> None:
        """What little is left of a body that nobody wants, so that the client reads its answer."""
        skipped = 0
        if self._client.waits_for_continue:
            return
        while not self._client.can_go_on and skipped < STASH_BYTES_MAX:
            if isinstance(event := await self._next_event(), BodyEnd):
                return
            skipped += len(getattr(event, "data", b""))

    async def _refuse(self, error: BadRequest) -> None:
        """Answer, past h11, which may be in no state to, and leave."""
        if self._client.answered:
            return
        body = _reason(error.reason)
        text = _PHRASES.get(error.status, b"Bad Request")
        lines = [
            b"HTTP/1.1 %d %s" % (error.status, text),
            b"Content-Type: " + _JSON,
            b"Content-Length: %d" % len(body),
            b"Connection: close",
            b"",
            body,
        ]
        with trio.move_on_after(LAST_ANSWER_S):
            await self._wire.send(b"\r\n".join(lines))
            # Closed with bytes unread, the connection would be reset before the answer is read.
            await self._wire.end_sending()
            for _ in range(16):
                if not await self._wire.receive():
                    return


def _origin(name: str, config: ProxyConfig, *, secure: bool) -> Origin:
    """What brokers are told of a client's way: the configuration's words, not the client's."""
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
    """When a WebSocket must end because the client's proof does."""
    if identity is None or identity.expires_at_s is None:
        return float("inf")
    return trio.current_time() + max(0.0, identity.expires_at_s - time.time())


def _reason(text: str) -> bytes:
    return msgspec.json.encode({"reason": text})


def _token(target: bytes) -> str:
    """Of `?token=…`, for browsers, whose WebSockets can't send headers. Raises HttpError 400 for
    two: servers differ in which one counts.
    """
    if not target.startswith(WEBSOCKETS):
        return ""
    query = target.partition(b"?")[2].decode("latin-1")
    found = [value for name, value in parse_qsl(query) if name == "token"]
    if len(found) > 1:
        raise HttpError(400, "Bad request: more than one token")
    return found[0] if found else ""
