"""Accepting connections: `serve` with a bound on connections and a drain at the end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from geminga_runtime.errors import BindFailed, ConnectionLost
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts
from geminga_runtime.tls_stream import TlsStream

_log = logging.getLogger(__name__)

Handler = Callable[[FramedStream], Awaitable[object]]

CONNECTIONS_MAX = 50_000
HANDSHAKE_TIMEOUT_S = 10.0
"""How long a client may take for the TLS handshake; it counts as a connection meanwhile."""


class ConnectionCount:
    """Connections that are open, of one listener or of several that share it."""

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self.open = 0
        self.refusing = False


class Bound(NamedTuple):
    """An address that is being served."""

    host: str
    port: int


async def serve(
    handler: Handler,
    *,
    host: str,
    port: int,
    connections_max: int | ConnectionCount = CONNECTIONS_MAX,
    drain_s: float = 0.0,
    tls: TlsContexts | None = None,
    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
    task_status: trio.TaskStatus[list[Bound]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run `handler(stream)` for each connection until cancelled; reports where it listens.

    The handler starts the stream's `run_writer`; the stream is closed when it returns.
    ConnectionLost ends a handler quietly, any other error is logged and ends that connection
    only. Connections over `connections_max` are closed at once; listeners that are given the same
    ConnectionCount share the bound. Port 0 takes a free one. No file
    descriptors left: accepting is retried (trio.serve_listeners does). With `tls` all connections
    are by TLS; a handshake that fails or takes longer than its time ends them.

    Cancelled, it stops accepting at once and gives the handlers `drain_s` seconds to end. Raises
    BindFailed.
    """
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise BindFailed(f"can't listen on {host}:{port}: {error.strerror or error}") from error
    connections = _Connections(handler, connections_max, tls, handshake_timeout_s)
    async with trio.open_nursery() as outer:
        scope, nursery, stop = await outer.start(_run_handlers)
        task_status.started([_bound(listener) for listener in listeners])
        try:
            await trio.serve_listeners(connections.run, listeners, handler_nursery=nursery)
        finally:
            scope.deadline = trio.current_time() + drain_s
            stop.set()


async def _run_handlers(
    task_status: trio.TaskStatus[tuple[trio.CancelScope, trio.Nursery, trio.Event]],
) -> None:
    """Hold the handlers where the server's own cancellation does not reach them, but the drain
    does.
    """
    stop = trio.Event()
    with trio.CancelScope(shield=True) as scope:
        async with trio.open_nursery() as nursery:
            task_status.started((scope, nursery, stop))
            await stop.wait()


def _bound(listener: trio.SocketListener) -> Bound:
    host, port = listener.socket.getsockname()[:2]
    return Bound(str(host), int(port))


class _Connections:
    """Counts what is open and keeps one connection's errors from the others."""

    def __init__(
        self,
        handler: Handler,
        connections_max: int | ConnectionCount,
        tls: TlsContexts | None,
        handshake_timeout_s: float,
    ) -> None:
        self._handler = handler
        if isinstance(connections_max, int):
            connections_max = ConnectionCount(connections_max)
        self._count = connections_max
        self._tls = tls
        self._handshake_timeout_s = handshake_timeout_s

    async def run(self, stream: trio.SocketStream) -> None:
        count = self._count
        if count.open >= count.connections_max:
            if not count.refusing:
                count.refusing = True
                _log.warning("refusing connections: %d are open", count.open)
            await trio.aclose_forcefully(stream)
            return
        count.refusing = False
        count.open += 1
        try:
            name = _peer_name(stream)
            secured = stream if self._tls is None else await self._shake_hands(stream, name)
            if secured is not None:
                await self._run_one(FramedStream(secured, name=name))
        finally:
            count.open -= 1

    async def _shake_hands(self, stream: trio.SocketStream, name: str) -> TlsStream | None:
        assert self._tls is not None
        secured = TlsStream(stream, self._tls.current(), server_side=True)
        reason = f"not done within {self._handshake_timeout_s:g} s"
        try:
            with trio.move_on_after(self._handshake_timeout_s):
                await secured.do_handshake()
                return secured
        except OSError as error:
            reason = str(error)
            if not secured.has_heard:  # a load balancer that looks whether we are there
                secured.close()
                return None
        except BaseException:
            secured.close()
            raise
        secured.close()
        _log.warning("TLS handshake with %s failed: %s", name, reason)
        return None

    async def _run_one(self, stream: FramedStream) -> None:
        try:
            await self._handler(stream)
        except* ConnectionLost as lost:
            _log.debug("%s", lost.exceptions[0])
        except* Exception as group:
            _log.error("connection %s failed", stream.name, exc_info=group)
        finally:
            await stream.aclose()


def _peer_name(stream: trio.SocketStream) -> str:
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:  # it was reset while it waited to be accepted
        return "unknown peer"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
