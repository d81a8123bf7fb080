"""The HTTP side on hypercorn's Trio worker (spec OP-03)."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from geminga_runtime.errors import BindFailed

if TYPE_CHECKING:
    from starlette.types import ASGIApp

BACKLOG = 256
REQUEST_BYTES_MAX = 1 << 20
DRAIN_S = 0.5
"""How long requests that are under way may take when the broker stops."""


def bind_web(host: str, port: int) -> socket.socket:
    """A socket that takes connections; they wait until `serve_web` runs. Raises BindFailed."""
    family, kind, protocol, _, address = _resolve(host, port)
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise BindFailed(f"can't listen on {host}:{port}: {error.strerror or error}") from error
    return sock


def _resolve(
    host: str, port: int
) -> tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[object, ...]]:
    try:
        return socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise BindFailed(f"can't listen on {host}:{port}: {error.strerror or error}") from error


async def serve_web(
    app: ASGIApp,
    sock: socket.socket,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled. The socket is used up: hypercorn owns and closes it."""
    config = Config()
    config.bind = [f"fd://{sock.detach()}"]  # hypercorn closes it from now on
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = DRAIN_S
    config.shutdown_timeout = DRAIN_S
    config.include_server_header = False
    config.h11_max_incomplete_size = 1 << 16
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, app, config))  # type: ignore[arg-type]
        task_status.started()
