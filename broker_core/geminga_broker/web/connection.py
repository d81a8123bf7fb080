"""One connection of the web port: request after request (spec OP-03, PX-24; RFC 9112)."""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import unquote

import trio

from geminga_broker.web import answers
from geminga_broker.web.exchange import ClientGone, Exchange
from geminga_broker.web.requests import TARGET_BYTES_MAX, BadRequest, Request
from geminga_broker.web.settings import TLS_PEER_CERTIFICATE, WHOLE_BODY, WebSettings
from geminga_broker.web.wire import Wire
from geminga_runtime.stream import FramedStream

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

_log = logging.getLogger(__name__)

REST_BYTES_MAX = 1 << 20
"""Bytes of a request that are read after its answer; the connection closes when more come."""
LINGER_S = 0.5
"""Time for a client that still sends to take the last answer: to close while bytes of it are unread
makes the system reset the connection, and the answer may be lost (RFC 9112, 9.6).
"""
SOCKETS = "geminga_broker.web.sockets"
_ASGI = {"version": "3.0", "spec_version": "2.4"}


class Connection:
    """Serves an application to one client. `stop` ends it when it has answered."""

    def __init__(
        self, app: ASGIApp, stream: FramedStream, settings: WebSettings, server: tuple[str, int]
    ) -> None:
        self._app = app
        self._settings = settings
        self._wire = Wire(stream)
        self._stream = stream
        self._stopping = trio.Event()
        self._idle: trio.CancelScope | None = None
        """Around what waits now for the client's next bytes, and nothing else."""
        host, _, port = stream.name.rpartition(":")
        client = (host.strip("[]"), int(port)) if port.isdigit() else None
        self._common: Scope = {
            "asgi": _ASGI,
            "client": client,
            "server": server,
            "root_path": "",
        }
        if stream.is_secure:
            self._common[TLS_PEER_CERTIFICATE] = stream.peer_certificate

    def stop(self) -> None:
        """Close it if it is idle, else after the answer that is being made."""
        self._stopping.set()
        if self._idle is not None:
            self._idle.cancel()

    @property
    def _is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def run(self) -> None:
        """Serve until one side ends it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stream.run_writer)
            try:
                await self._serve()
            finally:
                nursery.cancel_scope.cancel()

    async def _serve(self) -> None:
        is_over = False
        while not is_over:
            is_over = True  # so after an idle time
            with trio.CancelScope() as waits:
                is_over = await self._serve_within(waits)

    async def _serve_within(self, waits: trio.CancelScope) -> bool:
        """Serve request after request; `waits` has a deadline while one is waited for: a scope for
        each would cost more. False if it was cancelled too late: another scope is needed.
        """
        wire = self._wire
        reader = wire.reader
        while True:
            if not reader.ready:
                if not await self._next_comes(waits):
                    break
                if waits.cancel_called:
                    return False
            request = reader.ready.popleft()
            if reader.upgraded is not None and not reader.ready:
                await self._upgraded(request)
                return True
            exchange = Exchange(wire, request, is_last=request.is_last or self._is_stopping)
            await self._answer(request, exchange)
            if exchange.is_last or wire.is_gone or self._is_stopping:
                await self._end(exchange)
                return True
            if not request.is_complete and not await self._rest_of(request):
                await self._linger()
                return True
            if reader.ready:
                await trio.lowlevel.checkpoint()  # sent ahead: others have a turn too
        if reader.failed is not None:
            await self._refuse(reader.failed)
        return True

    async def _upgraded(self, request: Request) -> None:
        """Serve the WebSocket that the connection is now. What frames need is imported with the
        first one: few brokers have any.
        """
        await trio.to_thread.run_sync(import_module, SOCKETS)
        from geminga_broker.web.sockets import serve_socket

        scope = self._scope(request, "websocket")
        await serve_socket(
            *(self._app, scope, self._wire, request, self._settings), stopping=self._stopping
        )

    async def _next_comes(self, waits: trio.CancelScope) -> bool:
        """Wait for a request's head, which cancels `waits` if it takes too long."""
        wire = self._wire
        waits.deadline = trio.current_time() + self._settings.idle_s
        self._idle = waits
        try:
            while not wire.reader.ready and not self._is_stopping:
                if not await wire.read_more():
                    break
        finally:
            self._idle = None
            waits.deadline = math.inf
        return bool(wire.reader.ready)

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        if len(request.target) > TARGET_BYTES_MAX:
            # HEAD expects no body: its client would take that for the next answer.
            exchange.is_last |= request.method == "HEAD"
            await self._say(HTTPStatus.REQUEST_URI_TOO_LONG, "The path is too long", exchange)
            return
        try:
            scope = self._scope(request, "http")
            scope[WHOLE_BODY] = exchange.whole_body
            await self._app(scope, exchange.receive, exchange.send)
        except ClientGone:
            has_failed = True
        except Exception:
            if not exchange.is_complete:
                _log.exception("a request on the web port failed")
            has_failed = True
        else:
            has_failed = not exchange.is_started
        if exchange.has_begun or not has_failed:
            await exchange.end()
        elif not self._wire.is_gone and not self._wire.reader.failed:
            await exchange.fail()

    async def _say(self, status: HTTPStatus, text: str, exchange: Exchange) -> None:
        exchange.is_complete = exchange.has_begun = True
        await self._wire.send(answers.whole(status, text, is_last=exchange.is_last), b"")

    def _scope(self, request: Request, kind: str) -> Scope:
        target = request.target
        if target[:1] != b"/":
            target = _in_origin_form(target)
        path, _, query = target.partition(b"?")
        is_socket = kind == "websocket"
        scheme = "ws" if is_socket else "http"
        text = path.decode("ascii")
        return {
            **self._common,
            "type": kind,
            "http_version": request.version,
            "method": request.method,
            "scheme": scheme + "s" if self._stream.is_secure else scheme,
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "headers": request.headers,
            "extensions": {"websocket.http.response": {}} if is_socket else {},
        }

    async def _rest_of(self, request: Request) -> bool:
        """Read what comes of a request after its answer: else the client's next one would be lost,
        for nothing has told it that the connection ends. Its time is that of an idle connection.
        """
        left = REST_BYTES_MAX
        with trio.move_on_after(self._settings.idle_s) as self._idle:
            while not request.is_complete and left >= 0:
                left -= len(request.taken())
                if left >= 0 and (self._is_stopping or not await self._wire.read_more()):
                    break
        self._idle = None
        return request.is_complete and left >= 0

    async def _end(self, exchange: Exchange) -> None:
        """After the last answer, or in its place if the rest of the request can't be read."""
        failed = self._wire.reader.failed
        if failed is not None and not exchange.is_started:
            await self._refuse(failed)
        elif not (exchange.has_all and self._stream.is_secure):
            await self._linger()
        # By TLS a client that waits for the end would wait as long: only the close tells it.

    async def _refuse(self, refused: BadRequest) -> None:
        _log.debug("%s sent no request: %s", self._stream.name, refused)
        await self._wire.send(answers.whole(refused.status, refused.reason, is_last=True), b"")
        await self._linger()

    async def _linger(self) -> None:
        self._stream.end_sending()
        with trio.move_on_after(LINGER_S):
            await self._wire.ended()


def _in_origin_form(target: bytes) -> bytes:
    """A target that names its server too, as those to a proxy do (RFC 9112, 3.2.2)."""
    scheme, _, rest = target.partition(b"://")
    if scheme.lower() not in (b"http", b"https"):
        return target
    return b"/" + rest.partition(b"/")[2]
