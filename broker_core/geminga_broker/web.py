"""The HTTP side on hypercorn's Trio worker (spec OP-03)."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

import trio
from hypercorn.trio import serve
from starlette.responses import PlainTextResponse

from geminga_broker.web_connection import BoundedConfig
from geminga_broker.websocket.settings import WebSocketSettings
from geminga_runtime.listening import listen_on
from geminga_runtime.server import HANDSHAKE_TIMEOUT_S, ConnectionCount
from geminga_runtime.tls import TlsContexts, peer_certificate, tls_reason

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_log = logging.getLogger(__name__)

TLS_PEER_CERTIFICATE = "geminga.tls_peer_certificate"
"""Scope key of requests over TLS: the client's verified certificate (DER), or None."""

BACKLOG = 256
CONNECTIONS_MAX = 2048
REQUEST_BYTES_MAX = 1 << 20
PATH_BYTES_MAX = 16 * 1024
"""Escaped; the longest names fit. Each route's pattern looks at all of it."""
IDLE_S = 30
"""Time without a request after which a connection is closed: Jetty's, so Apache's brokers'."""
DRAIN_S = 0.5
"""Time for running requests when the broker stops."""


def bind_web(host: str, port: int, key: str = "") -> socket.socket:
    """A listening socket; its connections wait until `serve_web` runs. `key` is the
    configuration's for the port. Raises BindFailed.
    """
    return listen_on(host, port, key, backlog=BACKLOG)


async def serve_web(
    app: ASGIApp,
    sock: socket.socket | None,
    secure_sock: socket.socket | None = None,
    tls: TlsContexts | None = None,
    websockets: WebSocketSettings = WebSocketSettings(),
    *,
    beside: Sequence[socket.socket] = (),
    secure_beside: Sequence[socket.socket] = (),
    connections: ConnectionCount | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, without TLS on `sock` and those beside it, with it on `secure_sock`
    and those beside it. Hypercorn owns and closes the sockets. The scope has the client's
    certificate, see `TLS_PEER_CERTIFICATE`.
    """
    config = _Config()
    config.connections = connections or ConnectionCount(CONNECTIONS_MAX)
    plain = [f"fd://{each.detach()}" for each in (sock, *beside) if each is not None]
    secure = [f"fd://{each.detach()}" for each in (secure_sock, *secure_beside) if each is not None]
    config.tls = tls if secure else None
    # Hypercorn uses `bind` for TLS if there is a context, otherwise for plaintext.
    config.bind, config.insecure_bind = (secure, plain) if secure else (plain, [])
    config.accesslog = None
    config.errorlog = None
    config.keep_alive_timeout = IDLE_S
    config.graceful_timeout = DRAIN_S
    config.shutdown_timeout = DRAIN_S
    config.ssl_handshake_timeout = HANDSHAKE_TIMEOUT_S
    config.include_server_header = False
    config.h11_max_incomplete_size = 1 << 16
    config.websocket_max_message_size = websockets.text_bytes_max
    if websockets.idle_timeout_ms > 0:
        config.websocket_send_s = websockets.idle_timeout_ms / 1000
    if websockets.ping_interval_s > 0:
        config.websocket_ping_interval = websockets.ping_interval_s
    async with trio.open_nursery() as nursery:
        bounded = with_bounded_path(with_tls_peer(app))
        # hypercorn has types of its own for ASGI's messages, which other libraries' don't match.
        await nursery.start(partial(serve, bounded, config))  # type: ignore[arg-type]
        task_status.started()


_TOO_LONG = PlainTextResponse("The path is too long", 414)


def with_bounded_path(app: ASGIApp) -> ASGIApp:
    """The application without requests whose path is too long."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        is_long = scope["type"] == "http" and len(scope["raw_path"]) > PATH_BYTES_MAX
        if not is_long and scope["type"] == "http" and scope["raw_path"][:1] != b"/":
            scope = _in_origin_form(scope)
        await (_TOO_LONG if is_long else app)(scope, receive, send)

    return wrapped


def _in_origin_form(scope: Scope) -> Scope:
    """A request that names its server too, as those to a proxy do (RFC 9112, 3.2.2)."""
    scheme, _, rest = scope["raw_path"].partition(b"://")
    if scheme.lower() not in (b"http", b"https"):
        return scope
    path = b"/" + rest.partition(b"/")[2]
    return dict(scope, raw_path=path, path=unquote(path.decode("ascii")))


def with_tls_peer(app: ASGIApp) -> ASGIApp:
    """The application with the client's certificate in its scope."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        tls = _connection.get()
        if tls is not None:
            scope[TLS_PEER_CERTIFICATE] = peer_certificate(tls)
        await app(scope, receive, send)

    return wrapped


_connection: ContextVar[ssl.SSLObject | None] = ContextVar("tls_connection", default=None)
"""TLS object of the current connection: a connection's task is started right after its TLS object
was created, and inherits the variable.
"""


class _Config(BoundedConfig):
    """Hypercorn's settings with our contexts, which follow changes of the files."""

    tls: TlsContexts | None = None

    @property
    def ssl_enabled(self) -> bool:
        return self.tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return None if self.tls is None else cast(ssl.SSLContext, _ContextOfNow(self.tls))


class _ContextOfNow:
    """The part of an SSL context that Trio uses: creates a connection's TLS object."""

    def __init__(self, tls: TlsContexts) -> None:
        self._tls = tls

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> ssl.SSLObject:
        context = self._tls.current()
        context.sslobject_class = _TlsObject
        made = context.wrap_bio(incoming, outgoing, server_side, server_hostname)
        _connection.set(made)
        return made


class _TlsObject(ssl.SSLObject):
    """Logs why a handshake failed, which hypercorn doesn't."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLEOFError):
            raise
        except ssl.SSLError as error:
            _log.warning("TLS handshake on the web port failed: %s", tls_reason(error))
            raise
