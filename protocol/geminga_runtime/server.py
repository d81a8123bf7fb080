"""Accepting connections, with a bound on their number and a drain at the end."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import trio

from geminga_protocol.proxy_header import PEEK_BYTES, ProxyHeaderError, ProxyHeaderReader
from geminga_runtime.errors import BindFailed, ConnectionLost
from geminga_runtime.host_port import host_port
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts
from geminga_runtime.tls_stream import TlsStream

_log = logging.getLogger(__name__)

Handler = Callable[[FramedStream], Awaitable[object]]

CONNECTIONS_MAX = 50_000
HANDSHAKE_TIMEOUT_S = 10.0
"""Time for the PROXY header and the TLS handshake; the client counts as a connection meanwhile.
"""


class ConnectionCount:
    """Counts open connections of one listener, or of several that share it."""

    def __init__(self, connections_max: int, per_ip_max: int = 0) -> None:
        """`per_ip_max` 0 means no limit."""
        self.connections_max = connections_max
        self.per_ip_max = per_ip_max
        self.open = 0
        self.rejected = 0
        self._refusing = False
        self._by_ip: Counter[str] = Counter()

    @contextmanager
    def one_more(self) -> Iterator[bool]:
        """Count a connection while the context is open; yields whether there is room for it."""
        if self.open >= self.connections_max:
            if not self._refusing:
                self._refusing = True
                _log.warning("refusing connections: %d are open", self.open)
            self.rejected += 1
            yield False
            return
        self._refusing = False
        self.open += 1
        try:
            yield True
        finally:
            self.open -= 1

    @contextmanager
    def one_more_of(self, name: str) -> Iterator[bool]:
        """As `one_more`, for the connections of this peer's address."""
        if not self.per_ip_max:
            yield True
            return
        ip = name.rpartition(":")[0]
        if self._by_ip[ip] >= self.per_ip_max:
            self.rejected += 1
            _log.debug("refusing %s: %d connections from its address", name, self._by_ip[ip])
            yield False
            return
        self._by_ip[ip] += 1
        try:
            yield True
        finally:
            self._by_ip[ip] -= 1
            if not self._by_ip[ip]:
                del self._by_ip[ip]


class Bound(NamedTuple):
    """An address that is listened on."""

    host: str
    port: int


