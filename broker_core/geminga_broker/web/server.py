"""Listens on the web ports, with and without TLS (spec OP-03, PX-24)."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from geminga_broker.web import settings
from geminga_broker.web.connection import Connection
from geminga_broker.web.settings import WebSettings
from geminga_broker.websocket.settings import WebSocketSettings
from geminga_runtime.listening import listen_on
from geminga_runtime.server import ConnectionCount, serve
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts

if TYPE_CHECKING:
    from starlette.types import ASGIApp

BACKLOG = 256
CONNECTIONS_MAX = 2048
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
    proxy_header: bool = False,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, without TLS on `sock` and those beside it, with it on `secure_sock`
    and those beside it. The sockets are closed at the end. The scope has the client's certificate,
    see `TLS_PEER_CERTIFICATE`; with `proxy_header` its client's address may come from a load
    balancer (`geminga_runtime.server.serve`).
    """
    count = connections or ConnectionCount(CONNECTIONS_MAX)
    served = _Served(app, _settings_of(websockets))
    plain = [each for each in (sock, *beside) if each is not None]
    secure = [each for each in (secure_sock, *secure_beside) if each is not None]
    async with trio.open_nursery() as nursery:
        for sockets, contexts in ((plain, None), (secure, tls)):
            if not sockets:
                continue
            host, port = sockets[0].getsockname()[:2]
            listening = partial(
                serve,
                partial(served.connection, (host, port)),
                sockets=sockets,
                connections_max=count,
                drain_s=DRAIN_S,
                tls=contexts,
                proxy_header=proxy_header,
            )
            await nursery.start(listening)
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            served.stop()


def _settings_of(websockets: WebSocketSettings) -> WebSettings:
    idle_ms, ping_s = websockets.idle_timeout_ms, websockets.ping_interval_s
    return WebSettings(
        idle_s=settings.IDLE_S,
        text_bytes_max=websockets.text_bytes_max,
        socket_send_s=idle_ms / 1000 if idle_ms > 0 else math.inf,
        ping_interval_s=ping_s if ping_s > 0 else math.inf,
    )


class _Served:
    """The open connections of a server."""

    def __init__(self, app: ASGIApp, web_settings: WebSettings) -> None:
        self._app = app
        self._settings = web_settings
        self._open: set[Connection] = set()
        self._is_stopping = False

    async def connection(self, server: tuple[str, int], stream: FramedStream) -> None:
        """Serve one until it ends."""
        made = Connection(self._app, stream, self._settings, server)
        with self._counted(made):
            await made.run()

    @contextmanager
    def _counted(self, made: Connection) -> Iterator[None]:
        self._open.add(made)
        if self._is_stopping:
            made.stop()
        try:
            yield
        finally:
            self._open.discard(made)

    def stop(self) -> None:
        """Close idle connections now, the others after their answers."""
        self._is_stopping = True
        for each in self._open:
            each.stop()