async def serve(
    handler: Handler,
    *,
    host: str = "",
    port: int = 0,
    sockets: Sequence[socket.socket] = (),
    key: str = "",
    connections_max: int | ConnectionCount = CONNECTIONS_MAX,
    drain_s: float = 0.0,
    tls: TlsContexts | None = None,
    proxy_header: bool = False,
    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
    task_status: trio.TaskStatus[list[Bound]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run `handler(stream)` for each connection until cancelled; reports the bound addresses.

    The handler starts the stream's `run_writer`; the stream is closed when the handler returns.
    ConnectionLost ends a handler quietly; any other error is logged and ends that connection only.
    Connections over `connections_max` are closed at once; listeners with the same ConnectionCount
    share the bound. Port 0 takes a free port; `key` is the configuration's for the port. Sockets
    that listen already may be given instead; they are closed at the end. Without free file
    descriptors, accepting is retried (by trio.serve_listeners). With `tls` all
    connections use TLS; a failed or slow handshake ends them. With `proxy_header` a connection may
    begin with a PROXY header, before TLS or in it, whose address becomes the stream's name.

    When cancelled, it stops accepting at once and gives the handlers `drain_s` seconds to end.
    Raises BindFailed.
    """
    listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in sockets]
    try:
        listeners = listeners or list(await trio.open_tcp_listeners(port, host=host))
    except OSError as error:
        raise BindFailed.of(key, host, port, error) from error
    opening = _Opening(tls, proxy_header, handshake_timeout_s)
    connections = _Connections(handler, connections_max, opening)
    async with trio.open_nursery() as outer:
        scope, nursery, stop = await outer.start(_run_handlers)
        task_status.started([_bound(listener) for listener in listeners])
        try:
            await trio.serve_listeners(connections.run, listeners, handler_nursery=nursery)
        finally:
            scope.deadline = trio.current_time() + drain_s
            stop.set()


async def check_free(*places: tuple[str, int, str]) -> None:
    """Raises BindFailed if not all of (host, port, key) can be listened on now; for a server that
    leaves something behind before it does.
    """
    listeners: list[trio.SocketListener] = []
    try:
        for host, port, key in places:  # held meanwhile: two of them may be one
            try:
                listeners += await trio.open_tcp_listeners(port, host=host)
            except OSError as error:
                raise BindFailed.of(key, host, port, error) from error
    finally:
        for listener in listeners:
            listener.socket.close()


async def _run_handlers(
    task_status: trio.TaskStatus[tuple[trio.CancelScope, trio.Nursery, trio.Event]],
) -> None:
    """Shield the handlers from the server's cancellation; the drain's deadline ends them."""
    stop = trio.Event()
    with trio.CancelScope(shield=True) as scope:
        async with trio.open_nursery() as nursery:
            task_status.started((scope, nursery, stop))
            await stop.wait()


def _bound(listener: trio.SocketListener) -> Bound:
    host, port = listener.socket.getsockname()[:2]
    return Bound(str(host), int(port))


_Opened = trio.SocketStream | TlsStream


class _Opening:
    """The start of a connection, before its first frame: PROXY header and TLS."""

    def __init__(
        self, tls: TlsContexts | None, proxy_header: bool, handshake_timeout_s: float
    ) -> None:
        self._tls = tls
        self._proxy_header = proxy_header
        self._handshake_timeout_s = handshake_timeout_s

    @property
    def reads_header_in_tls(self) -> bool:
        """Whether a PROXY header may come inside TLS."""
        return self._proxy_header and self._tls is not None

    async def peer_name(self, stream: trio.SocketStream) -> str | None:
        """The peer's address; None if the connection must not be served."""
        name = _peer_name(stream)
        if not self._proxy_header:
            return name
        return await self._named(name, partial(_read_proxy_header, stream))

    async def peer_name_in_tls(self, stream: TlsStream, name: str) -> str | None:
        """As `peer_name`, by a header inside TLS, where Apache's brokers expect it."""
        return await self._named(name, partial(_read_proxy_header_in_tls, stream))

    async def _named(self, name: str, read: Callable[[], Awaitable[str | None]]) -> str | None:
        reason = f"not done within {self._handshake_timeout_s:g} s"
        with trio.move_on_after(self._handshake_timeout_s):
            try:
                source = await read()
            except EOFError:  # a load balancer's health check
                return None
            except (ProxyHeaderError, OSError) as error:
                reason = str(error)
            else:
                return name if source is None else source
        _log.warning("PROXY header of %s: %s", name, reason)
        return None

    async def secured(self, stream: trio.SocketStream, name: str) -> _Opened | None:
        """The stream, with TLS if configured; None if the handshake failed."""
        if self._tls is None:
            return stream
        secured = TlsStream(stream, self._tls.current(), server_side=True)
        reason = f"not done within {self._handshake_timeout_s:g} s"
        try:
            with trio.move_on_after(self._handshake_timeout_s):
                await secured.do_handshake()
                return secured
        except OSError as error:
            reason = str(error)
            if not secured.has_heard:  # a load balancer's health check
                secured.close()
                return None
        except BaseException:
            secured.close()
            raise
        secured.close()
        _log.warning("TLS handshake with %s failed: %s", name, reason)
        return None


async def _read_proxy_header(stream: trio.SocketStream) -> str | None:
    """The address in the header, None without one; reads no byte beyond the header.

    Raises ProxyHeaderError, EOFError, OSError.
    """
    reader = ProxyHeaderReader()
    while not reader.done:
        data = await stream.socket.recv(PEEK_BYTES, socket.MSG_PEEK)
        if not data:
            raise EOFError
        if taken := reader.feed(data):
            await stream.socket.recv(taken)
    if reader.unused:
        raise ProxyHeaderError("starts like a PROXY header but is not one")
    return None if reader.source is None else str(reader.source)


async def _read_proxy_header_in_tls(stream: TlsStream) -> str | None:
    reader = ProxyHeaderReader()
    rest = b""
    while not reader.done:
        data = await stream.receive_some()
        if not data:
            raise EOFError
        rest = data[reader.feed(data) :]
    stream.give_back(reader.unused + rest)
    return None if reader.source is None else str(reader.source)


class _Connections:
    """Counts connections, and keeps the errors of one from the others."""

    def __init__(
        self, handler: Handler, connections_max: int | ConnectionCount, opening: _Opening
    ) -> None:
        self._handler = handler
        if isinstance(connections_max, int):
            connections_max = ConnectionCount(connections_max)
        self._count = connections_max
        self._opening = opening

    async def run(self, stream: trio.SocketStream) -> None:
        with self._count.one_more() as has_room:
            if has_room:
                await self._open(stream)

    async def _open(self, stream: trio.SocketStream) -> None:
        opening = self._opening
        name = await opening.peer_name(stream)
        if name is None:
            return
        if opening.reads_header_in_tls:
            secured = await opening.secured(stream, name)
            named = None
            if isinstance(secured, TlsStream):
                named = await opening.peer_name_in_tls(secured, name)
            if secured is not None and named is not None:
                with self._count.one_more_of(named) as has_room:
                    if has_room:
                        await self._run_one(FramedStream(secured, name=named))
            return
        with self._count.one_more_of(name) as has_room:
            secured = await opening.secured(stream, name) if has_room else None
            if secured is not None:
                await self._run_one(FramedStream(secured, name=name))

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
    except OSError:  # reset before it was accepted
        return "unknown peer"
    return host_port(host, port)
